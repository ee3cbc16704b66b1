"""One session over a connection to a device without Python: a local SSH client, its streams, and how it ended."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from gnomon.devices.ssh_plain_sh import line, marks
from gnomon.devices.stopping import look_up
from gnomon.errors import DeviceError

_CHUNK_BYTES = 1 << 16
_NOISE_BYTES = 1 << 16
_LEAVE_S = 0.25

Take = Callable[[bytes], None]


class Marked:
    """Hands on what comes between a session's two marks; `status` is what the last one says, once it came."""

    def __init__(self, token: str, take: Take) -> None:
        self._first, self._last = marks(token)
        self._take = take
        self._begun = False
        self._held = bytearray()
        self.noise = b""
        self.status: str | None = None

    def add(self, chunk: bytes) -> None:
        """Take what came next."""
        if self.status is not None:
            return  # of a process that outlived its session
        self._held += chunk
        if not self._begun:
            at = self._held.find(self._first)
            if at < 0:
                del self._held[:-_NOISE_BYTES]
                self.noise = bytes(self._held)
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
        else:
            self._hand(at)

    def _hand(self, count: int) -> None:
        if count:
            chunk = bytes(self._held[:count])
            del self._held[:count]
            self._take(chunk)


class Session:
    """A running script on the device; `close` it in any case.

    `data` is its standard input behind the script. `returncode` is the client's, once it has ended without the last
    marks: then the connection is gone.
    """

    def __init__(
        self, argv: Sequence[str], script: str, token: str, *, data: Iterator[bytes], stdout: Take, stderr: Take
    ) -> None:
        try:
            # A session of its own: Ctrl-C in the terminal must not reach it before gnomon has cleaned up.
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise DeviceError(
                f"the SSH client {argv[0]!r} cannot be started: {error.strerror}",
                hint="Install OpenSSH's client (ssh), and see that it is on the PATH.",
            ) from error
        self.pid = self._process.pid
        self._data, self._to_send = data, memoryview(line(script))
        self.stdout, self.stderr = Marked(token, stdout), Marked(token, stderr)
        assert self._process.stdin and self._process.stdout and self._process.stderr  # noqa: S101
        self._pipes: tuple[IO[bytes], IO[bytes], IO[bytes]] = (
            self._process.stdin,
            self._process.stdout,
            self._process.stderr,
        )
        self._selector = selectors.DefaultSelector()
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(self._pipes[0], selectors.EVENT_WRITE)
        self._selector.register(self._pipes[1], selectors.EVENT_READ, self.stdout)
        self._selector.register(self._pipes[2], selectors.EVENT_READ, self.stderr)
        self._open_reads = 2

    @property
    def status(self) -> str | None:
        """The script's status once all that it printed was handed on."""
        return self.stdout.status if self.stderr.status is not None else None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.status is not None or not self._open_reads

    @property
    def said(self) -> str:
        """What came on standard error before the script ran: the client's own words, mostly."""
        return self.stderr.noise.decode(errors="replace")

    def pump(self, until_s: float) -> bool:
        """Move bytes until the session has ended (True) or the time has come (False)."""
        while not self.ended:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            look_up()
            for key, _ in self._selector.select(min(left_s, 1.0)):
                if key.fileobj is self._pipes[0]:
                    self._write()
                else:
                    self._read(key)
        return True

    def close(self) -> int | None:
        """End the client, let it leave by itself where the script has ended; its return code."""
        try:
            if self.status is not None or not self._open_reads:
                with contextlib.suppress(OSError):
                    self._pipes[0].close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LEAVE_S)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if self._process.poll() is None:
                    os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in self._pipes:
                with contextlib.suppress(OSError):
                    pipe.close()
            self._selector.close()
        return self._process.returncode

    def _write(self) -> None:
        pipe = self._pipes[0]
        if not self._to_send:
            chunk = next(self._data, None)
            if chunk is None:
                self._selector.unregister(pipe)
                pipe.close()
                return
            self._to_send = memoryview(chunk)
        try:
            self._to_send = self._to_send[os.write(pipe.fileno(), self._to_send[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:  # it did not want to read all of it
            self._selector.unregister(pipe)
            pipe.close()

    def _read(self, key: selectors.SelectorKey) -> None:
        try:
            chunk = os.read(key.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if chunk:
            key.data.add(chunk)
        else:
            self._selector.unregister(key.fileobj)
            self._open_reads -= 1
