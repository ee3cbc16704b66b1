"""The link to a device behind adb or sdb: calls of the program, and the watcher on the device, which receives pings.

A call of the program's ``shell`` yields the output of a command, enclosed in marks. After each push and pull, the file
is checked on both sides, because the program's messages do not show whether the file arrived.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnomon.devices.lease import LEASES, command_line
from gnomon.devices.pushed import Part
from gnomon.devices.shell.bridge_scripts import (
    LINGER,
    arrived_script,
    base_script,
    command_script,
    end_script,
    errors_script,
    fetch_script,
    one_line,
    start_script,
    watcher_script,
    whole,
)
from gnomon.devices.shell.device import not_arrived, refusal
from gnomon.devices.shell.link import (
    LONG_S,
    SHORT_S,
    Marked,
    ShellCall,
    ShellCommand,
    ShellLink,
    ShellSettings,
    Take,
    at_most,
    broken,
    end,
    last,
)
from gnomon.devices.shell.scripts import marked, marks, quoted
from gnomon.errors import DeviceError, system_errors
from gnomon.system.files import file_digest
from gnomon.system.process import Guard, Printed, Pump, guarded, own_guard

_NOISE_BYTES = 1 << 16
_ASK_AGAIN_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """A program with the calls ``devices``, ``connect``, ``shell``, ``push`` and ``pull``, and facts about its devices.

    `places` are shell words for possible places of the private folder, of which the first writable one is used. `cache`
    is the shell word for the folder of kept files. `states` has a hint for each state that ``devices`` prints for a
    device that is not ready, and one for "", which applies to all other states. `refuses` is the hint if "closed" means
    that the device refuses to run commands; it is empty if "closed" means a lost connection.
    """

    name: str
    install: str
    places: tuple[str, ...]
    cache: str
    states: Mapping[str, str]
    refuses: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings(ShellSettings):
    """A device that a bridge's program reaches. `serial` is its serial number in ``devices``; empty for the only
    device.
    """

    bridge: Bridge

    serial: str = ""
    program: str = ""
    """The program's path; empty to search the PATH."""
    server: tuple[str, ...] = ()
    """Words that precede each call and select a server on another machine: -H HOST -P PORT."""

    @property
    def destination(self) -> str:
        """The device as people write it."""
        return f"{self.bridge.name}://{self.serial}"

    @property
    def listing(self) -> str:
        """The command that lists the devices."""
        return f"{self.bridge.name} devices"


def begin(
    settings: BridgeSettings, words: Sequence[str | bytes], guard: Guard, *, stdout: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """Start the program with these words, sending both outputs to `stdout`; DeviceError if it does not exist."""
    program = settings.program or settings.bridge.name
    argv = [program, *settings.server, *words]
    with system_errors(DeviceError, f"the program {program!r} cannot be started", hint=settings.bridge.install):
        return guard.start(argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT)


def finished(settings: BridgeSettings, words: Sequence[str | bytes], *, within_s: float) -> str:
    """Run the program to its end and return its output. Transient DeviceError if it does not end in time.

    The program may start a server that outlives it and keeps inherited descriptors open, so the output goes to a file,
    not a pipe.
    """
    name = settings.bridge.name
    with tempfile.TemporaryFile() as out:
        guard = own_guard()
        process = begin(settings, words, guard, stdout=out.fileno())
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"{name} {_word(words[0])} did not end within {within_s:g} s",
                hint=f"Check whether {name} itself hangs ({name} kill-server; {name} devices), or the device.",
                transient=True,
            ) from None
        finally:
            end(process, guard)
        out.seek(0)
        return out.read(_NOISE_BYTES).decode(errors="replace").replace("\r\n", "\n")


def devices(settings: BridgeSettings) -> dict[str, str]:
    """The state of each device by serial number, as listed by ``devices``, which starts the program's server if
    necessary.
    """
    printed = finished(settings, ["devices"], within_s=settings.connect_timeout_s + settings.silence_s)
    _, listed, rows = printed.partition("List of devices attached")
    if not listed:
        raise DeviceError(
            f"{settings.bridge.name} does not list devices: {last(printed) or 'it printed nothing'}",
            hint=f"See what it says: {settings.program or settings.bridge.name} devices",
        )
    fields = (row.replace("\t", "  ").strip() for row in rows.splitlines())
    parts = (row.partition("  ") for row in fields if not row.startswith("*"))
    return {serial: state.strip().partition("  ")[0].rstrip() for serial, _, state in parts if state}


