"""The way to a device behind adb or sdb: calls of the program, and the watcher there that is told that gnomon lives."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gnomon.devices.bridge_call import BridgeCall, Call
from gnomon.devices.bridge_files import arrive, fetch
from gnomon.devices.bridge_program import BridgeSettings, chosen, finished, lost, silent
from gnomon.devices.bridge_sh import (
    LINGER,
    base_script,
    end_script,
    one_line,
    start_script,
    watcher_script,
    whole,
)
from gnomon.devices.guard import Guard
from gnomon.devices.pushed import Part
from gnomon.devices.shell_link import SHORT_S, Running, ShellCommand, ShellLink
from gnomon.devices.ssh_plain_sh import marked, quoted
from gnomon.devices.ssh_plain_stream import Take
from gnomon.errors import DeviceError

_INLINE_BYTES = 900  # sdb's own buffers have held 1024 bytes at times, with more than the command in them
_SLOWEST_BYTES_PER_S = 100_000
_SAID_BYTES = 1 << 20


class BridgeLink(ShellLink):
    """Calls of the program to a device. `start` it, `close` it in any case. Another thread tells the watcher of it."""

    def __init__(self, settings: BridgeSettings) -> None:
        self.settings = settings
        self.cache = settings.bridge.cache
        self.selected: list[str | bytes] = []
        self.terminal = False
        self.base = ""
        self.lease = ""
        self._scratch = Path(tempfile.mkdtemp(prefix="gnomon-bridge-"))
        self.guard = Guard(self._scratch)
        self._heard_s = time.monotonic()
        self._stop = threading.Event()
        self._pings: threading.Thread | None = None
        self._last = 0

    def start(self) -> str:
        """Choose the device, make the private folder there and start the watcher; the folder's path."""
        serial = chosen(self.settings)
        self.settings = replace(self.settings, serial=serial)
        self.selected = ["-s", serial]
        self._heard_s = time.monotonic()
        printed = bytearray()
        status = self._shell(
            base_script(secrets.token_hex(8), self.settings.bridge.places), printed.extend, within_s=SHORT_S
        )
        if status != "0":
            raise DeviceError(
                f"no private folder can be made on {self.settings.destination}",
                hint=f"See that its user can write to one of these there: {', '.join(self.settings.bridge.places)}",
            )
        self.terminal = printed.endswith(b"\r\n")
        self.base = printed.decode("utf-8", "surrogateescape").rstrip("\r\n")
        watcher = watcher_script(self.base, silence_s=self.settings.silence_s).encode("utf-8", "surrogateescape")
        self.send(watcher, f"{self.base}/given.sh")
        status, said = self.do(start_script(self.base, len(watcher)))
        if status != "0":
            raise DeviceError(
                f"gnomon's watcher cannot be started on {self.settings.destination}: {said or 'it did not come whole'}",
                hint=f"See that {self.settings.bridge.name} can push files there, and the space in "
                f"{self.base.rpartition('/')[0]}.",
                transient=True,
            )
        self.lease = said
        self._pings = threading.Thread(target=self._ping, name="gnomon-bridge-ping", daemon=True)
        self._pings.start()
        return self.base

    def check(self) -> None:
        """DeviceError if the device has not answered for too long."""
        if self._pings is not None and time.monotonic() - self._heard_s > self.settings.silence_s:
            raise silent(self.settings)

    def call(self, script: str, *listeners: tuple[str, Take]) -> Call:
        """Start a script that prints the marks of these tokens."""
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
        status = self._shell(
            script, lambda chunk: printed.extend(chunk[: max(0, _SAID_BYTES - len(printed))]), within_s
        )
        return status, printed.decode("utf-8", "surrogateescape").strip()

    def send(self, content: bytes, remote: str) -> None:
        """Bring these bytes to a file there."""
        local = self._scratch / secrets.token_hex(8)
        try:
            local.write_bytes(content)
            self.pushed(local, remote)
        finally:
            local.unlink(missing_ok=True)

    def pushed(self, local: Path, remote: str) -> str:
        """Have the program bring a file to a path there; what it said. Only the device knows whether it came."""
        words = [*self.selected, "push", os.fsencode(local), os.fsencode(remote)]
        return finished(self.settings, words, within_s=SHORT_S + local.stat().st_size / _SLOWEST_BYTES_PER_S)

    def pull(self, remote: str, local: Path, size_bytes: int) -> str:
        """Have the program fetch a file of that size; what it said."""
        words = [*self.selected, "pull", os.fsencode(remote), os.fsencode(local)]
        return finished(self.settings, words, within_s=SHORT_S + size_bytes / _SLOWEST_BYTES_PER_S)

    def printed(self, script: str, most_bytes: int) -> bytes:
        """See `ShellLink.printed`: by a file, as a terminal may be in the way."""
        path = f"{self.base}/in/printed"
        self.do(f"{{ {script}; }} 2>/dev/null | head -c {most_bytes} >{quoted(path)}")
        local = self._scratch / "printed"
        fetch(self, path, local)
        return local.read_bytes()

    def ask(self) -> str:
        """What the watcher says of the device's lease."""
        said, self.lease = self.lease, ""
        return said or self.do(f"cat {quoted(f'{self.base}/lease')}")[1]

    def command(self, command: ShellCommand, run: Running) -> BridgeCall:
        """See `ShellLink.command`."""
        return BridgeCall(self, command, run)

    def arrive(self, files: Sequence[tuple[Part, str]]) -> None:
        """See `ShellLink.arrive`."""
        arrive(self, files)

    def fetch(self, path: str, local: Path) -> None:
        """See `ShellLink.fetch`."""
        fetch(self, path, local)

    def close(self) -> None:
        """Have the watcher clean up and end, unless that takes too long."""
        self._stop.set()
        try:
            if self.base:
                with contextlib.suppress(DeviceError):
                    self._shell(end_script(self.base), lambda _: None, within_s=SHORT_S)
            if self._pings is not None:
                self._pings.join(SHORT_S)
        finally:
            self._pings = None
            shutil.rmtree(self._scratch, ignore_errors=True)
            self.guard.close()

    def _shell(self, script: str, take: Take, within_s: float) -> str:
        token = secrets.token_hex(8)
        # The two outputs are one here, and the marks shall come once.
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
