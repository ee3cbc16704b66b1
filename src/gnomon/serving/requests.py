"""What becomes of one request, whatever carries it: who asks for what, taking the model in, its turn, the reply.

Replies: the published text, the JSON document, and errors in either.

Takes a request's body in: the model goes to a file as it comes, the rest stays small.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import gnomon
from gnomon.core.strict_json import Complaints, shown
from gnomon.errors import ProblemError
from gnomon.formats.dpu_profile import DpuLine, write_dpu_profile
from gnomon.report.plain import clean, json_text, shorten
from gnomon.serving.orders import Failed, Found, Outcome, Refused, TimedOut
from gnomon.serving.queue import Desk, Full, Place
from gnomon.serving.settings import Limits, ServeSettings

_INSIDE = frozenset({"reference_s", "workload_mop"})
"""What the measuring program tells the server alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply: its status, its body, and further headers. `told` is what the server says of it itself."""

    status: int
    body: str
    json: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    told: str = ""


def measured_answer(found: Found, kernel_name: str, *, as_json: bool) -> Answer:
    """The latency of a model: the profile's text as published, or all that is known of it."""
    told = f"{found['latency_s'] * 1e3:.4g} ms"
    if as_json:
        document = {"kernel_name": kernel_name, **{k: v for k, v in found.items() if k not in _INSIDE}}
        return Answer(status=200, body=_text(document), json=True, told=told)
    # The kernel's name is not in it: a name can hold what reads as a line of the profile.
    total = DpuLine(name="All", latency_ms=found["latency_s"] * 1e3, workload_mop=found["workload_mop"])
    return Answer(status=200, body=write_dpu_profile(total), told=told)


def error_answer(
    status: int, message: str, hint: str = "", *, as_json: bool, headers: Mapping[str, str] | None = None
) -> Answer:
    """What is wrong, and the next step: two lines as the command line prints them, or the same document."""
    message, hint = clean(message), clean(hint)
    if as_json:
        body = _text({"error": {"status": status, "message": message, "hint": hint}})
    else:
        body = f"error: {message}\n" + (f"hint: {hint}\n" if hint else "")
    return Answer(status=status, body=body, json=as_json, headers=headers or {}, told=message)


def document_answer(document: Mapping[str, Any]) -> Answer:
    """A document as it is."""
    return Answer(status=200, body=_text(document), json=True)


def wants_json(accept: str) -> bool:
    """Whether an Accept header names application/json, and no text before it: the published client names neither."""
    weights: dict[str, float] = {}
    for one in accept[:1000].split(","):
        kind, _, rest = one.partition(";")
        weight = 1.0
        for parameter in rest.split(";"):
            name, _, value = parameter.strip().partition("=")
            if name == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        weights[kind.strip().lower()] = weight
    wanted = weights.get("application/json", 0.0)
    return wanted > 0 and wanted >= weights.get("text/plain", 0.0)


def _text(document: Mapping[str, Any]) -> str:
    return json_text(document)


FILE, KERNEL_NAME = "file", "kernel_name"
MOST_KERNEL_NAME_BYTES = 512
_MOST_FORM_BYTES = 64 << 10
"""What a body may have beside the model."""

_HINT = "Send exactly two parts: curl -F kernel_name=NAME -F file=@MODEL"


class TooLarge(Exception):
    """The model, or what is sent beside it, is larger than is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A model that came in: its file, the SHA-256 of it, and the name under which the client knows it.

    The name is a text and nothing else: no path is made of it.
    """

    path: Path
    size_bytes: int
    digest: str
    kernel_name: str


@dataclass(slots=True, kw_only=True)
class _Taken:
    """What has come so far."""

    file: IO[bytes]
    limits: Limits
    place: Place
    complaints: Complaints = field(default_factory=lambda: Complaints(what="form", hint=_HINT))
    seen: list[str] = field(default_factory=list)
    name: bytearray = field(default_factory=bytearray)
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def begin(self, name: str) -> None:
        if name not in {FILE, KERNEL_NAME}:
            self.complaints.tell("parts", f"{shown(name)} is neither {KERNEL_NAME} nor {FILE}")
        elif name in self.seen:
            self.complaints.tell("parts", f"{name} is given twice")
        self.seen.append(name)

    def add(self, data: bytes) -> None:
        """The next bytes of the part that began last. What is complained about is not kept."""
        if self.complaints.told:
            return
        if self.seen[-1] == KERNEL_NAME:
            self.name += data
            if len(self.name) > MOST_KERNEL_NAME_BYTES:
                self.complaints.tell(KERNEL_NAME, f"more than {MOST_KERNEL_NAME_BYTES} bytes")
            return
        self.size += len(data)
        if self.size > self.limits.most_bytes:
            raise TooLarge(f"the model is larger than {self.limits.most_bytes} bytes")
        self.place.hold(len(data))
        self.digest.update(data)
        self.file.write(data)

    def kernel_name(self) -> str:
        """The name, once all has come. ProblemError with all that is wrong with the form."""
        for wanted in (KERNEL_NAME, FILE):
            if wanted not in self.seen:
                self.complaints.tell("parts", f"{wanted} is missing")
        name = self.name.decode("utf-8", "replace").strip()
        if KERNEL_NAME in self.seen and (not name or not name.isprintable() or "\ufffd" in name):
            self.complaints.tell(KERNEL_NAME, f"{shown(name)} is not a name of printable letters in UTF-8")
        if FILE in self.seen and not self.size and not self.complaints.told:
            self.complaints.tell(FILE, "it is empty")
        self.complaints.raise_any()
        return name


