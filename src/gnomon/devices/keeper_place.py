# ruff: noqa: PTH100, PTH118 - starts on devices where every import counts: it does without pathlib
"""A keeper's place on the device: the lease, the private folder, and a guard in case the keeper itself is killed.

Runs on the device as a part of `keeper`: standard library only, and nothing of gnomon but its sister files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import tempfile

from .keeper_files import own_folder, remove


class Lease:
    """The kernel's lock on the file that a gnomon at home on this device would lock (`gnomon.devices.lease`)."""

    def __init__(self) -> None:
        folder = os.environ.get("GNOMON_LEASES") or f"/tmp/gnomon-leases-{os.getuid()}"  # noqa: S108 - own_folder
        own_folder(folder)
        path = os.path.join(folder, "lease-local.lock")
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def take(self) -> str | None:
        """None if it is held now, else the process that holds it."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.pread(self._handle, 32, 0).decode("ascii", "replace").strip("\0\n ") or "unknown"
        with contextlib.suppress(OSError):  # on a full disk the lease holds all the same; only its holder has no name
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, b"%d\n" % os.getpid(), 0)
        return None

    def close(self) -> None:
        """Release it."""
        os.close(self._handle)


class Guard:
    """A child that ends the groups and removes the private folder if the keeper dies without saying `done`."""

    def __init__(self) -> None:
        reading, self._pipe = os.pipe()
        if os.fork() == 0:
            os.close(self._pipe)
            try:
                _guard(reading)
            finally:
                os._exit(0)
        os.close(reading)

    def say(self, word: str, what: object = "") -> None:
        """`folder PATH`, `add GROUP`, `drop GROUP` or `done`."""
        with contextlib.suppress(OSError):  # somebody may have killed it; the work goes on without that net
            os.write(self._pipe, f"{word} {what}\n".encode("utf-8", "surrogateescape"))


def _guard(reading: int) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # else the connection would stay open as long as this process
        os.dup2(nothing, stream)
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    folder = ""
    with open(reading, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            word, _, what = line.rstrip("\n").partition(" ")
            if word == "folder":
                folder = what
            elif word == "add":
                groups.add(int(what))
            elif word == "drop":
                groups.discard(int(what))
            elif word == "done":
                return
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    if folder:
        remove(folder)


def private_folder() -> str:
    """A new empty folder in the device's directory for temporary files."""
    base = os.environ.get("TMPDIR") or tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="gnomon-", dir=os.path.abspath(base))