def chosen(settings: BridgeSettings) -> str:
    """The serial number to use. DeviceError, with a hint, if there is no such device or it is not ready."""
    listed = devices(settings)
    serial, name = settings.serial, settings.bridge.name
    if ":" in serial and listed.get(serial) in (None, "offline"):
        listed = _connected(settings, listed)
    serials = ", ".join(sorted(listed)) or "none"
    attached = f"Connect it with USB debugging switched on, then check: {settings.listing}"
    if serial and serial not in listed:
        raise DeviceError(f"{name} finds no device {serial}; connected: {serials}", hint=attached, transient=True)
    if not serial and not listed:
        raise DeviceError(f"{name} finds no device", hint=attached, transient=True)
    if not serial and len(listed) > 1:
        shown = ", ".join(f"{key} ({state})" if state != "device" else key for key, state in sorted(listed.items()))
        hint = f"Name one, such as {name}://{sorted(listed)[0]}"
        raise DeviceError(f"several devices are connected: {shown}", hint=hint)
    serial = serial or next(iter(listed))
    if listed[serial] != "device":
        states = settings.bridge.states
        hint = next((states[state] for state in states if state and listed[serial].startswith(state)), states[""])
        raise DeviceError(f"{serial} is {listed[serial]}", hint=hint, transient=True)
    return serial


def _connected(settings: BridgeSettings, listed: Mapping[str, str]) -> dict[str, str]:
    """Connect, or reconnect, to a device at a network address; return the states of the devices afterwards."""
    serial, within_s = settings.serial, settings.connect_timeout_s + settings.silence_s
    if serial in listed:
        finished(settings, ["disconnect", serial], within_s=within_s)
    finished(settings, ["connect", serial], within_s=within_s)
    deadline_s = time.monotonic() + settings.connect_timeout_s
    after = devices(settings)
    while after.get(serial) in ("offline", "connecting", "authorizing") and time.monotonic() < deadline_s:
        time.sleep(_ASK_AGAIN_S)
        after = devices(settings)
    return after


def lost(settings: BridgeSettings, said: str | None) -> DeviceError:
    """The error for a call that ended without its marks, or (None) for a device that has not answered for too long."""
    words = None if said is None else last(said)
    if settings.bridge.refuses and words and "closed" in words:
        return DeviceError(
            f"{settings.destination} does not let {settings.bridge.name} run commands: {words}",
            hint=settings.bridge.refuses,
        )
    return broken(settings, words, way="cable is out", look=f"whether the device is up ({settings.listing})")


def _word(word: str | bytes) -> str:
    return word if isinstance(word, str) else word.decode(errors="replace")


_LEAVE_S = 0.25


class Unterminal:
    """Removes the carriage return that a terminal inserts before each line feed."""

    def __init__(self) -> None:
        self._held = b""

    def add(self, chunk: bytes) -> bytes:
        """The bytes as they were printed; a carriage return at the end is held back until the next chunk."""
        chunk = self._held + chunk
        self._held = b"\r" if chunk.endswith(b"\r") else b""
        return chunk.removesuffix(b"\r").replace(b"\r\n", b"\n") if self._held else chunk.replace(b"\r\n", b"\n")


class Call(Pump):
    """A call of the program's `shell`, and its output between the marks of each token; always `close` it."""

    def __init__(self, link: BridgeLink, command: str, *listeners: tuple[str, Take]) -> None:
        self._link = link
        words = [*link.selected, "shell", command.encode("utf-8", "surrogateescape")]
        self._clean = Unterminal() if link.terminal else None
        self.parts = [Marked(token, take) for token, take in listeners]
        super().__init__(begin(link.settings, words, link.guard), (self._heard,), iter(()))

    @property
    def ended(self) -> bool:
        """Whether the output is complete, because the last marks have arrived or the client has ended."""
        return self.parts[-1].status is not None or not self._open_reads

    @property
    def said(self) -> str:
        """The output before the first marks, mostly the program's own messages."""
        return self.parts[0].noise.decode(errors="replace")

    def idle(self) -> None:
        """Check whether the client has ended; if not, check the device. DeviceError if the device is silent."""
        if self._process.poll() is None:
            self._link.check()
        else:  # its server may have inherited the pipe and keep it open
            self._readers[0]()
            self._open_reads = 0

    def close(self) -> None:
        """End the client; if all marks have arrived, let it end on its own first."""
        end(self._process, self._link.guard, leave_s=_LEAVE_S if self.ended else 0.0)
        self.release()

    def _heard(self, chunk: bytes) -> None:
        if self._clean is not None:
            chunk = self._clean.add(chunk)
        for part in self.parts:
            part.add(chunk)


