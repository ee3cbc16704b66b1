"""The HTTP application: a model is received, waits for a device, and its latency is the response.

Each connection carries one request. Every response, errors included, is the published text or a JSON document.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

import gnomon
from gnomon.core.codec import to_json
from gnomon.core.strict_json import Complaints, shown
from gnomon.errors import ProblemError
from gnomon.formats.dpu_profile import write_dpu_profile
from gnomon.report.plain import clean, json_text, shorten
from gnomon.serving.job import Measurement, Outcome
from gnomon.serving.queue import Queue, RequestError
from gnomon.serving.settings import ServeSettings

HEALTH = "/health"
FILE, KERNEL_NAME = "file", "kernel_name"
_MOST_NAME_BYTES = 512
_MOST_FORM_BYTES = 64 << 10
"""The largest size of a body without the model."""

_MOST_PARTS = 16
_CHUNK_BYTES = 1 << 16
_LINGER_S = 2.0
"""How long the remaining data of a refused client is read, so that the client sees the response."""

_MOST_END_S = 30.0
"""The longest wait for the end of a running measurement, which is normally killed long before that."""

_FAREWELL_S = 1.0
"""How long a waiting client has to receive its response when the server ends."""

_WIDTH = 60
_INTERNAL = frozenset({"reference_s", "workload_mop"})
"""Keys of a measurement that only the server uses."""

_HEADERS = {
    "Server": f"gnomon/{gnomon.__version__}",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_PARTS_HINT = "Send exactly two parts: curl -F kernel_name=NAME -F file=@MODEL"
_FORM_HINT = "Send multipart/form-data, as `curl -F file=@MODEL -F kernel_name=NAME` does."
_SIZE_HINT = "Start the server with --most-mb N."
_ACCEPTED = re.compile(r"(application/json|text/plain)\s*(?:;\s*q=([01](?:\.\d*)?))?", re.ASCII)
_NUMERIC = re.compile(r"[0-9.]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%]*")
_NAME, _SUMMARY = web.RequestKey("name", str), web.RequestKey("summary", str)
"""The client's name for its model, and a summary of the request for the log."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RequestHandler:
    """Answers requests. `folder` receives the models, and `facts` describe the runtime and the device.

    `heard` are the connections whose request head has arrived.
    """

    def __init__(
        self, settings: ServeSettings, queue: Queue, folder: Path, facts: Mapping[str, str], log: Callable[[str], None]
    ) -> None:
        self._settings, self._queue, self._folder, self._log, self._facts = settings, queue, folder, log, facts
        self._start_s = time.monotonic()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.heard: WeakSet[object] = WeakSet()
        self._ending = False

    def runner(self) -> web.AppRunner:
        """The runner of the application. It cancels the handler of a client that has gone, and all handlers at its end.

        The size of a request's line and headers, and the time for sending them, are limited, and compressed bodies are
        not unpacked.
        """
        # aiohttp would warn about headers that strangers send, and log them.
        for category in (aiohttp.BadContentDispositionHeader, aiohttp.BadContentDispositionParam):
            warnings.filterwarnings("ignore", category=category)
        silent = logging.Logger("gnomon.serving", logging.CRITICAL + 1)
        application = web.Application(middlewares=[self._logged, self._answered])
        application.router.add_get(HEALTH, self._health, allow_head=False)
        for path in (self._settings.path, self._settings.path.rstrip("/")):
            application.router.add_post(path, self._measure, expect_handler=_continue_later)
        application.on_shutdown.append(self._end)
        return web.AppRunner(
            application,
            shutdown_timeout=_FAREWELL_S,
            handler_cancellation=True,
            access_log=None,
            logger=silent,
            auto_decompress=False,
            keepalive_timeout=self._settings.limits.head_s,
            lingering_time=_LINGER_S,
        )

    async def _end(self, application: web.Application) -> None:
        """Cancel all running requests, answer their clients, and wait until that is done."""
        self._ending = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_MOST_END_S)

    @web.middleware
    async def _logged(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        start, ending = time.monotonic(), "gone"
        self.heard.add(request.transport)
        try:
            response = await handler(request)
            ending = f"{response.status} {request.get(_SUMMARY, '')}"
        finally:
            name = request.get(_NAME, f"{shorten(request.method, 10)} {request.path}")
            seconds = time.monotonic() - start
            self._log(f"{request.remote} {shorten(name, _WIDTH)}: {shorten(ending, 200)} ({seconds:.2f} s)")
        return response

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The response of a handler, or the response to its error."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self._tasks.add(task)
        try:
            return await handler(request)
        except ConnectionError:
            raise
        except asyncio.CancelledError:
            if not self._ending:
                raise
            task.uncancel()
            message = "the server stopped before the model was measured"
            error = RequestError(503, message, "Send the model again when the server has restarted.")
        except Exception as caught:
            error = self._error_of(caught)
        finally:
            self._tasks.discard(task)
        request[_SUMMARY] = error.message
        message, hint = clean(error.message), clean(error.hint)
        if _is_json(request):
            document = {"error": {"status": error.status, "message": message, "hint": hint}}
            return _response(json_text(document), "application/json", error.status, error.headers)
        body = f"error: {message}\n" + (f"hint: {hint}\n" if hint else "")
        return _response(body, "text/plain", error.status, error.headers)

    def _error_of(self, error: Exception) -> RequestError:
        match error:
            case RequestError():
                return error
            case web.HTTPNotFound():
                hint = f"Models are sent to {self._settings.path}; {HEALTH} describes the server."
                return RequestError(404, "there is nothing at this path", hint)
            case web.HTTPMethodNotAllowed():
                allowed = ", ".join(error.allowed_methods)
                message = f"{shorten(error.method, 20)} is not allowed here, only {allowed}"
                return RequestError(405, message, headers={"Allow": allowed})
            case ProblemError():
                return RequestError(400, error.message, error.hint)
            case TimeoutError():
                return RequestError(408, "the request came too slowly", "Send it again.")
            case OSError():
                message = f"the model cannot be stored: {error.strerror or type(error).__name__}"
                return RequestError(507, message, "Free space on the server.")
        self._log(f"a defect of gnomon: {error!r}")
        return RequestError(500, f"a defect of gnomon: {type(error).__name__}", "Please report it.")

    async def _health(self, request: web.Request) -> web.Response:
        self._check_page(request)
        queue = self._queue
        document = {
            "gnomon": gnomon.__version__,
            **self._facts,
            "present": queue.present,
            "measuring": any(device.busy for device in queue.devices),
            "devices": [device.status for device in queue.devices],
            "requests": queue.counts,
            "up_s": round(time.monotonic() - self._start_s, 1),
        }
        return _response(json_text(document), "application/json")

    async def _measure(self, request: web.Request) -> web.Response:
        self._check_head(request)
        with self._queue.admitted() as hold:
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            try:
                path = folder / self._settings.measuring.model_name
                name, digest = await self._receive(request, path, hold)
                request[_NAME] = name
                outcome = await self._queue.measure(path, digest)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        result = self._result_of(outcome)
        milliseconds = result.latency_s * 1e3
        request[_SUMMARY] = f"{milliseconds:.4g} ms"
        if _is_json(request):
            document = {"kernel_name": name, **to_json(result)}
            return _response(json_text({k: v for k, v in document.items() if k not in _INTERNAL}), "application/json")
        # The kernel's name is left out, as a name could look like a line of the profile.
        return _response(write_dpu_profile(milliseconds, result.workload_mop), "text/plain")

    def _check_page(self, request: web.Request) -> None:
        """RequestError for a request from a web page, because a page can reach every server that its browser can reach.

        A page sends no Origin to its own server, whose name may since have been made to point to this machine.
        """
        headers = request.headers
        host = re.sub(r":\d*\Z", "", headers.get("Host", "")).strip("[]")
        if "Origin" in headers or headers.get("Sec-Fetch-Site") == "cross-site":
            raise RequestError(403, "web pages may not use this server")
        hosts = {"", "localhost", self._settings.host, socket.gethostname()}
        if request.method == "GET" and not _NUMERIC.fullmatch(host) and host not in hosts:
            raise RequestError(403, "the header Host names another server", "Use the address of this machine.")

    def _check_head(self, request: web.Request) -> None:
        """RequestError for a request that is refused before its body is read."""
        headers, length, most = request.headers, request.content_length, self._settings.limits.most_bytes
        kind, _, token = headers.get("Authorization", "").partition(" ")
        wanted = self._settings.token
        if wanted is not None:
            # Digests have equal lengths, so the time of a comparison does not reveal the token's length.
            given = hashlib.sha256(token.strip().encode(errors="surrogateescape")).digest()
            if kind.lower() != "bearer" or not hmac.compare_digest(given, hashlib.sha256(wanted.encode()).digest()):
                hint = "Send the header Authorization: Bearer TOKEN."
                raise RequestError(401, "the token is missing or wrong", hint, {"WWW-Authenticate": "Bearer"})
        self._check_page(request)
        if headers.get("Content-Encoding", "identity").lower() != "identity":
            raise RequestError(415, "compressed requests are not accepted", "Send the model uncompressed.")
        if length is not None and length > most + _MOST_FORM_BYTES:
            raise RequestError(413, f"the request has {length} bytes, but a model may have at most {most}", _SIZE_HINT)

    async def _receive(self, request: web.Request, path: Path, hold: Callable[[int], None]) -> tuple[str, str]:
        """Receive a model into the file `path`; return its name and its digest.

        ProblemError for a malformed or incomplete form, RequestError for a model that is too large, TimeoutError for a
        client that is too slow, OSError for a full disk.
        """
        limits, loop = self._settings.limits, asyncio.get_running_loop()
        parts: list[str] = []
        name, digest = bytearray(), hashlib.sha256()
        with path.open("xb") as file:
            async with asyncio.timeout(limits.upload_s), asyncio.timeout(limits.idle_s) as idle:
                async for part, chunk in _form_of(request):
                    idle.reschedule(loop.time() + limits.idle_s)
                    if request.content.total_bytes > limits.most_bytes + _MOST_FORM_BYTES:
                        raise RequestError(413, f"the request is larger than {limits.most_bytes} bytes", _SIZE_HINT)
                    if not chunk:
                        parts.append(part)
                    elif parts.count(part) > 1:
                        continue  # refused at the end, together with all other errors
                    elif part == KERNEL_NAME and len(name) <= _MOST_NAME_BYTES:
                        name += chunk
                    elif part == FILE:
                        if file.tell() + len(chunk) > limits.most_bytes:
                            raise RequestError(413, f"the model is larger than {limits.most_bytes} bytes", _SIZE_HINT)
                        hold(len(chunk))
                        digest.update(chunk)
                        file.write(chunk)
            size = file.tell()
        return _checked_name(parts, bytes(name), size), digest.hexdigest()

    def _result_of(self, outcome: Outcome) -> Measurement:
        """The measurement. RequestError for any other outcome."""
        match outcome.kind:
            case "refused":
                raise RequestError(422, outcome.message, outcome.hint)
            case "failed":
                raise RequestError(500, f"this server cannot measure: {outcome.message}", outcome.hint)
            case "timed_out":
                limit_s = f"{self._settings.limits.job_s:g} s"
                message = f"the model was not measured within the {limit_s} that a job may take here"
                message += f"; the last message was: {outcome.message}" if outcome.message else ""
                raise RequestError(504, message, "Start the server with --job-timeout SECONDS.")
        assert outcome.result is not None  # noqa: S101
        return outcome.result


async def _continue_later(request: web.Request) -> None:
    """Send no `100 Continue` yet: the form's reader sends it once the head has been checked."""


async def _form_of(request: web.Request) -> AsyncIterator[tuple[str, bytes]]:
    """The parts of a form as they arrive: for each part, first its name without bytes, then its name with each chunk.
    ProblemError.
    """
    if request.content_type != "multipart/form-data":
        content_type = shown(request.headers.get("Content-Type", ""))
        raise _malformed(f"the content type is {content_type}, not multipart/form-data")
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
            if encoding.lower() not in {"7bit", "8bit", "binary"}:
                raise _malformed(f"a part has the transfer encoding {shown(encoding)}, not 7bit, 8bit or binary")
            yield part.name, b""
            while chunk := await part.read_chunk(_CHUNK_BYTES):
                yield part.name, chunk
    except web.RequestPayloadError as error:
        raise ProblemError("the request's body is broken", hint="Send it again.") from error
    except (ValueError, AssertionError, RuntimeError, HttpProcessingError) as error:  # raised by aiohttp's reader
        ended = request.content.at_eof()
        raise _malformed("it ends before its last boundary" if ended else shown(str(error))) from error


def _checked_name(parts: Sequence[str], name: bytes, size: int) -> str:
    """The model's name in a form with a model of this size. ProblemError with all errors."""
    complaints = Complaints(what="form", hint=_PARTS_HINT)
    for number, part in enumerate(parts):
        if part not in (KERNEL_NAME, FILE):
            complaints.tell("parts", f"{shown(part)} is neither {KERNEL_NAME} nor {FILE}")
        elif part in parts[:number]:
            complaints.tell("parts", f"{part} is given twice")
    for part in (KERNEL_NAME, FILE):
        if part not in parts:
            complaints.tell("parts", f"{part} is missing")
    text = name.decode("utf-8", "replace").strip()
    if len(name) > _MOST_NAME_BYTES:
        complaints.tell(KERNEL_NAME, f"it has more than {_MOST_NAME_BYTES} bytes")
    elif KERNEL_NAME in parts and (not text or not text.isprintable() or "\ufffd" in text):
        complaints.tell(KERNEL_NAME, f"{shown(text)} is not a name of printable characters in UTF-8")
    if FILE in parts and not size and not complaints.sentences:
        complaints.tell(FILE, "it is empty")
    complaints.raise_any()
    return text


def _malformed(reason: str) -> ProblemError:
    return ProblemError(f"the form is malformed: {reason}", hint=_FORM_HINT)


def _is_json(request: web.Request) -> bool:
    """Return True if the Accept header prefers application/json to text; the published client names neither."""
    accept = request.headers.get("Accept", "").lower()
    weights = {kind: float(weight or 1) for kind, weight in _ACCEPTED.findall(accept)}
    wanted = weights.get("application/json", 0.0)
    return wanted > 0 and wanted >= weights.get("text/plain", 0.0)


def _response(
    body: str, content_type: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    response = web.Response(
        status=status,
        body=body.encode(),
        content_type=content_type,
        charset="utf-8" if content_type == "text/plain" else None,
        headers={**_HEADERS, **(headers or {})},
    )
    response.force_close()
    return response
