"""The few ways to pay charges: for each set of charged choices, the problem where no other one is used.

An assignment that uses exactly the charged choices of a set costs its slots and pairs and the charges of the set; in
every larger set it counts for more. So the least vectors over all sets are those of the model itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from gnomon.core.cost import CostModel, Floats
from gnomon.core.front_plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A plan that has the choices of one set, and the charges of the set, (objectives,)."""

    plan: Plan
    charge: Floats


def charged_choices(model: CostModel) -> tuple[list[tuple[Floats, list[tuple[int, int]]]], list[tuple[int, int]]]:
    """The charges that cost something somewhere, with their places (slot, choice); and what infinite ones forbid."""
    finite: list[tuple[Floats, list[tuple[int, int]]]] = []
    forbidden: list[tuple[int, int]] = []
    for charge in model.charges:
        cost = np.asarray(charge.cost, dtype=np.float64)
        places = [
            (i, slot.choices.index(charge.choice))
            for i, slot in enumerate(model.space.slots)
            if charge.choice in slot.choices
        ]
        if np.isinf(cost).any():
            forbidden += places
        elif places and cost.any():
            finite.append((cost, places))
    return finite, forbidden


def cases(model: CostModel, plan: Plan) -> list[Case]:
    """A case for each set of charges, smaller sets first; one alone where nothing is charged."""
    charges, forbidden = charged_choices(model)
    numbers = range(len(charges))
    found: list[Case] = []
    for size in range(len(charges) + 1):
        for paid in combinations(numbers, size):
            shut = [place for c in numbers if c not in paid for place in charges[c][1]]
            total = np.sum([charges[c][0] for c in paid], axis=0) if paid else np.zeros(len(model.objectives))
            found.append(Case(plan=plan.forbidding([*forbidden, *shut]), charge=np.asarray(total)))
    return found
