"""Runs one command until it ends: streams its output, enforces its limits, and leaves none of its children behind.

Devices that are reached through a program on this machine (ssh, adb) run that program with this module. A small
process, the guard, cleans up if gnomon is killed: it ends the processes that gnomon started and removes gnomon's
folders. The kernel reports a parent's death only to direct children, and only on request. So the guard holds one end of
a pipe that closes when gnomon dies, for whatever reason.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from gnomon.errors import DeviceError, UsageError
from gnomon.system.stopping import look_up

STDOUT_TAIL_BYTES = 1 << 20
STDERR_TAIL_BYTES = 1 << 16
LINE_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The result of a command that has ended.

    Exactly one of `returncode` and `signal` is set: the exit status, or the number of the signal that ended the
    command. `stdout` and `stderr` are the ends of its output (at most 1 MiB and 64 KiB), with U+FFFD for bytes that are
    not UTF-8. `timed_out` means that gnomon ended the command. `duration_s` is measured by the caller.
    """

    returncode: int | None
    signal: int | None
    stdout: str
    stderr: str
    timed_out: bool
    duration_s: float

    @property
    def ok(self) -> bool:
        """True if the command ended on its own with status 0."""
        return self.returncode == 0 and not self.timed_out


_SCRIPT = r"""
import os, shutil, signal, sys, time
own = int(sys.argv[1])  # the group of gnomon itself, and of the process that started it
groups, outputs, folders, clean = set(), set(), set(), False

def kill(found):
    for group in found:
        try: os.killpg(group, signal.SIGKILL)
        except OSError: pass

def begun(outputs):
    # The groups of processes with one of these outputs: they were started, but their ids are unknown.
    for process in filter(str.isdecimal, os.listdir("/proc") if outputs else ()):
        try:
            output, group = os.readlink(f"/proc/{process}/fd/1"), os.getpgid(int(process))
        except OSError: continue
        if os.fsencode(output).hex() in outputs and group not in (own, os.getpgrp()): yield group

for line in sys.stdin:
    word, _, what = line.strip().partition(" ")
    if word == "add": groups.add(int(what))
    elif word == "drop": groups.discard(int(what))
    elif word == "begin": outputs.add(what)
    elif word == "begun": outputs.discard(what)
    elif word == "lost":
        outputs.discard(what)
        kill(begun({what}))
    elif word == "hold": folders.add(bytes.fromhex(what))
    elif word == "release": folders.discard(bytes.fromhex(what))
    elif word == "done":
        clean = True
        break
# At a clean end, these were started but lost before anybody could end them.
kill(groups)
kill(begun(outputs))
if not clean:
    # A process that is being killed, or was never in a group, may write a last file while its folder is removed.
    for attempt in range(8):
        for folder in folders: shutil.rmtree(folder, ignore_errors=True)
        folders = set(filter(os.path.lexists, folders))
        if not folders: break
        time.sleep(0.05 * 2**attempt)
"""