class BridgeCall(Call, ShellCall):
    """A command; the first marks enclose its standard output, the second ones the end of its standard error."""

    def __init__(self, link: BridgeLink, command: ShellCommand, run: Printed) -> None:
        self._number = command.number
        self._tokens = (secrets.token_hex(16), secrets.token_hex(16))
        self._errors = bytearray()
        if command.stdin:
            link.send(command.stdin, f"{link.base}/in/{command.number}.in")
        script = command_script(command, base=link.base, tokens=self._tokens).encode("utf-8", "surrogateescape")
        path = f"{link.base}/in/{command.number}.sh"
        link.send(script, path)
        listeners = ((self._tokens[0], run.add_stdout), (self._tokens[1], self._errors.extend))
        super().__init__(link, whole(path, len(script)), *listeners)

    @property
    def status(self) -> str | None:
        """See `ShellCall.status`."""
        return self.parts[0].status

    def lost(self) -> DeviceError:
        """See `ShellCall.lost`."""
        return lost(self._link.settings, self.said)

    def fill(self, run: Printed) -> None:
        """Add the standard error; another call fetches it if the session was killed with the command's group."""
        if self.parts[1].status is None:
            self._errors.clear()
            token = self._tokens[1]
            late = Call(self._link, errors_script(self._link.base, self._number, token), (token, self._errors.extend))
            try:
                late.pump(time.monotonic() + SHORT_S)
            finally:
                late.close()
        # The file contains the run script's marks; the first one may have been cut off.
        first, final = marks(self._tokens[0])
        said = bytes(self._errors)
        if first in said:
            said = said.partition(first)[2]
        run.stderr.add(said.rpartition(final)[0] if final in said else said)


_AT_ONCE = 32
_COPIED = re.compile(r"([0-9]+)(?: ([0-9a-f]{64}))?\b")


_INLINE_BYTES = 900  # some versions of sdb have buffers of 1024 bytes, which hold more than the command
_SLOWEST_BYTES_PER_S = 100_000


