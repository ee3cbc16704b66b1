"""A running call of adb's or sdb's shell: what comes of it, and how its command ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import subprocess
import time
from typing import TYPE_CHECKING

from gnomon.devices.bridge_program import begin, end, lost
from gnomon.devices.bridge_sh import command_script, errors_script, whole
from gnomon.devices.shell_link import SHORT_S, Running, ShellCall, ShellCommand
from gnomon.devices.ssh_plain_sh import marks
from gnomon.devices.ssh_plain_stream import Marked, Take
from gnomon.devices.stopping import look_up
from gnomon.errors import DeviceError

if TYPE_CHECKING:
    from gnomon.devices.bridge_link import BridgeLink

_CHUNK_BYTES = 1 << 16
_LEAVE_S = 0.25


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
    """A call of the program's `shell`, and what comes of it between the marks of each token; `close` it in any case."""

    def __init__(self, link: BridgeLink, command: str, *listeners: tuple[str, Take]) -> None:
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
        """What came before the first marks: the program's own words, mostly."""
        return self.parts[0].noise.decode(errors="replace")

    def pump(self, until_s: float) -> bool:
        """Read until the call has ended (True) or the time has come (False). DeviceError if the device is silent."""
        while not self.ended:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            look_up()
            ready, _, _ = select.select([self._pipe], [], [], min(left_s, 1.0))
            if ready:
                self._read()
            elif self._process.poll() is not None:  # its server may have inherited the pipe, and keeps it open
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


class BridgeCall(ShellCall):
    """A command: its first marks are around its standard output, the second around the end of its standard error."""

    def __init__(self, link: BridgeLink, command: ShellCommand, run: Running) -> None:
        self._link, self._number = link, command.number
        self._tokens = (secrets.token_hex(16), secrets.token_hex(16))
        self._errors = bytearray()
        if command.stdin:
            link.send(command.stdin, f"{link.base}/in/{command.number}.in")
        script = command_script(command, base=link.base, tokens=self._tokens).encode("utf-8", "surrogateescape")
        path = f"{link.base}/in/{command.number}.sh"
        link.send(script, path)
        listeners = ((self._tokens[0], run.add_stdout), (self._tokens[1], self._errors.extend))
        self._call = Call(link, whole(path, len(script)), *listeners)

    @property
    def ended(self) -> bool:
        """See `ShellCall.ended`."""
        return self._call.ended

    @property
    def status(self) -> str | None:
        """See `ShellCall.status`."""
        return self._call.parts[0].status

    def pump(self, until_s: float) -> bool:
        """See `ShellCall.pump`."""
        return self._call.pump(until_s)

    def close(self) -> None:
        """See `ShellCall.close`."""
        self._call.close()

    def lost(self) -> DeviceError:
        """See `ShellCall.lost`."""
        return lost(self._link.settings, self._call.said)

    def fill(self, run: Running) -> None:
        """Add the standard error; another call fetches it where the session was killed with the command's group."""
        if self._call.parts[1].status is None:
            self._errors.clear()
            token = self._tokens[1]
            late = Call(self._link, errors_script(self._link.base, self._number, token), (token, self._errors.extend))
            try:
                late.pump(time.monotonic() + SHORT_S)
            finally:
                late.close()
        # The file has the marks of the run script, whose begin may have been cut away.
        first, final = marks(self._tokens[0])
        said = bytes(self._errors)
        if first in said:
            said = said.partition(first)[2]
        run.stderr.add(said.rpartition(final)[0] if final in said else said)
