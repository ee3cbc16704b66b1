"""Makes a strategy of a plan: a generator that yields batches of assignments and is sent their costs."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from gnomon.core.space import Space
from gnomon.search.base import Assignment, Cost, Ledger, checked_count

Plan = Generator[Sequence[Assignment], Sequence[Cost | None], None]
"""Yields a batch, is sent the batch's costs in its order (None: failed), and returns when it is exhausted.

A plan may yield an assignment again: it is sent what is known, and nothing is evaluated.
"""


class Planned:
    """A `Strategy` that follows a plan.

    The plan goes on when all of its batch is told, so that neither how many are asked at once nor the order of the
    results within a batch changes its course. What is told before it is asked waits until the plan comes upon it.
    """

    def __init__(self, space: Space, plan: Plan) -> None:
        self._ledger = Ledger(space)
        self._plan = plan
        self._batch: Sequence[Assignment] | None = None
        self._begun = False

    def ask(self, n: int) -> Sequence[Assignment]:
        """As `Strategy.ask`: of the plan's present batch only."""
        if not checked_count(n):
            return ()
        known, pending = self._ledger.known, self._ledger.pending
        while (batch := self._present()) is not None:
            waited = [a for a in dict.fromkeys(batch) if a not in known]
            if waited:
                asked = [a for a in waited if a not in pending][:n]
                pending.update(asked)
                return tuple(asked)
            self._advance([known[a] for a in batch])
        return ()

    def tell(self, assignment: Assignment, cost: Cost | None) -> None:
        """As `Strategy.tell`."""
        self._ledger.take(assignment, cost)

    def _present(self) -> Sequence[Assignment] | None:
        if not self._begun:
            self._begun = True
            self._batch = next(self._plan, None)
        return self._batch

    def _advance(self, costs: list[Cost | None]) -> None:
        try:
            self._batch = self._plan.send(costs)
        except StopIteration:
            self._batch = None
