"""Takes a request's body in: the model goes to a file as it comes, the rest stays small."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from gnomon.core.strict_json import shown
from gnomon.formats.complaints import Complaints
from gnomon.serving.desk import Place
from gnomon.serving.settings import Limits

FILE, KERNEL_NAME = "file", "kernel_name"
MOST_KERNEL_NAME_BYTES = 512
_MOST_FORM_BYTES = 64 << 10
"""What a body may have beside the model."""

_HINT = "Send exactly two parts: curl -F kernel_name=NAME -F file=@MODEL.onnx"


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
            self.complaints.tell("parts", f"{shown(name)} is none of {KERNEL_NAME} and {FILE}")
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
            self.complaints.tell(KERNEL_NAME, f"{shown(name)} is no name of printable letters in UTF-8")
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
