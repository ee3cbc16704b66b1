"""The exact minimum with charges: costs paid once if a choice is used anywhere.

Branch and bound over which charged choices are used. Without any charge the minimum is a bound; the charges of
what is used are added where a branch has decided on them, and forbidding a choice asks for one further
minimum. In the worst case that is one a subset of the charged choices; mostly it is a handful.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import CostModel, Floats, Ints, weighted_sum
from gnomon.core.elimination import Minimum, minimise
from gnomon.core.energy import Energy
from gnomon.core.ordering import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarCharge:
    """A charge in weighted units, and where its choice occurs: `slots[p]` has it at index `choices[p]`."""

    name: str
    cost: float
    slots: Ints
    choices: Ints

    def used_by(self, assignment: Sequence[int]) -> bool:
        """Whether the assignment takes the choice anywhere."""
        return any(assignment[s] == c for s, c in zip(self.slots.tolist(), self.choices.tolist(), strict=True))

    def restricted(self, kept: Sequence[Ints]) -> ScalarCharge | None:
        """The charge where only the kept choices of each slot are left, or None if it occurs no more."""
        places = [
            (slot, int(np.flatnonzero(kept[slot] == choice)[0]))
            for slot, choice in zip(self.slots.tolist(), self.choices.tolist(), strict=True)
            if choice in kept[slot]
        ]
        if not places:
            return None
        slots, choices = (np.array(part, dtype=np.intp) for part in zip(*places, strict=True))
        return ScalarCharge(name=self.name, cost=self.cost, slots=slots, choices=choices)


def weigh_charges(model: CostModel, weights: Floats, energy: Energy) -> tuple[Energy, tuple[ScalarCharge, ...]]:
    """The charges that matter, in weighted units; choices with an infinite charge are forbidden in the energy."""
    found: list[ScalarCharge] = []
    for charge in model.charges:
        cost = float(weighted_sum(np.asarray(charge.cost, dtype=np.float64)[None], weights)[0])
        places = [
            (i, slot.choices.index(charge.choice))
            for i, slot in enumerate(model.space.slots)
            if charge.choice in slot.choices
        ]
        allowed = [(i, c) for i, c in places if energy.unary[i][c] < np.inf]
        if not allowed or cost == 0:
            continue
        slots, choices = (np.array(part, dtype=np.intp) for part in zip(*allowed, strict=True))
        scalar = ScalarCharge(name=charge.choice, cost=cost, slots=slots, choices=choices)
        if cost == np.inf:
            energy = without(energy, [scalar])
        else:
            found.append(scalar)
    return energy, tuple(found)


def without(energy: Energy, charges: Sequence[ScalarCharge]) -> Energy:
    """The energy with these charges' choices forbidden."""
    unary = list(energy.unary)
    for charge in charges:
        for slot, choice in zip(charge.slots.tolist(), charge.choices.tolist(), strict=True):
            costs = unary[slot].copy()
            costs[choice] = np.inf
            unary[slot] = costs
    return Energy(tuple(unary), energy.pairwise)


@dataclass(frozen=True, slots=True)
class _Node:
    out: frozenset[int]
    paid: frozenset[int]
    value: float
    assignment: tuple[int, ...]


def minimise_charged(
    energy: Energy,
    charges: Sequence[ScalarCharge],
    price: Callable[[tuple[int, ...]], float],
    limits: Limits,
    max_solves: int,
) -> Minimum | None:
    """The exact minimum of energy plus charges, or None beyond the limits or after `max_solves` minima.

    `price` gives the value of an assignment without its charges.
    """
    root = minimise(energy, limits)
    if root is None or not charges:
        return root
    solves = 1
    best, best_value = root.assignment, np.inf
    stack = [_Node(frozenset(), frozenset(), price(root.assignment), root.assignment)]
    while stack:
        node = stack.pop()
        bound = node.value + sum(charges[c].cost for c in sorted(node.paid))
        if bound >= best_value:
            continue
        used = [c for c, charge in enumerate(charges) if charge.used_by(node.assignment)]
        value = node.value + sum(charges[c].cost for c in used)
        if value < best_value:
            best, best_value = node.assignment, value
        open_ = [c for c in used if c not in node.paid]
        if not open_ or bound >= best_value:
            continue
        branch = max(open_, key=lambda c: (charges[c].cost, -c))
        if solves >= max_solves:
            return None
        solves += 1
        out = node.out | {branch}
        shut = [charges[c] for c in sorted(out)]
        found = minimise(without(energy, shut), limits, order=root.order)
        stack.append(_Node(node.out, node.paid | {branch}, node.value, node.assignment))
        # A minimum that takes what is forbidden says that the branch allows nothing.
        if found is not None and not any(charge.used_by(found.assignment) for charge in shut):
            stack.append(_Node(out, node.paid, price(found.assignment), found.assignment))
    return Minimum(assignment=best, width=root.width, order=root.order)
