"""The minimum of an energy with charges as a mixed-integer linear programme, solved by HiGHS.

One binary variable a choice. A pair of slots gets the marginal (local) polytope: a variable a pair of choices whose
sums over either slot equal that slot's variables (Wainwright and Jordan, 2008, chapter 8); a pair that merely
charges for unlike choices gets one variable a choice, which is equally tight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.charges import ScalarCharge
from gnomon.core.cost import Floats
from gnomon.core.energy import Energy
from gnomon.core.programme import Programme, is_potts, run_highs

_SCALE = 1e4  # the range between bound and incumbent, in the units that HiGHS sees
_GAP = 1e-6  # of that range: what HiGHS calls optimal may differ by its tolerances


@dataclass(frozen=True, slots=True, kw_only=True)
class MilpResult:
    """What HiGHS proved: the best assignment found (None for none), a lower bound, and how it ended."""

    assignment: tuple[int, ...] | None
    bound: float
    optimal: bool
    infeasible: bool = False


def minimise_milp(
    energy: Energy,
    charges: Sequence[ScalarCharge],
    starts: Sequence[Sequence[int]],
    time_limit_s: float | None = None,
) -> MilpResult:
    """Minimum of the energy plus the charges of the choices used, to a gap of zero or until the time limit.

    `starts` are assignments to begin from; the answer is never worse than any of them that is allowed.
    """
    floors = [float(costs.min()) for costs in energy.unary]
    if not np.isfinite(floors).all():
        return MilpResult(assignment=None, bound=np.inf, optimal=False, infeasible=True)
    pair_floors = [float(table.min()) for table in energy.pairwise.values()]
    if not np.isfinite(pair_floors).all():
        return MilpResult(assignment=None, bound=np.inf, optimal=False, infeasible=True)
    floor = sum(floors) + sum(pair_floors)

    def total(assignment: Sequence[int]) -> float:
        return energy.value(assignment) + sum(c.cost for c in charges if c.used_by(assignment))

    best: tuple[int, ...] | None = None
    best_value = np.inf
    for begin in starts:
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
    programme, first = _formulate(energy, charges, floors, pair_floors, unit, room, best)
    outcome = run_highs(programme, sum(energy.sizes), time_limit_s, started=best is not None)
    status, values, dual = outcome.status, outcome.values, outcome.bound
    if status == "infeasible" and best is None:
        return MilpResult(assignment=None, bound=np.inf, optimal=False, infeasible=True)
    if values is not None:
        found = tuple(int(np.argmax(values[f : f + s])) for f, s in zip(first, energy.sizes, strict=True))
        if total(found) < best_value:
            best, best_value = found, total(found)
    # Cutting off all that is dearer than the incumbent may leave nothing: then the incumbent is optimal.
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
) -> tuple[Programme, list[int]]:
    """The programme in scaled units above the floor, and the first column of each slot."""
    programme = Programme()
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
        costs = scaled(table, least)
        if costs.any():
            ends = (first[i], first[j]), (chosen[i], chosen[j])
            if is_potts(costs):
                programme.unlike(np.full(len(costs), costs[0, 1]), *ends)
            else:
                programme.joint(costs, *ends)
    for charge in charges:
        used = float(best is not None and charge.used_by(best))
        column = programme.columns(scaled(np.array([charge.cost]), 0.0), np.array([used]))
        for slot, choice in zip(charge.slots.tolist(), charge.choices.tolist(), strict=True):
            programme.row([column, first[slot] + choice], [1.0, -1.0], 0.0, np.inf)
    return programme, first


def _descend(energy: Energy, begin: Sequence[int]) -> tuple[int, ...]:
    """Improve one slot at a time until none can be improved, at most a few rounds."""
    around: list[list[tuple[int, Floats]]] = [[] for _ in energy.unary]
    for (i, j), table in energy.pairwise.items():
        around[i].append((j, table))
        around[j].append((i, table.T))
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
    """The range of the finite costs: how far above the floor an assignment can be."""
    tables = (*energy.unary, *energy.pairwise.values())
    spread = sum(float(np.where(np.isinf(t), t.min(), t).max() - t.min()) for t in tables)
    return spread + sum(charge.cost for charge in charges)
