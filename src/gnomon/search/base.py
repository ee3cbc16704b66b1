"""The protocol of search strategies, and the shared parts of the built-in ones: results, fronts, random draws.

The draws are the same on every machine and with every version of numpy.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from gnomon.core.front.dominance import dominates
from gnomon.core.space import Space
from gnomon.errors import ProblemError

Assignment = tuple[int, ...]
Cost = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of one assignment: its cost in each objective, all to be minimised; None if it failed."""

    assignment: Assignment
    cost: Cost | None


class Strategy(Protocol):
    """Chooses what to evaluate next in a space; it is made for one space and one seed.

    - `ask` and `tell` are called in any order, by one thread. The results of requested assignments may be told in any
      order, late, or never.
    - The requested assignments are a deterministic function of the space, the seed, the options and the results told: a
      new strategy that gets the same results continues as the old one would have, so nothing needs to be saved.
      Requests without a result are lost with the old strategy, and the new one makes them again.
    - Failures are results. A failed assignment is not requested again, and counts as hopeless.
    - A strategy starts no process, opens no file, and reads no clock. It owns nothing that must be closed.
    """

    def ask(self, n: int) -> Sequence[Assignment]:
        """At most `n` different assignments that this strategy neither returned nor was given a result for before.

        Fewer mean that the strategy first needs results. An empty answer, while no result is outstanding, means that
        the strategy is exhausted, and remains so.
        """

    def tell(self, assignment: Assignment, cost: Cost | None) -> None:
        """Accept a result; the assignment need not have been requested. Of several results for one, the first counts.

        ProblemError for an assignment outside the space, a cost that is not finite, or a different number of objectives
        than before; the strategy is then unchanged.
        """


@dataclass(slots=True)
class Ledger:
    """The results so far, and the requested assignments whose results are pending; checks each new result."""

    space: Space
    results: dict[Assignment, Cost | None] = field(default_factory=dict)
    pending: set[Assignment] = field(default_factory=set)
    _objectives: int = 0

    def take(self, assignment: Sequence[int], cost: Sequence[float] | None) -> None:
        """Enter a result, as in `Strategy.tell`. ProblemError for a result that this refuses."""
        self.space.encode(assignment)
        plain, numbers = tuple(int(i) for i in assignment), None
        if cost is not None:
            numbers = tuple(float(c) for c in cost)
            if not numbers or not all(math.isfinite(c) for c in numbers):
                raise ProblemError(
                    f"the cost {numbers} of an assignment is not finite", hint="tell None for an assignment that failed"
                )
            if self._objectives and len(numbers) != self._objectives:
                raise ProblemError(
                    f"a cost has {len(numbers)} objectives where earlier ones had {self._objectives}",
                    hint="tell the same objectives of each assignment, in the same order",
                )
            self._objectives = len(numbers)
        self.pending.discard(plain)
        self.results.setdefault(plain, numbers)


class Entry(Enum):
    """The ways in which a result enters the archive."""

    NO = "dominated, or equal in cost to one that is there"
    NEW = "beside the others"
    REPLACED = "in the place of others that it dominates"


class Archive:
    """Assignments whose costs no other one dominates; of equal costs, the first one stays."""

    def __init__(self) -> None:
        self._costs: dict[Assignment, Cost] = {}

    def add(self, assignment: Assignment, cost: Cost) -> Entry:
        """Enter a result unless another one dominates it; results that it dominates are removed."""
        if any(held == cost or dominates(held, cost) for held in self._costs.values()):
            return Entry.NO
        beaten = [key for key, held in self._costs.items() if dominates(cost, held)]
        for key in beaten:
            del self._costs[key]
        self._costs[assignment] = cost
        return Entry.REPLACED if beaten else Entry.NEW

    def __contains__(self, assignment: object) -> bool:
        return assignment in self._costs

    def __iter__(self) -> Iterator[Assignment]:
        """Iterate in the order in which the assignments entered."""
        return iter(self._costs)

    def __len__(self) -> int:
        return len(self._costs)

    def cost(self, assignment: Assignment) -> Cost:
        """The cost of an assignment that is in the archive."""
        return self._costs[assignment]


def generator(seed: int) -> random.Random:
    """A random generator for this seed."""
    return random.Random(seed)  # noqa: S311 - it chooses measurements, no secrets


def shuffled(space: Space, rng: random.Random) -> Iterator[Assignment]:
    """All assignments of a space in a uniformly random order, with memory only for those that have been drawn.

    A Fisher-Yates shuffle of the codes (Durstenfeld, CACM 7, 1964) that holds only the places that differ from the
    identity, so the first of 10^100 assignments cost as little as the first of a hundred.
    """
    moved: dict[int, int] = {}
    for place in range(space.size):
        other = rng.randrange(place, space.size)
        yield space.decode(moved.get(other, other))
        moved[other] = moved.pop(place, place)


def names_of(space: Space) -> Counter[str]:
    """For each name, the number of slots with several choices that have a choice of this name, in order of first
    appearance.
    """
    return Counter(name for slot in space.slots if len(slot.choices) > 1 for name in slot.choices)


def uniform(space: Space, rng: random.Random) -> Assignment:
    """One assignment, uniformly at random."""
    return tuple(rng.randrange(len(slot.choices)) for slot in space.slots)
