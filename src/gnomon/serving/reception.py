"""What becomes of one request, whatever carries it: who asks for what, taking the model in, its turn, the reply."""

from __future__ import annotations

import hashlib
import hmac
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import gnomon
from gnomon.errors import ProblemError
from gnomon.report.plain import shorten
from gnomon.serving.answers import Answer, document_answer, error_answer, measured_answer, wants_json
from gnomon.serving.desk import Desk, Full, Place
from gnomon.serving.order import Failed, Found, Order, Outcome, Refused, TimedOut
from gnomon.serving.settings import ServeSettings
from gnomon.serving.upload import TooLarge, Upload, check_length, receive

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
    """Answers requests. `folder` takes the models in; `order` is what every model is measured with."""

    def __init__(self, settings: ServeSettings, desk: Desk, order: Order, folder: Path, facts: Found) -> None:
        self._settings, self._desk, self._order, self._folder = settings, desk, order, folder
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
            hint = f"Models are sent to {self._settings.path}; {HEALTH} tells of the server."
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
        return await receive(asked.pieces(), folder / "model.onnx", limits=self._settings.limits, place=place)

    async def _served(self, upload: Upload, as_json: bool) -> Answer:
        order = replace(self._order, model=str(upload.path), digest=upload.digest)
        served = await self._desk.measure(order)
        outcome = served.outcome
        if isinstance(outcome, Refused | Failed | TimedOut):
            return _failure(outcome, as_json)
        return measured_answer(outcome, upload.kernel_name, as_json=as_json)

    def _health(self) -> dict[str, object]:
        return {
            "gnomon": gnomon.__version__,
            **self._facts,
            "present": self._desk.present,
            "measuring": self._desk.measuring,
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
