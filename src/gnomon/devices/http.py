"""The client of servers that measure a compiled model which is sent to them over HTTP, such as a board with a DPU.

The protocol is ssprofile's, kept letter by letter: POST of multipart/form-data with the field ``kernel_name`` and the
file ``file``; any status from 200 to 299 is good, and the body is the profile. Nothing else is sent, so that every
server of that kind understands it. `gnomon serve` is one; docs/jobs/serve.md describes both sides.

aiohttp is imported here only, inside functions.

What the statuses of a server of latencies mean: the model's failure, a wrong setting, or something that may pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import SplitResult, urlsplit

from gnomon.core.sample import Failure
from gnomon.core.strict_json import is_text
from gnomon.errors import DeviceError, UsageError
from gnomon.installing import needed

if TYPE_CHECKING:
    import aiohttp

_LOG_LETTERS = 2000
_TURNS = 100
_MOST_PAUSE_S = 3600.0

_SETTINGS = {
    401: ("wants a token, or another one", "Give the token that the server was started with: --dpu-token-file FILE."),
    403: ("does not let this client in", "Ask who runs the server."),
    404: ("has nothing under this path", "Check the path, and its slash at the end: /test_latency/test_latency/"),
    405: ("takes no POST under this path", "Check the path of the address."),
    407: ("is behind a proxy that wants a password", "Reach the server without that proxy."),
}
"""Statuses that any model would meet: what is wrong, and the next step."""


class Busy(Exception):
    """Something that may pass by itself; `after_s` is when to try again by the server's own word, if it has one."""

    def __init__(self, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = "Check that the server runs and can be reached, and start again: what was measured is kept."
        self.after_s = after_s


def judged(status: int, body: str, after_s: float | None, location: str | None) -> Failure:
    """The failure that a status other than 200 to 299 tells of the model.

    Raises Busy for 429, 502 and 503, and for a 504 that says when to come again; DeviceError for what no model could
    change: a wrong token or path, a redirection, which is never followed.
    """
    said = _first_line(body)
    if status in {429, 502, 503} or (status == 504 and after_s is not None):
        raise Busy(f"the server is busy or away (status {status}{said})", after_s=after_s)
    if 300 <= status < 400:
        where = ascii((location or "")[:200])
        raise DeviceError(
            f"the server sends elsewhere (status {status}, to {where})",
            hint="Redirections are not followed, as a model goes to nobody but who was named. Give that address.",
        )
    if status in _SETTINGS:
        what, hint = _SETTINGS[status]
        raise DeviceError(f"the server {what} (status {status}{said})", hint=hint)
    return Failure(
        stage="run",
        kind="hang" if status == 504 else "refused",
        transient=False,
        message=f"the server answered with status {status}{said}",
        log_tail=body[-_LOG_LETTERS:],
    )


def pause_s(retry_after: str | None) -> float | None:
    """Seconds that a Retry-After header means, from 0 to an hour; None without one or where it cannot be read."""
    if retry_after is None or len(retry_after) > 100:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, OverflowError, OSError):
            return None
    return min(max(seconds, 0.0), _MOST_PAUSE_S) if math.isfinite(seconds) else None


def _first_line(body: str) -> str:
    lines = body.strip().splitlines()
    if not lines:
        return ""
    text = lines[0][:200]
    return ": " + "".join(c if c.isprintable() else "?" for c in text)


NAME_SUFFIX = "SSPROFILE"
"""What the published client adds to a network's id to name its kernel."""

_CHUNK_BYTES = 1 << 16
_MOST_NAME = 512
_LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DpuServer:
    """Where a model is sent, and how patiently.

    `connect_s` bounds reaching the server, `timeout_s` one attempt whole: sending, waiting for its turn there, being
    measured. What may pass by itself is tried `retries` times more, after `pause_s` the first time and twice as long
    each time, or as long as the server says. `token` is sent as "Authorization: Bearer" where one is given;
    `accept_json` asks for intervals, which a server that does not know them answers with the text.
    """

    url: str
    token: str | None = None
    connect_s: float = 10.0
    timeout_s: float = 300.0
    retries: int = 4
    pause_s: float = 0.5
    most_upload_bytes: int = 256 << 20
    most_reply_bytes: int = 4 << 20
    accept_json: bool = False

    def __repr__(self) -> str:
        return f"DpuServer(url={self.url!r}, token={'given' if self.token else None})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DpuReply:
    """What a server replied to a model that it measured: the text of the body, and what the body is."""

    body: str
    is_json: bool


def kernel_name_of(network: str) -> str:
    """The name that the published client gives to the kernel of a network: its id, and SSPROFILE behind it."""
    return f"{network}{NAME_SUFFIX}"


