"""The way to a Tizen device: calls of `sdb`, what they print, and the watcher there that is told that gnomon lives."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from gnomon.devices.guard import Guard
from gnomon.devices.sdb_program import SdbSettings, begin, chosen, end, finished, lost, silent
from gnomon.devices.sdb_sh import base_script, end_script, one_line, start_script, watcher_script, whole
from gnomon.devices.ssh_plain_sh import marked
from gnomon.devices.ssh_plain_stream import Marked, Take
from gnomon.errors import DeviceError

_CHUNK_BYTES = 1 << 16
_INLINE_BYTES = 900  # sdb's own buffers have held 1024 bytes at times, with more than the command in them
_SHORT_S = 60.0
_SLOWEST_BYTES_PER_S = 100_000
_LEAVE_S = 0.25
_SAID_BYTES = 1 << 20


class Unterminal:
    """Takes back what a terminal does to output: the carriage return that it puts before each line end."""

    def __init__(self) -> None:
        self._held = b""

    def add(self, chunk: bytes) -> bytes:
        """The bytes as they were printed; a carriage return at the end waits for what follows."""
        chunk = self._held + chunk
        self._held = b"\r" if chunk.endswith(b"\r") else b""
        return chunk.removesuffix(b"\r").replace(b"\r\n", b"\n") if self._held else chunk.replace(b"\r\n", b"\n")


class Call:
    """A running `sdb shell`, and what comes of it between the marks of each token; `close` it in any case."""

    def __init__(self, link: SdbLink, command: str, *listeners: tuple[str, Take]) -> None:
        self._link = link
        words = [*link.selected, "shell", command.encode("utf-8", "surrogateescape")]
        self._process = begin(link.settings, words, stdout=subprocess.PIPE)
        link.guard.add(self._process.pid)
        assert self._process.stdout is not None  # noqa: S101
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self._clean = Unterminal() if link.terminal else None
        self.parts = [Marked(token, take) for token, take in listeners]
        self._over = False

    @property
    def ended(self) -> bool:
        """Whether nothing more will come: the last marks came, or the client ended."""
        return self.parts[-1].status is not None or self._over

    @property
    def said(self) -> str:
        """What came before the first marks: sdb's own words, mostly."""
        return self.parts[0].noise.decode(errors="replace")

    def pump(self, until_s: float) -> bool:
        """Read until the call has ended (True) or the time has come (False). DeviceError if the device is silent."""
        while not self.ended:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            ready, _, _ = select.select([self._pipe], [], [], min(left_s, 1.0))
            if ready:
                self._read()
            elif self._process.poll() is not None:  # sdb's server may have inherited the pipe, and keeps it open
                self._read()
                self._over = True
            else:
                self._link.check()
        return True

    def close(self) -> None:
        """End the client, let it leave by itself where all marks came."""
        if self.ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LEAVE_S)
        end(self._process)
        self._pipe.close()
        self._link.guard.drop(self._process.pid)

    def _read(self) -> None:
        try:
            chunk = os.read(self._pipe.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._over = True
            return
        if self._clean is not None:
            chunk = self._clean.add(chunk)
        for part in self.parts:
            part.add(chunk)


class SdbLink:
    """Calls of `sdb` to one device. `start` it, `close` it in any case. Another thread tells the watcher of it."""

    def __init__(self, settings: SdbSettings) -> None:
        self.settings = settings
        self.selected: list[str | bytes] = []
        self.terminal = False
        self.base = ""
        self.lease = ""
        self._scratch = Path(tempfile.mkdtemp(prefix="gnomon-sdb-"))
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
        status = self._shell(base_script(secrets.token_hex(8), None), printed.extend, within_s=_SHORT_S)
        if status != "0":
            raise DeviceError(
                f"no private folder can be made on {self.settings.destination}",
                hint="See that its user can write to /opt/usr or /tmp there.",
            )
        self.terminal = printed.endswith(b"\r\n")
        self.base = printed.decode("utf-8", "surrogateescape").rstrip("\r\n")
        watcher = watcher_script(self.base, silence_s=self.settings.silence_s).encode("utf-8", "surrogateescape")
        self.send(watcher, f"{self.base}/given.sh")
        status, said = self.do(start_script(self.base, len(watcher)))
        if status != "0":
            raise DeviceError(
                f"gnomon's watcher cannot be started on {self.settings.destination}: {said or 'it did not come whole'}",
                hint=f"See that files can be pushed there by sdb, and the space in {self.base.rpartition('/')[0]}.",
                transient=True,
            )
        self.lease = said
        self._pings = threading.Thread(target=self._ping, name="gnomon-sdb-ping", daemon=True)
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

    def do(self, script: str, *, within_s: float = _SHORT_S) -> tuple[str, str]:
        """Run a script of gnomon's own to its end: its status, and what it printed to either output."""
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
        """Have `sdb` bring a file to a path there; what it said. Only the device knows whether it came."""
        words = [*self.selected, "push", os.fsencode(local), os.fsencode(remote)]
        return finished(self.settings, words, within_s=_SHORT_S + local.stat().st_size / _SLOWEST_BYTES_PER_S)

    def pull(self, remote: str, local: Path, size_bytes: int) -> str:
        """Have `sdb` fetch a file of that size; what it said."""
        words = [*self.selected, "pull", os.fsencode(remote), os.fsencode(local)]
        return finished(self.settings, words, within_s=_SHORT_S + size_bytes / _SLOWEST_BYTES_PER_S)

    def close(self) -> None:
        """Have the watcher clean up and end, unless that takes too long."""
        self._stop.set()
        try:
            if self.base:
                with contextlib.suppress(DeviceError):
                    self._shell(end_script(self.base), lambda _: None, within_s=_SHORT_S)
            if self._pings is not None:
                self._pings.join(_SHORT_S)
        finally:
            self._pings = None
            shutil.rmtree(self._scratch, ignore_errors=True)
            self.guard.close()

    def _shell(self, script: str, take: Take, within_s: float) -> str:
        token = secrets.token_hex(8)
        # The two outputs are one here, and the marks shall come once.
        call = self.call("exec 2>/dev/null\n" + marked(f"exec 2>&1\n{script}", token), (token, take))
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
