"""The exclusive use of a device: two measurements at once would each measure the other."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gnomon.devices.keeper.keeper_place import Lease, owner_of
from gnomon.errors import DeviceError
from gnomon.system.stopping import pause

_RETRY_S = 0.2
_SHOWN = 60


def lease_folder() -> Path:
    """Where this user's leases of this machine's devices are: the same for a desktop, a cron job and a login by SSH.

    So it depends on nothing that these set differently, such as TMPDIR or XDG_RUNTIME_DIR; only GNOMON_LEASES moves it.
    """
    named = os.environ.get("GNOMON_LEASES")
    return Path(named) if named else Path("/tmp") / f"gnomon-leases-{os.getuid()}"  # noqa: S108 - see own_folder


class Waiting(str):
    """A sentence that tells for whom a device is waited: worth showing also where no other sentence is."""

    __slots__ = ()


def lease_holder(folder: Path, name: str) -> str | None:
    """Who holds the device `name` at this moment, as `keeper_place.owner_of` tells; None if nobody does."""
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
    folder: Path, name: str, *, on_wait: Callable[[str], None] | None = None, wait_s: float = 3600
) -> Iterator[None]:
    """Hold the device `name` for as long as the block lasts, across processes, first come first served.

    While somebody else holds it or was there before, `on_wait` is told once who, and the call waits up to `wait_s`.
    The lease ends with its process, however that ends: see `keeper_place.Lease`. DeviceError if the wait was not enough
    or the file cannot be made.
    """
    with ExitStack() as stack:
        with _opening(folder, name):
            held = Lease(str(folder), name, _command())
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
                )
            pause(_RETRY_S)
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


def _command() -> str:
    """This process's command line, as those that wait for it are told; nothing where it is not a command."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    told = " ".join([program, *sys.argv[1:]]) if program and not program.startswith("-") else ""
    return told if len(told) <= _SHOWN else told[: _SHOWN - 2] + ".."
