"""The exclusive use of a device: two measurements at once would each measure the other."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gnomon.errors import DeviceError
from gnomon.system.stopping import pause

_RETRY_S = 0.2
_GATE_S = 2.0
"""Whoever makes or looks at tickets holds the folder's lock for a moment, unless it was stopped just then."""
_GATE_RETRY_S = 0.01
_SHOWN = 60


class Lease:
    """The exclusive use of a device, first come first served.

    It is the kernel's lock on a file in the folder of leases, so it ends when its process does, however that ends. Who
    waits has a ticket there: a file with a number, locked as long as its process lives; the least number is the next.
    Tickets are made and looked at under a lock on the folder. The shell of a device takes its lease in the same way
    (`gnomon.devices.shell.scripts`); one that has no flock waits, but not in turn.
    """

    def __init__(self, folder: Path, name: str, command: str = "") -> None:
        """Open the file. `command` is told to those that will wait for this process. OSError where that fails."""
        _own_folder(folder)
        self._folder, self._name, self._command = folder, name, command
        path = folder / f"lease-{name}.lock"
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._ticket: tuple[int, int] | None = None

    def take(self) -> str | None:
        """None if it is held now, else who is before this process, which is in the queue then. OSError if neither.

        Where another process keeps the folder locked, so that nobody can look at the queue, that one is before it.
        """
        gate = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not _locked(gate):
                return f"unknown, which keeps {self._folder} locked"
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
        for found in self._folder.iterdir():
            number = self._number(found.name)
            if number is None or (self._ticket is not None and number >= self._ticket[0]):
                continue
            with contextlib.suppress(FileNotFoundError):  # its process has just left the queue
                handle = os.open(self._path(number), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    owner = owner_of(handle, fcntl.LOCK_SH)
                    if owner is None:
                        self._path(number).unlink()  # its process died
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

    def _path(self, number: int) -> Path:
        return self._folder / f"lease-{self._name}.{number}.ticket"

    def _drop(self) -> None:
        """Leave the queue. The file goes before its lock: else its number might be given again in between."""
        if self._ticket is not None:
            number, handle = self._ticket
            with contextlib.suppress(OSError):
                self._path(number).unlink()
            os.close(handle)
            self._ticket = None


def _locked(gate: int) -> bool:
    """Whether the folder of leases is locked now, for which others are waited for a moment."""
    deadline = time.monotonic() + _GATE_S
    while True:
        try:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            pause(_GATE_RETRY_S)
        else:
            return True


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


def _own_folder(path: Path) -> None:
    """Make a folder, or see that it is one and nobody else can write there. OSError otherwise."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.ENOTDIR, "it is not a folder, or a link to one", str(path))
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(errno.EPERM, "it belongs to another user, or others may write to it", str(path))


def lease_folder() -> Path:
    """Where this user's leases of this machine's devices are: the same for a desktop, a cron job and a login by SSH.

    So it depends on nothing that these set differently, such as TMPDIR or XDG_RUNTIME_DIR; only GNOMON_LEASES moves it.
    """
    named = os.environ.get("GNOMON_LEASES")
    return Path(named) if named else Path("/tmp") / f"gnomon-leases-{os.getuid()}"  # noqa: S108 - see _own_folder


class Waiting(str):
    """A sentence that tells for whom a device is waited: worth showing also where no other sentence is."""

    __slots__ = ()


def lease_holder(folder: Path, name: str) -> str | None:
    """Who holds the device `name` at this moment, as `owner_of` tells; None if nobody does."""
    try:
        handle = os.open(folder / f"lease-{name}.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None  # nobody holds what has no file
    try:
        return owner_of(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


@contextmanager
def lease(
    folder: Path,
    name: str,
    *,
    on_wait: Callable[[str], None] | None = None,
    meanwhile: Callable[[], object] | None = None,
    wait_s: float = 3600,
) -> Iterator[None]:
    """Hold the device `name` for as long as the block lasts, across processes, first come first served.

    While somebody else holds it or was there before, `on_wait` is told once who, and the call waits up to `wait_s`;
    `meanwhile` is called again and again, and ends the wait where it raises.
    The lease ends with its process, however that ends: see `Lease`. DeviceError if the wait was not enough
    or the file cannot be made.
    """
    with ExitStack() as stack:
        with _opening(folder, name):
            held = Lease(folder, name, command_line())
            stack.callback(held.close)
            owner = held.take()
        deadline = time.monotonic() + wait_s
        met, told = False, False
        while owner is not None:
            late = time.monotonic() > deadline
            # Who was just killed may have been starting a process, which has the lock until it is what it was to be:
            # a moment is not worth a word.
            if (met or late) and not told and on_wait is not None:
                on_wait(Waiting(f"another gnomon (process {owner}) measures on {name}: waiting for it to end"))
                told = True
            met = True
            if late:
                raise DeviceError(
                    f"device {name!r} is in use by process {owner}",
                    hint="Wait for it to end, or end it: the lease goes with its process.",
                    transient=True,
                    busy=True,
                )
            pause(_RETRY_S)
            if meanwhile is not None:
                meanwhile()
            with _opening(folder, name):
                owner = held.take()
        yield


@contextmanager
def _opening(folder: Path, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DeviceError(
            f"the lease of device {name!r} cannot be taken: {folder}: {error.strerror}",
            hint="Free space there or remove what is in its place; GNOMON_LEASES names another folder, which all that "
            "measure on this machine must share.",
        ) from error


def command_line() -> str:
    """This process's command line, as those that wait for it are told; nothing where it is not a command."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    told = " ".join([program, *sys.argv[1:]]) if program and not program.startswith("-") else ""
    return told if len(told) <= _SHOWN else told[: _SHOWN - 2] + ".."
