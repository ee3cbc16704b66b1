"""How the program `sdb` of Tizen Studio is called, and what its words mean."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gnomon.errors import DeviceError

_SHOWN = 300
_NOISE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SdbSettings:
    """A device that `sdb` reaches, and how. `serial` is as ``sdb devices`` lists it; empty for the only one."""

    name: str
    serial: str = ""
    python: str | None = None
    """Python there: a path or a name; None for the newest of python3.10 to python3.13, else python3."""
    folder: str | None = None
    """Where pushed files are kept there; None for gnomon in the user's cache folder there."""
    keep: bool = True
    """Whether pushed files stay for the next time."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """For every command there."""
    connect_timeout_s: float = 10.0
    silence_s: float = 30.0
    """After so long without a word of the other side, the device is lost, and cleans up by itself."""
    program: str = "sdb"

    @property
    def destination(self) -> str:
        """The device as people write it."""
        return f"sdb://{self.serial}"


def begin(settings: SdbSettings, words: Sequence[str | bytes], *, stdout: int) -> subprocess.Popen[bytes]:
    """Start `sdb` with these words, both outputs to `stdout`; DeviceError if it is not there."""
    try:
        # A session of its own: Ctrl-C in the terminal must not reach it before gnomon has cleaned up.
        return subprocess.Popen(
            [settings.program, *words],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT if stdout == subprocess.PIPE else stdout,
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise DeviceError(
            f"the program {settings.program!r} cannot be started: {error.strerror}",
            hint="Install Tizen Studio's sdb, and put its folder (tizen-studio/tools) on the PATH.",
        ) from error


def finished(settings: SdbSettings, words: Sequence[str | bytes], *, within_s: float) -> str:
    """Run `sdb` to its end; what it printed. DeviceError, transient, if it does not end in time.

    Its server, which it may start, lives on with whatever it inherits: so the output is a file's, and no pipe's.
    """
    with tempfile.TemporaryFile() as out:
        process = begin(settings, words, stdout=out.fileno())
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"sdb {_word(words[0])} did not end within {within_s:g} s",
                hint="See whether sdb itself hangs (sdb kill-server; sdb devices), and the device.",
                transient=True,
            ) from None
        finally:
            end(process)
        out.seek(0)
        return out.read(_NOISE_BYTES).decode(errors="replace").replace("\r\n", "\n")


def end(process: subprocess.Popen[bytes]) -> int:
    """Kill the client, if it still runs, and reap it; its status."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def devices(settings: SdbSettings) -> dict[str, str]:
    """State of each device by serial number, as ``sdb devices`` lists them; its server is started if need be."""
    printed = finished(settings, ["devices"], within_s=settings.connect_timeout_s + settings.silence_s)
    _, listed, rows = printed.partition("List of devices attached")
    if not listed:
        raise DeviceError(
            f"sdb does not list devices: {last(printed) or 'it printed nothing'}",
            hint=f"See what it says: {settings.program} devices",
        )
    fields = (row.split() for row in rows.splitlines())
    return {row[0]: row[1] for row in fields if len(row) >= 2 and not row[0].startswith("*")}


def chosen(settings: SdbSettings) -> str:
    """The serial number to use. DeviceError, with what to do, where there is no such device or it is not ready."""
    found = devices(settings)
    if ":" in settings.serial and settings.serial not in found:
        finished(settings, ["connect", settings.serial], within_s=settings.connect_timeout_s + settings.silence_s)
        found = devices(settings)
    known = ", ".join(sorted(found)) or "none"
    if settings.serial and settings.serial not in found:
        raise DeviceError(
            f"sdb knows no device {settings.serial}; connected: {known}",
            hint="Connect it, with USB debugging switched on there, and see: sdb devices",
            transient=True,
        )
    if not settings.serial and not found:
        raise DeviceError(
            "sdb knows no device",
            hint="Connect one, with USB debugging switched on there, and see: sdb devices",
            transient=True,
        )
    if not settings.serial and len(found) > 1:
        raise DeviceError(f"several devices are connected: {known}", hint=f"Name one, such as sdb://{sorted(found)[0]}")
    serial = settings.serial or next(iter(found))
    if found[serial] != "device":
        hint = "Unlock it, and confirm on its screen that this computer may debug it."
        if found[serial] == "offline":
            hint = "Wait until it has started, or connect it anew."
        raise DeviceError(f"{serial} is {found[serial]}", hint=hint, transient=True)
    return serial


def lost(settings: SdbSettings, said: str) -> DeviceError:
    """The error of a call that ended without its marks: the device, or the way there, is gone."""
    told = last(said)
    if "closed" in told:
        return DeviceError(
            f"{settings.destination} does not let sdb run commands: {told}",
            hint="Its firmware must allow `sdb shell`: those of sold televisions do not.",
        )
    return DeviceError(
        f"the connection to {settings.destination} was lost{f': {told}' if told else ''}",
        hint="See whether the device is up (sdb devices), then start again: what was measured is kept.",
        transient=True,
    )


def silent(settings: SdbSettings) -> DeviceError:
    """The error of a device that has not answered for too long."""
    return DeviceError(
        f"{settings.destination} has been silent for {settings.silence_s:g} s",
        hint="See whether the device hangs or its cable is out, then start again: what was measured is kept.",
        transient=True,
    )


def last(text: str) -> str:
    """The last line that says something, fit to be shown."""
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    return "".join(c if c.isprintable() else " " for c in rows[-1][:_SHOWN]) if rows else ""


def _word(word: str | bytes) -> str:
    return word if isinstance(word, str) else word.decode(errors="replace")