def outliving(script: str, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a small program that outlives gnomon; its standard input ends when gnomon dies, for whatever reason."""
    # In its own session, so that Ctrl-C in the terminal does not reach it before gnomon has cleaned up.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
        cwd="/",
    )


class Guard:
    """Watches over private folders and the process groups started from them, until `close`."""

    def __init__(self) -> None:
        self._folders: set[Path] = set()
        self._process = outliving(_SCRIPT, str(os.getpgrp()))
        assert self._process.stdin is not None  # noqa: S101
        self._pipe: IO[bytes] = self._process.stdin

    @property
    def alive(self) -> bool:
        """True if the guard is still running."""
        return self._process.poll() is None

    def folder(self, prefix: str, *, within: Path | None = None) -> Path:
        """A new private folder in the folder for temporary files or `within` another one; it exists as long as gnomon
        lives.

        UsageError if it cannot be created.
        """
        folder: Path | None = None
        try:
            folder = Path(within or tempfile.gettempdir()).absolute() / f"{prefix}{secrets.token_hex(5)}"
            # The folder is reported first, so that it never exists without the guard knowing about it.
            self._say(f"hold {os.fsencode(folder).hex()}")
            folder.mkdir(0o700)
        except OSError as error:
            if folder is not None:
                self._release(folder)
            where = "" if folder is None else f" in {folder.parent}"
            # This is this machine's error, whichever device is measured.
            raise UsageError(
                f"no private folder can be created{where}: {error.strerror}",
                hint="Free up space there, or point TMPDIR to a writable directory.",
            ) from error
        self._folders.add(folder)
        return folder

    def remove(self, folder: Path) -> None:
        """Remove a folder that `folder` created, with its contents."""
        shutil.rmtree(folder, ignore_errors=True)
        self._folders.discard(folder)
        self._release(folder)

    def start(
        self,
        argv: Sequence[str | bytes],
        *,
        stdin: int = subprocess.PIPE,
        stdout: int = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program in its own session; the program ends when gnomon does. Call `drop` with its process id once
        it has ended.

        The arguments are those of `subprocess.Popen`, whose errors are passed on; streams are unbuffered. `stdout` is
        PIPE, or a descriptor that no other program has: a pipe, a socket, or a temporary file.
        """
        reads, writes = os.pipe() if stdout == subprocess.PIPE else (None, stdout)
        try:
            with self.starting(writes) as begun:
                # In its own session, so that Ctrl-C in the terminal does not reach it before gnomon has cleaned up.
                process = subprocess.Popen(
                    list(argv),
                    stdin=stdin,
                    stdout=writes,
                    stderr=stderr,
                    env=None if env is None else dict(env),
                    cwd=cwd,
                    start_new_session=True,
                    bufsize=0,
                )
                begun(process.pid)
        except BaseException:
            if reads is not None:
                os.close(reads)
            raise
        finally:
            if reads is not None:
                os.close(writes)
        if reads is not None:
            process.stdout = os.fdopen(reads, "rb", buffering=0)
        return process

    @contextlib.contextmanager
    def starting(self, stdout: int) -> Iterator[Callable[[int], None]]:
        """A block that starts one program in its own session and passes its process id to the yielded function; the id
        must be dropped later.

        The program's standard output is the descriptor `stdout`, which no other program has. By this descriptor, the
        guard finds the program if gnomon is killed or interrupted after the start but before the process id is known.
        """
        try:
            mark = os.fsencode(Path(f"/proc/self/fd/{stdout}").readlink()).hex()
        except OSError:  # no /proc here: a program with an unknown id cannot be found
            yield self._add
            return
        self._say(f"begin {mark}")
        try:
            yield self._add
        except Exception:
            self._say(f"begun {mark}")
            raise
        except BaseException:
            self._say(f"lost {mark}")
            raise
        self._say(f"begun {mark}")

    def _add(self, group: int) -> None:
        self._say(f"add {group}")

    def drop(self, group: int) -> None:
        """Report that a group has ended, because its number may soon belong to another group."""
        self._say(f"drop {group}")

    def close(self) -> None:
        """Remove the remaining folders and end the guard. All groups must have ended already."""
        for folder in list(self._folders):
            self.remove(folder)
        self._say("done")
        with contextlib.suppress(BrokenPipeError):
            self._pipe.close()
        self._process.wait()

    def _release(self, folder: Path) -> None:
        self._say(f"release {os.fsencode(folder).hex()}")

    def _say(self, line: str) -> None:
        # The guard may have been killed; the guarded work continues without it.
        with contextlib.suppress(BrokenPipeError):
            self._pipe.write(line.encode() + b"\n")
            self._pipe.flush()


def guarded(prefix: str, *, within: Path | None = None) -> tuple[Guard, Path]:
    """A guard with its first folder. DeviceError if the folder cannot be created, because then work cannot begin."""
    guard = Guard()
    try:
        return guard, guard.folder(prefix, within=within)
    except UsageError as error:
        guard.close()
        raise DeviceError(error.message, hint=error.hint) from error
    except BaseException:
        guard.close()
        raise


@contextlib.contextmanager
def guarded_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder on this machine that is removed at the end of the block, and also if gnomon is killed.

    UsageError if none can be created.
    """
    guard = own_guard()
    folder = guard.folder(prefix)
    try:
        yield folder
    finally:
        guard.remove(folder)


_GUARDS: dict[int, Guard] = {}
"""Guards by process id, because a forked process has its own guard."""

_GUARDED = threading.Lock()


def own_guard() -> Guard:
    """The guard of this process for its temporary folders and for programs that run only once.

    They share one guard, because each guard is a process, and a job has half a dozen folders.
    """
    with _GUARDED:
        guard = _GUARDS.get(os.getpid())
        if guard is None or not guard.alive:
            guard = _GUARDS[os.getpid()] = Guard()
        return guard


@atexit.register
def _end_own_guard() -> None:
    if os.getpid() in _GUARDS:
        _GUARDS.pop(os.getpid()).close()


_GRACE_S = 2.0
_STUCK_S = 10.0
_POLL_S = 0.05
_CHUNK_BYTES = 1 << 16
#: The longest time between two checks of whether the thread has been asked to end.
_LOOK_UP_S = 1.0


class Tail:
    """The last bytes of a stream, up to a limit, as text."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = bytearray()

    def add(self, chunk: bytes) -> None:
        """Add the next bytes, and discard those beyond the limit."""
        self._bytes += chunk
        if len(self._bytes) > 2 * self._limit:
            del self._bytes[: -self._limit]

    def text(self) -> str:
        """The last bytes, with U+FFFD for bytes that are not UTF-8."""
        return self._bytes[-self._limit :].decode(errors="replace")


class Lines:
    """Splits a stream into lines of at most `most` bytes as it arrives; `on_line` gets each line without its end."""

    def __init__(self, on_line: Callable[[str], None], most: int = LINE_LIMIT_BYTES) -> None:
        self._on_line, self._most = on_line, most
        self._bytes = bytearray()

    def add(self, chunk: bytes) -> None:
        """Add the next bytes. DeviceError for a line that is too long."""
        searched = len(self._bytes)
        self._bytes += chunk
        start = 0
        while (end := self._bytes.find(b"\n", max(start, searched))) >= 0:
            line = bytes(self._bytes[start:end])
            start = end + 1
            self._on_line(line.decode(errors="replace"))
        del self._bytes[:start]
        if len(self._bytes) > self._most:
            raise DeviceError(
                f"the command printed a line of more than {self._most >> 20} MiB",
                hint="This program must print one JSON value per line; check what else it prints.",
            )

    def finish(self) -> None:
        """End the stream; any remaining bytes are a line."""
        if self._bytes:
            rest = bytes(self._bytes)
            self._bytes.clear()
            self._on_line(rest.decode(errors="replace"))


class Printed:
    """The output of a command so far: the ends of both streams, and the listener for lines, if there is one."""

    def __init__(self, on_line: Callable[[str], None] | None, most: int = LINE_LIMIT_BYTES) -> None:
        self.stdout, self.stderr = Tail(STDOUT_TAIL_BYTES), Tail(STDERR_TAIL_BYTES)
        self.lines = Lines(on_line, most) if on_line else None

    def add_stdout(self, chunk: bytes) -> None:
        """Add the next bytes of standard output."""
        self.stdout.add(chunk)
        if self.lines:
            self.lines.add(chunk)

    def completed(self, returncode: int | None, number: int | None, *, timed_out: bool, duration_s: float) -> Completed:
        """The result of the ended command, with its status or the number of the signal. The listener gets the last
        line.
        """
        if self.lines:
            self.lines.finish()
        return Completed(
            returncode=returncode,
            signal=number,
            stdout=self.stdout.text(),
            stderr=self.stderr.text(),
            timed_out=timed_out,
            duration_s=duration_s,
        )


class Pump:
    """Moves `data` into a process as fast as the process reads it, and the process's output to the functions `takes`; a
    subclass defines when the process has `ended`.

    With `attended`, standard input stays open for more data.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        takes: Iterable[Callable[[bytes], object]],
        data: Iterator[bytes],
        *,
        attended: bool = False,
    ) -> None:
        self._process, self._data, self._attended = process, data, attended
        self._to_write = memoryview(b"")
        self._wait_s = _LOOK_UP_S
        self._selector = selectors.DefaultSelector()
        outputs = [pipe for pipe in (process.stdout, process.stderr) if pipe]
        self._pipes = [*([process.stdin] if process.stdin else []), *outputs]
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        if not attended and process.stdin:
            self._selector.register(process.stdin, selectors.EVENT_WRITE, self._write)
        self._open_reads = len(outputs)
        self._readers = [partial(self._read, pipe, take) for pipe, take in zip(outputs, takes, strict=False)]
        for pipe, read in zip(outputs, self._readers, strict=True):
            self._selector.register(pipe, selectors.EVENT_READ, read)

    @property
    def ended(self) -> bool:
        """True if no more output will come."""
        raise NotImplementedError

    def idle(self) -> None:
        """Called when nothing has come for a moment."""

    def send(self, data: bytes) -> None:
        """Write more to an attended process."""
        self._to_write = memoryview(bytes(self._to_write) + data)
        if self._pipes[0] not in self._selector.get_map():
            self._selector.register(self._pipes[0], selectors.EVENT_WRITE, self._write)

    def pump(self, until_s: float, enough: Callable[[], bool] = lambda: False) -> bool:
        """Move bytes until the process has ended or `enough` returns True, but not beyond the time `until_s`; return
        False if that time is reached.
        """
        while not (enough() or self.ended):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            look_up()
            ready = self._selector.select(min(left_s, self._wait_s))
            for key, _ in ready:
                key.data()
            if not ready:
                self.idle()
        return True

    def release(self) -> None:
        """Close the pipes."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        self._selector.close()

    def _write(self) -> None:
        pipe = self._pipes[0]
        try:
            self._to_write = self._to_write or memoryview(next(self._data, b""))
            if self._to_write:
                self._to_write = self._to_write[os.write(pipe.fileno(), self._to_write[:_CHUNK_BYTES]) :]
                return
        except BlockingIOError:
            return
        except OSError:  # the process did not read everything
            self._to_write, self._data = memoryview(b""), iter(())
        self._selector.unregister(pipe)
        if not self._attended:
            pipe.close()

    def _read(self, pipe: IO[bytes], take: Callable[[bytes], object]) -> int:
        try:
            chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if chunk:
            take(chunk)
        else:
            with contextlib.suppress(KeyError):
                self._selector.unregister(pipe)
                self._open_reads -= 1
        return len(chunk)


def run_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout_s: float,
    on_line: Callable[[str], None] | None = None,
    cwd: Path,
    guard: Guard | None = None,
) -> Completed:
    """Run a command on this machine with exactly this environment, under a guard (None: this process's own guard).

    Everything else is as in `Device.run`.
    """
    guard = guard or own_guard()
    process = _started(argv, env, cwd, guard)
    run = _Running(process, stdin, on_line)
    try:
        return run.to_end(timeout_s)
    finally:
        # Also reached after an exception from on_line, and after Ctrl-C.
        run.kill()
        guard.drop(process.pid)


