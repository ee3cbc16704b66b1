"""The interface to a device that is used through its shell: scripts, commands, and file transfers.

`gnomon.devices.shell.ssh` implements it with OpenSSH, and `gnomon.devices.shell.bridge_link` implements it with
programs such as adb and sdb.

This module also has the session over a connection: a local SSH client, its streams, and its outcome.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

from gnomon.core.codec import Must
from gnomon.devices.pushed import Part
from gnomon.devices.shell.scripts import line, marks
from gnomon.errors import DeviceError, system_errors
from gnomon.system.process import Guard, Printed, Pump

SHORT_S = 60.0
_SHOWN = 300
LONG_S = 24 * 3600.0


_Path = Annotated[str, Must(be="a path as it is on the device", fits=lambda text: not {"\n", "\0"} & set(text))]


def last(text: str) -> str:
    """The last line that is not blank, made safe to show."""
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    return "".join(c if c.isprintable() else " " for c in rows[-1][:_SHOWN]) if rows else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """The settings of every device that is used through its shell."""

    name: str
    """The device's name."""
    python: _Path | None = None
    """The device's Python: a path or a name; None for the newest of python3.10 to python3.13, otherwise python3."""
    folder: _Path | None = None
    """The device's folder for pushed files; None for a folder "gnomon" in a suitable place for the kind of device."""
    keep: bool = True
    """Whether pushed files are kept for the next visit."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment variables for every command on the device."""
    connect_timeout_s: float = 10.0
    silence_s: float = 30.0
    """After this time without an answer, the device counts as lost, and the device itself cleans up."""

    @property
    def destination(self) -> str:
        """The device as people write it."""
        raise NotImplementedError


