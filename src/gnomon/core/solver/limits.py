"""Limits as uses of an energy's slots and pairs, and why nothing keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from gnomon.core.cost import CostModel, Floats, Limit, add_pair, magnitude
from gnomon.core.solver.elimination import Energy
from gnomon.core.solver.prune import ScalarCharge
from gnomon.errors import InfeasibleError

_ROUNDING = 1e-12  # of the numbers that are summed, where they are not whole
_WHOLE = 2.0**53


@dataclass(frozen=True, slots=True, eq=False)
class Cap:
    """The uses of a limit by slots and pairs, as an energy of finite numbers, and the most that all may use.

    `at_most` is the limit itself where all uses are whole numbers, and a hair more for what rounding may add; `largest`
    is the larger of the limit and of any one use.
    """

    number: int
    use: Energy
    at_most: float
    largest: float

    def used(self, charges: Sequence[ScalarCharge], assignment: Sequence[int]) -> float:
        """How much an assignment uses."""
        return self.use.value(assignment) + sum(c.uses[self.number] for c in charges if c.used_by(assignment))

    def kept(self, charges: Sequence[ScalarCharge], assignment: Sequence[int]) -> bool:
        """Whether an assignment uses no more than it may."""
        return self.used(charges, assignment) <= self.at_most


def caps_of(model: CostModel) -> tuple[Cap, ...]:
    """The model's limits, in order."""
    return tuple(_cap(number, limit, model) for number, limit in enumerate(model.limits))


def _cap(number: int, limit: Limit, model: CostModel) -> Cap:
    pairwise: dict[tuple[int, int], Floats] = {}
    for pair, table in zip(model.pairs, limit.pairs, strict=False):
        if table.any():
            add_pair(pairwise, pair.first, pair.second, table)
    tables = [*limit.slots, *pairwise.values(), np.array(limit.charges)]
    total = sum(magnitude(table.reshape(1, -1)) for table in tables if table.size)
    whole = total < _WHOLE and all(bool((np.floor(table) == table).all()) for table in tables)
    slack = 0.0 if whole else _ROUNDING * max(total, abs(limit.at_most))
    largest = max([abs(limit.at_most), *(float(np.abs(table).max()) for table in tables if table.size)]) or 1.0
    return Cap(number, Energy(limit.slots, pairwise), limit.at_most + slack, largest)


def forbidden_as(energy: Energy, cap: Cap) -> Energy:
    """The uses of a cap as an energy, with everything forbidden that another energy forbids."""
    unary = [np.where(np.isinf(cost), np.inf, use) for cost, use in zip(energy.unary, cap.use.unary, strict=True)]
    uses = cap.use.pairwise
    pairwise = {key: np.where(np.isinf(cost), np.inf, uses.get(key, 0.0)) for key, cost in energy.pairwise.items()}
    return Energy(tuple(unary), pairwise)


def conflict(
    model: CostModel, caps: Sequence[Cap], least: Callable[[Cap, Sequence[Cap]], float]
) -> InfeasibleError | None:
    """The error for limits that nothing keeps: the fewest that conflict, and what would be needed.

    `least` is what is needed of a cap at least where others are kept; +inf where nothing keeps those. None where no
    conflict is found.
    """
    for size in range(1, len(caps) + 1):
        for group in combinations(caps, size):
            needed = [least(cap, [other for other in group if other is not cap]) for cap in group]
            if np.inf in needed:  # of this size the others conflict, or nothing is allowed at all
                return None
            if all(amount <= cap.at_most for cap, amount in zip(group, needed, strict=True)):
                continue
            limits = [model.limits[cap.number] for cap in group]
            names = " and ".join(f"'{limit.name}'" for limit in limits)
            kept = "" if size == 1 else " where the others are kept"
            parts = [
                f"{amount:.12g} {limit.unit}".strip() + f" of {limit.name}{kept}"
                for limit, amount in zip(limits, needed, strict=True)
            ]
            return InfeasibleError(
                f"no assignment keeps the limit{'s' * (size > 1)} {names}: at least {', or '.join(parts)} is needed",
                hint="allow as much as that, or other choices",
            )
    return None
