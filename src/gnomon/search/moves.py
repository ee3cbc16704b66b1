"""The moves of local searches over assignments: one slot, several, or all slots of one choice at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from random import Random

from gnomon.core.space import Space
from gnomon.search.base import Assignment


class Moves:
    """What differs from an assignment of a space by one move."""

    def __init__(self, space: Space) -> None:
        self._radices = [len(slot.choices) for slot in space.slots]
        self._movable = [i for i, radix in enumerate(self._radices) if radix > 1]
        self._others = max([1, *self._radices]) - 1
        several = [slot for slot in space.slots if len(slot.choices) > 1]
        counts = Counter(name for slot in several for name in slot.choices)
        shared = [name for name, count in counts.items() if count > 1]
        self._index = [
            [slot.choices.index(name) if name in slot.choices else -1 for slot in space.slots] for name in shared
        ]

    def around(self, centre: Assignment, radius: int, rng: Random) -> Iterator[Assignment]:
        """Random neighbours: at each distance from 1 to `radius` as many as the largest slot has other choices."""
        for distance in range(1, min(radius, len(self._movable)) + 1):
            for _ in range(self._others):
                changed = list(centre)
                for slot in rng.sample(self._movable, distance):
                    drawn = rng.randrange(self._radices[slot] - 1)
                    changed[slot] = drawn + (drawn >= changed[slot])
                yield tuple(changed)

    def beside(self, centre: Assignment, rng: Random) -> Iterator[Assignment]:
        """All neighbours at distance 1 in random order."""
        changes = [(i, c) for i, radix in enumerate(self._radices) for c in range(radix) if c != centre[i]]
        rng.shuffle(changes)
        for slot, choice in changes:
            yield (*centre[:slot], choice, *centre[slot + 1 :])

    def switched(self, centre: Assignment) -> Iterator[Assignment]:
        """All slots of one choice go to another that they have: a backend that costs as long as any slot uses it.

        For each ordered pair of names that several slots have; what would change in fewer than two slots is left out.
        """
        for old, new in permutations(self._index, 2):
            changed = tuple(
                after if choice == before and after >= 0 and radix > 1 else choice
                for choice, before, after, radix in zip(centre, old, new, self._radices, strict=True)
            )
            if sum(a != b for a, b in zip(changed, centre, strict=True)) > 1:
                yield changed
