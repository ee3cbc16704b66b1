"""What a device is asked that is served by its shell alone: scripts, commands, and files that come and go.

`gnomon.devices.ssh_plain_link` answers it by OpenSSH, `gnomon.devices.bridge_link` by programs such as adb and sdb.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gnomon.devices.base import STDERR_TAIL_BYTES, STDOUT_TAIL_BYTES, Completed
from gnomon.devices.process import Lines, Tail
from gnomon.devices.pushed import Part
from gnomon.errors import DeviceError

_SIGNALS = range(129, 193)
SHORT_S = 60.0
LONG_S = 24 * 3600.0


class ShellSettings(Protocol):
    """What every device that is served by its shell is told."""

    @property
    def name(self) -> str:
        """What the device is called."""
        ...

    @property
    def destination(self) -> str:
        """The device as people write it."""
        ...

    @property
    def folder(self) -> str | None:
        """Where pushed files are kept there; None for a folder that suits such devices."""
        ...

    @property
    def keep(self) -> bool:
        """Whether pushed files stay for the next time."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """For every command there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCommand:
    """A command of the caller's: its words, its whole environment, its standard input, and its number of this visit."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes
    number: int


class Running:
    """What a command printed so far: the ends of both outputs, and whom its lines are told while somebody listens."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self.stdout, self.stderr = Tail(STDOUT_TAIL_BYTES), Tail(STDERR_TAIL_BYTES)
        self.lines = Lines(on_line) if on_line else None

    def add_stdout(self, chunk: bytes) -> None:
        """Take what came next."""
        self.stdout.add(chunk)
        if self.lines:
            self.lines.add(chunk)

    def completed(self, status: str, *, timed_out: bool, duration_s: float) -> Completed:
        """How it ended, by the status that a shell tells: above 128 it stands for a signal."""
        number = int(status)
        return Completed(
            returncode=None if number in _SIGNALS else number,
            signal=number - 128 if number in _SIGNALS else None,
            stdout=self.stdout.text(),
            stderr=self.stderr.text(),
            timed_out=timed_out,
            duration_s=duration_s,
        )


class ShellCall(ABC):
    """A command that runs there; `close` it in any case."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether nothing more will come."""

    @property
    @abstractmethod
    def status(self) -> str | None:
        """How the command ended: its status, or "start" for a program that is not there. None until that is known."""

    @abstractmethod
    def pump(self, until_s: float) -> bool:
        """Move bytes until the call has ended (True) or the time has come (False)."""

    @abstractmethod
    def close(self) -> None:
        """End it on this machine."""

    @abstractmethod
    def lost(self) -> DeviceError:
        """The error of a call that was closed and ended without telling how."""

    def fill(self, run: Running) -> None:
        """Add what did not come while the command ran, if anything. It has ended and is closed."""
        return


class ShellLink(ABC):
    """The way to a device that is open.

    `base` is the private folder there, with `work` and `run` in it; `cache` the shell's word for the folder in which
    gnomon's own of what is kept lies.
    """

    base: str
    cache = '"${XDG_CACHE_HOME:-$HOME/.cache}"'

    @abstractmethod
    def do(self, script: str, *, within_s: float = SHORT_S) -> tuple[str, str]:
        """Run a script of gnomon's own to its end: its status, and what it printed to either output, stripped."""

    @abstractmethod
    def printed(self, script: str, most_bytes: int) -> bytes:
        """The first bytes that a script prints to its standard output, exactly."""

    @abstractmethod
    def command(self, command: ShellCommand, run: Running) -> ShellCall:
        """Start a command whose group's number lies in the file `run/NUMBER` of the private folder while it runs."""

    @abstractmethod
    def arrive(self, files: Sequence[tuple[Part, str]]) -> None:
        """Bring files to paths there, each seen to be as it was sent. DeviceError if that cannot be."""

    @abstractmethod
    def fetch(self, path: str, local: Path) -> None:
        """Bring a file from there to a path here. DeviceError; OSError if it cannot be written here."""

    @abstractmethod
    def close(self) -> None:
        """Clean up there and leave, unless that takes too long."""
