"""One child program: started, asked a job at a time with a clock on each answer, killed with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.devices.guard import Guard
from gnomon.errors import RuntimeMissingError

CHILDREN = Path(__file__).parents[1] / "children"
"""The folder of the child programs, which any interpreter runs with the name of one."""

_PASSED = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "SYSTEMROOT", "CXX", "CC")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_LINE_BYTES = 1 << 20
_TAIL_BYTES = 2000
_LOOK_UP_S = 0.2
_STUCK_S = 10.0
_ENDING_S = 2.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How a child program is started.

    `name` is its module in `CHILDREN`. `python` is the interpreter, `packages` a folder of packages that go before the
    interpreter's own. `settings` are given to it once. Times are for the start and for each
    job, `line_bytes` is the longest answer.
    """

    name: str
    settings: Mapping[str, Any]
    python: str = sys.executable
    packages: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = CHILDREN
    workers: int = 1
    job_timeout_s: float = 600.0
    start_timeout_s: float = 300.0
    memory_bytes: int = 16 << 30
    line_bytes: int = _LINE_BYTES

    @property
    def argv(self) -> tuple[str, ...]:
        """The command."""
        return (self.python, "-P", str(self.folder), self.name)


def child_environment(program: Program, home: Path) -> dict[str, str]:
    """What a child sees: little of the user's environment, one thread, no telemetry, and a home that goes away."""
    made = {name: value for name in _PASSED if (value := os.environ.get(name))}
    made |= dict.fromkeys(_ONE_THREAD, "1")
    made |= {"HOME": str(home), "TMPDIR": str(home), "PYTHONNOUSERSITE": "1", "ORT_DISABLE_TELEMETRY": "1"}
    # ninja is installed beside the interpreter, whose folder need not be on the user's path.
    made["PATH"] = os.pathsep.join((made.get("PATH", os.defpath), str(Path(program.python).parent)))
    if program.packages is not None:
        made["PYTHONPATH"] = str(program.packages.absolute())
    return made | dict(program.environment)