async def receive(pieces: AsyncIterator[str | bytes], path: Path, *, limits: Limits, place: Place) -> Upload:
    """Read a form (the name of each part, then its bytes) into the file `path`.

    ProblemError for a form that is malformed or lacks something, TooLarge, Full where there is no room for it beside
    the others, TimeoutError for a client that is too slow, OSError for a disk that has no room.
    """
    total = 0
    with path.open("xb") as file:
        taken = _Taken(file=file, limits=limits, place=place)
        async with asyncio.timeout(limits.upload_s):
            async for piece in _in_time(pieces, limits.idle_s):
                total += len(piece)
                if total > limits.most_bytes + _MOST_FORM_BYTES:
                    raise TooLarge(f"the request is larger than {limits.most_bytes} bytes")
                if isinstance(piece, str):
                    taken.begin(piece)
                else:
                    taken.add(piece)
    name = taken.kernel_name()
    return Upload(path=path, size_bytes=taken.size, digest=taken.digest.hexdigest(), kernel_name=name)


async def _in_time(pieces: AsyncIterator[str | bytes], idle_s: float) -> AsyncIterator[str | bytes]:
    """The pieces, each within so many seconds of the one before. TimeoutError."""
    while True:
        try:
            async with asyncio.timeout(idle_s):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        yield piece


def check_length(length: int | None, limits: Limits) -> None:
    """TooLarge for a request that says itself that it is."""
    if length is not None and length > limits.most_bytes + _MOST_FORM_BYTES:
        raise TooLarge(f"the request has {length} bytes, and a model at most {limits.most_bytes}")


HEALTH = "/health"
_WIDTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request: `headers` have names in small letters, `peer` is who asks, for people.

    `pieces` gives the form that is its body: the name of a part, then its bytes.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    length: int | None
    pieces: Callable[[], AsyncIterator[str | bytes]]
    peer: str

    @property
    def as_json(self) -> bool:
        """Whether the reply is to be JSON."""
        return wants_json(self.headers.get("accept", ""))


