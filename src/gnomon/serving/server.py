"""The server from its start to its end: look at the runtime, listen, answer until a signal comes, leave nothing.

HTTP by aiohttp, which is imported here only, inside functions: what a reception answers, on sockets.

One request a connection. A request line, its headers and the time for them are bounded; compressed bodies are not
unpacked; connections beyond a number are closed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gnomon
from gnomon import errors
from gnomon.core.installing import install_line
from gnomon.core.strict_json import shown
from gnomon.devices.address import LOCAL
from gnomon.devices.opening import resolve
from gnomon.errors import GnomonError, MeasurementError, ProblemError, RuntimeMissingError, UsageError
from gnomon.report.plain import clean
from gnomon.serving.orders import Failed, Found, Order, Refused, TimedOut
from gnomon.serving.program import Program
from gnomon.serving.queue import Desk, Lane
from gnomon.serving.requests import Answer, Asked, Reception, error_answer
from gnomon.serving.settings import COMMAND_S, JOB_S, Limits, ServeSettings, checked
from gnomon.store.address import whole
from gnomon.system.limits import allow_files
from gnomon.system.process import Guard, guarded

if TYPE_CHECKING:
    from aiohttp import web

_LINGER_S = 2.0
"""How long what a refused client still sends is read, so that it gets to see the answer."""

_MORE_CONNECTIONS = 64
"""Connections beyond those of requests that are let in: for heads that are coming, refusals and /health."""

_MOST_END_S = 30.0
"""How long the end of a running measurement is waited for: it is killed long before."""

_FAREWELL_S = 1.0
"""How long a client that waits has at the server's end to take its answer."""

_CHUNK_BYTES = 1 << 16
_MOST_PARTS = 16
_PLAIN = frozenset({"7bit", "8bit", "binary"})
_HINT = "Send multipart/form-data, as `curl -F file=@MODEL -F kernel_name=NAME` does."
_BACKLOG = 512


