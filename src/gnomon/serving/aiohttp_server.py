"""HTTP by aiohttp, which is imported here only, inside functions: what a reception answers, on sockets.

One request a connection. A request line, its headers and the time for them are bounded; compressed bodies are not
unpacked; connections beyond a number are closed at once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import warnings
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import gnomon
from gnomon.core.installing import install_line
from gnomon.core.strict_json import shown
from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.serving.answers import Answer, error_answer
from gnomon.serving.reception import Asked, Reception
from gnomon.serving.settings import Limits

if TYPE_CHECKING:
    from aiohttp import web

_LINGER_S = 2.0
"""How long what a refused client still sends is read, so that it gets to see the answer."""

_MORE_CONNECTIONS = 64
"""Connections beyond those of requests that are let in: for heads that are coming, refusals and /health."""

_MOST_END_S = 30.0
"""How long the end of a running measurement is waited for: it is killed long before."""

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
        """Listen no more, and cancel what is under way, which ends before this returns."""
        if self._listening is not None:
            self._listening.close()
        self._server.pre_shutdown()
        answering = set(self._answering)
        for task in answering:
            task.cancel()
        if answering:  # what they run ends with them, which may take its time
            await asyncio.wait(answering, timeout=_MOST_END_S)
        await self._server.shutdown(0.1)

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
