"""The protocol of search strategies, and parts that the built-in strategies share: results, fronts, random draws.

The draws are the same on every machine and with every version of numpy.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gnomon.core.front.dominance import dominates
from gnomon.core.space import Space
from gnomon.errors import ProblemError

Assignment = tuple[int, ...]
Cost = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of an assignment: its cost in each objective, to be minimised; None if the assignment failed."""

    assignment: Assignment
    cost: Cost | None


class Strategy(Protocol):
    """Chooses the next assignments to evaluate; a strategy is made for one space and one seed.

    - `ask` and `tell` are called in any order, by one thread. The results of requested assignments may be reported in
      any order, late, or never.
    - The requested assignments are a deterministic function of the space, the seed, the options and the reported
      results: a new strategy that gets the same results continues like the old one, so nothing needs to be saved.
      The new strategy repeats those requests for which no result was reported.
    - Failures are results. A failed assignment is not requested again, and counts as worse than any other.
    - A strategy starts no process, opens no file, and reads no clock. It owns nothing that must be closed.
    """

    def ask(self, n: int) -> Sequence[Assignment]:
        """At most `n` different assignments that have not been returned before and have no result.

        An answer with fewer than `n` means that the strategy needs results first. An empty answer while no result is
        outstanding means that the strategy is exhausted and will remain so.
        """

    def tell(self, assignment: Assignment, cost: Cost | None) -> None:
        """Accept a result. The assignment need not have been requested; of several results for it, the first counts.

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
        """Enter a result, as in `Strategy.tell`, with the same errors."""
        self.space.encode(assignment)
        plain, numbers = tuple(int(i) for i in assignment), None
        if cost is not None:
            numbers = tuple(float(c) for c in cost)
            if not numbers or not all(math.isfinite(c) for c in numbers):
                raise ProblemError(f"the cost {numbers} is not finite", hint="Report None for a failed assignment.")
            if self._objectives and len(numbers) != self._objectives:
                raise ProblemError(
                    f"a cost has {len(numbers)} objectives, but earlier costs had {self._objectives}",
                    hint="Report the same objectives for each assignment, in the same order.",
                )
            self._objectives = len(numbers)
        self.pending.discard(plain)
        self.results.setdefault(plain, numbers)


class Archive:
    """The assignments that no other dominates in cost; of those with equal costs, the first stays."""

    def __init__(self) -> None:
        self._costs: dict[Assignment, Cost] = {}

    def add(self, assignment: Assignment, cost: Cost) -> list[Assignment] | None:
        """Enter a result; remove and return the results that it dominates.

        None, without a change, if another result dominates the new result or has the same cost.
        """
        if any(held == cost or dominates(held, cost) for held in self._costs.values()):
            return None
        beaten = [key for key, held in self._costs.items() if dominates(cost, held)]
        for key in beaten:
            del self._costs[key]
        self._costs[assignment] = cost
        return beaten

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
    return random.Random(seed)  # noqa: S311 - it chooses measurements, not secrets


def shuffled(space: Space, rng: random.Random) -> Iterator[Assignment]:
    """All assignments of a space in a uniformly random order; the memory grows only with the assignments drawn.

    A Fisher-Yates shuffle of the codes (Durstenfeld, CACM 7, 1964) that stores only the places where it differs from
    the identity, so it works for spaces of any size.
    """
    moved: dict[int, int] = {}
    for place in range(space.size):
        other = rng.randrange(place, space.size)
        yield space.decode(moved.get(other, other))
        moved[other] = moved.pop(place, place)


def names_of(space: Space) -> Counter[str]:
    """For each name of a choice, in order of first appearance, the number of slots that offer it; slots with a single
    choice are ignored.
    """
    return Counter(name for slot in space.slots if len(slot.choices) > 1 for name in slot.choices)


def uniform(space: Space, rng: random.Random) -> Assignment:
    """One assignment, uniformly at random."""
    return tuple(rng.randrange(len(slot.choices)) for slot in space.slots)
