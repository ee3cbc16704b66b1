"""What a device is asked that is served by its shell: scripts, commands, and files that come and go.

`gnomon.devices.shell.ssh` answers it by OpenSSH, `gnomon.devices.shell.bridge_link` by programs such as adb and sdb.

One session over a connection to a device without Python: a local SSH client, its streams, and how it ended.
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
    """The last line that says something, fit to be shown."""
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    return "".join(c if c.isprintable() else " " for c in rows[-1][:_SHOWN]) if rows else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """The settings of every device that is served by its shell."""

    name: str
    """The device's name."""
    python: _Path | None = None
    """Python there: a path or a name; None for the newest of python3.10 to python3.13, else python3."""
    folder: _Path | None = None
    """Where pushed files are kept there; None for gnomon in a folder that suits such devices."""
    keep: bool = True
    """Whether pushed files stay for the next time."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """For every command there."""
    connect_timeout_s: float = 10.0
    silence_s: float = 30.0
    """After so long without a word of the other side, the device is lost, and cleans up by itself."""

    @property
    def destination(self) -> str:
        """The device as people write it."""
        raise NotImplementedError


def broken(settings: ShellSettings, said: str | None, *, way: str, look: str) -> DeviceError:
    """The error, transient, of a connection that ended with these words, or (None) fell silent.

    `way` is what may be wrong with the way there, `look` what is to be looked at.
    """
    if said is None:
        what = f"{settings.destination} has been silent for {settings.silence_s:g} s"
        look = f"whether the device hangs or its {way}"
    else:
        what = f"the connection to {settings.destination} was lost{f': {said}' if said else ''}"
    return DeviceError(what, hint=f"See {look}, then start again: what was measured is kept.", transient=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """A command of the caller's: its words, its whole environment, its standard input, and its number of this visit."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes
    number: int


class ShellCall(Protocol):
    """A command that runs there; `close` it in any case."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""

    @property
    def status(self) -> str | None:
        """How the command ended: its status, "start" for no such program, "gone" for no working folder; None so far."""

    def pump(self, until_s: float) -> bool:
        """Move bytes until the call has ended (True) or the time has come (False)."""

    def close(self) -> None:
        """End it on this machine."""

    def lost(self) -> DeviceError:
        """The error of a call that was closed and ended without telling how."""

    def fill(self, run: Printed) -> None:
        """Add what did not come while the command ran, if anything. It has ended and is closed."""
        return


class ShellLink(Protocol):
    """The way to a device that is open.

    `base` is the private folder there, with `work` and `run` in it; `cache` the shell's word for the folder in which
    gnomon's own of what is kept lies.
    """

    base: str
    cache: str = '"${XDG_CACHE_HOME:-$HOME/.cache}"'

    def do(self, script: str, *, within_s: float = SHORT_S) -> tuple[str, str]:
        """Run a script of gnomon's own to its end: its status, and what it printed to either output, stripped."""

    def printed(self, script: str, most_bytes: int) -> bytes:
        """The first bytes that a script prints to its standard output, exactly."""

    def command(self, command: ShellCommand, run: Printed) -> ShellCall:
        """Start a command whose group's number lies in the file `run/NUMBER` of the private folder while it runs."""

    def arrive(self, files: Sequence[tuple[Part, str]]) -> None:
        """Bring files to paths there, each seen to be as it was sent. DeviceError if that cannot be."""

    def fetch(self, path: str, local: Path) -> None:
        """Bring a file from there to a path here. DeviceError; OSError if it cannot be written here."""

    def check(self) -> None:
        """DeviceError if the device is no longer there, or has given this visit up."""

    def close(self) -> None:
        """Clean up there and leave, unless that takes too long."""


_NOISE_BYTES = 1 << 16
_STATUS_BYTES = 64
_LEAVE_S = 0.25

Take = Callable[[bytes], None]


def at_most(printed: bytearray, most_bytes: int = 1 << 20) -> Take:
    """A function that adds to `printed` up to so many bytes."""
    return lambda chunk: printed.extend(chunk[: max(0, most_bytes - len(printed))])


class Marked:
    """Hands on what comes between a session's two marks; `status` is what the last one says, once it came."""

    def __init__(self, token: str, take: Take) -> None:
        self._first, self._last = marks(token)
        self._take = take
        self._begun = False
        self._held = bytearray()
        self.status: str | None = None

    def add(self, chunk: bytes) -> None:
        """Take what came next."""
        if self.status is not None:
            return  # of a process that outlived its session
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
        """The end of what came before the first mark, as long as that has not come."""
        return b"" if self._begun else bytes(self._held[-_NOISE_BYTES:])

    def _hand(self, count: int) -> None:
        if count:
            chunk = bytes(self._held[:count])
            del self._held[:count]
            self._take(chunk)


def starting_client(argv: Sequence[str]) -> AbstractContextManager[None]:
    """DeviceError where the SSH client cannot be started in the block."""
    return system_errors(
        DeviceError,
        f"the SSH client {argv[0]!r} cannot be started",
        hint="Install OpenSSH's client (ssh), and see that it is on the PATH.",
    )


def end(process: subprocess.Popen[bytes], guard: Guard, *, leave_s: float = 0.0) -> None:
    """Reap a client, killed if it does not leave by itself within that time; its guard has nothing more to end."""
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
    """A running script on the device; `close` it in any case.

    `data` is its standard input behind the script. `returncode` is the client's, once it is closed; where it ended
    without the last marks the connection is gone: `loss` says how, by that code and what the client said.
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
        """See `ShellCall.status`: the script's, once all that it printed was handed on."""
        return self.stdout.status if self.stderr.status is not None else None

    @property
    def ended(self) -> bool:
        """See `ShellCall.ended`."""
        return self.status is not None or not self._open_reads

    @property
    def said(self) -> str:
        """The standard error before the script ran: the client's own words, mostly."""
        return self.stderr.noise.decode(errors="replace")

    def lost(self) -> DeviceError:
        """See `ShellCall.lost`."""
        return self._loss(self.returncode, self.said)

    def close(self) -> None:
        """End the client, let it leave by itself where the script has ended."""
        if self.ended:
            with contextlib.suppress(OSError):
                self._pipes[0].close()  # its standard input
        end(self._process, self._guard, leave_s=_LEAVE_S if self.ended else 0.0)
        self.release()
        self.returncode = self._process.returncode
