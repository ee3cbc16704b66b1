"""A keeper's place on the device: the lease, the private folder, and a guard in case the keeper itself is killed.

Runs on the device as a part of `keeper`: standard library only, and nothing of gnomon but its sister files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import tempfile
import time

from .keeper_files import own_folder, remove

# ruff: noqa: PTH100, PTH108, PTH118, PTH208 - starts on devices where every import counts: it does without pathlib


class Lease:
    """The exclusive use of a device, first come first served.

    It is the kernel's lock on a file in the folder of leases, so it ends when its process does, however that ends. Who
    waits has a ticket there: a file with a number, locked as long as its process lives; the least number is the next.
    Tickets are made and looked at under a lock on the folder. A process that does not wait in turn (a shell's, where
    there is no Python) is kept out all the same, but it may come first.
    """

    def __init__(self, folder: str = "", name: str = "local", command: str = "") -> None:
        """Open the file. `command` is told to those that will wait for this process. OSError where that fails."""
        folder = folder or os.environ.get("GNOMON_LEASES") or f"/tmp/gnomon-leases-{os.getuid()}"  # noqa: S108 - own
        own_folder(folder)
        self._folder, self._name, self._command = folder, name, command
        path = os.path.join(folder, f"lease-{name}.lock")
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._ticket: tuple[int, int] | None = None

    def take(self) -> str | None:
        """None if it is held now, else who is before this process, which is in the queue then. OSError if neither."""
        gate = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            before = self._before()
            owner = owner_of(self._handle)
            if owner is None and before:
                owner = before[min(before)]
                fcntl.flock(self._handle, fcntl.LOCK_UN)
            if owner is None:
                self._write(self._handle)
                self._drop()
            elif self._ticket is None:
                number = max(before, default=0) + 1
                path = self._path(number)
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._ticket = number, handle
                self._write(handle)
            return owner
        finally:
            os.close(gate)

    def close(self) -> None:
        """Release it, or stop waiting for it."""
        self._drop()
        os.close(self._handle)

    def _before(self) -> dict[int, str]:
        """Who waits before this process, by the numbers of their tickets."""
        before: dict[int, str] = {}
        for found in os.listdir(self._folder):
            number = self._number(found)
            if number is None or (self._ticket is not None and number >= self._ticket[0]):
                continue
            with contextlib.suppress(FileNotFoundError):  # its process has just left the queue
                handle = os.open(self._path(number), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    owner = owner_of(handle, fcntl.LOCK_SH)
                    if owner is None:
                        os.unlink(self._path(number))  # its process died
                    else:
                        before[number] = owner
                finally:
                    os.close(handle)
        return before

    def _write(self, handle: int) -> None:
        """Tell in a file that is locked who has it."""
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same; only its holder has no name
            os.ftruncate(handle, 0)
            told = [str(os.getpid()), *([self._command] if self._command else [])]
            os.pwrite(handle, "".join(f"{line}\n" for line in told).encode("utf-8", "replace"), 0)

    def _number(self, found: str) -> int | None:
        """The number of a ticket for this device, by the name of its file."""
        ticket = re.fullmatch(rf"lease-{re.escape(self._name)}\.([0-9]{{1,9}})\.ticket", found)
        return int(ticket[1]) if ticket else None

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"lease-{self._name}.{number}.ticket")

    def _drop(self) -> None:
        """Leave the queue. The file goes before its lock: else its number might be given again in between."""
        if self._ticket is not None:
            number, handle = self._ticket
            with contextlib.suppress(OSError):
                os.unlink(self._path(number))
            os.close(handle)
            self._ticket = None


def owner_of(handle: int, how: int = fcntl.LOCK_EX) -> str | None:
    """Lock an open file; None if that is done, else who has it: its process, its command and since when, as it wrote.

    "unknown" if it has not written that yet.
    """
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        pid, _, more = os.pread(handle, 256, 0).decode("utf-8", "replace").strip("\0\n ").partition("\n")
        if not pid:
            return "unknown"
        since = time.strftime("%H:%M", time.localtime(os.fstat(handle).st_mtime))
        command = "".join(c for c in more.partition("\n")[0] if c.isprintable())
        return ", ".join([pid[:20], *([command] if command else []), f"since {since}"])
    return None


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
