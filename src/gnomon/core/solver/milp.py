"""Minimise an energy with charges as a mixed-integer linear programme, with HiGHS.

Each choice is a binary variable. A pair of slots is modelled by the marginal (local) polytope: one variable for each
pair of choices, where the sums over the choices of one slot equal the variables of the other (Wainwright and Jordan,
2008, chapter 8). If all pairs of different choices cost the same, one variable for each choice is equally tight. Each
limit is a row.

HiGHS is loaded on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.solver.elimination import Energy
from gnomon.core.solver.limits import Cap
from gnomon.core.solver.prune import ScalarCharge, charged_value
from gnomon.core.solver.toulbar2 import minimise_toulbar2
from gnomon.errors import GnomonError

# HiGHS checks its own answer and reports a solver error if the answer exceeds the tolerance even slightly. The next
# tolerance is then tried.
_TOLERANCES = (1e-9, 1e-7, 1e-6)


@dataclass(slots=True)
class Programme:
    """A linear programme: columns and rows as flat lists."""

    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    row_start: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)

    def columns(self, cost: Floats, start: Floats) -> int:
        """Add columns from 0 to 1, fixed at 0 if their cost is infinite, and return the number of the first."""
        first = len(self.cost)
        forbidden = np.isinf(cost)
        self.cost += np.where(forbidden, 0.0, cost).ravel().tolist()
        self.upper += np.where(forbidden, 0.0, 1.0).ravel().tolist()
        self.start += start.ravel().tolist()
        return first

    def row(self, columns: Sequence[int], values: Sequence[float], lower: float, upper: float) -> None:
        """Bound the sum of these columns times these values."""
        self.index += columns
        self.value += values
        self.row_start.append(len(self.index))
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def slot(self, cost: Floats, start: Floats) -> int:
        """Add a binary column for each choice, exactly one of which is 1, and return the number of the first."""
        first = self.columns(cost, start)
        self.row(range(first, first + len(cost)), [1.0] * len(cost), 1.0, 1.0)
        return first

    def unlike(self, cost: Floats, firsts: tuple[int, int], chosen: tuple[Floats, Floats]) -> int:
        """Add a column for each choice; they sum to 1 if two slots choose differently. Returns the first's number.

        These columns are as tight as one column for each pair of choices if the costs of all pairs of different choices
        are equal and not negative.
        """
        column = self.columns(cost, np.maximum(chosen[0] - chosen[1], 0.0))
        for a in range(len(cost)):
            self.row([column + a, firsts[0] + a, firsts[1] + a], [1.0, -1.0, 1.0], 0.0, np.inf)
        return column

    def joint(self, cost: Floats, firsts: tuple[int, int], chosen: tuple[Floats, Floats]) -> int:
        """Add a column for each pair of choices; their sums over one slot's choices are the columns of the other slot.

        Returns the number of the first column.
        """
        left, right = cost.shape
        column = self.columns(cost, np.outer(*chosen))
        grid = np.arange(column, column + left * right).reshape(left, right)
        for a in range(left):
            self.row([*grid[a].tolist(), firsts[0] + a], [1.0] * right + [-1.0], 0.0, 0.0)
        for b in range(right):
            self.row([*grid[:, b].tolist(), firsts[1] + b], [1.0] * left + [-1.0], 0.0, 0.0)
        return column


def is_potts(costs: Floats) -> bool:
    """Return True if equal choices cost nothing and all pairs of different choices cost the same finite amount."""
    size = len(costs)
    if size < 2 or costs.shape[1] != size or not np.isfinite(costs[0, 1]) or costs.diagonal().any():
        return False
    return bool((costs[~np.eye(size, dtype=bool)] == costs[0, 1]).all())


def run_highs(
    programme: Programme, binaries: int, time_limit_s: float | None, *, started: bool
) -> tuple[str, Floats | None, float]:
    """Minimise a programme whose first `binaries` columns are integers.

    Returns the status of HiGHS ("optimal", "infeasible" or "limit"), the values of the columns or None, and the dual
    bound, which is the minimum itself if there are no integers. `started` is True if the programme's `start` is a
    solution.
    """
    import highspy

    lp = _highs_programme(programme, binaries)
    options: dict[str, bool | int | float] = {"mip_rel_gap": 0.0, "mip_abs_gap": 0.0}
    if time_limit_s is not None:
        options["time_limit"] = float(time_limit_s)
    if started:  # the heuristic seeks a first solution, and ignores the clock for seconds
        options["mip_heuristic_run_feasibility_jump"] = False
    statuses = highspy.HighsModelStatus

    def run(tolerance: float, **more: str | float) -> Any:
        names = ("mip_feasibility_tolerance", "primal_feasibility_tolerance", "dual_feasibility_tolerance")
        solver = _quiet_solver({**options, **dict.fromkeys(names, tolerance), **more})
        if solver.passModel(lp) == highspy.HighsStatus.kError:
            raise GnomonError("HiGHS refused the programme", hint="Report this problem as a defect.")
        if started:
            solution = highspy.HighsSolution()
            solution.col_value = list(programme.start)
            solver.setSolution(solution)
        solver.run()
        return solver

    for tolerance in _TOLERANCES:
        solver = run(tolerance)
        status = solver.getModelStatus()
        if status != statuses.kSolveError:
            break
    if status == statuses.kOptimal and started and not _is_its_own(solver, programme):
        left = {} if time_limit_s is None else {"time_limit": max(0.0, time_limit_s - solver.getRunTime())}
        again = run(tolerance, presolve="off", **left)
        # If the second run reached no optimum, the first run's bound still holds, and shows that the start is not
        # proved to be the best.
        solver = again if again.getModelStatus() == statuses.kOptimal else solver
    if status in (statuses.kInfeasible, statuses.kUnboundedOrInfeasible):
        return "infeasible", None, np.inf
    if status == statuses.kSolveError:  # its other results are then meaningless
        return "limit", None, -np.inf
    info = solver.getInfo()
    ended = "optimal" if status == statuses.kOptimal else "limit"
    dual = float(info.mip_dual_bound if binaries else info.objective_function_value)
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value) if feasible else None
    return ended, values, dual if np.isfinite(dual) else -np.inf


def _quiet_solver(options: Mapping[str, str | float]) -> Any:
    """An instance of HiGHS with these options; all instances in a process must have the same number of threads."""
    import highspy

    class Quiet(highspy.Highs):  # type: ignore[misc]
        """HiGHS without callbacks: setting them makes HiGHS 1.16 print a greeting to standard output.

        Programs may read gnomon's answers from there.
        """

        def enableCallbacks(self) -> None:
            """Do nothing: no callbacks are used."""

    solver = Quiet()
    for name, value in {"output_flag": False, "threads": 1, **options}.items():
        solver.setOptionValue(name, value)
    return solver


def _is_its_own(solver: Any, programme: Programme) -> bool:
    """Return True if the solution has the reported value; after presolving, HiGHS 1.16 may return the start instead."""
    objective = solver.getInfo().objective_function_value
    return bool(np.isclose(np.dot(solver.getSolution().col_value, programme.cost), objective, rtol=1e-6, atol=1e-6))


def _highs_programme(programme: Programme, binaries: int) -> Any:
    """The programme in the format of HiGHS."""
    import highspy

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(programme.cost), len(programme.row_lower)
    lp.col_cost_ = np.array(programme.cost)
    lp.col_lower_ = np.zeros(len(programme.cost))
    lp.col_upper_ = np.array(programme.upper)
    lp.row_lower_ = np.array(programme.row_lower)
    lp.row_upper_ = np.array(programme.row_upper)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array(programme.row_start, dtype=np.int32)
    lp.a_matrix_.index_ = np.array(programme.index, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(programme.value)
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kInteger] * binaries + [kinds.kContinuous] * (len(programme.cost) - binaries)
    return lp


def mixtures(problems: Sequence[tuple[Floats, Floats]], dearest: float) -> list[tuple[Floats, Floats, float]]:
    """For each problem: the cheapest mix (N,) of its points, the price of a unit of each excess, and the mix's cost.

    A problem is the costs (N,) of points and their excess (N, limits) over the limits. The average excess of the mix
    must not be above 0, but each unit of excess can be bought at the price `dearest`. All problems are solved in one
    programme.
    """
    programme = Programme(cost=[], upper=[])
    for costs, excess in problems:
        first, (count, limits) = len(programme.cost), excess.shape
        programme.cost += [*costs.tolist(), *[dearest] * limits]
        programme.upper += [*[1.0] * count, *[np.inf] * limits]
        points = range(first, first + count)
        programme.row(points, [1.0] * count, 1.0, 1.0)
        for number, values in enumerate(excess.T.tolist()):
            programme.row([*points, first + count + number], [*values, -1.0], -np.inf, 0.0)
    solver = _quiet_solver({})
    solver.passModel(_highs_programme(programme, 0))
    solver.run()
    solution = solver.getSolution()
    values, duals = np.array(solution.col_value), np.maximum(-np.array(solution.row_dual), 0.0)
    answers = []
    column = row = 0
    for costs, excess in problems:
        count, limits = excess.shape
        mix, prices = values[column : column + count], duals[row + 1 : row + 1 + limits]
        answers.append((mix, prices, float((costs + excess @ prices).min())))
        column, row = column + count + limits, row + 1 + limits
    return answers


_SCALE = 1e4  # the range between bound and incumbent, in the units that HiGHS sees
_LEAST_S = 0.01
_FOR_HIGHS = 0.8  # the share of the time that HiGHS gets if there are many starts to improve
_GAP = 1e-6  # an answer is optimal within this share of that range, because HiGHS may be off by its tolerances


@dataclass(frozen=True, slots=True, kw_only=True)
class MilpResult:
    """The best assignment found (None if there is none), a proved lower bound, and the outcome of the run. `method` is
    "milp" or "toulbar2".
    """

    assignment: tuple[int, ...] | None
    bound: float
    optimal: bool
    infeasible: bool = False
    method: str = "milp"


def minimise_milp(
    energy: Energy,
    charges: Sequence[ScalarCharge],
    starts: Sequence[Sequence[int]],
    left_s: Callable[[], float | None] = lambda: None,
    caps: Sequence[Cap] = (),
    *,
    toulbar2: bool = False,
) -> MilpResult:
    """The minimum of the energy plus the charges of the choices used, sought until it is proved or no time is left.

    With `toulbar2`, that solver is used instead of HiGHS if it is installed and there are no caps. `starts` are
    assignments to begin from. The answer is never worse than any start that is allowed, and it keeps all `caps`.
    `left_s` returns the seconds that are left, or None if there is no limit.
    """
    floors = [float(costs.min()) for costs in energy.unary]
    pair_floors = [float(table.min()) for table in energy.pairwise.values()]
    if not np.isfinite([*floors, *pair_floors]).all():
        return MilpResult(assignment=None, bound=np.inf, optimal=False, infeasible=True)
    floor = sum(floors) + sum(pair_floors)

    def total(assignment: Sequence[int]) -> float:
        kept = all(cap.kept(charges, assignment) for cap in caps)
        return charged_value(energy, charges, assignment) if kept else np.inf

    best: tuple[int, ...] | None = None
    best_value = np.inf
    first_left = left_s()
    for begin in starts:
        left = left_s()
        if best is not None and left is not None and first_left is not None and left < _FOR_HIGHS * first_left:
            break
        tried = _descend(energy, begin)
        for candidate in (tuple(begin), tried):
            value = total(candidate)
            if value < best_value:
                best, best_value = candidate, value
    if best is not None and best_value <= floor:
        return MilpResult(assignment=best, bound=best_value, optimal=True)
    room = best_value - floor if best is not None else _spread(energy, charges)
    unit = _SCALE / room if room > 0 else 1.0
    if not np.isfinite(unit) or unit <= 0:
        unit = 1.0
    if toulbar2 and best is not None and not caps:
        run = minimise_toulbar2(energy, charges, best_value, left_s())
        if run is not None:
            better, bound = run
            if better is not None and total(better) < best_value:
                best, best_value = better, total(better)
            optimal = best_value - bound <= _GAP * room
            bound = best_value if optimal else min(max(bound, floor), best_value)
            return MilpResult(assignment=best, bound=bound, optimal=optimal, method="toulbar2")
    formulated = _formulate(energy, charges, floors, pair_floors, unit, room, best, left_s, caps)
    left = left_s()
    if formulated is None or (left is not None and left <= _LEAST_S):  # too late for HiGHS to do more than read
        return MilpResult(assignment=best, bound=floor, optimal=False)
    programme, first = formulated
    status, values, dual = run_highs(programme, sum(energy.sizes), left, started=best is not None)
    if status == "infeasible" and best is None:
        return MilpResult(assignment=None, bound=np.inf, optimal=False, infeasible=True)
    if values is not None:
        answer = tuple(int(np.argmax(values[f : f + s])) for f, s in zip(first, energy.sizes, strict=True))
        if total(answer) < best_value:
            best, best_value = answer, total(answer)
    # Cutting off everything worse than the incumbent may leave nothing. Then the incumbent is optimal.
    bound = best_value if status == "infeasible" else max(floor, floor + dual / unit)
    if best is None:
        return MilpResult(assignment=None, bound=bound, optimal=False)
    optimal = status != "limit" and best_value - bound <= _GAP * room
    return MilpResult(assignment=best, bound=best_value if optimal else min(bound, best_value), optimal=optimal)


def _formulate(
    energy: Energy,
    charges: Sequence[ScalarCharge],
    floors: list[float],
    pair_floors: list[float],
    unit: float,
    room: float,
    best: tuple[int, ...] | None,
    left_s: Callable[[], float | None],
    caps: Sequence[Cap],
) -> tuple[Programme, list[int]] | None:
    """The programme in scaled units above the floor, and the first column of each slot; None if no time is left."""
    programme = Programme()
    limited: list[tuple[list[int], list[float]]] = [([], []) for _ in caps]  # columns and values of each cap's row

    def count(number: int, column: int, use: Floats) -> None:
        columns, values = limited[number]
        columns += (column + np.flatnonzero(use)).tolist()
        values += (use[use != 0] * (_SCALE / caps[number].largest)).tolist()

    cut = room * (1 + 1e-9) if best is not None else np.inf

    def scaled(costs: Floats, least: float) -> Floats:
        above = costs - least
        return np.where(above > cut, np.inf, above * unit)

    first: list[int] = []
    chosen: list[Floats] = []
    for i, costs in enumerate(energy.unary):
        picked = np.zeros(len(costs))
        if best is not None:
            picked[best[i]] = 1.0
        chosen.append(picked)
        first.append(programme.slot(scaled(costs, floors[i]), picked))
    for ((i, j), table), least in zip(energy.pairwise.items(), pair_floors, strict=True):
        left = left_s()
        if left is not None and left <= _LEAST_S:
            return None
        costs = scaled(table, least)
        used = {number: cap.use.pairwise[i, j] for number, cap in enumerate(caps) if (i, j) in cap.use.pairwise}
        if costs.any() or used:
            ends = (first[i], first[j]), (chosen[i], chosen[j])
            if all(is_potts(matrix) and matrix[0, 1] >= 0 for matrix in (costs, *used.values())):
                column = programme.unlike(np.full(len(costs), costs[0, 1]), *ends)
                for number, use in used.items():
                    count(number, column, np.full(len(use), use[0, 1]))
            else:
                column = programme.joint(costs, *ends)
                for number, use in used.items():
                    count(number, column, use.ravel())
    for number, cap in enumerate(caps):
        for column, use in zip(first, cap.use.unary, strict=True):
            count(number, column, use)
    for charge in charges:
        paid = float(best is not None and charge.used_by(best))
        column = programme.columns(scaled(np.array([charge.cost]), 0.0), np.array([paid]))
        for number, cap in enumerate(caps):
            count(number, column, np.array([charge.uses[cap.number]]))
        for slot, choice in zip(charge.slots.tolist(), charge.choices.tolist(), strict=True):
            programme.row([column, first[slot] + choice], [1.0, -1.0], 0.0, np.inf)
    for (columns, values), cap in zip(limited, caps, strict=True):
        programme.row(columns, values, -np.inf, cap.at_most * _SCALE / cap.largest)
    return programme, first


def _descend(energy: Energy, begin: Sequence[int]) -> tuple[int, ...]:
    """Improve one slot at a time until none can be improved, for at most ten rounds."""
    around = energy.around()
    current = list(begin)
    for _ in range(10):
        moved = False
        for slot, costs in enumerate(energy.unary):
            here = costs
            for other, table in around[slot]:
                here = here + table[:, current[other]]
            target = int(here.argmin())
            if here[target] < here[current[slot]]:
                current[slot], moved = target, True
        if not moved:
            break
    return tuple(current)


def _spread(energy: Energy, charges: Sequence[ScalarCharge]) -> float:
    """The range of the finite costs: the most by which an assignment can exceed the floor."""
    tables = (*energy.unary, *energy.pairwise.values())
    spread = sum(float(np.where(np.isinf(t), t.min(), t).max() - t.min()) for t in tables)
    return spread + sum(charge.cost for charge in charges)
