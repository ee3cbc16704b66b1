"""Every assignment, in the order of the codes.

Distinct assignments, uniformly at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnomon.core.space import Space, decimal
from gnomon.errors import UsageError
from gnomon.search.base import Assignment, Cost, Ledger, checked_count, checked_seed, generator, shuffled

MOST_ASSIGNMENTS = 10**7


class _Ordered:
    """Asks for assignments in an order."""

    def __init__(self, space: Space, order: Iterator[Assignment]) -> None:
        self._ledger = Ledger(space)
        self._order = order

    def ask(self, n: int) -> Sequence[Assignment]:
        """As `Strategy.ask`."""
        asked: list[Assignment] = []
        if not checked_count(n):
            return ()
        for assignment in self._order:
            if self._ledger.fresh(assignment):
                asked.append(assignment)
            if len(asked) == n:
                break
        self._ledger.pending.update(asked)
        return tuple(asked)

    def tell(self, assignment: Assignment, cost: Cost | None) -> None:
        """As `Strategy.tell`."""
        self._ledger.take(assignment, cost)


class Exhaustive(_Ordered):
    """Asks for each assignment of a space in the order of the codes; a `Strategy`.

    UsageError for a space of more than `MOST_ASSIGNMENTS`.
    """

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        checked_seed(seed)  # every strategy takes one; the order of the codes is the same for all
        if space.size > MOST_ASSIGNMENTS:
            size = decimal(space.size) if space.size < 10**30 else "more than 10^30"
            raise UsageError(
                f"the space has {size} assignments, too many to run them all (at most {MOST_ASSIGNMENTS})",
                hint="search it with hlps, nsga2 or random, or group the slots",
            )
        super().__init__(space, map(space.decode, range(space.size)))


class RandomSearch(_Ordered):
    """Asks for the assignments of a space in a uniformly random order without replacement; a `Strategy`.

    The order depends on the space and the seed alone. Spaces may be of any size.
    """

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        super().__init__(space, shuffled(space, generator(seed)))
