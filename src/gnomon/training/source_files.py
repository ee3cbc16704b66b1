"""Opening files of images, which may be hostile: regular files only, within a size, and within their folder."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from pathlib import Path
from typing import BinaryIO

from gnomon.errors import ProblemError, UsageError

LIMIT_BYTES = 2 << 30
"""What images may take in memory unless more is allowed."""
_PIECE = 1 << 20


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes; one that ends in .gz is unpacked.

    UsageError where it cannot be opened; ProblemError for what is no regular file, is broken, or is larger.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be opened: {told}", hint="Check the path and its rights.") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ProblemError(f"{path} is no regular file", hint="Give a file.")
        try:
            content = _read(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file, most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ProblemError(f"{path} cannot be read: {error}", hint="Copy or make the file again.") from error
    if len(content) > most:
        raise ProblemError(
            f"{path} holds more than {most} bytes", hint="Give fewer or smaller images, or allow more memory."
        )
    return content


def _read(file: gzip.GzipFile | BinaryIO, most: int) -> bytes:
    """At most so many bytes, in pieces: what is asked for at once is set aside at once."""
    content = bytearray()
    while len(content) < most and (piece := file.read(min(_PIECE, most - len(content)))):
        content += piece
    return bytes(content)


def inside(path: Path, root: Path) -> Path:
    """The path with its links followed. ProblemError where that leads out of the folder `root`."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
        raise ProblemError(f"{path} cannot be found", hint="Check the name, and where links lead.") from error
    if not real.is_relative_to(root.resolve()):
        raise ProblemError(f"{path} leads out of {root}", hint="Copy the file into the folder.")
    return real


def checked_folder(path: Path) -> Path:
    """The path of a folder. UsageError where there is none."""
    if not path.is_dir():
        raise UsageError(f"there is no folder {path}", hint="Give the path of a folder that is there.")
    return path