class ChildProcess:
    """A started child program. Ends with `kill`; belongs to one thread, and `stop` may come from another."""

    def __init__(self, program: Program, home: Path, guard: Guard, stop: threading.Event) -> None:
        self._stop, self._guard = stop, guard
        self._line_bytes = program.line_bytes
        self._log = home / f"child-{threading.get_ident()}-{time.monotonic_ns()}.log"
        self._buffer = bytearray()
        self._process = _start(program, home, self._log)
        guard.add(self._process.pid)
        assert self._process.stdin and self._process.stdout  # noqa: S101
        self._pipe = self._process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        # A child may end or hang before it reads, and a pipe holds 64 KiB: what is written must not block for it.
        os.set_blocking(self._process.stdin.fileno(), False)
        with contextlib.suppress(TimeoutError):  # `ready` tells it
            self._send(
                {"memory_bytes": program.memory_bytes, "settings": dict(program.settings)},
                time.monotonic() + program.start_timeout_s,
            )

    def ready(self, timeout_s: float) -> dict[str, Any] | Failure:
        """The versions of what it loaded, or why it cannot be used."""
        said = self._answer("load", timeout_s, self._log, None)
        if isinstance(said, Failure):
            return said
        if said.get("state") == "ready" and isinstance(said.get("versions"), dict):
            return dict(said["versions"])
        if said.get("state") == "unusable":
            return self._failure("load", "refused", str(said.get("message"))[:_TAIL_BYTES], self._log)
        return self._failure("load", "wrong-output", "the program answered out of turn", self._log)

    def ask(self, job: Mapping[str, Any], *, stage: str, timeout_s: float, log: Path | None) -> Any:
        """The facts of a job that was done (a dict), or its Failure. After a Failure see `alive`."""
        log = log or self._log
        said = self._answer(stage, timeout_s, log, job)
        if isinstance(said, Failure):
            return said
        if said.get("state") == "done" and isinstance(said.get("facts"), dict):
            return said["facts"]
        if said.get("state") == "failed":
            kind = said["kind"] if said.get("kind") in ("memory", "vanished") else "refused"
            return self._failure(stage, kind, str(said.get("message"))[:_TAIL_BYTES], log)
        self.kill()
        return self._failure(stage, "wrong-output", "the program answered out of turn", log)

    @property
    def alive(self) -> bool:
        """Whether it can be asked again: it was not killed, and has not ended by itself."""
        return self._process.returncode is None and self._ended() is None

    def kill(self) -> None:
        """End it and all that it started. Does nothing the second time."""
        if self._process.returncode is None:
            # Not reaped yet, so that the number of its group cannot be another's.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STUCK_S)
            self._guard.drop(self._process.pid)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _send(self, message: Mapping[str, Any], until_s: float) -> None:
        """Write a line. TimeoutError when the time has come and the child has not read all of it."""
        assert self._process.stdin  # noqa: S101
        pipe, left = self._process.stdin.fileno(), memoryview(json.dumps(message).encode() + b"\n")
        poll = select.poll()
        poll.register(pipe, select.POLLOUT)
        with contextlib.suppress(BrokenPipeError):  # it ended: the answer tells how
            while left:
                left_s = until_s - time.monotonic()
                if left_s <= 0 or self._stop.is_set():
                    raise TimeoutError
                if poll.poll(min(left_s, _LOOK_UP_S) * 1000):
                    with contextlib.suppress(BlockingIOError):
                        left = left[os.write(pipe, left) :]

    def _answer(
        self, stage: str, timeout_s: float, log: Path, job: Mapping[str, Any] | None
    ) -> dict[str, Any] | Failure:
        """Ask a job, if one is given, and read the next line."""
        until_s = time.monotonic() + timeout_s
        try:
            if job is not None:
                self._send(job, until_s)
            for line in self._lines(until_s):
                said = json.loads(line)
                if isinstance(said, dict):
                    return said
                break
            kind, why = "wrong-output", "the program answered with no JSON object"
        except TimeoutError:
            kind, why = "hang", f"took longer than {timeout_s:g} s"
        except EOFError:
            kind, why = "crash", self._ending()
        except (ValueError, RecursionError):
            kind, why = "wrong-output", "the program answered with what is no JSON"
        self.kill()
        return self._failure(stage, kind, why, log)

    def _lines(self, until_s: float) -> Iterator[bytes]:
        """The next line. TimeoutError when the time has come, EOFError when it ended, ValueError for a long line."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while (end := self._buffer.find(b"\n")) < 0:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or self._stop.is_set():
                raise TimeoutError
            if not poll.poll(min(left_s, _LOOK_UP_S) * 1000):
                continue
            chunk = os.read(self._pipe, _LINE_BYTES)
            if not chunk:
                raise EOFError
            self._buffer += chunk
            if len(self._buffer) > self._line_bytes:
                raise ValueError
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        yield line

    def _ending(self) -> str:
        until_s = time.monotonic() + _ENDING_S
        while (status := self._ended()) is None:
            if time.monotonic() > until_s:
                return "the program closed its output and went on"
            time.sleep(_POLL_S)
        if status.si_code == os.CLD_EXITED:
            return f"the program ended with status {status.si_status}"
        return f"the program was ended by {signal.Signals(status.si_status).name}"

    def _ended(self) -> os.waitid_result | None:
        """How it ended; None while it runs."""
        # Not reaped here: the number of its group, by which it is killed, must stay its own.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)

    def _failure(self, stage: str, kind: str, why: str, log: Path) -> Failure:
        return Failure(stage=stage, kind=kind, transient=False, message=why, log_tail=tail(log))


def _start(program: Program, home: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as stderr:
        try:
            return subprocess.Popen(
                program.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=child_environment(program, home),
                cwd=home,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise RuntimeMissingError(
                f"{program.python} cannot be started: {error.strerror or error}", hint="Name a Python that is there."
            ) from error


def tail(log: Path) -> str:
    """The end of a log; nothing where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
