"""The exclusive use of a device: simultaneous measurements would disturb each other."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from gnomon.errors import DeviceError, system_errors
from gnomon.system.locks import is_locked
from gnomon.system.stopping import pause

WAIT_S = 3600.0
_RETRY_S = 0.2
_GATE_S = 2.0
"""The time to wait for the folder's lock: a process that makes or reads tickets holds it only for a moment, unless it
is suspended just then.
"""
_SHOWN = 60


class Lease:
    """The exclusive use of a device, first come, first served, for all accounts that share the folder of leases.

    Each process that wants the device has a ticket in the folder. A ticket is a numbered folder, which nobody can
    create twice or replace with a link; its file `who` names the owner. The kernel's lock on a ticket, which needs no
    write permission, ends with the process that holds it, however that process ends. A ticket without a lock is
    ignored, whoever made it. The holder of the ticket with the smallest number has the device. Tickets are made and
    read under a lock on the folder. A device's shell takes its lease in the same way (`gnomon.devices.shell.scripts`);
    without flock, the shell waits, but not in order.
    """

    def __init__(self, folder: Path, name: str, command: str = "") -> None:
        """Check that the folder can be used; OSError otherwise. Processes that wait for this one see its `command`."""
        _usable_folder(folder)
        self._folder, self._name, self._command = folder, name, command
        self._ticket: tuple[int, int] | None = None

    def take(self) -> str | None:
        """Take the lease and return None, or queue for it and return its present owner. OSError if neither works.

        A process that keeps the folder locked, so that no process can read the queue, counts as the owner.
        """
        gate = os.open(self._folder, _OPENED)
        try:
            if not is_locked(gate, fcntl.LOCK_EX, within_s=_GATE_S):
                return f"unknown, which keeps {self._folder} locked"
            others = _tickets(self._folder, self._name, tidy=True)
            if self._ticket is None:
                self._ticket = self._new(max(others, default=0) + 1)
            number, handle = self._ticket
            before = [other for other in others if other < number]
            if before:
                return others[min(before)]
            with contextlib.suppress(OSError):
                os.utime("who", dir_fd=handle)  # this process has the device from now on
            return None
        finally:
            os.close(gate)

    def close(self) -> None:
        """Release the lease or stop waiting.

        The ticket is removed before its lock is released; otherwise another process might make the same one in between.
        """
        if self._ticket is not None:
            number, handle = self._ticket
            _remove(_path(self._folder, self._name, number))
            os.close(handle)
            self._ticket = None

    def _new(self, number: int) -> tuple[int, int]:
        """Make a ticket of this process with the first free number, beginning at `number`."""
        while True:
            path = _path(self._folder, self._name, number)
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                break
            number += 1
        handle = os.open(path, _OPENED)
        os.fchmod(handle, 0o755)
        fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):  # on a full disk, the lock still works; only its holder has no name
            lines = [str(os.getpid()), *([self._command] if self._command else [])]
            (path / "who").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="replace")
            (path / "who").chmod(0o644)
        return number, handle


_OPENED = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
_NOT_OURS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)
"""Errors on opening a ticket that has been removed or was not made by gnomon."""


def _path(folder: Path, name: str, number: int) -> Path:
    return folder / f"lease-{name}.{number}.ticket"


def _tickets(folder: Path, name: str, *, tidy: bool = False) -> dict[int, str]:
    """The live owners of tickets for a device, by number. `tidy`, under the folder's lock, removes this user's dead
    tickets.
    """
    living: dict[int, str] = {}
    for path in folder.iterdir():
        ticket = re.fullmatch(rf"lease-{re.escape(name)}\.([1-9][0-9]{{0,8}})\.ticket", path.name)
        if ticket is None:
            continue
        try:
            handle = os.open(path, _OPENED)
        except OSError as error:
            if error.errno in _NOT_OURS:
                continue
            raise
        try:
            owner = owner_of(handle)
            if owner is not None:
                living[int(ticket[1])] = owner
            elif tidy and os.fstat(handle).st_uid == os.getuid():
                _remove(path)
        finally:
            os.close(handle)
    return living


def _remove(ticket: Path) -> None:
    with contextlib.suppress(OSError):
        (ticket / "who").unlink(missing_ok=True)
        ticket.rmdir()


def owner_of(handle: int) -> str | None:
    """The owner of a locked ticket, as the owner wrote it: process, account (if it is another), command and starting
    time.

    None if the ticket is not locked, "unknown" if the owner has written nothing.
    """
    if is_locked(handle, fcntl.LOCK_SH):
        return None
    try:
        who = os.open("who", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
    except OSError:
        return "unknown"
    try:
        content, seen = os.read(who, 256), os.fstat(who)
    finally:
        os.close(who)
    pid, _, more = content.decode("utf-8", "replace").strip("\0\n ").partition("\n")
    if not pid.isdecimal():
        return "unknown"
    account = f" of {_account(seen.st_uid)}" if seen.st_uid != os.getuid() else ""
    since = time.strftime("%H:%M", time.localtime(seen.st_mtime))
    command = "".join(c for c in more.partition("\n")[0] if c.isprintable())
    return ", ".join([f"{pid[:20]}{account}", *([command] if command else []), f"since {since}"])


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _usable_folder(path: Path) -> None:
    """Make a folder, or check that nobody else can remove or replace its contents. OSError otherwise."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.ENOTDIR, "it is not a folder; links to folders are not accepted", str(path))
    if not status.st_mode & stat.S_ISVTX and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise OSError(errno.EPERM, "it belongs to another user, or other users can write to it", str(path))


