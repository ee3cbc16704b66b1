"""The least of the largest of several energies over the same slots, as a mixed-integer programme in epigraph form.

A continuous column t is minimised above one row an energy: t >= energy. The slots and pairs of slots have the columns
that `milp` gives them, shared by all rows (Boyd and Vandenberghe, Convex Optimization, 2004, section 4.3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnomon.core.charges import ScalarCharge
from gnomon.core.cost import Floats, Ints
from gnomon.core.energy import Energy
from gnomon.core.milp import MilpResult
from gnomon.core.programme import Programme, is_potts, run_highs

_SCALE = 1e4  # the range between bound and incumbent, in the units that HiGHS sees
_LEAST_RANGE = 1e-3  # of the largest energy: a smaller range would make coefficients too large for the tolerances


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """Several energies over the same slots and pairs, each with its charges; the largest of them counts."""

    energies: tuple[Energy, ...]
    charges: tuple[tuple[ScalarCharge, ...], ...]

    def values(self, assignment: Sequence[int]) -> Floats:
        """The energies of one assignment with their charges, shape (energies,); +inf where it is forbidden."""
        return np.array(
            [
                energy.value(assignment) + sum(c.cost for c in charges if c.used_by(assignment))
                for energy, charges in zip(self.energies, self.charges, strict=True)
            ]
        )

    def largest(self, assignment: Sequence[int]) -> float:
        """The largest energy of one assignment."""
        return float(self.values(assignment).max())

    def part(self, start: Sequence[int], kept: Sequence[Ints] | None) -> Part:
        """The energies over the kept choices of each slot alone (None: all), among them those of `start`."""
        if kept is None:
            return Part(worst=self, start=tuple(start), kept=None)
        energies = tuple(e.restrict(kept) for e in self.energies)
        restricted = [[c.restricted(kept) for c in charges] for charges in self.charges]
        charges = tuple(tuple(c for c in part if c is not None) for part in restricted)
        inner = tuple(int(np.flatnonzero(k == choice)[0]) for k, choice in zip(kept, start, strict=True))
        return Part(worst=Worst(energies=energies, charges=charges), start=inner, kept=tuple(kept))

    def floors(self) -> Floats:
        """For each energy, the sum of its tables' least entries: no assignment has less."""
        return np.array([sum(float(t.min()) for t in (*e.unary, *e.pairwise.values())) for e in self.energies])


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A problem over some choices of each slot alone, and the way back from its assignments."""

    worst: Worst
    start: tuple[int, ...]
    kept: tuple[Ints, ...] | None

    def back(self, assignment: Sequence[int]) -> tuple[int, ...]:
        """The assignment of the whole problem."""
        if self.kept is None:
            return tuple(assignment)
        return tuple(int(k[a]) for k, a in zip(self.kept, assignment, strict=True))


def minimise_worst(
    problem: Worst,
    start: Sequence[int],
    low: float,
    *,
    tolerance: float,
    time_limit_s: float | None = None,
    nodes: int | None = None,
) -> MilpResult:
    """The assignment whose largest energy is least, to within `tolerance` or until the limit of time or of nodes.

    `start` is an allowed assignment, than which the answer is never worse; `low` is a proven lower bound.
    """
    best = tuple(start)
    high = float(problem.values(best).max())
    low = min(max(low, float(problem.floors().max())), high)
    if high - low <= tolerance:
        return MilpResult(assignment=best, bound=low, optimal=True)
    unit = _SCALE / max(high - low, _LEAST_RANGE * abs(high), tolerance)
    built = _formulate(problem, best, low, high, unit, "worst")
    binaries = sum(problem.energies[0].sizes)
    # Half of the tolerance is for the search, the rest for the rounding of its answer.
    outcome = run_highs(built.programme, binaries, time_limit_s, started=True, gap=0.5 * tolerance * unit, nodes=nodes)
    found = built.read(outcome.values)
    if found is not None and float(problem.values(found).max()) < high:
        best = found
        high = float(problem.values(best).max())
    bound = high if outcome.status == "infeasible" else max(low, low + outcome.bound / unit)
    bound = min(bound, high)
    return MilpResult(assignment=best, bound=bound, optimal=high - bound <= tolerance)


def least_total_within(
    problem: Worst, start: Sequence[int], cap: float, *, tolerance: float, nodes: int | None = None
) -> tuple[int, ...]:
    """Of the assignments whose largest energy is at most `cap`, one of least sum of energies, to within `tolerance`.

    `start` is such an assignment; at the limit of nodes the best one that was found is returned.
    """
    best = tuple(start)
    total = float(problem.values(best).sum())
    floors = problem.floors()
    room = total - float(floors.sum())
    if room <= tolerance:
        return best
    unit = _SCALE / max(room, _LEAST_RANGE * abs(total), tolerance)
    built = _formulate(problem, best, float(floors.max()), cap, unit, "total")
    binaries = sum(problem.energies[0].sizes)
    outcome = run_highs(built.programme, binaries, None, started=True, gap=tolerance * unit, nodes=nodes)
    found = built.read(outcome.values)
    if found is not None:
        values = problem.values(found)
        if float(values.max()) <= cap and float(values.sum()) < total:
            best = found
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    programme: Programme
    first: tuple[int, ...]
    sizes: tuple[int, ...]

    def read(self, values: Floats | None) -> tuple[int, ...] | None:
        """The assignment that the columns say."""
        if values is None:
            return None
        return tuple(int(np.argmax(values[f : f + s])) for f, s in zip(self.first, self.sizes, strict=True))


class _Rows:
    """The rows of the energies while the columns are added: what each column costs above the tables' least."""

    def __init__(self, floors: Floats, high: float, unit: float, count: bool) -> None:
        self.floors, self.unit, self.count = floors, unit, count
        self.room = (high - floors) * (1 + 1e-9) + 1e-12
        self.columns: list[list[int]] = [[] for _ in floors]
        self.values: list[list[float]] = [[] for _ in floors]

    def cost(self, above: Floats) -> Floats:
        """The objective's part of tables above their least, shape (energies, ...); infinite for what is too dear."""
        room = self.room.reshape(-1, *([1] * (above.ndim - 1)))
        dear = (above > room).any(axis=0)
        plain = np.where(np.isfinite(above), above, 0.0).sum(axis=0) * self.unit if self.count else 0.0
        return np.where(dear, np.inf, plain)

    def put(self, first: int, above: Floats) -> None:
        """These columns take part in the energies' rows."""
        for number, costs in enumerate(above):
            flat = costs.ravel()
            used = np.flatnonzero(np.isfinite(flat) & (flat != 0))
            self.columns[number] += (first + used).tolist()
            self.values[number] += (flat[used] * self.unit).tolist()


