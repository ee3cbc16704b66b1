"""The desk that requests come to: lets in as many as there is room for, and measures one model at a time, in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gnomon.serving.order import Failed, Order, Outcome, Refused, TimedOut
from gnomon.serving.settings import Limits

RunOrder = Callable[[Order], Awaitable[Outcome]]


class Full(Exception):
    """There is no room; `retry_s` is when there may be some."""

    def __init__(self, message: str, retry_s: int) -> None:
        super().__init__(message)
        self.message = message
        self.retry_s = retry_s


class Place:
    """Somebody's place at the desk, with the bytes of a model that are kept for it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.bytes = 0

    def hold(self, count: int) -> None:
        """So many bytes more are kept. Full where all models together would take too much."""
        self._desk.hold(count)
        self.bytes += count


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What came of an order, and how long it waited for its turn."""

    outcome: Outcome
    waited_s: float


class Desk:
    """See above. Lives in one event loop."""

    def __init__(self, limits: Limits, run: RunOrder) -> None:
        self._limits, self._run = limits, run
        self._turn = asyncio.Lock()  # whose waiters have their turn in the order of their coming
        self._present = self._held = 0
        self._usual_s = 2.0
        self.reference_s: tuple[float, ...] = ()
        self.counts = {"measured": 0, "refused": 0, "failed": 0, "timed_out": 0, "gone": 0}

    @property
    def present(self) -> int:
        """Requests that are sent, wait or are measured."""
        return self._present

    @property
    def measuring(self) -> bool:
        """Whether a model is measured at this moment."""
        return self._turn.locked()

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A place for as long as the block lasts. Full where there is none."""
        if self._present >= self._limits.queue:
            raise Full(f"{self._present} requests are here already", self._retry_s())
        self._present += 1
        mine = Place(self)
        try:
            yield mine
        finally:
            self._present -= 1
            self._held -= mine.bytes

    def hold(self, count: int) -> None:
        """Keep so many bytes more. Full where that is too much."""
        if self._held + count > self._limits.most_held_bytes:
            raise Full(f"the models that wait take {self._held >> 20} MiB already", self._retry_s())
        self._held += count

    async def measure(self, order: Order) -> Served:
        """Wait for one's turn and have an order run. Cancelled, it gives its turn up, or ends what runs."""
        came = time.monotonic()
        try:
            async with self._turn:
                start = time.monotonic()
                outcome = await self._run(replace(order, reference_s=self.reference_s))
                self._usual_s += 0.2 * (time.monotonic() - start - self._usual_s)
        except asyncio.CancelledError:
            self.counts["gone"] += 1
            raise
        self.counts[_kind(outcome)] += 1
        return Served(outcome=outcome, waited_s=start - came)

    def _retry_s(self) -> int:
        """When half of those who are here will have gone, as it goes."""
        return max(1, min(600, round(self._usual_s * self._present / 2)))


def _kind(outcome: Outcome) -> str:
    if isinstance(outcome, Refused):
        return "refused"
    if isinstance(outcome, Failed):
        return "failed"
    return "timed_out" if isinstance(outcome, TimedOut) else "measured"