_COMMON = Path("/tmp/gnomon-leases")  # noqa: S108 - see Lease: what others make there is not trusted


_OWN = Path(f"{_COMMON}-{os.getuid()}")


LEASES = "GNOMON_LEASES"


def lease_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of this machine's leases: the same for all accounts, desktops, cron jobs and SSH logins.

    Therefore it does not depend on variables that these set differently, such as TMPDIR or XDG_RUNTIME_DIR; only
    GNOMON_LEASES changes it. It is the user's own folder if the common one cannot be used.
    """
    if named := environment.get(LEASES):
        return Path(named)
    with contextlib.suppress(OSError):
        _COMMON.mkdir()
        _COMMON.chmod(0o1777)  # nobody else can have put a link there in the meantime
    with contextlib.suppress(OSError):
        status = _COMMON.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX and os.access(_COMMON, os.R_OK | os.W_OK):
            return _COMMON
    return _OWN


class Waiting(str):
    """A sentence about the process that is waited for; worth showing even if other messages are not."""

    __slots__ = ()


def lease_holder(folder: Path, name: str) -> str | None:
    """The present owner of the device `name`, as reported by `owner_of`; None if there is none."""
    try:
        tickets = _tickets(folder, name)
    except OSError:
        return None
    return tickets[min(tickets)] if tickets else None


@contextmanager
def lease(
    folder: Path,
    name: str,
    *,
    on_wait: Callable[[str], None] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
    wait_s: float = WAIT_S,
) -> Iterator[None]:
    """Hold the device `name` for the duration of the block, to the exclusion of other processes, first come, first
    served.

    While another process holds the device or is ahead in the queue, `on_wait` is called once with a sentence about that
    process, and the call waits up to `wait_s`. `meanwhile` is called repeatedly and ends the wait if it raises. The
    lease ends with this process, however that ends (see `Lease`). DeviceError if the device is not free in time or the
    ticket cannot be made.
    """
    with ExitStack() as stack:
        with _opening(folder, name):
            held = Lease(folder, name, command_line())
            stack.callback(held.close)

        def owner() -> str | None:
            with _opening(folder, name):
                return held.take()

        if folder == _OWN and on_wait is not None:
            on_wait(f"{_COMMON} is not a folder in which every account may write: others may measure at the same time")
        wait_for(owner, name, on_wait, meanwhile=meanwhile, wait_s=wait_s)
        yield


def wait_for(
    owner: Callable[[], str | None],
    name: str,
    on_wait: Callable[[str], None] | None,
    *,
    meanwhile: Callable[[], object] = lambda: None,
    wait_s: float = WAIT_S,
) -> None:
    """Ask for the owner of a device's lease repeatedly until it is this process, which is represented by None.

    `on_wait` gets the owner once, unless it is unknown (""). DeviceError after `wait_s`.
    """
    deadline = time.monotonic() + wait_s
    met, reported = False, False
    while (process := owner()) is not None:
        late = time.monotonic() > deadline
        # A process that was just killed may have been starting another, which keeps the lock until its exec:
        # this moment is not worth a message.
        if (met or late) and process and not reported and on_wait is not None:
            on_wait(Waiting(f"another gnomon (process {process}) is measuring on {name}: waiting for it to end"))
            reported = True
        met = True
        if late:
            raise DeviceError(
                f"device {name!r} is in use by {f'process {process}' if process else 'an unknown process'}",
                hint="Wait for the process to end, or end it: the lease ends with the process.",
                transient=True,
                busy=True,
            )
        pause(_RETRY_S)
        meanwhile()


def _opening(folder: Path, name: str) -> AbstractContextManager[None]:
    return system_errors(
        DeviceError,
        f"the lease of device {name!r} cannot be taken: {folder}",
        hint="Free up space there, or remove what is in its place; or set GNOMON_LEASES to another folder, which all "
        "users who measure on this machine must share (chmod 1777).",
    )


def command_line() -> str:
    """This process's command line, for processes that wait for this one; "" if it is not a command."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    text = " ".join([program, *sys.argv[1:]]) if program and not program.startswith("-") else ""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 2] + ".."
