"""The files that a keeper holds on the device: pushed ones, kept from visit to visit and found by their digest.

Runs on the device as a part of `keeper`: standard library only, and nothing of gnomon but its sister files.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable
from typing import Any

# It starts on devices where every import counts, so it does without pathlib:
# ruff: noqa: PTH101, PTH102, PTH103, PTH104, PTH108, PTH112, PTH114, PTH118, PTH123, PTH208, PTH211


KEPT_S = 30 * 24 * 3600.0
KEPT_BYTES = 4 << 30
_SYNC_BYTES = 32 << 20
_SMALL_BYTES = 1 << 20
_PART = ".part-"
#: The names that a keeper gives in its folder: whatever else lies there is somebody's own.
OURS = r"(?s)[0-9a-f]{64}(\.json)?|\.part-.*"

Entry = tuple[str, str, int]
"""A path below the pushed thing ("" for itself), "d", "f" or "x" (a folder, a file, a program), and its bytes."""


def remove(path: str) -> None:
    """Remove a file or folder with all in it, also where its folders were made unwritable. Raises nothing."""
    if not os.path.isdir(path) or os.path.islink(path):
        with contextlib.suppress(OSError):
            os.unlink(path)
        return
    shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(path):
        for folder, below, _ in os.walk(path):
            for name in ("", *below):
                with contextlib.suppress(OSError):
                    if not os.path.islink(os.path.join(folder, name)):
                        os.chmod(os.path.join(folder, name), 0o700)
        shutil.rmtree(path, ignore_errors=True)


def own_folder(path: str) -> None:
    """Make a folder, or see that it is one and nobody else can write there. OSError otherwise."""
    with contextlib.suppress(FileExistsError):
        os.makedirs(path, mode=0o700)
    _check_own(path)


def _check_own(path: str) -> None:
    """OSError unless it is a folder that nobody else can write to."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.ENOTDIR, "it is not a folder, or a link to one", path)
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(errno.EPERM, "it belongs to another user, or others may write to it", path)


