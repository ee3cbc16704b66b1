"""The exact minimum of a cost model, with its certificate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnomon.core.brief import brief
from gnomon.core.cost import CostModel, Floats, Ints
from gnomon.core.solver.elimination import Energy, Minimum, weigh
from gnomon.core.solver.ordering import Limits, degeneracy
from gnomon.core.solver.prune import ScalarCharge, infeasible, minimise_charged, surviving, weigh_charges
from gnomon.errors import ProblemError, UsageError

METHODS = ("auto", "elimination", "milp")
_ENUMERATED_CHARGES = 12
_AUTO_SOLVES = 256
_STARTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """An assignment and what is proved about it.

    `cost` is in the units of the objectives and `value` their weighted sum. `bound` is a proven lower bound on
    the value of every assignment; it equals `value` when `optimal`. `method` is "elimination" or "milp".
    `width` is the largest number of neighbours that a slot had when it was eliminated; for "milp", which
    eliminates nothing, it is the degeneracy of the graph, below which no elimination order can stay.
    """

    assignment: tuple[int, ...]
    choices: tuple[str, ...]
    code: int
    cost: tuple[float, ...]
    value: float
    optimal: bool
    method: str
    bound: float
    width: int

    __repr__ = brief


def solve(
    model: CostModel,
    weights: Mapping[str, float] | None = None,
    *,
    method: str = "auto",
    width_limit: int | None = None,
    time_limit_s: float | None = None,
) -> Solution:
    """An assignment of least weighted cost, with its certificate.

    "elimination" is exact where the problem's graph is narrow, as those of neural networks are; "milp" is HiGHS;
    "auto" eliminates where the tables fit into memory (and the width is at most `width_limit`, if given) and
    otherwise takes HiGHS. `time_limit_s` holds for HiGHS; a solution found until then has `optimal` False and
    HiGHS's bound. The result is the same each time, unless a time limit cut it short.

    Raises UsageError for invalid weights, method or limits and for an elimination beyond the limits,
    InfeasibleError where no assignment is allowed, ProblemError where costs overflow or HiGHS found nothing.
    """
    _check_options(method, width_limit, time_limit_s)
    vector = model.weight_vector(weights)
    energy, charges = weigh_charges(model, vector, weigh(model, vector))
    if method != "milp":
        found = _eliminate(energy, charges, Limits(width=width_limit), every_subset=method == "elimination")
        if found is not None:
            return _solution(model, vector, energy, found.assignment, found.width)
        if method == "elimination":
            raise UsageError(
                "the problem is too wide for elimination within the limits",
                hint="use the method 'auto' or 'milp'",
            )
    return _with_highs(model, vector, energy, charges, time_limit_s)


def _check_options(method: str, width_limit: int | None, time_limit_s: float | None) -> None:
    if method not in METHODS:
        raise UsageError(f"no method is named '{method}'", hint=f"use one of: {', '.join(METHODS)}")
    if width_limit is not None and width_limit < 0:
        raise UsageError(f"the width limit is {width_limit}", hint="use a whole number from 0")
    if time_limit_s is not None and not (math.isfinite(time_limit_s) and time_limit_s > 0):
        raise UsageError(f"the time limit is {time_limit_s} s", hint="use a number of seconds above 0")


def _eliminate(
    energy: Energy, charges: Sequence[ScalarCharge], limits: Limits, *, every_subset: bool
) -> Minimum | None:
    """The minimum by elimination: of the energy as it is, or else of what pruning leaves of it."""
    if len(charges) > _ENUMERATED_CHARGES and not every_subset:
        return None
    solves = 1 << len(charges) if every_subset else _AUTO_SOLVES
    found = minimise_charged(energy, charges, energy.value, limits, solves)
    if found is not None:
        return found
    kept = surviving(energy, _charged(energy, charges))
    if kept is None:
        return Minimum(assignment=(0,) * len(energy.unary), width=0)
    small = energy.restrict(kept)
    if small.sizes == energy.sizes:
        return None
    fewer = tuple(part for part in (charge.restricted(kept) for charge in charges) if part is not None)
    found = minimise_charged(small, fewer, small.value, limits, solves)
    if found is None:
        return None
    back = tuple(int(k[a]) for k, a in zip(kept, found.assignment, strict=True))
    return Minimum(assignment=back, width=found.width)


def _charged(energy: Energy, charges: Sequence[ScalarCharge]) -> list[Ints]:
    numbers = [np.full(size, -1, dtype=np.intp) for size in energy.sizes]
    for number, charge in enumerate(charges):
        for slot, choice in zip(charge.slots.tolist(), charge.choices.tolist(), strict=True):
            numbers[slot][choice] = number
    return numbers


def _solution(model: CostModel, vector: Floats, energy: Energy, assignment: tuple[int, ...], width: int) -> Solution:
    """The solution of an elimination; raises InfeasibleError if even its least cost is infinite."""
    cost = model.evaluate([assignment])[0]
    if np.isinf(cost).any():
        raise infeasible(model.space, energy)
    value = float(cost @ vector)
    return Solution(
        assignment=assignment,
        choices=model.space.names(assignment),
        code=model.space.encode(assignment),
        cost=tuple(cost.tolist()),
        value=value,
        optimal=True,
        method="elimination",
        bound=value,
        width=width,
    )


def _with_highs(
    model: CostModel,
    vector: Floats,
    energy: Energy,
    charges: Sequence[ScalarCharge],
    time_limit_s: float | None,
) -> Solution:
    from gnomon.core.solver.milp import minimise_milp

    kept = surviving(energy, _charged(energy, charges))
    if kept is None:
        raise infeasible(model.space, energy)
    unary = []
    for costs, choices in zip(energy.unary, kept, strict=True):
        pruned = np.full(len(costs), np.inf)
        pruned[choices] = costs[choices]
        unary.append(pruned)
    pruned_energy = Energy(tuple(unary), energy.pairwise)
    result = minimise_milp(pruned_energy, charges, _starts(model, pruned_energy), time_limit_s)
    if result.infeasible:
        raise infeasible(model.space, energy)
    if result.assignment is None:
        raise ProblemError(
            "HiGHS found no allowed assignment within its time limit",
            hint="raise the time limit, or leave it out",
        )
    found = _solution(model, vector, energy, result.assignment, _least_width(energy))
    bound = found.value if result.optimal else min(result.bound, found.value)
    return replace(found, method="milp", optimal=result.optimal, bound=bound)


def _least_width(energy: Energy) -> int:
    around: dict[int, set[int]] = {slot: set() for slot in range(len(energy.unary))}
    for i, j in energy.pairwise:
        around[i].add(j)
        around[j].add(i)
    return degeneracy(around)


def _starts(model: CostModel, energy: Energy) -> list[tuple[int, ...]]:
    """Each slot's own best choice; and for each common choice, that one wherever it is allowed."""
    greedy = tuple(int(costs.argmin()) for costs in energy.unary)
    counts = Counter(choice for slot in model.space.slots for choice in slot.choices)
    starts = [greedy]
    for name, _ in counts.most_common(_STARTS):
        uniform = list(greedy)
        for i, slot in enumerate(model.space.slots):
            if name in slot.choices and energy.unary[i][slot.choices.index(name)] < np.inf:
                uniform[i] = slot.choices.index(name)
        starts.append(tuple(uniform))
    return starts
