"""The connection to `gnomon.devices.keeper.keeper`: the local SSH client and the frames that go through it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from gnomon.devices.keeper.keeper import HEAD, MARK
from gnomon.errors import DeviceError
from gnomon.system.stopping import look_up

PENDING_BYTES = 1 << 20
_FRAME_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 18
_NOISE_BYTES = 1 << 20
_STDERR_BYTES = 1 << 16
_LEAVE_S = 15.0
_EXIT_S = 5.0

Frame = tuple[bytes, bytes]


class Ended(Exception):
    """The connection has ended: `returncode` is the client's, None if it only fell silent."""

    def __init__(self, returncode: int | None) -> None:
        super().__init__(returncode)
        self.returncode = returncode


class Link:
    """A running SSH client with a keeper at its other end, used by one thread; another one of its own sends pings."""

    def __init__(self, argv: Sequence[str], silence_s: float) -> None:
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
        assert self._process.stdin and self._process.stdout and self._process.stderr  # noqa: S101
        self._pipes: tuple[IO[bytes], ...] = (self._process.stdin, self._process.stdout, self._process.stderr)
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in self._pipes)
        self.pid = self._process.pid
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._pending, self._received, self._errors = bytearray(), bytearray(), bytearray()
        self._at_end = self._errors_end = False
        # True while bytes move: still so after an interruption, it says that no frame can be trusted any more.
        self._moving_out = self._moving_in = False
        self._stop_pings = threading.Event()
        self._pings = threading.Thread(target=self._ping, name="gnomon-ssh-ping", daemon=True)

    @property
    def torn(self) -> bool:
        """Whether an exception came in the middle of a frame, so that the link can only be closed."""
        return self._moving_out or self._moving_in

    @property
    def stderr(self) -> str:
        """The end of what the client, and the device before the keeper ran, printed to standard error."""
        return bytes(self._errors[-_STDERR_BYTES:]).decode(errors="replace")

    def start(self, opening: bytes, within_s: float) -> None:
        """Send what starts the keeper and wait for its mark. `Ended` if it does not come; see `printed`."""
        self._send(opening)
        deadline_s = time.monotonic() + within_s
        while (at := self._received.find(MARK)) < 0:
            if len(self._received) > _NOISE_BYTES:
                raise Ended(-1)
            if self._at_end:
                raise Ended(self._status())
            left_s = deadline_s - time.monotonic()
            if not self._pump(max(0.0, left_s)) and left_s <= 0:
                raise Ended(None)
        del self._received[: at + len(MARK)]
        self._pings.start()

    @property
    def printed(self) -> str:
        """What came instead of the keeper's mark."""
        return bytes(self._received[-_STDERR_BYTES:]).decode(errors="replace")

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a JSON object."""
        data = json.dumps(message).encode()
        self._send(HEAD.pack(b"J", len(data)) + data)

    def data(self, data: bytes | memoryview) -> None:
        """Send data of the current request, at most some hundred KiB at once; see `arrived`."""
        self._send(HEAD.pack(b"D", len(data)) + data)

    def receive(self) -> Frame:
        """The next frame. `Ended` if there is none for too long, or the connection has ended."""
        frame = self.arrived(0)
        assert frame is not None  # noqa: S101
        return frame

    def arrived(self, pending_bytes: int) -> Frame | None:
        """The next frame; or None once no more than so many bytes (if any) are still to be sent. `Ended` as above."""
        heard_s = time.monotonic()
        while True:
            frame = self._parse()
            if frame is not None:
                return frame
            if pending_bytes and len(self._pending) <= pending_bytes:
                return None
            if self._at_end:
                raise Ended(self._status())
            look_up()
            now_s = time.monotonic()
            overdue = now_s - heard_s >= self._silence_s
            if self._pump(0 if overdue else heard_s + self._silence_s - now_s):
                heard_s = time.monotonic()
            elif overdue:
                raise Ended(None)

    def close(self, *, kindly: bool = True) -> None:
        """End the connection; if kindly, wait until the keeper has cleaned up, unless that takes too long."""
        self._stop_pings.set()
        with contextlib.suppress(OSError), self._lock:
            self._moving_out = True  # the pings end here
            self._pipes[0].close()
        self._pending.clear()
        deadline_s = time.monotonic() + (_LEAVE_S if kindly else 0)
        try:
            while not self._at_end and time.monotonic() < deadline_s:
                self._received.clear()
                self._pump(deadline_s - time.monotonic())
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if self._process.returncode is None:
                    os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in self._pipes:
                pipe.close()

    def _status(self) -> int:
        """How the client ended, once its output has."""
        deadline_s = time.monotonic() + _EXIT_S
        while self._process.poll() is None and time.monotonic() < deadline_s:
            self._pump(0.01)
            time.sleep(0.005)
        self._pump(0)
        return self._process.returncode if self._process.returncode is not None else -1

    def _ping(self) -> None:
        every_s = min(5.0, self._silence_s / 4)
        data = b'{"op": "ping"}'
        while not self._stop_pings.wait(every_s):
            with self._lock:
                if self._moving_out:
                    return
                if not self._pending:
                    self._pending += HEAD.pack(b"J", len(data)) + data
            self._write()

    def _send(self, data: bytes) -> None:
        with self._lock:
            self._moving_out = True
            self._pending += data
            self._moving_out = False
        self._write()

    def _pump(self, wait_s: float) -> bool:
        """Move what can be moved, waiting at most so long for it; whether anything did."""
        poll = select.poll()
        if not self._at_end:
            poll.register(self._stdout, select.POLLIN)
        if not self._errors_end:
            poll.register(self._stderr, select.POLLIN)
        if self._pending:
            poll.register(self._stdin, select.POLLOUT)
        moved = False
        for handle, _ in poll.poll(min(wait_s, 1.0) * 1000):
            moved = {self._stdin: self._write, self._stdout: self._read, self._stderr: self._read_errors}[
                handle
            ]() or moved
        return moved

    def _write(self) -> bool:
        with self._lock:
            if self._moving_out:
                return False
            self._moving_out = True
            before = len(self._pending)
            try:
                while self._pending:
                    with memoryview(self._pending) as view:
                        count = os.write(self._stdin, view[:_CHUNK_BYTES])
                    del self._pending[:count]
            except BlockingIOError:
                pass
            except OSError:  # it has ended; how is told by its output
                self._pending.clear()
            self._moving_out = False
            return len(self._pending) < before

    def _read(self) -> bool:
        self._moving_in = True
        data = os.read(self._stdout, _CHUNK_BYTES)
        self._received += data
        self._at_end = not data
        self._moving_in = False
        return True

    def _read_errors(self) -> bool:
        data = os.read(self._stderr, _CHUNK_BYTES)
        self._errors += data
        del self._errors[: -2 * _STDERR_BYTES]
        self._errors_end = not data
        return bool(data)

    def _parse(self) -> Frame | None:
        if len(self._received) < HEAD.size:
            return None
        kind, length = HEAD.unpack_from(self._received)
        if length > _FRAME_BYTES:
            raise Ended(-1)
        if len(self._received) < HEAD.size + length:
            return None
        self._moving_in = True
        payload = bytes(memoryview(self._received)[HEAD.size : HEAD.size + length])
        del self._received[: HEAD.size + length]
        self._moving_in = False
        return kind, payload