class BridgeLink(ShellLink):
    """Calls of the program to a device. `start` the link, and always `close` it. Another thread pings the watcher."""

    def __init__(self, settings: BridgeSettings) -> None:
        self.settings = settings
        self.cache = settings.bridge.cache
        self.selected: list[str | bytes] = []
        self.terminal = False
        self.base = ""
        self.lease = ""
        self.guard, self._scratch = guarded("gnomon-bridge-")
        self._heard_s = time.monotonic()
        self._stop = threading.Event()
        self._pings: threading.Thread | None = None
        self._last = 0

    def start(self) -> str:
        """Choose the device, make its private folder and start the watcher; return the folder's path."""
        serial = chosen(self.settings)
        self.settings = replace(self.settings, serial=serial)
        self.selected = ["-s", serial]
        self._heard_s = time.monotonic()
        printed, places = bytearray(), self.settings.bridge.places
        status = self._shell(base_script(secrets.token_hex(8), places), printed.extend, within_s=SHORT_S)
        if status != "0":
            raise DeviceError(
                f"no private folder can be made on {self.settings.destination}",
                hint=f"Make one of these folders on the device writable: {', '.join(places)}",
            )
        self.terminal = printed.endswith(b"\r\n")
        self.base = printed.decode("utf-8", "surrogateescape").rstrip("\r\n")
        leases = self.settings.environment.get(LEASES, "")
        watcher = watcher_script(self.base, silence_s=self.settings.silence_s, by=command_line(), leases=leases)
        content = watcher.encode("utf-8", "surrogateescape")
        self.send(content, f"{self.base}/given.sh")
        status, said = self.do(start_script(self.base, len(content)))
        if status != "0":
            raise DeviceError(
                f"gnomon's watcher cannot be started on {self.settings.destination}: {said or 'it is incomplete'}",
                hint=f"Check that {self.settings.bridge.name} can push files there, and that there is free space in "
                f"{self.base.rpartition('/')[0]}.",
                transient=True,
            )
        self.lease = said
        self._pings = threading.Thread(target=self._ping, name="gnomon-bridge-ping", daemon=True)
        self._pings.start()
        return self.base

    def check(self) -> None:
        """Raise DeviceError if the device has not answered for too long."""
        if self._pings is not None and time.monotonic() - self._heard_s > self.settings.silence_s:
            raise lost(self.settings, None)

    def call(self, script: str, *listeners: tuple[str, Take]) -> Call:
        """Start a script that prints the marks of the listeners' tokens."""
        command = one_line(script)
        if len(command.encode("utf-8", "surrogateescape")) > _INLINE_BYTES:
            self._last += 1
            path = f"{self.base}/in/s{self._last % 8}"
            content = script.encode("utf-8", "surrogateescape")
            self.send(content, path)
            command = whole(path, len(content))
        return Call(self, command, *listeners)

    def do(self, script: str, *, within_s: float = SHORT_S) -> tuple[str, str]:
        """See `ShellLink.do`."""
        printed = bytearray()
        status = self._shell(script, at_most(printed), within_s)
        return status, printed.decode("utf-8", "surrogateescape").strip()

    def send(self, content: bytes, remote: str) -> None:
        """Write these bytes to a file on the device."""
        local = self._scratch / secrets.token_hex(8)
        try:
            local.write_bytes(content)
            self.pushed(local, remote)
        finally:
            local.unlink(missing_ok=True)

    def pushed(self, local: Path, remote: str) -> str:
        """Have the program push a file; return its messages. Only the device knows whether the file arrived."""
        words = [*self.selected, "push", os.fsencode(local), os.fsencode(remote)]
        return finished(self.settings, words, within_s=SHORT_S + local.stat().st_size / _SLOWEST_BYTES_PER_S)

    def printed(self, script: str, most_bytes: int) -> bytes:
        """See `ShellLink.printed`; uses a file, because a terminal might change the output."""
        path = f"{self.base}/in/printed"
        self.do(f"{{ {script}; }} 2>/dev/null | head -c {most_bytes} >{quoted(path)}")
        local = self._scratch / "printed"
        self.fetch(path, local)
        return local.read_bytes()

    def ask(self) -> str:
        """The state of the device's lease, from the watcher."""
        said, self.lease = self.lease, ""
        return said or self.do(f"cat {quoted(f'{self.base}/lease')}")[1]

    def command(self, command: ShellCommand, run: Printed) -> BridgeCall:
        """See `ShellLink.command`."""
        return BridgeCall(self, command, run)

    def arrive(self, files: Sequence[tuple[Part, str]]) -> None:
        """See `ShellLink.arrive`.

        Files are first pushed under plain names, so that the program cannot misinterpret their paths.
        """
        for start in range(0, len(files), _AT_ONCE):
            scripts = []
            for number, (part, path) in enumerate(files[start : start + _AT_ONCE]):
                came = f"{self.base}/in/f{number}"
                self.pushed(part.source, came)
                scripts.append(arrived_script(came, path, part.size_bytes, part.digest, program=part.kind == "x"))
            status, said = self.do("\n".join(scripts), within_s=LONG_S)
            if status == "3":
                raise not_arrived(self.settings, said or "a file")
            if status != "0":
                raise refusal(self.settings, said, files[start][1])

    def fetch(self, path: str, local: Path) -> None:
        """See `ShellLink.fetch`; the file is written as it arrives."""
        copy = f"{self.base}/in/fetched"
        status, copied = self.do(fetch_script(path, copy), within_s=LONG_S)
        match = _COPIED.match(copied)
        if status != "0" or match is None:
            raise refusal(self.settings, copied, path)
        local.write_bytes(b"")
        words = [*self.selected, "pull", os.fsencode(copy), os.fsencode(local)]
        said = finished(self.settings, words, within_s=SHORT_S + int(match[1]) / _SLOWEST_BYTES_PER_S)
        self.do(f"rm -f {quoted(copy)}")
        if local.stat().st_size != int(match[1]) or (match[2] and file_digest(local) != match[2]):
            raise DeviceError(
                f"{path} did not arrive unchanged from {self.settings.destination}: {last(said)}",
                hint=f"Check that the device is up ({self.settings.listing}), and the disk here; then start again.",
                transient=True,
            )

    def close(self) -> None:
        """Have the watcher clean up and end; give up if this takes too long."""
        self._stop.set()
        try:
            if self.base:
                with contextlib.suppress(DeviceError):
                    self._shell(end_script(self.base), lambda _: None, within_s=SHORT_S)
            if self._pings is not None:
                self._pings.join(SHORT_S)
        finally:
            self._pings = None
            self.guard.close()

    def _shell(self, script: str, take: Take, within_s: float) -> str:
        token = secrets.token_hex(8)
        # Both outputs are merged here, and the marks must be printed only once.
        call = self.call("exec 2>/dev/null\n" + marked(f"exec 2>&1\n{script}", token) + LINGER, (token, take))
        try:
            call.pump(time.monotonic() + within_s)
        finally:
            call.close()
        status = call.parts[0].status
        if status is None:
            raise lost(self.settings, call.said)
        self._heard_s = time.monotonic()
        return status

    def _ping(self) -> None:
        every_s = max(0.2, self.settings.silence_s / 6)
        count = 0
        while not self._stop.wait(every_s):
            count += 1
            with contextlib.suppress(DeviceError):
                self._shell(f"echo {count} >{self.base}/alive", lambda _: None, every_s * 3)