def _formulate(
    problem: Worst, best: tuple[int, ...], low: float, high: float, unit: float, aim: Literal["worst", "total"]
) -> _Built:
    """The programme: choices, pairs, charges, then t between `low` and `high` as a column from 0 to 1."""
    programme, rows = Programme(), _Rows(problem.floors(), high, unit, aim == "total")
    first: list[int] = []
    chosen: list[Floats] = []
    for slot, size in enumerate(problem.energies[0].sizes):
        picked = np.zeros(size)
        picked[best[slot]] = 1.0
        chosen.append(picked)
        above = _above(np.array([e.unary[slot] for e in problem.energies]))
        first.append(programme.slot(rows.cost(above), picked))
        rows.put(first[-1], above)
    for i, j in problem.energies[0].pairwise:
        above = _above(np.array([e.pairwise[i, j] for e in problem.energies]))
        if not above.any():
            continue
        ends = (first[i], first[j]), (chosen[i], chosen[j])
        if all(is_potts(table) or not table.any() for table in above):
            size = above.shape[1]
            alike = np.repeat(above[:, :1, 1], size, axis=1)
            rows.put(programme.unlike(rows.cost(alike), *ends), alike)
        else:
            rows.put(programme.joint(rows.cost(above), *ends), above)
    _charge(problem, programme, rows, first, best)
    _close(programme, rows, problem, best, (low, high))
    return _Built(programme=programme, first=tuple(first), sizes=tuple(problem.energies[0].sizes))


def _above(tables: Floats) -> Floats:
    """Tables above the least entry of each energy."""
    least = tables.min(axis=tuple(range(1, tables.ndim)), keepdims=True)
    return np.asarray(tables - least)


def _charge(problem: Worst, programme: Programme, rows: _Rows, first: Sequence[int], best: Sequence[int]) -> None:
    """A column a charged choice, shared by the energies that charge for it."""
    named: dict[str, ScalarCharge] = {c.name: c for charges in problem.charges for c in charges}
    for name, charge in named.items():
        costs = np.array([[sum(c.cost for c in charges if c.name == name)] for charges in problem.charges])
        used = np.array([float(charge.used_by(best))])
        column = programme.columns(rows.cost(costs), used)
        rows.put(column, costs)
        for slot, choice in zip(charge.slots.tolist(), charge.choices.tolist(), strict=True):
            programme.row([column, first[slot] + choice], [1.0, -1.0], 0.0, np.inf)


def _close(programme: Programme, rows: _Rows, problem: Worst, best: tuple[int, ...], ends: tuple[float, float]) -> None:
    """Add t, and the row of each energy: what is above its floor is at most t minus that floor."""
    low, high = ends
    reach = (high - low) * rows.unit
    worst = float(problem.values(best).max())
    aim = np.array([0.0 if rows.count else reach])
    column = programme.columns(aim, np.array([min(1.0, (worst - low) / (high - low)) if high > low else 0.0]))
    for floor, columns, values in zip(rows.floors.tolist(), rows.columns, rows.values, strict=True):
        programme.row([*columns, column], [*values, -reach], -np.inf, (low - floor) * rows.unit)
