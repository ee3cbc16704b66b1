"""Files and folders that are written completely or left unchanged, and journals of JSON with one document per line."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from gnomon.core.strict_json import Strict, cut_off
from gnomon.errors import ProblemError, UsageError, system_errors

_CHUNK = 1 << 20
_MOST_BYTES = 256 << 20
_MOST_JOURNAL_BYTES = 1 << 30
#: How many letters of a file's name its temporary name contains, because a name has at most 255 bytes.
_NAME = 48


def user_folder() -> Path:
    """The user's folder for gnomon, which also contains the record of runs: $GNOMON_HOME, otherwise
    $XDG_DATA_HOME/gnomon, otherwise ~/.local/share/gnomon.
    """
    if home := os.environ.get("GNOMON_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "gnomon"


def read_at_most(file: BinaryIO, most: int) -> bytes:
    """The rest of an open file, at most one byte more than `most`. Raises OSError or MemoryError.

    `read(n)` allocates n bytes before reading, which for a large limit is more memory than a small machine has.
    """
    there = 0
    with suppress(io.UnsupportedOperation):  # a file in memory
        there = os.fstat(file.fileno()).st_size
    parts = [file.read(min(there, most) + 1)]
    left = most + 1 - len(parts[0])
    while left > 0 and (more := file.read(min(_CHUNK, left))):
        parts.append(more)
        left -= len(more)
    return b"".join(parts)


def open_regular(path: Path, most_bytes: int) -> io.BufferedReader:
    """A regular file of at most `most_bytes` bytes, open for reading. OSError for anything else, such as a pipe.

    The file is opened without blocking and checked through its descriptor, so that a FIFO cannot cause a hang and the
    file cannot be exchanged between the check and the reading.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # an impossible file name
        raise OSError(errno.EINVAL, str(error)) from error
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= most_bytes:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    raise OSError(errno.EFBIG, f"it holds {status.st_size} bytes, more than the limit of {most_bytes}")


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file of at most `most_bytes` bytes. OSError for anything else, or if memory is short."""
    with open_regular(path, most_bytes) as file:
        try:
            content = read_at_most(file, most_bytes)
        except MemoryError as error:
            size = os.fstat(file.fileno()).st_size
            raise OSError(errno.ENOMEM, f"its {size} bytes do not fit into the free memory") from error
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, "it grew while it was read")
    return content


def read_file(path: Path, *, hint: str, most_bytes: int = _MOST_BYTES) -> bytes:
    """The content of a file that the user named. UsageError with this hint if it cannot be read or is too large."""
    with system_errors(UsageError, f"{path} cannot be read", hint=hint):
        return read_regular(path, most_bytes)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal digits. OSError if the file cannot be read."""
    with open_regular(path, sys.maxsize) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(content: bytes, path: Path) -> None:
    """Write a file completely to disk, or leave the old file unchanged. OSError if it cannot be written.

    A link stays a link, and the file that it leads to keeps its mode. Anything but a regular file (a terminal, a pipe)
    is written to directly.
    """
    target = path.resolve()
    there = path.stat() if path.exists() else None
    if there is not None and not stat.S_ISREG(there.st_mode):
        path.write_bytes(content)
        return
    with in_place_of(target) as partial, partial.open("xb") as file:
        if there is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(there.st_mode))
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """A path next to a file. A file written to it replaces the original when the block ends without an error.

    Otherwise the original stays, and no temporary file is left behind. Other programs never see a partial file, but the
    new content may be lost in a power failure: use `write_whole` for data that must not be lost. Raises OSError.
    """
    partial = path.with_name(f".{path.name[:_NAME]}.{secrets.token_hex(4)}.part")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def staged(destination: Path) -> Iterator[Path]:
    """A path next to the destination. A folder or file created at this path replaces the destination when the block
    ends without an error.

    In that case the destination's old content is removed; otherwise it stays. Parent folders are created. Raises
    OSError.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{destination.name[:_NAME]}-", dir=destination.parent))
    try:
        yield folder / "made"
        replace_folder(folder / "made", destination, folder / "before")
    finally:
        # If neither the new nor the old content could be put in place, the old content must not be removed too.
        if os.path.lexists(destination) or not os.path.lexists(folder / "before"):
            shutil.rmtree(folder, ignore_errors=True)


def replace_folder(fresh: Path, destination: Path, aside: Path) -> None:
    """Replace a folder or file with another; the old one is moved to `aside`, and moved back if that fails.

    All three paths must be on one disk. Raises OSError.
    """
    if not os.path.lexists(destination):
        fresh.rename(destination)
        return
    try:
        destination.rename(aside)
        fresh.rename(destination)
    except BaseException:  # also an interruption
        if os.path.lexists(aside) and not os.path.lexists(destination):
            aside.rename(destination)
        raise


def save_text(text: str, path: Path, *, what: str = "", option: str = "--out") -> None:
    """Write a text as UTF-8 with unchanged line endings. The old file stays until the new one is complete.

    UsageError if the file cannot be written; the message says `what` the text is, and the hint names the `option` for
    the path.
    """
    failing = f"{what} cannot be written to {path}" if what else f"{path} cannot be written"
    hint = f"Give {option} a file in a writable folder with free space."
    with system_errors(UsageError, failing, hint=hint):
        write_whole(text.encode("utf-8"), path)


def check_file(path: Path) -> None:
    """Raise UsageError if a file cannot be written; used before measuring, so that hours of measurements are not
    lost.
    """
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"{path} cannot be written", hint="Give a path to a file in a writable folder.")


class Journal:
    """A file of lines, open for appending. Not safe for several processes at once. Raises OSError."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; after an incomplete last line, the next document begins on a new line."""
        self.path = path
        # The file has no buffer, so that a failed write, which is reported at once, is not repeated later.
        self._file = path.open("ab", buffering=0)
        try:
            self._whole = _ends_a_line(path)
        except OSError:
            self._file.close()
            raise

    def append(self, *documents: Mapping[str, object]) -> None:
        """Add documents. ValueError for numbers that JSON cannot represent."""
        for document in documents:
            line = (json.dumps(document, allow_nan=False) + "\n").encode("ascii")
            self._write(line if self._whole else b"\n" + line)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: bytes) -> None:
        self._whole = False
        while line:
            line = line[self._file.write(line) :]
        self._whole = True


def read_journal(path: Path, strict: Strict) -> Iterator[tuple[int, Any]]:
    """Each line's number and document. Incomplete lines are left out, because they were never fully written.

    ProblemError, with the line's number, for a line that is not JSON, and OSError for a file that cannot be read.
    """
    if not path.exists():
        return
    lines = read_regular(path, _MOST_JOURNAL_BYTES).split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield number, strict.parse(line)
        except ProblemError as error:
            if cut_off(line.decode("utf-8", "replace")):
                continue
            raise ProblemError(f"{path}, line {number}: {error.message}", hint=error.hint) from error


def _ends_a_line(path: Path) -> bool:
    """Return True if text appended to a file begins a new line."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return True
        file.seek(size - 1)
        return file.read(1) == b"\n"
