"""The queue of requests, which admits as many requests as its limits allow, and assigns them to devices in order of
arrival.

Each device measures one model at a time. A device that fails repeatedly is set aside for a while, and the others
continue.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gnomon.errors import many
from gnomon.serving.job import Job, Outcome
from gnomon.serving.settings import Limits

_MOST_FAILURES, _ASIDE_S = 3, 300.0
"""After this many failures in a row a device is set aside for this long; afterwards a single failure sets it aside
again.
"""


class RequestError(Exception):
    """A refused request: the status of the response, the message, the next step, and further headers."""

    def __init__(self, status: int, message: str, hint: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint
        self.headers = headers or {}


@dataclass(slots=True, kw_only=True, eq=False)
class ServedDevice:
    """A device behind the queue. Every model is measured with `job` by `run`, which ends the measurement when
    cancelled.

    `failures` counts consecutive failures that were not a model's fault. Until `aside_s`, by the monotonic clock, the
    device gets no model.
    """

    name: str
    run: Callable[[Job], Awaitable[Outcome]]
    job: Job
    busy: bool = False
    measured: int = 0
    failures: int = 0
    aside_s: float = 0.0

    @property
    def aside(self) -> bool:
        """True if the device is set aside."""
        return time.monotonic() < self.aside_s

    @property
    def status(self) -> dict[str, object]:
        """The device's part of the server's health document."""
        state = "measuring" if self.busy else "set aside" if self.aside else "free"
        return {"device": self.name, "state": state, "measured": self.measured}


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A request that waits for a device, preferably not for the device that `failed` to measure it."""

    failed: ServedDevice | None
    device: asyncio.Future[ServedDevice] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Queue:
    """Admits requests and assigns them to devices. Lives in one event loop. `log` gets a line for each failure."""

    def __init__(self, limits: Limits, devices: Sequence[ServedDevice], log: Callable[[str], None]) -> None:
        self._limits, self.devices, self._log = limits, devices, log
        self._waiters: deque[_Waiter] = deque()
        self._held_bytes = 0
        self._usual_s = 2.0
        self.present = 0
        """The number of requests that are being sent, waiting or being measured."""

        self.counts = {"measured": 0, "refused": 0, "failed": 0, "timed_out": 0, "gone": 0}

    @contextmanager
    def admitted(self) -> Iterator[Callable[[int], None]]:
        """A place for a request while the block lasts; yields a function that reserves more bytes for the request's
        model.

        RequestError if there is no place, or if all models together would need too much space.
        """
        if self.present >= self._limits.queue:
            raise self._full(f"the server is full ({many(self.present, 'request')})")
        self.present += 1
        held = 0

        def hold(count: int) -> None:
            nonlocal held
            if self._held_bytes + count > self._limits.most_held_bytes:
                raise self._full(f"waiting models already take {self._held_bytes >> 20} MiB")
            self._held_bytes += count
            held += count

        try:
            yield hold
        finally:
            self.present -= 1
            self._held_bytes -= held

    async def measure(self, model: Path, digest: str) -> Outcome:
        """Wait for a device and have a model measured. Cancelling leaves the queue or ends the running measurement.

        If the device is at fault and not the model, another device measures the model, if there is one.
        """
        try:
            device, outcome = await self._measured(model, digest, None)
            if outcome.kind == "failed" and any(other is not device for other in self._in_service()):
                self._log(f"{device.name} failed: {outcome.message}; another device will measure the model")
                _, outcome = await self._measured(model, digest, device)
        except asyncio.CancelledError:
            self.counts["gone"] += 1
            raise
        self.counts[outcome.kind] += 1
        return outcome

    async def _measured(self, model: Path, digest: str, failed: ServedDevice | None) -> tuple[ServedDevice, Outcome]:
        """The next free device, and the outcome on it."""
        device = await self._free_device(failed)
        try:
            start = time.monotonic()
            outcome = await device.run(replace(device.job, model=str(model), digest=digest))
            self._usual_s += 0.2 * (time.monotonic() - start - self._usual_s)
            self._count(device, outcome)
        finally:
            device.busy = False
            self._assign()
        return device, outcome

    async def _free_device(self, failed: ServedDevice | None) -> ServedDevice:
        """A device that belongs to the caller while it is busy; a request whose device failed goes to the front of the
        queue.
        """
        waiter = _Waiter(failed)
        if failed is None:
            self._waiters.append(waiter)
        else:
            self._waiters.appendleft(waiter)
        self._assign()
        try:
            return await waiter.device
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            else:
                waiter.device.result().busy = False
            self._assign()
            raise

    def _assign(self) -> None:
        """Give free devices to waiting requests."""
        for waiter in list(self._waiters):
            suitable = [device for device in self._in_service() if device is not waiter.failed] or self._in_service()
            device = next((device for device in suitable if not device.busy), None)
            if device is not None and not waiter.device.done():
                device.busy = True
                self._waiters.remove(waiter)
                waiter.device.set_result(device)

    def _in_service(self) -> Sequence[ServedDevice]:
        """The devices that are not set aside, or all devices if all are set aside."""
        return [device for device in self.devices if not device.aside] or self.devices

    def _count(self, device: ServedDevice, outcome: Outcome) -> None:
        if outcome.kind != "failed":
            device.failures = 0
            device.measured += outcome.kind == "measured"
            return
        device.failures += 1
        if device.failures >= _MOST_FAILURES and any(other is not device for other in self._in_service()):
            device.aside_s = time.monotonic() + _ASIDE_S
            self._log(
                f"{device.name} failed {device.failures} times in a row, last: {outcome.message}; it is set aside "
                f"for {_ASIDE_S:.0f} s, and the others continue"
            )

    def _full(self, message: str) -> RequestError:
        """The refusal, with the seconds after which half of the present requests will usually be done."""
        retry_s = max(1, min(600, round(self._usual_s * self.present / 2 / len(self._in_service()))))
        return RequestError(503, message, f"Try again in {retry_s} s.", {"Retry-After": str(retry_s)})
