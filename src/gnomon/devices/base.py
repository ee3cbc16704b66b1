"""The interface of devices, on which commands run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from gnomon.core.codec import loads
from gnomon.devices.fingerprint import DRIVERS
from gnomon.errors import RecordError, UsageError
from gnomon.system.process import Completed, Conversation

INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    *DRIVERS,
)
"""The only variables of the device's own environment that a command inherits, besides every LC_*."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device. Times may be compared if their devices' fingerprints are equal; see `gnomon.devices.fingerprint`.

    `python` is the command for the Python on the device that has the runtimes.
    """

    name: str
    fingerprint: Mapping[str, Any]
    python: str = "python3"


class Device(Protocol):
    """A machine that runs commands: a context manager that holds a private folder on that machine.

    Contract for implementations (`gnomon.testing.device` tests it):

    - Entering makes an empty private folder on the device; leaving removes it with all its contents, even after an
      error. The methods are called in between, from one thread.
    - A failure of the device or of the connection to it raises `DeviceError`; its `transient` says whether trying
      again can help. A failure of the command is not an error but a `Completed`.
    - No process that `run` started outlives the call, however the call ends: with a return, a timeout, an exception
      from `on_line`, or KeyboardInterrupt. As far as the system allows, no such process outlives gnomon itself either.
    """

    def __enter__(self) -> Self:
        """Connect to the device and make the private folder."""

    def __exit__(self, *exception: object) -> None:
        """Remove the private folder. Raises nothing of its own."""

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout_s: float,
        on_line: Callable[[str], None] | None = None,
    ) -> Completed:
        """Run a command in the private folder and wait until it and all its children have ended.

        No shell is involved. The command's environment consists of `env` and the variables of `INHERITED`, which `env`
        overrides. `stdin` is written and then closed. `on_line` gets each line of standard output without its line
        break as soon as it arrives, including a last line that has no line break, and may raise to stop the command. At
        the time limit the whole process group gets SIGTERM, and SIGKILL two seconds later. DeviceError if the program
        cannot be started, or prints a line of more than 64 MiB.
        """

    def push(self, local: Path, name: str) -> str:
        """Bring a file or folder to the device; return its path on the device, whose last part is `name`.

        Commands may read it but must not write to it. Unchanged files are not sent again. UsageError if `name` is not a
        plain file name, DeviceError if `local` cannot be read or the device has no room.
        """

    def pull(self, remote: str, local: Path) -> None:
        """Fetch a file; a relative `remote` is in the private folder. `local` is written completely or not at all."""

    def describe(self) -> DeviceInfo:
        """The name and the fingerprint of the device."""


@runtime_checkable
class Conversing(Device, Protocol):
    """A device that supports conversations with a command that keeps running; so far only this machine does."""

    def converse(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Conversation:
        """Start a command in the private folder; otherwise like `run`. The caller must close the conversation before
        the device.
        """


def checked_name(name: str) -> str:
    """The name, if it is a plain file name; UsageError otherwise."""
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > 255:
        raise UsageError(f"{name[:80]!r} is not a plain file name", hint="Give a name without directories.")
    return name


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of a device's own environment that commands may see."""
    return {k: v for k, v in environment.items() if k in INHERITED or k.startswith("LC_")}


def facts_of(printed: str) -> dict[str, Any] | None:
    """The object that the fingerprint program printed; None for other output."""
    try:
        facts = loads(printed)
    except RecordError:
        return None
    return facts if isinstance(facts, dict) else None
