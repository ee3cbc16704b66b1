"""Strategies that ignore results: they request all assignments in the order of their codes, or in a random order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from gnomon.core.space import Space, decimal
from gnomon.errors import UsageError
from gnomon.search.base import Assignment, Cost, Ledger, generator, shuffled

MOST_ASSIGNMENTS = 10**7


class _Ordered:
    """Requests assignments in a fixed order."""

    def __init__(self, space: Space, order: Iterator[Assignment]) -> None:
        self._ledger = Ledger(space)
        self._order = order

    def ask(self, n: int) -> Sequence[Assignment]:
        """As in `Strategy.ask`."""
        results, pending = self._ledger.results, self._ledger.pending
        asked = tuple(islice((a for a in self._order if a not in results and a not in pending), n))
        pending.update(asked)
        return asked

    def tell(self, assignment: Assignment, cost: Cost | None) -> None:
        """As in `Strategy.tell`."""
        self._ledger.take(assignment, cost)


class Exhaustive(_Ordered):
    """Requests all assignments of a space in the order of their codes; a `Strategy`.

    UsageError for a space of more than `MOST_ASSIGNMENTS` assignments.
    """

    def __init__(self, space: Space, *, seed: int = 0) -> None:  # every strategy takes a seed
        if space.size > MOST_ASSIGNMENTS:
            size = decimal(space.size) if space.size < 10**30 else "more than 10^30"
            raise UsageError(
                f"the space has {size} assignments, more than the limit of {MOST_ASSIGNMENTS} for an exhaustive search",
                hint="Use the strategy hlps, nsga2 or random, or group the slots.",
            )
        super().__init__(space, map(space.decode, range(space.size)))


class RandomSearch(_Ordered):
    """Requests the assignments of a space in a uniformly random order without replacement; a `Strategy`.

    The order depends on the space and the seed alone. Spaces may have any size.
    """

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        super().__init__(space, shuffled(space, generator(seed)))
