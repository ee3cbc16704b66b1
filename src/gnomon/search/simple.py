"""Every assignment, in the order of the codes.

Distinct assignments, uniformly at random.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.core.space import Space, decimal
from gnomon.errors import UsageError
from gnomon.search.base import Assignment, Cost, Ledger, checked_count, checked_seed, generator, shuffled

MOST_ASSIGNMENTS = 10**7


class Exhaustive:
    """Asks for each assignment of a space in the order of the codes; a `Strategy`.

    Holds no more than what was told out of that order and what is asked and untold. `checkpoint` is all that a later
    run needs: it goes on there with `start`. UsageError for a space of more than `MOST_ASSIGNMENTS`.
    """

    def __init__(self, space: Space, *, seed: int = 0, start: int = 0) -> None:
        checked_seed(seed)  # every strategy takes one; the order of the codes is the same for all
        if space.size > MOST_ASSIGNMENTS:
            size = decimal(space.size) if space.size < 10**30 else "more than 10^30"
            raise UsageError(
                f"the space has {size} assignments, too many to run them all (at most {MOST_ASSIGNMENTS})",
                hint="search it with hlps, nsga2 or random, or group the slots",
            )
        if not 0 <= start <= space.size:
            raise UsageError(f"{start} assignments cannot have been evaluated", hint=f"start from 0 to {space.size}")
        self._space = space
        self._ledger = Ledger(space)  # its `known` holds only what was told ahead of the checkpoint
        self._checkpoint = start
        self._next = start

    @property
    def checkpoint(self) -> int:
        """How many were told without a gap from code 0 on: all codes below it are done."""
        return self._checkpoint

    def ask(self, n: int) -> Sequence[Assignment]:
        """As `Strategy.ask`."""
        asked: list[Assignment] = []
        checked_count(n)
        while len(asked) < n and self._next < self._space.size:
            assignment = self._space.decode(self._next)
            self._next += 1
            if self._ledger.fresh(assignment):
                asked.append(assignment)
        self._ledger.pending.update(asked)
        return tuple(asked)

    def tell(self, assignment: Assignment, cost: Cost | None) -> None:
        """As `Strategy.tell`."""
        known = self._ledger.known
        code = self._space.encode(self._ledger.take(assignment, cost).assignment)
        if code < self._checkpoint:
            del known[tuple(assignment)]
        while self._checkpoint < self._space.size and (done := self._space.decode(self._checkpoint)) in known:
            del known[done]
            self._checkpoint += 1
        self._next = max(self._next, self._checkpoint)


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