def check_server(server: DpuServer) -> SplitResult:
    """The parts of the server's address. UsageError with all that is wrong with the settings."""
    wrong: list[str] = []
    parts = _split(server.url, wrong)
    for name in ("connect_s", "timeout_s"):
        if not 0 < getattr(server, name) < math.inf:
            wrong.append(f"{name} is {getattr(server, name)}, no finite number above 0")
    if server.retries < 0 or not 0 <= server.pause_s < math.inf:
        wrong.append("retries and pause_s cannot be negative")
    if server.token is not None and not (server.token.isascii() and server.token.isprintable() and server.token):
        wrong.append("the token is empty or holds letters that no header can carry")
    if wrong:
        raise UsageError(
            f"the server cannot be used: {'; '.join(wrong)}",
            hint="Give an address such as http://192.168.6.144:8055/path/, and a token by --dpu-token-file FILE.",
        )
    return parts


def measure_by_http(server: DpuServer, model: Path, kernel_name: str) -> DpuReply | Failure:
    """Send a compiled model to be measured and wait for the reply. Not for code that runs in an event loop.

    What the server says against this model is a Failure ("refused"; "hang" for status 504). DeviceError for the way to
    the server, which is as bad for every model: `transient` where it was tried again in vain. UsageError for settings,
    a name or a file that cannot be sent, RuntimeMissingError without aiohttp.
    """
    check_server(server)
    if not 0 < len(kernel_name) <= _MOST_NAME or not kernel_name.isprintable() or not is_text(kernel_name):
        raise UsageError("the kernel name cannot be sent", hint=f"Give 1 to {_MOST_NAME} printable letters.")
    _aiohttp()
    with _form(model, kernel_name, server.most_upload_bytes) as form:
        return asyncio.run(_patiently(server, form))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A body: what stands before and after the file's bytes, whose number is fixed.

    `wrong` is what the file was found to be while it was sent, which aiohttp tells as an error of the connection.
    """

    before: bytes
    file: BinaryIO
    size: int
    after: bytes
    boundary: str
    wrong: list[UsageError] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.before) + self.size + len(self.after)

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self.before
        left = self.size
        self.file.seek(0)
        while left:
            try:
                piece = self.file.read(min(_CHUNK_BYTES, left))
            except OSError as error:
                self.wrong.append(_unreadable(self.file.name, error))
                raise self.wrong[-1] from error
            if not piece:
                hint = "Leave it as it is."
                self.wrong.append(UsageError(f"{self.file.name} became shorter while it was sent", hint=hint))
                raise self.wrong[-1]
            left -= len(piece)
            yield piece
        yield self.after


async def _patiently(server: DpuServer, form: _Form) -> DpuReply | Failure:
    for attempt in range(server.retries + 1):
        try:
            return await _once(server, form)
        except Busy as busy:
            if form.wrong:
                raise form.wrong[0] from busy
            if attempt == server.retries:
                raise DeviceError(busy.message, hint=busy.hint, transient=True) from busy
            wished = server.pause_s * 2**attempt if busy.after_s is None else busy.after_s
            await asyncio.sleep(min(wished, _LONGEST_PAUSE_S))
    raise AssertionError("the last attempt returns or raises")


async def _once(server: DpuServer, form: _Form) -> DpuReply | Failure:
    """One attempt. Busy for what may pass by itself."""
    aiohttp = _aiohttp()
    answered = False
    timeout = aiohttp.ClientTimeout(total=server.timeout_s, sock_connect=server.connect_s)
    sockets: list[socket.socket] = []

    def opened(found: Any) -> socket.socket:
        family, kind, protocol, _, _ = found
        sockets.append(socket.socket(family, kind, protocol))
        return sockets[-1]

    try:
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(socket_factory=opened),
                timeout=timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            ) as session,
            session.post(
                server.url, data=form.pieces(), headers=_headers(server, form), allow_redirects=False
            ) as response,
        ):
            answered = True
            after_s = pause_s(response.headers.get("Retry-After"))
            body = await _body(response, server.most_reply_bytes)
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if not 200 <= response.status < 300:
                return judged(response.status, body, after_s, response.headers.get("Location"))
            return DpuReply(body=body, is_json=kind == "application/json")
    except TimeoutError as error:
        what = "did not end its reply" if answered else "did not answer"
        raise Busy(f"{_where(server)} {what} within {server.timeout_s:g} s") from error
    except aiohttp.ClientResponseError as error:  # it speaks, but no HTTP; before its parent ClientError
        raise _no_http(server, error) from error
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
        raise DeviceError(
            f"{_where(server)} has no certificate to be trusted: {error}", hint="Check the address and the certificate."
        ) from error
    except aiohttp.ClientPayloadError as error:
        raise Busy(f"{_where(server)} broke its reply off") from error
    except (aiohttp.ClientConnectionError, ConnectionError) as error:
        raise Busy(f"{_where(server)} cannot be reached: {_told(error)}") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise _no_http(server, error) from error
    finally:
        await _hung_up(sockets)


async def _hung_up(sockets: Sequence[socket.socket]) -> None:
    """End the connections for the server too: a transport with unsent bytes stays open when its session is closed."""
    for one in sockets:
        with contextlib.suppress(OSError):  # closed, or never connected
            one.shutdown(socket.SHUT_RDWR)
    for _ in range(_TURNS):
        if all(one.fileno() < 0 for one in sockets):
            return
        await asyncio.sleep(0)  # the loop finds the bytes unsendable, and closes


async def _body(response: aiohttp.ClientResponse, most: int) -> str:
    """The reply's text; what is not UTF-8 in it is replaced. DeviceError for one that is too long or compressed."""
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        raise DeviceError(
            f"the server's reply is compressed ({encoding[:40]!r}), which nobody asked for", hint="Check the address."
        )
    found = bytearray()
    async for piece in response.content.iter_chunked(_CHUNK_BYTES):
        found += piece
        if len(found) > most:
            raise DeviceError(
                f"the server's reply is longer than {most} bytes, which no profile is", hint="Check the address."
            )
    return found.decode(errors="replace")


