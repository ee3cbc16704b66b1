"""Distinct assignments, uniformly at random."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.core.space import Space
from gnomon.search.base import Assignment, Cost, Ledger, checked_count
from gnomon.search.draws import generator, shuffled


class RandomSearch:
    """Asks for the assignments of a space in a uniformly random order without replacement; a `Strategy`.

    The order depends on the space and the seed alone. Spaces may be of any size.
    """

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        self._ledger = Ledger(space)
        self._order = shuffled(space, generator(seed))

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