class Reception:
    """Answers requests. `folder` takes the models in; `facts` say what measures them."""

    def __init__(self, settings: ServeSettings, desk: Desk, folder: Path, facts: Found) -> None:
        self._settings, self._desk, self._folder = settings, desk, folder
        self._facts = {name: facts[name] for name in ("runtime", "version", "configuration", "device")}
        self._began = time.monotonic()
        self._tell: Callable[[str], None] = lambda line: None

    def tell_with(self, tell: Callable[[str], None]) -> None:
        """Say in a line what became of each request."""
        self._tell = tell

    async def answer(self, asked: Asked) -> Answer:
        """The reply to a request. Cancelled where its client goes: then its model leaves the queue, or is ended."""
        start = time.monotonic()
        name: list[str] = []
        try:
            refusal = self._refusal(asked)
            if refusal is not None:
                answer = refusal
            elif asked.path == HEALTH:
                answer = document_answer(self._health())
            else:
                answer = await self._measured(asked, name)
        except Exception as error:
            gone = isinstance(error, ConnectionError)
            self._line(asked, name, "gone" if gone else f"500 a defect of gnomon: {error!r}", start)
            raise
        except BaseException:  # its client has gone, or the server ends
            self._line(asked, name, "gone", start)
            raise
        self._line(asked, name, f"{answer.status} {answer.told}", start)
        return answer

    def _refusal(self, asked: Asked) -> Answer | None:
        """Why a request is not looked at any further; None for one that is."""
        path = asked.path if asked.path.endswith("/") else asked.path + "/"
        if asked.path != HEALTH and path != self._settings.path:
            hint = f"Models are sent to {self._settings.path}; {HEALTH} describes the server."
            return error_answer(404, "nothing is under this path", hint, as_json=asked.as_json)
        allowed = "GET" if asked.path == HEALTH else "POST"
        if asked.method != allowed:
            message = f"{shorten(asked.method, 20)} is not taken here, {allowed} is"
            return error_answer(405, message, as_json=asked.as_json, headers={"Allow": allowed})
        if asked.path == HEALTH:
            return None
        if self._settings.token is not None and not self._has_token(asked):
            headers = {"WWW-Authenticate": "Bearer"}
            hint = "Send the header Authorization: Bearer TOKEN."
            return error_answer(401, "the token is missing or wrong", hint, as_json=asked.as_json, headers=headers)
        if "origin" in asked.headers:
            # A page in somebody's browser can send forms to any server that the browser reaches, loopback included.
            return error_answer(403, "a web page may not send models", as_json=asked.as_json)
        if asked.headers.get("content-encoding", "identity").lower() != "identity":
            return error_answer(415, "a compressed request is not read", "Send it as it is.", as_json=asked.as_json)
        return None

    def _has_token(self, asked: Asked) -> bool:
        kind, _, given = asked.headers.get("authorization", "").partition(" ")
        # Digests have one length, and comparing them takes one time: neither tells anything of the token.
        digests = [
            hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
            for text in (given.strip(), self._settings.token or "")
        ]
        return hmac.compare_digest(*digests) and kind.lower() == "bearer"

    async def _measured(self, asked: Asked, name: list[str]) -> Answer:
        """The reply to a model that is sent; its name is added to a list as soon as it is known."""
        limits, as_json = self._settings.limits, asked.as_json
        try:
            check_length(asked.length, limits)
            with self._desk.place() as place:
                folder = Path(tempfile.mkdtemp(dir=self._folder))
                try:
                    upload = await self._received(asked, folder, place)
                    name.append(upload.kernel_name)
                    return await self._served(upload, as_json)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
        except Full as full:
            headers = {"Retry-After": str(full.retry_s)}
            hint = f"Try again in {full.retry_s} s."
            return error_answer(503, full.message, hint, as_json=as_json, headers=headers)
        except TooLarge as error:
            return error_answer(413, str(error), "Start the server with --most-mb N.", as_json=as_json)
        except ProblemError as error:
            return error_answer(400, error.message, error.hint, as_json=as_json)
        except TimeoutError:
            return error_answer(408, "the request came too slowly", "Send it again.", as_json=as_json)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            message = f"the model cannot be kept: {error.strerror or type(error).__name__}"
            return error_answer(507, message, "Make room on the server.", as_json=as_json)

    async def _received(self, asked: Asked, folder: Path, place: Place) -> Upload:
        return await receive(
            asked.pieces(), folder / self._settings.measuring.model_name, limits=self._settings.limits, place=place
        )

    async def _served(self, upload: Upload, as_json: bool) -> Answer:
        outcome = await self._desk.measure(upload.path, upload.digest)
        if isinstance(outcome, Refused | Failed | TimedOut):
            return _failure(outcome, as_json)
        return measured_answer(outcome, upload.kernel_name, as_json=as_json)

    def _health(self) -> dict[str, object]:
        return {
            "gnomon": gnomon.__version__,
            **self._facts,
            "present": self._desk.present,
            "measuring": self._desk.measuring,
            "devices": [lane.told() for lane in self._desk.lanes],
            "requests": dict(self._desk.counts),
            "up_s": round(time.monotonic() - self._began, 1),
        }

    def _line(self, asked: Asked, name: list[str], told: str, start: float) -> None:
        what = shorten(name[0], _WIDTH) if name else f"{shorten(asked.method, 10)} {shorten(asked.path, _WIDTH)}"
        self._tell(f"{asked.peer} {what}: {shorten(told, 200)} ({time.monotonic() - start:.2f} s)")


def _failure(outcome: Outcome, as_json: bool) -> Answer:
    if isinstance(outcome, TimedOut):
        said = f"; it last said: {outcome.said}" if outcome.said else ""
        message = f"the model was not measured within the {outcome.limit_s:g} s that a job may take here{said}"
        return error_answer(504, message, "Start the server with --job-timeout SECONDS.", as_json=as_json)
    if isinstance(outcome, Failed):
        message = f"this server cannot measure: {outcome.message}"
        return error_answer(500, message, outcome.hint, as_json=as_json)
    assert isinstance(outcome, Refused)  # noqa: S101
    return error_answer(422, outcome.message, outcome.hint, as_json=as_json)