class Conversation:
    """A command on this machine that reads one line at a time and answers it before the next; call `close` at the end.

    It is started with exactly the environment `env`. Its standard error goes to `stderr` if that is a file, and a line
    has at most `line_bytes` bytes. It ends when the gnomon process that its guard watches ends. A conversation belongs
    to one thread.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        guard: Guard,
        stderr: int | IO[bytes] = subprocess.PIPE,
        line_bytes: int = LINE_LIMIT_BYTES,
    ) -> None:
        self._process = _started(argv, env, cwd, guard, stderr)
        self._guard = guard
        self._running = _Running(self._process, b"", self._hear, line_bytes, attended=True)
        self._on_line: Callable[[str], bool] | None = None
        self._over = self._closed = False

    def ask(self, line: bytes, on_line: Callable[[str], bool], *, timeout_s: float) -> Completed | None:
        """Write a line; `on_line` gets each line of the answer and returns True for the last one. Then the result is
        None.

        If the command ends before that, or is ended because its time is up, how it ended is returned. Exceptions from
        `on_line` are passed on. The conversation is closed unless the result is None.
        """
        self._on_line, self._over = on_line, False
        try:
            self._running.send(line)
            self._running.pump(time.monotonic() + timeout_s, lambda: self._over)
            done = None if self._over else self._running.to_end(0.0)
            # A command that ended right after its last line has still given its answer.
            return None if self._over else done
        finally:
            self._on_line = None
            if not self._over:
                self.close()

    def answer(self, line: bytes, *, timeout_s: float) -> str | Completed:
        """Write a line; return the next line of output, or how the command ended, as in `ask`."""
        lines: list[str] = []

        def hear(text: str) -> bool:
            lines.append(text)
            return True

        ended = self.ask(line, hear, timeout_s=timeout_s)
        return lines[0] if ended is None else ended

    @property
    def alive(self) -> bool:
        """True if the command can be asked again: it was not closed and has not ended on its own."""
        return not self._closed and not self._running.ended

    def close(self) -> None:
        """End the command with everything that it started. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._running.kill()
            self._guard.drop(self._process.pid)

    def _hear(self, line: str) -> None:
        if self._on_line is not None and not self._over:
            self._over = self._on_line(line)