class Pushed:
    """The folder of pushed things: `<digest>/<name>`, and beside it `<digest>.json`, without which it does not count.

    What is being received has a name of its own until it is whole. One at a time; the device's lease keeps other
    keepers out.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._receiving: _Receiving | None = None

    def find(self, digest: str, name: str) -> str | None:
        """The path of what has this digest, under that name, if it is here and as it was received. OSError where others
        may write to the folder.
        """
        if not re.fullmatch("[0-9a-f]{64}", digest) or not plain(name):
            raise OSError(errno.EINVAL, "not a name that the host may give", name)
        own_folder(self.root)  # what somebody else may have put there must not be run
        record, folder = self._record(digest), os.path.join(self.root, digest)
        try:
            with open(record, encoding="utf-8") as file:
                known = json.load(file)
            first = os.path.join(folder, known["name"])
            intact = all(_unchanged(first, *entry) for entry in known["entries"])
        except (OSError, ValueError, KeyError, TypeError):
            intact = False
        if not intact:
            remove(record)
            remove(folder)
            return None
        os.utime(record)
        wanted = os.path.join(folder, name)
        if name != known["name"] and not os.path.islink(wanted):
            os.symlink(known["name"], wanted)
        return wanted

    def begin(self, digest: str, name: str, entries: list[Entry]) -> None:
        """Get ready to receive the bytes of these entries, one after the other. OSError also if there is no room."""
        self.abort()
        own_folder(self.root)
        for entry in os.listdir(self.root):
            if entry.startswith(_PART):  # of a keeper that was killed
                remove(os.path.join(self.root, entry))
        disk = os.statvfs(self.root)
        if sum(size for _, _, size in entries) > disk.f_bavail * disk.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.root)
        part = tempfile.mkdtemp(prefix=_PART, dir=self.root)
        self._receiving = _Receiving(part, digest, name, entries)
        self._receiving.write(b"")

    def write(self, data: bytes) -> None:
        """The next bytes. OSError if they are too many or cannot be written."""
        if self._receiving is not None:
            self._receiving.write(data)

    def finish(self) -> str:
        """All bytes have come: make it count; return its path."""
        receiving = self._receiving
        if receiving is None:
            raise OSError(errno.EINVAL, "nothing is being received", self.root)
        known = receiving.finish()
        target = os.path.join(self.root, receiving.digest)
        remove(target)
        os.rename(receiving.folder, target)
        self._receiving = None
        record = self._record(receiving.digest)
        part = os.path.join(self.root, _PART + receiving.digest)
        try:
            with open(part, "w", encoding="utf-8") as file:
                json.dump(known, file)
            os.rename(part, record)
        except OSError:
            remove(part)
            remove(target)
            raise
        return os.path.join(target, receiving.name)

    def abort(self) -> None:
        """Forget what is being received."""
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.close()
            remove(receiving.folder)

    def prune(self, kept_s: float = KEPT_S, kept_bytes: int = KEPT_BYTES) -> None:
        """Remove what nobody asked for in so long, and the longest unused until the rest is so small; nothing else."""
        self.abort()
        used: list[tuple[float, int, str]] = []
        try:
            _check_own(self.root)
            found = [name for name in os.listdir(self.root) if re.fullmatch(OURS, name)]
        except OSError:  # there is none, or another stands in its place
            return
        for name in found:
            if name.endswith(".json"):
                path = os.path.join(self.root, name)
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(path, "rb") as file:
                    used.append((os.fstat(file.fileno()).st_mtime, int(json.load(file)["bytes"]), name[:-5]))
        known = {name for _, _, digest in used for name in (digest, digest + ".json")}
        for name in found:
            if name not in known:
                remove(os.path.join(self.root, name))
        total = sum(size for _, size, _ in used)
        for last_s, size, digest in sorted(used):
            if total > kept_bytes or time.time() - last_s > kept_s:
                remove(self._record(digest))
                remove(os.path.join(self.root, digest))
                total -= size

    def _record(self, digest: str) -> str:
        return os.path.join(self.root, digest + ".json")


class _Receiving:
    """One pushed thing while its bytes come."""

    def __init__(self, folder: str, digest: str, name: str, entries: Iterable[Entry]) -> None:
        self.folder, self.digest, self.name = folder, digest, name
        self._left = list(reversed(list(entries)))
        self._written: list[list[Any]] = []
        self._handle = -1
        self._missing = self._unsynced = self._bytes = 0
        self._current: Entry = ("", "f", 0)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while True:
            if self._handle >= 0:
                taken = min(len(view), self._missing)
                while taken:
                    count = os.write(self._handle, view[:taken])
                    view, taken = view[count:], taken - count
                    self._missing -= count
                    self._unsynced += count
                if self._unsynced >= _SYNC_BYTES:
                    # Bit by bit, so that neither one long wait nor writing back beside a measurement comes of it.
                    os.fdatasync(self._handle)
                    self._unsynced = 0
                if self._missing:
                    return
                self._finish_file()
            if not self._left:
                break
            self._start(self._left.pop())
        if view:
            raise OSError(errno.EINVAL, "more came than was said", self.folder)

    def finish(self) -> dict[str, Any]:
        if self._handle >= 0 or self._left:
            raise OSError(errno.EINVAL, "less came than was said", self.folder)
        return {"name": self.name, "bytes": self._bytes, "entries": self._written}

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _start(self, entry: Entry) -> None:
        path, kind, size = self._current = entry
        if path and not all(plain(part) for part in path.split("/")):
            raise OSError(errno.EINVAL, "not a path that the host may give", path)
        target = os.path.join(self.folder, self.name, path) if path else os.path.join(self.folder, self.name)
        if kind == "d":
            os.mkdir(target, 0o700)
            self._written.append([path, kind, 0, 0])
            return
        self._handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._missing, self._unsynced = size, 0

    def _finish_file(self) -> None:
        path, kind, size = self._current
        os.fchmod(self._handle, 0o500 if kind == "x" else 0o400)
        if size >= _SMALL_BYTES:
            os.fdatasync(self._handle)
        self._written.append([path, kind, size, os.fstat(self._handle).st_mtime_ns])
        self._bytes += size
        self.close()


def plain(name: str) -> bool:
    """Whether this is one part of a path, and leads nowhere else."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _unchanged(first: str, path: str, kind: str, size: int, mtime_ns: int) -> bool:
    found = os.lstat(os.path.join(first, path) if path else first)
    if kind == "d":
        return stat.S_ISDIR(found.st_mode)
    return stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == (size, mtime_ns)
