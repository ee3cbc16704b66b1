"""The parts of a file or folder on this machine, and the digest by which a device recognises known contents."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gnomon.errors import DeviceError, system_errors
from gnomon.system.files import file_digest

_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A folder ("d"), file ("f") or program ("x"), with its path below the pushed item ("" for the item itself)."""

    path: str
    kind: str
    size_bytes: int
    digest: str
    source: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All parts, with folders before their contents, in an order that depends only on their names.

    Links are resolved. `digest` is the SHA-256 of the parts' paths, kinds, sizes and digests. The digest does not cover
    the name of the pushed item, times, or owners.
    """

    parts: tuple[Part, ...]
    digest: str

    @property
    def size_bytes(self) -> int:
        """The total size of the files."""
        return sum(part.size_bytes for part in self.parts)


def manifest_of(source: Path) -> Manifest:
    """Read a file, or a folder with all its contents. DeviceError for anything that is unreadable or neither of
    these.
    """
    parts = tuple(_parts(source, "", ()))
    described = json.dumps([(part.path, part.kind, part.size_bytes, part.digest) for part in parts])
    return Manifest(parts=parts, digest=hashlib.sha256(described.encode()).hexdigest())


def _parts(source: Path, path: str, above: tuple[tuple[int, int], ...]) -> Iterator[Part]:
    with _reading(source):
        status = source.stat()
        if stat.S_ISREG(status.st_mode):
            kind = "x" if status.st_mode & stat.S_IXUSR else "f"
            yield Part(path=path, kind=kind, size_bytes=status.st_size, digest=file_digest(source), source=source)
            return
        identity = (status.st_dev, status.st_ino)
        if not stat.S_ISDIR(status.st_mode) or identity in above:
            what = "a link to a folder that contains it" if identity in above else "neither a file nor a folder"
            raise DeviceError(f"{source} is {what}", hint="Use only plain files and folders, and links to them.")
        names = sorted(below.name for below in source.iterdir())
    yield Part(path=path, kind="d", size_bytes=0, digest="", source=source)
    for name in names:
        yield from _parts(source / name, f"{path}/{name}" if path else name, (*above, identity))


def contents(part: Part) -> Iterator[bytes]:
    """The bytes of a file in chunks. DeviceError if they no longer match its digest."""
    running, left = hashlib.sha256(), part.size_bytes
    with _reading(part.source), part.source.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            left -= len(chunk)
            if left < 0:
                break
            running.update(chunk)
            yield chunk
    if left or running.hexdigest() != part.digest:
        message = f"{part.source} changed while it was being sent"
        raise DeviceError(message, hint="Start again once the file no longer changes.", transient=True)


def _reading(source: Path) -> AbstractContextManager[None]:
    return system_errors(DeviceError, f"{source} cannot be read", hint="Check the path and its permissions.")
