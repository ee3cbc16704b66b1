"""The desk that requests come to: lets in as many as there is room for, and measures one model at a time, in turn.

Runs the program that measures one model: within its time limit, and never longer than somebody waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gnomon.errors import ProblemError
from gnomon.serving.settings import TOKEN_VARIABLE, Limits
from gnomon.serving.worker import Failed, Order, Outcome, Refused, TimedOut, outcome_of
from gnomon.system.process import Guard, Lines, Tail

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


_COMMAND = (sys.executable, "-P", "-m", "gnomon.serving.worker")
_GRACE_S = 3.0
_MOST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


async def run_order(order: Order, *, folder: Path, guard: Guard, tell: Callable[[str], None]) -> Outcome:
    """What came of an order. Cancelled, it ends the program and all that this has started before it returns.

    `guard` ends them too if the server itself is killed. `tell` gets what it says meanwhile, a line each.
    """
    environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        cwd=folder,
        env=environment,
    )
    guard.add(process.pid)
    out, told = Tail(_MOST_BYTES), Tail(_CHUNK_BYTES)
    lines = Lines(tell)
    assert process.stdin and process.stdout and process.stderr  # noqa: S101
    readers = [
        asyncio.create_task(_read(process.stdout, out.add)),
        asyncio.create_task(_read(process.stderr, told.add, lines.add)),
    ]
    timed_out = False
    try:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(order.text().encode())
            process.stdin.close()
        async with asyncio.timeout(order.job_s):
            await process.wait()
    except TimeoutError:
        timed_out = True
    finally:
        # Whoever cancels this waits for the end of it all the same: the next job shall have the machine to itself.
        ending = asyncio.ensure_future(_end(process, readers))
        cancelled = False
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                cancelled = True
        guard.drop(process.pid)
        if cancelled:
            raise asyncio.CancelledError
    if timed_out:
        return TimedOut(limit_s=order.job_s, said=_last_line(told.text()))
    return _outcome(process.returncode, out.text(), told.text())


def _outcome(status: int | None, out: str, told: str) -> Outcome:
    if status == 0:
        try:
            return outcome_of(out)
        except (ProblemError, TypeError) as error:
            return Failed(kind="defect", message=f"the measuring program gave no answer: {error}")
    how = f"was ended by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
    said = _last_line(told)
    return Failed(kind="defect", message=f"the measuring program {how}{': ' if said else ''}{said}")


async def _read(stream: asyncio.StreamReader, *takers: Callable[[bytes], None]) -> None:
    while chunk := await stream.read(_CHUNK_BYTES):
        for take in takers:
            take(chunk)


async def _end(process: asyncio.subprocess.Process, readers: list[asyncio.Task[None]]) -> None:
    """Ask it to end, which it does with all that it started; kill its group if it does not. Then read what is left."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
    if process.returncode is None:
        _signal(process, signal.SIGKILL)
        await process.wait()
    await asyncio.wait(readers, timeout=1.0)  # whoever left the group may still hold the pipes
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else ""
