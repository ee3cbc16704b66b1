"""Random draws that are the same on every machine and with every version of numpy."""

from __future__ import annotations

import random
from collections.abc import Iterator

from gnomon.core.space import Space
from gnomon.search.base import Assignment, checked_seed


def generator(seed: int) -> random.Random:
    """A generator of its own. UsageError for a negative seed."""
    return random.Random(checked_seed(seed))  # noqa: S311 - it chooses what to measure and keeps no secret


def shuffled(space: Space, rng: random.Random) -> Iterator[Assignment]:
    """All assignments of a space in a uniformly random order, in memory that grows with what was drawn only.

    A Fisher-Yates shuffle of the codes (Durstenfeld, CACM 7, 1964) of which only the places that differ from the
    identity are held, so that the first of 10^100 assignments cost no more than the first of a hundred.
    """
    moved: dict[int, int] = {}
    for place in range(space.size):
        other = rng.randrange(place, space.size)
        yield space.decode(moved.get(other, other))
        moved[other] = moved.pop(place, place)


def uniform(space: Space, rng: random.Random) -> Assignment:
    """One assignment, uniformly at random."""
    return tuple(rng.randrange(len(slot.choices)) for slot in space.slots)
