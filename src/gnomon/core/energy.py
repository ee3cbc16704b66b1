"""One scalar cost function over slots: the form in which every exact method takes a problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import CostModel, Floats, Ints, weighted_sum
from gnomon.errors import ProblemError


@dataclass(frozen=True, slots=True, eq=False)
class Energy:
    """unary[i][a] + sum of pairwise[i, j][a, b] over the pairs i < j; +inf forbids. Charges stand apart.

    Arrays are never written to after construction, so energies may share them.
    """

    unary: tuple[Floats, ...]
    pairwise: dict[tuple[int, int], Floats]

    @property
    def sizes(self) -> list[int]:
        """Number of choices of each slot."""
        return [len(costs) for costs in self.unary]

    def value(self, assignment: Sequence[int]) -> float:
        """The cost of one assignment, +inf where it is forbidden."""
        total = sum(float(costs[a]) for costs, a in zip(self.unary, assignment, strict=True))
        return total + sum(float(t[assignment[i], assignment[j]]) for (i, j), t in self.pairwise.items())

    def restrict(self, kept: Sequence[Ints]) -> Energy:
        """The energy over the kept choices of each slot alone; pairs with a slot of one choice become unary."""
        unary = [u[k] for u, k in zip(self.unary, kept, strict=True)]
        pairwise: dict[tuple[int, int], Floats] = {}
        for (i, j), table in self.pairwise.items():
            part = table[np.ix_(kept[i], kept[j])]
            if part.shape[0] == 1:
                unary[j] = unary[j] + part[0]
            elif part.shape[1] == 1:
                unary[i] = unary[i] + part[:, 0]
            else:
                pairwise[i, j] = part
        return Energy(tuple(unary), pairwise)

    def induced(self, members: Sequence[int]) -> Energy:
        """The energy over some slots alone: costs among them, in their order."""
        place = {slot: p for p, slot in enumerate(members)}
        pairwise: dict[tuple[int, int], Floats] = {}
        for (i, j), table in self.pairwise.items():
            if i in place and j in place:
                a, b = place[i], place[j]
                pairwise[(a, b) if a < b else (b, a)] = table if a < b else table.T
        return Energy(tuple(self.unary[i] for i in members), pairwise)


def weigh(model: CostModel, weights: Floats) -> Energy:
    """The weighted sum of a model's slot and pair costs as one energy. Raises ProblemError on overflow."""
    unary: list[Floats] = [np.zeros(0)] * len(model.space.slots)
    total = 0.0
    for group in model.slot_groups:
        costs = weighted_sum(group.tables, weights)
        total += _magnitude(costs)
        for (slot,), row in zip(group.members.tolist(), costs, strict=True):
            unary[slot] = row
    pairwise: dict[tuple[int, int], Floats] = {}
    for group in model.pair_groups:
        costs = weighted_sum(group.tables, weights)
        total += _magnitude(costs)
        for (first, second), table in zip(group.members.tolist(), costs, strict=True):
            key, oriented = ((first, second), table) if first < second else ((second, first), table.T)
            known = pairwise.get(key)
            pairwise[key] = oriented if known is None else known + oriented
    if not math.isfinite(total):
        raise ProblemError("the weighted costs overflow double precision", hint="use smaller weights")
    return Energy(tuple(unary), pairwise)


def _magnitude(tables: Floats) -> float:
    finite = np.where(np.isinf(tables), 0.0, np.abs(tables)).reshape(len(tables), -1)
    with np.errstate(over="ignore"):
        return float(finite.max(axis=1).sum())
