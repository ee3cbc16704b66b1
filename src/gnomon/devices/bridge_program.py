"""How a program such as adb or sdb is called, and what its words mean."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from gnomon.devices.shell_visit import last
from gnomon.errors import DeviceError

_NOISE_BYTES = 1 << 16
_ASK_AGAIN_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """A program with the calls ``devices``, ``connect``, ``shell``, ``push`` and ``pull``, and how its devices are.

    `places` are words of the device's shell: where the private folder can be, the first that can be written. `cache`
    is its word for the folder of what is kept. `states` say what helps, by what ``devices`` says of a device that is
    not ready, with "" for all other states. `refuses` is the hint where the device lets nobody run commands, told by
    "closed"; empty where that word only tells that the connection was lost.
    """

    name: str
    install: str
    places: tuple[str, ...]
    cache: str
    states: Mapping[str, str]
    refuses: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """A device that such a program reaches. `serial` is as its ``devices`` lists it; empty for the only one."""

    bridge: ClassVar[Bridge]

    name: str
    serial: str = ""
    python: str | None = None
    """Python there: a path or a name; None for the newest of python3.10 to python3.13, else python3."""
    folder: str | None = None
    """Where pushed files are kept there; None for gnomon in a folder that suits such devices."""
    keep: bool = True
    """Whether pushed files stay for the next time."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """For every command there."""
    connect_timeout_s: float = 10.0
    silence_s: float = 30.0
    """After so long without a word of the other side, the device is lost, and cleans up by itself."""
    program: str = ""
    """The program's path; empty for the one on the PATH."""

    @property
    def destination(self) -> str:
        """The device as people write it."""
        return f"{self.bridge.name}://{self.serial}"

    @property
    def listing(self) -> str:
        """What shows the devices."""
        return f"{self.bridge.name} devices"


def begin(settings: BridgeSettings, words: Sequence[str | bytes], *, stdout: int) -> subprocess.Popen[bytes]:
    """Start the program with these words, both outputs to `stdout`; DeviceError if it is not there."""
    program = settings.program or settings.bridge.name
    try:
        # A session of its own: Ctrl-C in the terminal must not reach it before gnomon has cleaned up.
        return subprocess.Popen(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT if stdout == subprocess.PIPE else stdout,
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise DeviceError(
            f"the program {program!r} cannot be started: {error.strerror}", hint=settings.bridge.install
        ) from error


def finished(settings: BridgeSettings, words: Sequence[str | bytes], *, within_s: float) -> str:
    """Run the program to its end; what it printed. DeviceError, transient, if it does not end in time.

    Its server, which it may start, lives on with whatever it inherits: so the output is a file's, and no pipe's.
    """
    name = settings.bridge.name
    with tempfile.TemporaryFile() as out:
        process = begin(settings, words, stdout=out.fileno())
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"{name} {_word(words[0])} did not end within {within_s:g} s",
                hint=f"See whether {name} itself hangs ({name} kill-server; {name} devices), and the device.",
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


def devices(settings: BridgeSettings) -> dict[str, str]:
    """State of each device by serial number, as ``devices`` lists them; its server is started if need be."""
    printed = finished(settings, ["devices"], within_s=settings.connect_timeout_s + settings.silence_s)
    _, listed, rows = printed.partition("List of devices attached")
    if not listed:
        raise DeviceError(
            f"{settings.bridge.name} does not list devices: {last(printed) or 'it printed nothing'}",
            hint=f"See what it says: {settings.program or settings.bridge.name} devices",
        )
    fields = (row.replace("\t", "  ").strip() for row in rows.splitlines())
    found = (row.partition("  ") for row in fields if not row.startswith("*"))
    return {serial: state.strip().partition("  ")[0].rstrip() for serial, _, state in found if state}


def chosen(settings: BridgeSettings) -> str:
    """The serial number to use. DeviceError, with what to do, where there is no such device or it is not ready."""
    found = devices(settings)
    serial, name = settings.serial, settings.bridge.name
    if ":" in serial and found.get(serial) in (None, "offline"):
        found = _connected(settings, found)
    known = ", ".join(sorted(found)) or "none"
    attached = f"Connect it, with USB debugging switched on there, and see: {settings.listing}"
    if serial and serial not in found:
        raise DeviceError(f"{name} knows no device {serial}; connected: {known}", hint=attached, transient=True)
    if not serial and not found:
        raise DeviceError(f"{name} knows no device", hint=attached, transient=True)
    if not serial and len(found) > 1:
        shown = ", ".join(f"{one} ({state})" if state != "device" else one for one, state in sorted(found.items()))
        hint = f"Name one, such as {name}://{sorted(found)[0]}"
        raise DeviceError(f"several devices are connected: {shown}", hint=hint)
    serial = serial or next(iter(found))
    if found[serial] != "device":
        states = settings.bridge.states
        hint = next((states[state] for state in states if state and found[serial].startswith(state)), states[""])
        raise DeviceError(f"{serial} is {found[serial]}", hint=hint, transient=True)
    return serial


def _connected(settings: BridgeSettings, found: Mapping[str, str]) -> dict[str, str]:
    """Connect to a device at a network address, anew where the program only remembers it; the devices afterwards."""
    serial, within_s = settings.serial, settings.connect_timeout_s + settings.silence_s
    if serial in found:
        finished(settings, ["disconnect", serial], within_s=within_s)
    finished(settings, ["connect", serial], within_s=within_s)
    deadline_s = time.monotonic() + settings.connect_timeout_s
    after = devices(settings)
    while after.get(serial) in ("offline", "connecting", "authorizing") and time.monotonic() < deadline_s:
        time.sleep(_ASK_AGAIN_S)
        after = devices(settings)
    return after


def lost(settings: BridgeSettings, said: str) -> DeviceError:
    """The error of a call that ended without its marks: the device, or the way there, is gone."""
    told = last(said)
    if settings.bridge.refuses and "closed" in told:
        return DeviceError(
            f"{settings.destination} does not let {settings.bridge.name} run commands: {told}",
            hint=settings.bridge.refuses,
        )
    return DeviceError(
        f"the connection to {settings.destination} was lost{f': {told}' if told else ''}",
        hint=f"See whether the device is up ({settings.listing}), then start again: what was measured is kept.",
        transient=True,
    )


def silent(settings: BridgeSettings) -> DeviceError:
    """The error of a device that has not answered for too long."""
    return DeviceError(
        f"{settings.destination} has been silent for {settings.silence_s:g} s",
        hint="See whether the device hangs or its cable is out, then start again: what was measured is kept.",
        transient=True,
    )


def _word(word: str | bytes) -> str:
    return word if isinstance(word, str) else word.decode(errors="replace")