def broken(settings: ShellSettings, said: str | None, *, way: str, look: str) -> DeviceError:
    """The transient error for a connection that ended with the message `said`, or (None) fell silent.

    `way` names the part of the connection that may be at fault, and `look` the things to check.
    """
    if said is None:
        what = f"{settings.destination} has been silent for {settings.silence_s:g} s"
        look = f"whether the device hangs or its {way}"
    else:
        what = f"the connection to {settings.destination} was lost{f': {said}' if said else ''}"
    return DeviceError(what, hint=f"Check {look}, then start again: what was measured is kept.", transient=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """A command of the caller: its words, its whole environment, its standard input, and its number in the visit."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes
    number: int


class ShellCall(Protocol):
    """A running command on the device; always `close` it."""

    @property
    def ended(self) -> bool:
        """Whether the output is complete."""

    @property
    def status(self) -> str | None:
        """The exit status; "start" for a missing program, "gone" for a missing working folder, None while it runs."""

    def pump(self, until_s: float) -> bool:
        """Transfer bytes until the call has ended (True) or the time `until_s` is reached (False)."""

    def close(self) -> None:
        """End the local part of the call."""

    def lost(self) -> DeviceError:
        """The error for a call that was closed and ended without a status."""

    def fill(self, run: Printed) -> None:
        """Add output that did not arrive while the command ran, if any. The call must have ended and been closed."""
        return


class ShellLink(Protocol):
    """The connection to an open device.

    `base` is the private folder on the device, which contains `work` and `run`. `cache` is the shell word for the
    folder that contains gnomon's folder of kept files.
    """

    base: str
    cache: str = '"${XDG_CACHE_HOME:-$HOME/.cache}"'

    def do(self, script: str, *, within_s: float = SHORT_S) -> tuple[str, str]:
        """Run one of gnomon's scripts to its end; return its status and its stripped output from both streams."""

    def printed(self, script: str, most_bytes: int) -> bytes:
        """The exact first bytes that a script prints to its standard output."""

    def command(self, command: ShellCommand, run: Printed) -> ShellCall:
        """Start a command; while it runs, the file `run/NUMBER` in the private folder contains its group's number."""

    def arrive(self, files: Sequence[tuple[Part, str]]) -> None:
        """Bring files to paths on the device. DeviceError if a file did not arrive unchanged."""

    def fetch(self, path: str, local: Path) -> None:
        """Fetch a file of the device to a path on this machine. DeviceError, or OSError if the path is not writable."""

    def check(self) -> None:
        """Raise DeviceError if the device is gone or has given up this visit."""

    def close(self) -> None:
        """Clean up on the device and disconnect; give up if this takes too long."""


_NOISE_BYTES = 1 << 16
_STATUS_BYTES = 64
_LEAVE_S = 0.25

Take = Callable[[bytes], None]


def at_most(printed: bytearray, most_bytes: int = 1 << 20) -> Take:
    """A function that adds to `printed`, up to `most_bytes` in total."""
    return lambda chunk: printed.extend(chunk[: max(0, most_bytes - len(printed))])


class Marked:
    """Passes on the output between a session's two marks; `status` is the content of the last mark, once that has
    arrived.
    """

    def __init__(self, token: str, take: Take) -> None:
        self._first, self._last = marks(token)
        self._take = take
        self._begun = False
        self._held = bytearray()
        self.status: str | None = None

    def add(self, chunk: bytes) -> None:
        """Process the next chunk."""
        if self.status is not None:
            return  # output of a process that outlived its session
        before = len(self._held)
        self._held += chunk
        if not self._begun:
            at = self._held.find(self._first, max(0, before - len(self._first)))
            if at < 0:
                del self._held[: -2 * _NOISE_BYTES]
                return
            del self._held[: at + len(self._first)]
            self._begun = True
        at = self._held.find(self._last)
        if at < 0:
            keep = next((n for n in range(len(self._last) - 1, 0, -1) if self._held.endswith(self._last[:n])), 0)
            self._hand(len(self._held) - keep)
        elif (end := self._held.find(b"\x1e", at + len(self._last))) >= 0:
            self.status = self._held[at + len(self._last) : end].decode("ascii", "replace")
            self._hand(at)
            self._held.clear()
        elif len(self._held) - at > _STATUS_BYTES:
            self.status = "none"
        else:
            self._hand(at)

    @property
    def noise(self) -> bytes:
        """The end of the output before the first mark, as long as that mark has not arrived."""
        return b"" if self._begun else bytes(self._held[-_NOISE_BYTES:])

    def _hand(self, count: int) -> None:
        if count:
            chunk = bytes(self._held[:count])
            del self._held[:count]
            self._take(chunk)


def starting_client(argv: Sequence[str]) -> AbstractContextManager[None]:
    """A block that raises DeviceError if the SSH client cannot be started in it."""
    return system_errors(
        DeviceError,
        f"the SSH client {argv[0]!r} cannot be started",
        hint="Install OpenSSH's client (ssh), and check that it is on the PATH.",
    )


def end(process: subprocess.Popen[bytes], guard: Guard, *, leave_s: float = 0.0) -> None:
    """Reap a client, and kill it if it does not end on its own within `leave_s`.

    The guard then has nothing left to end.
    """
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(leave_s)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        guard.drop(process.pid)


class Session(Pump, ShellCall):
    """A running script on the device; always `close` it.

    `data` is its standard input after the script. `returncode` is the client's exit status, once the session is closed.
    If the session ended without the last marks, the connection is lost; `loss` makes the error from `returncode` and
    the client's messages.
    """

    def __init__(
        self,
        argv: Sequence[str],
        script: str,
        token: str,
        *,
        guard: Guard,
        data: Iterator[bytes],
        stdout: Take,
        stderr: Take,
        loss: Callable[[int | None, str], DeviceError],
    ) -> None:
        with starting_client(argv):
            process = guard.start(argv)
        self._guard, self._loss = guard, loss
        self.returncode: int | None = None
        self.stdout, self.stderr = Marked(token, stdout), Marked(token, stderr)
        super().__init__(process, (self.stdout.add, self.stderr.add), itertools.chain((line(script),), data))

    @property
    def status(self) -> str | None:
        """See `ShellCall.status`: the status of the script, once all its output has been passed on."""
        return self.stdout.status if self.stderr.status is not None else None

    @property
    def ended(self) -> bool:
        """See `ShellCall.ended`."""
        return self.status is not None or not self._open_reads

    @property
    def said(self) -> str:
        """The standard error before the script ran, mostly the client's own messages."""
        return self.stderr.noise.decode(errors="replace")

    def lost(self) -> DeviceError:
        """See `ShellCall.lost`."""
        return self._loss(self.returncode, self.said)

    def close(self) -> None:
        """End the client; if the script has ended, let the client end on its own first."""
        if self.ended:
            with contextlib.suppress(OSError):
                self._pipes[0].close()  # its standard input
        end(self._process, self._guard, leave_s=_LEAVE_S if self.ended else 0.0)
        self.release()
        self.returncode = self._process.returncode