class HttpServer:
    """Listens for one reception. `start` it, `stop` it in any case."""

    def __init__(self, reception: Reception, limits: Limits) -> None:
        web = aiohttp_web()
        _silence()
        self._reception = reception
        self._most = limits.queue + _MORE_CONNECTIONS
        # aiohttp would log what strangers send; what is said of requests is the reception's affair.
        silent = logging.Logger("gnomon.serving.silent")
        silent.addHandler(logging.NullHandler())
        self._server: Any = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            logger=silent,
            auto_decompress=False,
            keepalive_timeout=limits.head_s,
            lingering_time=_LINGER_S,
        )
        self._listening: asyncio.AbstractServer | None = None
        self._answering: set[asyncio.Task[Any]] = set()
        self._ending = False

    async def start(self, addresses: tuple[str, ...], port: int) -> int:
        """Listen; the port that was bound. UsageError where it is another's."""
        loop = asyncio.get_running_loop()
        try:
            self._listening = await loop.create_server(self._protocol, list(addresses), port, backlog=_BACKLOG)
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {port} of {', '.join(addresses)} cannot be listened on: {getattr(error, 'strerror', error)}",
                hint="Give another --port, or end what listens there.",
            ) from error
        return int(self._listening.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Listen no more, and cancel what is under way, which ends before this returns; its clients are told."""
        self._ending = True
        if self._listening is not None:
            self._listening.close()
        self._server.pre_shutdown()
        answering = set(self._answering)
        for task in answering:
            task.cancel()
        if answering:  # what they run ends with them, which may take its time
            await asyncio.wait(answering, timeout=_MOST_END_S)
        await self._server.shutdown(_FAREWELL_S)

    def _protocol(self) -> asyncio.BaseProtocol:
        if len(self._server.connections) >= self._most:
            return _Closing()
        protocol: asyncio.BaseProtocol = self._server()
        return protocol

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = Asked(
            method=request.method,
            path=request.path,
            headers={name.lower(): value for name, value in request.headers.items()},
            length=request.content_length,
            pieces=lambda: _pieces(request),
            peer=request.remote or "?",
        )
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self._answering.add(task)
        try:
            answer = await self._reception.answer(asked)
        except asyncio.CancelledError:
            if not self._ending:
                raise
            task.uncancel()
            hint = "Send it again once it is started again."
            answer = error_answer(503, "the server ends before this was measured", hint, as_json=asked.as_json)
        except Exception as error:  # whatever it is, the server goes on and the client is told
            message = f"a defect of gnomon: {type(error).__name__}"
            answer = error_answer(500, message, "Please report it.", as_json=asked.as_json)
        finally:
            self._answering.discard(task)
        return _response(answer)


class _Closing(asyncio.Protocol):
    """Closes a connection for which there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


async def _pieces(request: web.BaseRequest) -> AsyncIterator[str | bytes]:
    """The form as it comes: the name of a part, then its bytes. ProblemError for whatever is malformed."""
    import aiohttp
    from aiohttp.http_exceptions import HttpProcessingError

    if request.content_type != "multipart/form-data":
        told = shown(request.headers.get("Content-Type", ""))
        raise _malformed(f"the content type is {told}, not multipart/form-data")
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    try:
        parts = await request.multipart()
        count = 0
        while (part := await parts.next()) is not None:
            count += 1
            if count > _MOST_PARTS:
                raise _malformed(f"it has more than {_MOST_PARTS} parts")
            if not isinstance(part, aiohttp.BodyPartReader) or not part.name:
                raise _malformed("a part has no Content-Disposition: form-data with a name")
            encoding = part.headers.get("Content-Transfer-Encoding", "binary")
            if encoding.lower() not in _PLAIN:
                raise _malformed(f"a part has the transfer encoding {shown(encoding)}, and only plain ones are read")
            yield part.name
            while piece := await part.read_chunk(_CHUNK_BYTES):
                yield piece
    except aiohttp_web().RequestPayloadError as error:
        raise ProblemError("the request's body is broken", hint="Send it again.") from error
    except (ValueError, AssertionError, RuntimeError, HttpProcessingError) as error:  # what aiohttp's reader raises
        ended = request.content.at_eof()
        raise _malformed("it ends before its last boundary" if ended else shown(str(error))) from error


def _malformed(what: str) -> ProblemError:
    return ProblemError(f"the form is malformed: {what}", hint=_HINT)


def _silence() -> None:
    """Keep aiohttp from warning of the headers that strangers send, with these in the text."""
    import aiohttp

    for category in (aiohttp.BadContentDispositionHeader, aiohttp.BadContentDispositionParam):
        warnings.filterwarnings("ignore", category=category)


def _response(answer: Answer) -> web.StreamResponse:
    response = aiohttp_web().Response(
        status=answer.status,
        body=answer.body.encode(),
        content_type="application/json" if answer.json else "text/plain",
        charset=None if answer.json else "utf-8",
        headers={
            "Server": f"gnomon/{gnomon.__version__}",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
            **answer.headers,
        },
    )
    response.force_close()
    made: web.StreamResponse = response
    return made


def aiohttp_web() -> Any:
    """aiohttp's server. RuntimeMissingError where it is not installed."""
    try:
        from aiohttp import web
    except ImportError as error:
        raise RuntimeMissingError(
            "aiohttp is not installed, and the server needs it", hint=install_line("http", python=sys.executable)
        ) from error
    return web


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
    allow_files(2 * settings.limits.queue + _SPARE_FILES)
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
    programs = [Program(folder=parts.folder, guard=parts.guard, tell=tell) for _ in parts.settings.measuring.devices]
    starting = asyncio.create_task(_started(parts, programs, begun, tell))
    both: set[asyncio.Future[Any]] = {starting, ended}
    try:
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
    finally:
        await asyncio.gather(*(program.end() for program in programs))


async def _started(
    parts: _Parts, programs: Sequence[Program], begun: Callable[[Listening], None], tell: Tell
) -> HttpServer:
    """A server that listens, once each device has shown that it measures."""
    settings, limits = parts.settings, parts.settings.limits
    lanes: list[Lane] = []
    facts: list[Found] = []
    for device, program in zip(settings.measuring.devices, programs, strict=True):
        order = _order(settings, device)
        found = await program.run(replace(order, job_s=max(order.job_s, _START_S)))
        if isinstance(found, Refused | Failed | TimedOut):
            raise _error_of(found)
        facts.append(found)
        order = replace(order, reference_s=tuple(found["reference_s"]))
        lanes.append(Lane(name=str(found["device"]), runner=program, order=order))
    whole = {**facts[0], "device": ", ".join(lane.name for lane in lanes)}
    reception = Reception(settings, Desk(limits, lanes, tell), parts.folder, whole)
    reception.tell_with(tell)
    server = HttpServer(reception, limits)
    try:
        port = await server.start(parts.addresses, settings.port)
        begun(Listening(host=settings.host, port=port, path=settings.path, facts=whole))
    except BaseException:
        await server.stop()
        raise
    return server


_FRESH = 3
"""Fresh processes a model, where the user does not say and none can be kept."""


def _order(settings: ServeSettings, device: str) -> Order:
    measuring, limits = settings.measuring, settings.limits
    here = resolve(device).address.kind == LOCAL
    return Order(
        runtime=measuring.runtime,
        command=measuring.command,
        device=device,
        threads=measuring.threads,
        backend=measuring.backend,
        precision=measuring.precision,
        processes=measuring.processes or _FRESH,
        warm=measuring.processes is None and measuring.command is None and here,
        seed=measuring.seed,
        record=None if measuring.record is None else str(whole(measuring.record)),
        job_s=limits.job_s or (JOB_S if measuring.command is None else COMMAND_S),
        memory_bytes=limits.memory_bytes,
        # The record of runs is written by the same processes, and grows.
        disk_bytes=_ROOM_FOR_RECORD + 8 * limits.most_bytes,
        model_bytes=limits.most_bytes,
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


@contextlib.contextmanager
def _guarded() -> Iterator[tuple[Path, Guard]]:
    """A folder for models, and the guard that removes it and ends what runs if this process is killed."""
    guard, folder = guarded("gnomon-serve-")
    try:
        yield folder, guard
    finally:
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