def _headers(server: DpuServer, form: _Form) -> Mapping[str, str]:
    made = {
        "Content-Type": f"multipart/form-data; boundary={form.boundary}",
        "Content-Length": str(form.length),
        "Accept": "application/json, text/plain;q=0.5, */*;q=0.1" if server.accept_json else "*/*",
        "Accept-Encoding": "identity",
    }
    if server.token is not None:
        made["Authorization"] = f"Bearer {server.token}"
    return made


@contextlib.contextmanager
def _form(model: Path, kernel_name: str, most: int) -> Iterator[_Form]:
    """The two parts, with the file open. UsageError for a file that is not there, is empty or too large."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(model.open("rb")) if model.is_file() else None
            size = -1 if file is None else os.fstat(file.fileno()).st_size
        except OSError as error:
            raise _unreadable(model, error) from error
        if file is None or not 0 < size <= most:
            what = "is not a file" if size < 0 else "is empty" if not size else f"has {size} bytes, more than {most}"
            raise UsageError(f"{model} cannot be sent: it {what}", hint="Give a compiled model of a bearable size.")
        boundary = secrets.token_hex(16)
        # A server may tell files from fields by the file's name; what that name says is nobody's business.
        name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in model.name)[-100:]
        before = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="kernel_name"\r\n\r\n{kernel_name}\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        )
        after = f"\r\n--{boundary}--\r\n"
        yield _Form(before=before.encode(), file=file, size=size, after=after.encode(), boundary=boundary)


def _unreadable(model: Path | str, error: OSError) -> UsageError:
    return UsageError(f"{model} cannot be read: {error.strerror}", hint="Check the path and its rights.")


def _split(url: str, wrong: list[str]) -> SplitResult:
    """The parts of an address, with what is wrong with it added to a list; no password gets into that."""
    parts = SplitResult("", "", "", "", "")
    if not (url.isascii() and url.isprintable()) or " " in url:
        wrong.append("the address holds blanks or letters that no address has")
        return parts
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        _ = parts.port
        if parts.scheme not in {"http", "https"}:
            wrong.append("the address begins neither with http:// nor with https://")
        if not parts.hostname:
            wrong.append("the address names no host")
        if "@" in parts.netloc:
            wrong.append("the address holds a user name or a password; give a token instead")
        if parts.fragment:
            wrong.append("the address has a fragment (#), which no server sees")
        return parts
    wrong.append("the address cannot be read")
    return parts


def _where(server: DpuServer) -> str:
    parts = urlsplit(server.url)
    return f"{parts.scheme}://{parts.netloc}"


def _no_http(server: DpuServer, error: Exception) -> DeviceError:
    return DeviceError(
        f"{_where(server)} does not answer in HTTP: {_told(error)}", hint="Check the address, above all its port."
    )


def _told(error: Exception) -> str:
    """The error in one short line of printable letters, as it may quote what came."""
    text = " ".join((str(error) or type(error).__name__).split())[:200]
    return "".join(c if c.isprintable() else "?" for c in text)


def _aiohttp() -> Any:
    with needed("sending models to a server needs aiohttp, which cannot be loaded", "http"):
        import aiohttp
    return aiohttp
