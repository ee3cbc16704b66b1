"""Limits, expressed as uses by an energy's slots and pairs, and the reasons why no assignment keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from gnomon.core.cost import CostModel, Floats, Limit, add_pair, magnitude
from gnomon.core.solver.elimination import Energy
from gnomon.core.solver.prune import ScalarCharge
from gnomon.errors import InfeasibleError

_ROUNDING = 1e-12  # relative rounding error of the summed numbers, if they are not whole
_WHOLE = 2.0**53


@dataclass(frozen=True, slots=True, eq=False)
class Cap:
    """The uses of a limited quantity by slots and pairs, as an energy of finite numbers, and the most allowed in total.

    `at_most` is the limit itself if all uses are whole numbers, and otherwise slightly more, to allow for rounding;
    `largest` is the limit or the largest single use, whichever is larger.
    """

    number: int
    use: Energy
    at_most: float
    largest: float

    def used(self, charges: Sequence[ScalarCharge], assignment: Sequence[int]) -> float:
        """The amount that an assignment uses."""
        return self.use.value(assignment) + sum(c.uses[self.number] for c in charges if c.used_by(assignment))

    def kept(self, charges: Sequence[ScalarCharge], assignment: Sequence[int]) -> bool:
        """Return True if an assignment uses no more than is allowed."""
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
    largest = max([abs(limit.at_most), *(float(np.abs(table).max()) for table in tables if table.size)]) or 1.0
    return Cap(number, Energy(limit.slots, pairwise), most_allowed(limit, tables), largest)


def most_allowed(limit: Limit, tables: Sequence[Floats]) -> float:
    """The greatest sum of uses from these tables that a limit allows: slightly more if they are not whole numbers."""
    total = sum(magnitude(table.reshape(1, -1)) for table in tables if table.size)
    whole = total < _WHOLE and all(bool((np.floor(table) == table).all()) for table in tables)
    return limit.at_most + (0.0 if whole else _ROUNDING * max(total, abs(limit.at_most)))


def forbidden_as(energy: Energy, cap: Cap) -> Energy:
    """The uses of a cap as an energy that forbids everything that `energy` forbids."""
    unary = [np.where(np.isinf(cost), np.inf, use) for cost, use in zip(energy.unary, cap.use.unary, strict=True)]
    uses = cap.use.pairwise
    pairwise = {key: np.where(np.isinf(cost), np.inf, uses.get(key, 0.0)) for key, cost in energy.pairwise.items()}
    return Energy(tuple(unary), pairwise)


def conflict(
    model: CostModel, caps: Sequence[Cap], least: Callable[[Cap, Sequence[Cap]], float]
) -> InfeasibleError | None:
    """The error for limits that no assignment keeps; it names the smallest set of limits in conflict and the amounts
    needed.

    `least` returns the least use of a cap by any assignment that keeps the other caps given; +inf if no assignment
    keeps them. The result is None if no conflict is found.
    """
    for size in range(1, len(caps) + 1):
        for group in combinations(caps, size):
            needed = [least(cap, [other for other in group if other is not cap]) for cap in group]
            if np.inf in needed:  # the others alone conflict, or nothing is allowed at all
                return None
            if all(amount <= cap.at_most for cap, amount in zip(group, needed, strict=True)):
                continue
            limits = [model.limits[cap.number] for cap in group]
            names = " and ".join(f"'{limit.name}'" for limit in limits)
            kept = "" if size == 1 else " if the other limits are kept"
            parts = [
                f"at least {amount:.12g} {limit.unit}".strip() + f" of {limit.name}"
                for limit, amount in zip(limits, needed, strict=True)
            ]
            return InfeasibleError(
                f"no assignment keeps the limit{'s' * (size > 1)} {names}: {' or '.join(parts)} is needed{kept}",
                hint="Raise a limit to this amount, or allow other choices.",
            )
    return None
