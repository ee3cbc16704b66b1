"""Spaces and prices that the tests of the strategies share, and the exhaustive front as the oracle."""

from __future__ import annotations

import numpy as np

from gnomon.core.cost import Charge, CostModel, Objective, PairCost
from gnomon.core.front.dominance import nondominated
from gnomon.core.space import Slot, Space
from gnomon.search.base import Assignment, Cost, Strategy


def space_of(*radices: int) -> Space:
    return Space(tuple(Slot(f"s{i}", tuple(f"b{c}" for c in range(r))) for i, r in enumerate(radices)))


class Priced:
    """Latency and memory of every assignment of a space, from slots, transfers along a chain and charges."""

    def __init__(self, space: Space, seed: int) -> None:
        rng = np.random.default_rng(seed)
        radices = [len(slot.choices) for slot in space.slots]
        slots = tuple(np.exp(rng.normal(0, 0.8, (r, 2))) for r in radices)
        pairs = tuple(
            PairCost(i, i + 1, rng.exponential(0.2, (radices[i], radices[i + 1], 2))) for i in range(len(radices) - 1)
        )
        names = sorted({name for slot in space.slots for name in slot.choices})[1:]
        charges = tuple(Charge(name, np.array([0.1, 2.0])) for name in names)
        model = CostModel(space, (Objective("latency"), Objective("memory")), slots, pairs, charges)
        self.space = space
        self.costs = model.evaluate(np.array([space.decode(code) for code in range(space.size)]))

    def __call__(self, assignment: Assignment) -> Cost:
        latency, memory = self.costs[self.space.encode(assignment)]
        return float(latency), float(memory)

    def front(self) -> set[Assignment]:
        """The exact front, by looking at everything."""
        return {self.space.decode(int(code)) for code in nondominated(self.costs)}


def drive(strategy: Strategy, price: Priced, most: int) -> list[Assignment]:
    """Ask and tell one by one; what was asked, in order."""
    asked: list[Assignment] = []
    while len(asked) < most and (more := strategy.ask(1)):
        asked.extend(more)
        strategy.tell(more[0], price(more[0]))
    return asked


def distance(a: Assignment, b: Assignment) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))
