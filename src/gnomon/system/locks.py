"""Locks on files: a lock ends with its process, however the process ends.

`lock_file` locks a file, and `changing` keeps other processes from changing a file. `HeldCampaigns` has the campaigns
of a record that an open store holds, so that no two stores measure for the same campaign.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnomon.errors import RecordError
from gnomon.system.stopping import pause

_PATIENCE_S = 2.0
"""The time to wait for a lock that should be free soon. A process that was just killed may have been starting another
process, which has the lock until it runs its own program, and `by_another` locks a leftover file for a moment.
"""
_CHANGES_S = 60.0
"""The time to wait for others' changes: many processes may want to change a file at once, each for a moment."""
_ASKED_AGAIN_S = 0.01
_DIGITS = 24
"""How many digits of the digest the name of a campaign's file contains."""


def lock_file(path: Path, *, mode: int = 0o600, patience_s: float | None = None) -> int:
    """A handle with an exclusive lock on the file, which is created if missing; `os.close` releases the lock.

    BlockingIOError if another process holds the lock for longer than `patience_s` (None: a moment), and OSError if the
    file cannot be created. The holder of the lock may remove or rename the file; the next process then creates it
    again.
    """
    deadline = time.monotonic() + (_PATIENCE_S if patience_s is None else patience_s)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            if not is_locked(handle, fcntl.LOCK_EX, within_s=deadline - time.monotonic()):
                raise BlockingIOError(errno.EAGAIN, "another process holds the lock")
            if _is_at(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def is_locked(handle: int, how: int, *, within_s: float = 0.0) -> bool:
    """Try to lock an open file with LOCK_EX or LOCK_SH, waiting up to `within_s` for other locks to end; return whether
    it is locked.

    OSError on a file system without locks.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        pause(_ASKED_AGAIN_S)


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Hold the lock on a file that several processes change; the lock is a file next to it while the block lasts.

    The folder is created if missing. OSError on entry if the lock cannot be created, or if another process holds it for
    more than a minute; `strerror` then names that process.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    try:
        handle = lock_file(lock, patience_s=_CHANGES_S)
    except PermissionError as error:
        if not os.path.lexists(lock):  # the folder cannot be written
            raise
        why = f"{lock} belongs to another user: remove it if nobody is changing the file"
        raise PermissionError(error.errno, why) from error
    except BlockingIOError as error:
        number = b""
        with suppress(OSError):  # the lock's holder may just have ended
            number = lock.read_bytes()[:20]
        who = f"process {int(number)}" if number.isdigit() else "another process"
        raise BlockingIOError(error.errno, f"{who} is changing the file, or was stopped while it did so") from error
    try:
        with suppress(OSError):  # on a full disk the lock still works, but its holder is not named
            os.truncate(handle, 0)  # a process killed here has left its number in the file
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        os.close(handle)


class HeldCampaigns:
    """The campaigns that a store holds, each by a kernel lock on a file next to the record.

    A lock ends with its process, however the process ends. A file that contains the process's id may be left behind;
    the next store that holds a campaign of the record removes it.
    """

    def __init__(self, record: Path) -> None:
        self._record = record.resolve()  # so that the lock is the same whichever link leads to the record
        self._handles: dict[str, int] = {}

    def take(self, campaign: str) -> bool:
        """Hold the campaign; return whether it was not held before. RecordError if another store holds it."""
        if campaign in self._handles:
            return False
        path = self._path(campaign)
        first = not self._handles
        try:
            self._handles[campaign] = handle = lock_file(path)
            os.truncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        except BlockingIOError as error:
            raise held_elsewhere(campaign) from error
        except OSError as error:
            if campaign in self._handles:
                self.give_up(campaign)
            raise RecordError(
                f"the lock of a campaign cannot be created: {path}: {error.strerror}",
                hint="Free up space there, or make the folder of the results database writable.",
            ) from error
        if first:
            self._sweep()
        return True

    def by_another(self, campaign: str) -> bool:
        """Return True if another open store, of this process or any other, holds the campaign."""
        if campaign in self._handles:
            return False
        try:
            handle = os.open(self._path(campaign), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False  # nobody holds a campaign without a file
        try:
            if is_locked(handle, fcntl.LOCK_SH):
                return False
            return is_alive(os.pread(handle, 20, 0)) or not is_locked(handle, fcntl.LOCK_SH, within_s=_PATIENCE_S)
        finally:
            os.close(handle)

    def give_up(self, campaign: str) -> None:
        """Release the campaign. The file is removed before the lock is released, so that nobody locks a removed
        file.
        """
        handle = self._handles.pop(campaign)
        with suppress(OSError):
            self._path(campaign).unlink()
        os.close(handle)

    def give_up_all(self) -> None:
        """Release all campaigns; safe to call twice."""
        for campaign in list(self._handles):
            self.give_up(campaign)

    def _sweep(self) -> None:
        """Remove the files of killed processes, each while holding its lock; a waiting process creates the file
        again.
        """
        own = [self._path(campaign) for campaign in self._handles]
        for path in self._record.parent.glob(f"{glob.escape(self._record.name)}.{'[0-9a-f]' * _DIGITS}.lock"):
            if path not in own:
                with suppress(OSError):
                    _remove_if_left(path)

    def _path(self, campaign: str) -> Path:
        """The path of a campaign's file, which is named after the digest of the id because an id may be any text."""
        digest = hashlib.sha256(campaign.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        return self._record.with_name(f"{self._record.name}.{digest}.lock")


def held_elsewhere(campaign: str) -> RecordError:
    """The error for a campaign that another open store holds."""
    return RecordError(
        f"another gnomon process is measuring for the campaign {campaign!r}",
        hint="Wait until it ends, or stop it, then start again.",
    )


def _is_at(handle: int, path: Path) -> bool:
    """Return True if the open file is still at this path: the previous holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _remove_if_left(path: Path) -> None:
    """Remove a lock file that nobody holds; a new file created in its place stays."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if is_locked(handle, fcntl.LOCK_EX) and _is_at(handle, path):
            path.unlink()
    finally:
        os.close(handle)


def is_alive(number: bytes) -> bool:
    """Return True if the process with this id is alive, or if that is unknown (the id is not a number, or the process
    is another user's).
    """
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OverflowError, PermissionError):
        return True
    return True
