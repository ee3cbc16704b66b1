"""The server from its start to its end: look at the runtime, listen, answer until a signal comes, leave nothing."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnomon import errors
from gnomon.devices.guard import Guard
from gnomon.errors import GnomonError, MeasurementError
from gnomon.report.plain import clean
from gnomon.serving.aiohttp_server import HttpServer, aiohttp_web
from gnomon.serving.desk import Desk
from gnomon.serving.order import Failed, Found, Order, Outcome, Refused, TimedOut
from gnomon.serving.reception import Reception
from gnomon.serving.running import run_order
from gnomon.serving.settings import ServeSettings, checked

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SPARE_FILES = 256
_START_S = 120.0
"""What the first measurement may take, which waits for the device where another measures on it."""

_ROOM_FOR_RECORD = 4 << 30

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where a server listens that has begun to, and what it measures with."""

    host: str
    port: int
    path: str
    facts: Found

    @property
    def url(self) -> str:
        """Where models are sent."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


def serve(settings: ServeSettings, *, begun: Callable[[Listening], None], tell: Tell) -> int:
    """Serve until SIGINT or SIGTERM comes, and return its number; from the main thread.

    `begun` is told once that it listens, `tell` a line of each request. Raises GnomonError where it cannot start: for
    settings, for a runtime that is not there or does not measure, for a port that is another's.
    """
    settings, addresses = checked(settings)
    aiohttp_web()
    _allow_files(settings.limits.queue)
    with _guarded() as (folder, guard), _handlers_kept():
        return asyncio.run(_serve(_Parts(settings, addresses, folder, guard), begun, tell))


@dataclass(frozen=True, slots=True)
class _Parts:
    settings: ServeSettings
    addresses: tuple[str, ...]
    folder: Path
    guard: Guard


async def _serve(parts: _Parts, begun: Callable[[Listening], None], tell: Tell) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, end, int(number))
    loop.set_exception_handler(lambda _, context: tell(f"met: {clean(str(context.get('exception') or context))[:300]}"))
    starting = asyncio.create_task(_started(parts, begun, tell))
    both: set[asyncio.Future[Any]] = {starting, ended}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        if starting.cancelled():
            return await ended
    server = starting.result()
    try:
        return await ended
    finally:
        await server.stop()


async def _started(parts: _Parts, begun: Callable[[Listening], None], tell: Tell) -> HttpServer:
    """A server that listens, once the runtime has shown that it measures."""
    settings, limits = parts.settings, parts.settings.limits

    async def run(order: Order) -> Outcome:
        return await run_order(order, folder=parts.folder, guard=parts.guard, tell=tell)

    order = _order(settings)
    found = await run(replace(order, job_s=max(order.job_s, _START_S)))
    if isinstance(found, Refused | Failed | TimedOut):
        raise _error_of(found)
    desk = Desk(limits, run)
    desk.reference_s = tuple(found["reference_s"])
    reception = Reception(settings, desk, order, parts.folder, found)
    reception.tell_with(tell)
    server = HttpServer(reception, limits)
    try:
        port = await server.start(parts.addresses, settings.port)
        begun(Listening(host=settings.host, port=port, path=settings.path, facts=found))
    except BaseException:
        await server.stop()
        raise
    return server


def _order(settings: ServeSettings) -> Order:
    measuring, limits = settings.measuring, settings.limits
    return Order(
        runtime=measuring.runtime,
        threads=measuring.threads,
        backend=measuring.backend,
        precision=measuring.precision,
        processes=measuring.processes,
        seed=measuring.seed,
        record=None if measuring.record is None else str(measuring.record.absolute()),
        job_s=limits.job_s,
        memory_bytes=limits.memory_bytes,
        # The record of runs is written by the same processes, and grows.
        disk_bytes=_ROOM_FOR_RECORD + 8 * limits.most_bytes,
    )


def _error_of(outcome: Refused | Failed | TimedOut) -> GnomonError:
    """Why the server cannot start, as the error that it was in the measuring program."""
    if isinstance(outcome, TimedOut):
        said = f": {outcome.said}" if outcome.said else ""
        return MeasurementError(
            f"a first measurement took longer than {outcome.limit_s:g} s{said}", hint="Give a longer --job-timeout."
        )
    if isinstance(outcome, Refused):
        return MeasurementError(outcome.message, hint=outcome.hint)
    kind: Any = getattr(errors, outcome.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, GnomonError)):
        kind = MeasurementError
    made: GnomonError = kind(outcome.message, hint=outcome.hint)
    return made


def _allow_files(queue: int) -> None:
    """As many open files as the requests in the queue may need, as far as this process may say so itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * queue + _SPARE_FILES
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


@contextlib.contextmanager
def _guarded() -> Iterator[tuple[Path, Guard]]:
    """A folder for models, and the guard that removes it and ends what runs if this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="gnomon-serve-"))
    guard = Guard(folder)
    try:
        yield folder, guard
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        guard.close()


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """The signals' handlers are afterwards as they were: an event loop leaves the defaults behind."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
