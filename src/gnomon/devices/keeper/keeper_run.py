"""A command that a keeper runs on the device: its pipes, its time limit, and its end.

Runs on the device as a part of `keeper`: standard library only, and nothing of gnomon but its sister files.
The rules are those of `gnomon.system.process`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

GRACE_S = 2.0
STUCK_S = 10.0
STDIN_WINDOW_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
_DRAIN_BYTES = 4 << 20

Say = Callable[[bytes, bytes], None]


class Stuck(Exception):
    """The process was killed and does not end."""


class Tail:
    """The last bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = bytearray()

    def add(self, chunk: bytes) -> None:
        """Take the next bytes, and forget what is too old."""
        self._bytes += chunk
        if len(self._bytes) > 2 * self._limit:
            del self._bytes[: -self._limit]

    def end(self) -> bytes:
        """The last bytes, at most the limit."""
        return bytes(self._bytes[-self._limit :])


class Command:
    """A command from its start to its end. `step` must be called after each event and at `due_s` (monotonic).

    `request` has argv, timeout_s, stdin_bytes (how many `feed` will bring), stream (whether standard output goes out
    as it comes, else only its end), stdout_bytes and stderr_bytes (how much of the ends is kept). What the host
    should know goes out by `say(kind, payload)`: b"O" and b"E" are bytes of the two streams, b"T" is the number of
    bytes of standard input that were taken, b"L" says that the time limit has passed.
    """

    def __init__(
        self,
        request: dict[str, Any],
        env: dict[str, str],
        cwd: str,
        selector: selectors.BaseSelector,
        say: Say,
    ) -> None:
        self._say, self._selector = say, selector
        self._stream = bool(request["stream"])
        self._tails = (Tail(int(request["stdout_bytes"])), Tail(int(request["stderr_bytes"])))
        self._input = bytearray()
        self._to_come = int(request["stdin_bytes"])
        self._taken = 0
        self._process = subprocess.Popen(
            request["argv"],
            stdin=subprocess.PIPE if self._to_come else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
            bufsize=0,
        )
        self.group = self._process.pid
        self.timed_out = False
        self._stopping = self._killed = False
        self.due_s = time.monotonic() + min(float(request["timeout_s"]), 1e9)
        self._stdin = self._process.stdin.fileno() if self._process.stdin else -1
        assert self._process.stdout and self._process.stderr  # noqa: S101
        self._outputs: list[int] = [self._process.stdout.fileno(), self._process.stderr.fileno()]
        self._paused = True
        for pipe in (*self._outputs, *([self._stdin] if self._to_come else [])):
            os.set_blocking(pipe, False)
        self.pause(False)

    def pause(self, paused: bool) -> None:
        """Read no more of its output for now: the host is slower than it."""
        if paused == self._paused:
            return
        self._paused = paused
        for index, pipe in enumerate(self._outputs):
            if pipe >= 0 and paused:
                self._selector.unregister(pipe)
            elif pipe >= 0:
                self._selector.register(pipe, selectors.EVENT_READ, lambda i=index: self._read(i))

    def feed(self, data: bytes) -> None:
        """The next bytes of its standard input."""
        self._to_come -= len(data)
        if self._stdin < 0:
            return  # it did not want to read all of it
        if not self._input:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.register(self._stdin, selectors.EVENT_WRITE, self._write)
        self._input += data
        self._write()

    def stop(self) -> None:
        """Ask it to end; two seconds later it is killed."""
        if not self._stopping:
            self._stopping = True
            self._signal(signal.SIGTERM)
            self.due_s = time.monotonic() + GRACE_S

    def kill(self) -> None:
        """End the whole group at once."""
        self._stopping = self._killed = True
        self._signal(signal.SIGKILL)
        self.due_s = time.monotonic() + STUCK_S

    def step(self) -> int | None:
        """The status once it has ended (negative: the signal), its last output said; None before. `Stuck` if it
        does not end.
        """
        # WNOWAIT leaves it unreaped, so that its number, which is the group's, cannot become another's yet.
        if os.waitid(os.P_PID, self.group, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            self._signal(signal.SIGKILL)
            status = self._process.wait()
            self._finish()
            return status
        if time.monotonic() >= self.due_s:
            if self._killed:
                self._close()
                raise Stuck
            if self._stopping:
                self.kill()
            else:
                self.timed_out = True
                self._say(b"L", b"")
                self.stop()
        return None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)

    def _finish(self) -> None:
        """Take what is left in the pipes, without waiting for a process that left the group and holds them."""
        for index in (0, 1):
            left = _DRAIN_BYTES
            while left > 0 and (count := self._read(index)):
                left -= count
        if not self._stream:
            self._say(b"O", self._tails[0].end())
        self._say(b"E", self._tails[1].end())
        self._close()

    def _close(self) -> None:
        self.pause(True)
        self._close_stdin()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self, index: int) -> int:
        pipe = self._outputs[index]
        if pipe < 0:
            return 0
        try:
            chunk = os.read(pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if not chunk:
            if not self._paused:
                self._selector.unregister(pipe)
            self._outputs[index] = -1
        elif index == 0 and self._stream:
            self._say(b"O", chunk)
        else:
            self._tails[index].add(chunk)
        return len(chunk)

    def _write(self) -> None:
        try:
            while self._input:
                with memoryview(self._input) as view:
                    count = os.write(self._stdin, view[:_CHUNK_BYTES])
                del self._input[:count]
                self._taken += count
        except BlockingIOError:
            pass
        except BrokenPipeError:  # it does not want to read all of it
            self._close_stdin()
            return
        if self._taken >= STDIN_WINDOW_BYTES // 4:
            self._say(b"T", b"%d" % self._taken)
            self._taken = 0
        if not self._input:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._stdin)
            if self._to_come <= 0:
                self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0 and self._process.stdin is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._stdin)
            self._process.stdin.close()
            self._stdin = -1
            self._input.clear()
