"""The exclusive use of a device: two measurements at once would each measure the other."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnomon.errors import DeviceError


def lease_folder() -> Path:
    """Where this user's leases of this machine's devices are: the same for a desktop, a cron job and a login by SSH.

    So it depends on nothing that these set differently, such as TMPDIR or XDG_RUNTIME_DIR; only GNOMON_LEASES moves it.
    """
    named = os.environ.get("GNOMON_LEASES")
    return Path(named) if named else Path("/tmp") / f"gnomon-leases-{os.getuid()}"  # noqa: S108 - see _own_folder


def _own_folder(folder: Path) -> None:
    """Make the folder, or see that it is one, and nobody else's: anybody may make things in /tmp. Raises OSError."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.ENOTDIR, "it is no folder, or a link to one")
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(errno.EPERM, "it belongs to another user, or others may write to it")


def lease_holder(folder: Path, name: str) -> str | None:
    """The process that holds the device `name` at this moment, "unknown" if it has not said so; None if nobody does."""
    try:
        handle = os.open(folder / f"lease-{name}.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None  # nobody holds what has no file
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(handle, 32, 0).decode("ascii", "replace").strip("\0\n ") or "unknown"
    finally:
        os.close(handle)
    return None


@contextmanager
def lease(
    folder: Path, name: str, *, on_wait: Callable[[str], None] | None = None, wait_s: float = 3600
) -> Iterator[None]:
    """Hold the device `name` for as long as the block lasts, across processes.

    The lease is the kernel's lock on a file in `folder`, so it ends when its owner dies, however that happens. While
    somebody else holds it, `on_wait` is told once who, and the call waits up to `wait_s`. DeviceError if that was
    not enough or the file cannot be made.
    """
    path = folder / f"lease-{name}.lock"
    try:
        _own_folder(folder)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise DeviceError(
            f"the lease of device {name!r} cannot be taken: {folder}: {error.strerror}",
            hint="Free space there or remove what is in its place; GNOMON_LEASES names another folder, which all that "
            "measure on this machine must share.",
        ) from error
    try:
        deadline = time.monotonic() + wait_s
        met, told = False, False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                owner = os.pread(handle, 32, 0).decode("ascii", "replace").strip("\0\n ") or "unknown"
            late = time.monotonic() > deadline
            # Who was just killed may have been starting a process, which has the lock until it is what it was to be:
            # a moment is not worth a word.
            if (met or late) and not told and on_wait is not None:
                on_wait(f"another gnomon (process {owner}) measures on {name}: waiting for it to end")
                told = True
            met = True
            if late:
                raise DeviceError(
                    f"device {name!r} is in use by process {owner}",
                    hint="Wait for it to end, or end it: the lease goes with its process.",
                    transient=True,
                )
            time.sleep(0.2)
        with suppress(OSError):  # on a full disk the lease holds all the same; only its holder has no name
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)  # closing releases the lock
