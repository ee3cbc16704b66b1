"""The exclusive use of a device: two measurements at once would each measure the other."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnomon.errors import DeviceError


def lease_folder() -> Path:
    """Where this user's leases of this machine's devices are, whatever record a gnomon writes to.

    The run-time folder of the session where there is one, else a folder of the user's own in the temporary one.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "gnomon"
    return Path(tempfile.gettempdir()) / f"gnomon-leases-{os.getuid()}"


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
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Anybody may make files in a temporary folder: a link there is not followed.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise DeviceError(
            f"the lease of device {name!r} cannot be taken: {path}: {error.strerror}",
            hint="Free space there, or point TMPDIR to a folder that can be written.",
        ) from error
    try:
        deadline = time.monotonic() + wait_s
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                owner = os.pread(handle, 32, 0).decode("ascii", "replace").strip("\0\n ") or "unknown"
            if not told and on_wait is not None:
                on_wait(f"another gnomon (process {owner}) measures on {name}: waiting for it to end")
                told = True
            if time.monotonic() > deadline:
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
