"""A mixed-integer linear programme under construction, its columns for pairs of slots, and its run by HiGHS.

HiGHS is loaded on the first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnomon.core.cost import Floats
from gnomon.errors import GnomonError

# HiGHS checks its own answer, and calls one that is off by a hair's breadth more than its tolerance an error of the
# solver: then the next tolerance is tried.
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
        """Add columns from 0 to 1, those of infinite cost fixed at 0; returns the number of the first."""
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
        """Add a binary column a choice, of which exactly one is 1; returns the number of the first."""
        first = self.columns(cost, start)
        self.row(range(first, first + len(cost)), [1.0] * len(cost), 1.0, 1.0)
        return first

    def unlike(self, cost: Floats, firsts: tuple[int, int], chosen: tuple[Floats, Floats]) -> int:
        """Columns, one a choice, that sum to 1 where two slots choose unlike; returns the number of the first.

        They are as tight as a column a pair, for costs that are equal for all unlike choices and not negative.
        """
        column = self.columns(cost, np.maximum(chosen[0] - chosen[1], 0.0))
        for a in range(len(cost)):
            self.row([column + a, firsts[0] + a, firsts[1] + a], [1.0, -1.0, 1.0], 0.0, np.inf)
        return column

    def joint(self, cost: Floats, firsts: tuple[int, int], chosen: tuple[Floats, Floats]) -> int:
        """Columns, one a pair of choices, whose sums over either slot are that slot's columns; the first's number."""
        left, right = cost.shape
        column = self.columns(cost, np.outer(*chosen))
        grid = np.arange(column, column + left * right).reshape(left, right)
        for a in range(left):
            self.row([*grid[a].tolist(), firsts[0] + a], [1.0] * right + [-1.0], 0.0, 0.0)
        for b in range(right):
            self.row([*grid[:, b].tolist(), firsts[1] + b], [1.0] * left + [-1.0], 0.0, 0.0)
        return column


def is_potts(costs: Floats) -> bool:
    """Whether like choices cost nothing and all unlike ones the same, finite amount."""
    size = len(costs)
    if size < 2 or costs.shape[1] != size or not np.isfinite(costs[0, 1]) or costs.diagonal().any():
        return False
    return bool((costs[~np.eye(size, dtype=bool)] == costs[0, 1]).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How HiGHS ended: "optimal", "infeasible" or "limit"; the values of the columns or None; the dual bound."""

    status: str
    values: Floats | None
    bound: float


def run_highs(
    programme: Programme,
    binaries: int,
    time_limit_s: float | None,
    *,
    started: bool,
    gap: float = 0.0,
    nodes: int | None = None,
) -> Outcome:
    """Minimise; the first `binaries` columns are integers.

    `gap` is the absolute one at which to stop, `nodes` the most nodes of the search tree.
    `started` says that the programme's `start` is a solution. Without integers the bound is the minimum itself.
    """
    import highspy

    lp = _highs_programme(programme, binaries)
    options: dict[str, bool | int | float] = {
        "output_flag": False,
        "threads": 1,
        "mip_rel_gap": 0.0,
        "mip_abs_gap": gap,
    }
    if time_limit_s is not None:
        options["time_limit"] = float(time_limit_s)
    if nodes is not None:
        options["mip_max_nodes"] = nodes
    statuses = highspy.HighsModelStatus
    for tolerance in _TOLERANCES:
        solver = highspy.Highs()
        names = ("mip_feasibility_tolerance", "primal_feasibility_tolerance", "dual_feasibility_tolerance")
        for name, value in {**options, **dict.fromkeys(names, tolerance)}.items():
            solver.setOptionValue(name, value)
        if solver.passModel(lp) == highspy.HighsStatus.kError:
            raise GnomonError("HiGHS refused the programme", hint="report this problem as a defect")
        if started:
            solution = highspy.HighsSolution()
            solution.col_value = list(programme.start)
            solver.setSolution(solution)
        solver.run()
        status = solver.getModelStatus()
        if status != statuses.kSolveError:
            break
    if status in (statuses.kInfeasible, statuses.kUnboundedOrInfeasible):
        return Outcome(status="infeasible", values=None, bound=np.inf)
    if status == statuses.kSolveError:  # what it says of itself then means nothing
        return Outcome(status="limit", values=None, bound=-np.inf)
    info = solver.getInfo()
    ended = "optimal" if status == statuses.kOptimal else "limit"
    dual = float(info.mip_dual_bound if binaries else info.objective_function_value)
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value) if found else None
    return Outcome(status=ended, values=values, bound=dual if np.isfinite(dual) else -np.inf)


def _highs_programme(programme: Programme, binaries: int) -> Any:
    """The programme as HiGHS takes it."""
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
