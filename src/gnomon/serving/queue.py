"""The desk that requests come to: lets in as many as there is room for, and deals them to devices, in turn.

Each device measures one model at a time. One that fails again and again is set aside for a while, and the others go on.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gnomon.serving.orders import Failed, Order, Outcome, Refused, TimedOut
from gnomon.serving.settings import Limits


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


class Runner(Protocol):
    """What has orders measured on one device, one at a time."""

    async def run(self, order: Order) -> Outcome:
        """What came of an order. Cancelled, it ends what runs before it returns."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """A device at the desk. `order` is what every model is measured with there, `name` what the device is called.

    `failed` counts failures in a row that were not a model's; until `aside_s`, by the monotonic clock, it gets nothing.
    """

    name: str
    runner: Runner
    order: Order
    busy: bool = False
    measured: int = 0
    failed: int = 0
    aside_s: float = 0.0

    @property
    def aside(self) -> bool:
        """Whether it is set aside."""
        return time.monotonic() < self.aside_s

    def told(self) -> dict[str, object]:
        """How it is, for who asks after the server's health."""
        state = "measuring" if self.busy else "set aside" if self.aside else "free"
        return {"device": self.name, "state": state, "measured": self.measured}


_MOST_FAILED, _ASIDE_S = 3, 300.0
"""After so many failures in a row a device is set aside, for so long; the first failure after that is one too many."""


class Desk:
    """Lets requests in, and deals them to devices. Lives in one event loop. `tell` gets a word of each that fails."""

    def __init__(self, limits: Limits, lanes: Sequence[Lane], tell: Callable[[str], None]) -> None:
        self._limits, self.lanes, self._tell = limits, lanes, tell
        self._waiting: deque[tuple[asyncio.Future[Lane], Lane | None]] = deque()
        self._present = self._held = 0
        self._usual_s = 2.0
        self.counts = {"measured": 0, "refused": 0, "failed": 0, "timed_out": 0, "gone": 0}

    @property
    def present(self) -> int:
        """Requests that are sent, wait or are measured."""
        return self._present

    @property
    def measuring(self) -> bool:
        """Whether a model is measured at this moment."""
        return any(lane.busy for lane in self.lanes)

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

    async def measure(self, model: Path, digest: str) -> Outcome:
        """Wait for one's turn and have a model measured. Cancelled, it gives its turn up, or ends what runs.

        Where a device fails, and not the model, another one is asked, if there is one.
        """
        try:
            lane, outcome = await self._measured(model, digest, None)
            if isinstance(outcome, Failed) and any(other is not lane for other in self._serving()):
                self._tell(f"{lane.name} fails: {outcome.message}; another device is asked")
                _, outcome = await self._measured(model, digest, lane)
        except asyncio.CancelledError:
            self.counts["gone"] += 1
            raise
        self.counts[_kind(outcome)] += 1
        return outcome

    async def _measured(self, model: Path, digest: str, failed: Lane | None) -> tuple[Lane, Outcome]:
        """What came of a model on the next free device, and which that was; not on the one that has failed at it."""
        lane = await self._turn(failed)
        try:
            start = time.monotonic()
            outcome = await lane.runner.run(replace(lane.order, model=str(model), digest=digest))
            self._usual_s += 0.2 * (time.monotonic() - start - self._usual_s)
            self._judge(lane, outcome)
        finally:
            lane.busy = False
            self._deal()
        return lane, outcome

    async def _turn(self, failed: Lane | None) -> Lane:
        """A device that is free, which is the caller's until it is dealt again."""
        coming: asyncio.Future[Lane] = asyncio.get_running_loop().create_future()
        mine = coming, failed
        if failed is None:
            self._waiting.append(mine)
        else:
            self._waiting.appendleft(mine)  # it has had its turn
        self._deal()
        try:
            return await coming
        except asyncio.CancelledError:
            if coming.done() and not coming.cancelled():
                coming.result().busy = False
            with suppress(ValueError):
                self._waiting.remove(mine)
            self._deal()
            raise

    def _deal(self) -> None:
        """Give free devices to who waits, first come first served."""
        for mine in list(self._waiting):
            coming, failed = mine
            fitting = [lane for lane in self._serving() if lane is not failed] or self._serving()
            lane = next((lane for lane in fitting if not lane.busy), None)
            if lane is not None and not coming.done():
                lane.busy = True
                self._waiting.remove(mine)
                coming.set_result(lane)

    def _serving(self) -> Sequence[Lane]:
        """The devices that are not set aside; all of them where none is left."""
        return [lane for lane in self.lanes if not lane.aside] or self.lanes

    def _judge(self, lane: Lane, outcome: Outcome) -> None:
        if not isinstance(outcome, Failed):
            lane.failed = 0
            lane.measured += _kind(outcome) == "measured"
            return
        lane.failed += 1
        if lane.failed >= _MOST_FAILED and any(other is not lane for other in self._serving()):
            lane.aside_s = time.monotonic() + _ASIDE_S
            self._tell(
                f"{lane.name} failed {lane.failed} times in a row, at last: {outcome.message}; it is set aside for "
                f"{_ASIDE_S:.0f} s, and the others go on"
            )

    def _retry_s(self) -> int:
        """When half of those who are here will have gone, as it goes."""
        return max(1, min(600, round(self._usual_s * self._present / 2 / len(self._serving()))))


def _kind(outcome: Outcome) -> str:
    if isinstance(outcome, Refused):
        return "refused"
    if isinstance(outcome, Failed):
        return "failed"
    return "timed_out" if isinstance(outcome, TimedOut) else "measured"