def _started(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, guard: Guard, stderr: int | IO[bytes] = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    try:
        return guard.start(argv, stderr=stderr, env=env, cwd=cwd)
    except (OSError, ValueError, IndexError) as error:
        program = argv[0] if argv else ""
        raise DeviceError(
            f"{program!r} cannot be started: {getattr(error, 'strerror', None) or error}",
            hint="Check that the program is installed on the device, executable, and on its PATH.",
        ) from error


class _Running(Pump):
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: bytes,
        on_line: Callable[[str], None] | None,
        most: int = LINE_LIMIT_BYTES,
        *,
        attended: bool = False,
    ) -> None:
        self._printed = Printed(on_line, most)
        super().__init__(
            process, (self._printed.add_stdout, self._printed.stderr.add), iter((stdin,)), attended=attended
        )
        self._started_s = time.monotonic()
        # A command ends when its first process does, although a child may still hold the pipes open.
        self._pidfd: int | None = None
        try:
            self._pidfd = os.pidfd_open(process.pid)
            self._selector.register(self._pidfd, selectors.EVENT_READ, lambda: None)
        except (OSError, AttributeError):  # kernels before 5.3 have no pidfd: poll instead
            self._wait_s = _POLL_S

    def to_end(self, timeout_s: float) -> Completed:
        try:
            timed_out = not self.pump(self._started_s + timeout_s)
        except BaseException:
            self._ask_to_stop()
            raise
        if timed_out:
            self._ask_to_stop()
        self._signal(signal.SIGKILL)
        status = self._reap()
        self._drain()
        return self._printed.completed(
            status if status >= 0 else None,
            -status if status < 0 else None,
            timed_out=timed_out,
            duration_s=time.monotonic() - self._started_s,
        )

    def kill(self) -> None:
        """Kill the whole group, reap the first process and close everything. A second call does nothing."""
        self._signal(signal.SIGKILL)
        self._reap()
        self.release()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _ask_to_stop(self) -> None:
        self._printed.lines = None  # nobody is listening any longer, and a line must not keep the command alive
        self._signal(signal.SIGTERM)
        self.pump(time.monotonic() + _GRACE_S)

    def _reap(self) -> int:
        try:
            return self._process.wait(timeout=_STUCK_S)
        except subprocess.TimeoutExpired as error:
            raise DeviceError(
                f"process {self._process.pid} does not end although it was killed: it hangs in a driver",
                hint="Restart the device, and leave out the backend that hung.",
            ) from error

    @property
    def ended(self) -> bool:
        """True if the first process has ended."""
        if self._process.returncode is not None:
            return True
        # WNOWAIT leaves the process unreaped, so that its id, which is also the group's, is not reused yet.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _drain(self) -> None:
        """Read the rest of the pipes, without waiting for processes that have left the group but still hold them."""
        limit = (1 << 20) + LINE_LIMIT_BYTES
        for read in self._readers:
            taken = 0
            while taken < limit and (count := read()):
                taken += count
