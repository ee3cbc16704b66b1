"""Runs a child program: it gets one job at a time with a time limit, and is killed with everything that it started.

Many jobs are divided among several child programs, each started once; if one is lost, only its current job fails.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.errors import DeviceError, RuntimeMissingError
from gnomon.system.process import Conversation, Guard, guarded
from gnomon.system.stopping import stop_at

CHILDREN = Path(__file__).parents[1] / "children"
"""The folder of the child programs, which any interpreter can run, given the name of a program."""

_PASSED = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "SYSTEMROOT", "CXX", "CC")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_LINE_BYTES = 1 << 20
_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A child program and the settings for its start.

    `name` is its module in `CHILDREN`. `python` is the interpreter, and `packages` is a folder of packages that take
    priority over the interpreter's own. `settings` are sent once. The time limits are for the start and for each job;
    `line_bytes` is the length of the longest answer, and `memory_bytes` is the limit on the program's address space
    (None: no limit).
    """

    name: str
    settings: Mapping[str, object]
    python: str = sys.executable
    packages: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = CHILDREN
    workers: int = 1
    job_timeout_s: float = 600.0
    start_timeout_s: float = 300.0
    memory_bytes: int | None = 16 << 30
    line_bytes: int = _LINE_BYTES

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that starts the program."""
        return (self.python, "-P", str(self.folder), self.name)


def child_environment(program: Program, home: Path) -> dict[str, str]:
    """A child's environment: few of the user's variables, one thread, no telemetry, and a temporary home."""
    variables = {name: value for name in _PASSED if (value := os.environ.get(name))}
    variables |= dict.fromkeys(_ONE_THREAD, "1")
    variables |= {"HOME": str(home), "TMPDIR": str(home), "PYTHONNOUSERSITE": "1", "ORT_DISABLE_TELEMETRY": "1"}
    # ninja is installed next to the interpreter, whose folder may not be on the user's path.
    variables["PATH"] = os.pathsep.join((variables.get("PATH", os.defpath), str(Path(program.python).parent)))
    if program.packages is not None:
        variables["PYTHONPATH"] = str(program.packages.absolute())
    return variables | dict(program.environment)


class ChildProcess:
    """A started child program, with the `versions` of the packages that it loaded. `kill` ends it.

    Not safe for several threads at once.
    """

    def __init__(self, program: Program, home: Path, guard: Guard) -> None:
        self._log = home / f"child-{threading.get_ident()}-{time.monotonic_ns()}.log"
        self._request = {"memory_bytes": program.memory_bytes, "settings": dict(program.settings)}
        self.versions: dict[str, str] = {}
        environment = child_environment(program, home)
        try:
            with self._log.open("wb") as stderr:
                self._program = Conversation(
                    program.argv, env=environment, cwd=home, guard=guard, stderr=stderr, line_bytes=program.line_bytes
                )
        except DeviceError as error:
            raise RuntimeMissingError(error.message, hint="Name a Python interpreter that exists.") from error

    def ready(self, timeout_s: float) -> dict[str, str] | Failure:
        """The versions of the packages that the program loaded, or why the program cannot be used."""
        said = self._answer("load", timeout_s, self._log, self._request)
        if isinstance(said, Failure):
            return said
        if said.get("state") == "ready" and isinstance(said.get("versions"), dict):
            self.versions = dict(said["versions"])
            return self.versions
        if said.get("state") == "unusable":
            return _failure("load", "refused", str(said.get("message"))[:_TAIL_BYTES], self._log)
        return _failure("load", "wrong-output", "the program answered out of turn", self._log)

    def ask(self, job: Mapping[str, object], *, stage: str, timeout_s: float, log: Path | None) -> Any:
        """The facts of a finished job (a dict), or the job's Failure. After a Failure, check `alive`."""
        log = log or self._log
        said = self._answer(stage, timeout_s, log, job)
        if isinstance(said, Failure):
            return said
        if said.get("state") == "done" and isinstance(said.get("facts"), dict):
            return said["facts"]
        if said.get("state") == "failed":
            kind = said["kind"] if said.get("kind") in ("memory", "vanished") else "refused"
            return _failure(stage, kind, str(said.get("message"))[:_TAIL_BYTES], log)
        self.kill()
        return _failure(stage, "wrong-output", "the program answered out of turn", log)

    @property
    def alive(self) -> bool:
        """True if the program can take another job: it was not killed and has not ended on its own."""
        return self._program.alive

    def kill(self) -> None:
        """End the program and everything that it started. A second call does nothing."""
        self._program.close()

    def _answer(
        self, stage: str, timeout_s: float, log: Path, message: Mapping[str, object]
    ) -> dict[str, Any] | Failure:
        """The program's answer to a message; the program is ended after a Failure."""
        kind, why = "wrong-output", "the program's answer is not a JSON object"
        try:
            said = self._program.answer(json.dumps(message).encode() + b"\n", timeout_s=timeout_s)
            if isinstance(said, str):
                answer = json.loads(said)
                if isinstance(answer, dict):
                    return answer
            elif said.timed_out:
                kind, why = "hang", f"the program took longer than {timeout_s:g} s"
            elif said.signal is not None:
                kind, why = "crash", f"the program was ended by {signal.Signals(said.signal).name}"
            else:
                kind, why = "crash", f"the program ended with status {said.returncode}"
        except DeviceError as error:
            why = error.message
        except (ValueError, RecursionError):
            why = "the program's answer is not JSON"
        self.kill()
        return _failure(stage, kind, why, log)


def _failure(stage: str, kind: str, why: str, log: Path) -> Failure:
    return Failure(stage=stage, kind=kind, transient=False, message=why, log_tail=tail(log))


def tail(log: Path) -> str:
    """The end of a log; "" for a missing log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


_MOST_STARTS = 2
"""After this many failed starts in a row, a program is no longer started for the remaining jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job for a child program: `message` is sent to it, `log` gets its output, and `stage` is the stage of a
    failure.
    """

    key: str
    message: Mapping[str, object]
    stage: str
    log: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The outcome of an order: the facts of a finished job, or its failure."""

    order: Order
    facts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None


def run_orders(program: Program, orders: Sequence[Order]) -> Iterator[Reply]:
    """Yield a reply for each order as soon as it is ready; no process is left when the iterator ends or is closed."""
    if not orders:
        return
    guard, home = guarded("gnomon-child-")
    crew = _Crew(program, home, guard)
    threads = ThreadPoolExecutor(min(program.workers, len(orders)), thread_name_prefix=program.name)
    try:
        for done in as_completed([threads.submit(crew.reply, order) for order in orders]):
            yield done.result()
    finally:
        crew.stop.set()
        threads.shutdown(cancel_futures=True)
        crew.kill()
        guard.close()


class _Crew:
    """The threads' shared state: their child programs, and whether the program can be used at all."""

    def __init__(self, program: Program, home: Path, guard: Guard) -> None:
        self.stop = threading.Event()
        self._program, self._home, self._guard = program, home, guard
        self._children: list[ChildProcess] = []
        self._own = threading.local()
        self._unusable: Failure | None = None

    def reply(self, order: Order) -> Reply:
        """The reply to an order, from the child program of the calling thread."""
        stop_at(self.stop)
        child = self._ready()
        if child is None:
            return Reply(order=order, failure=self._unusable)
        message = {**order.message, "log": str(order.log) if order.log else ""}
        said = child.ask(message, stage=order.stage, timeout_s=self._program.job_timeout_s, log=order.log)
        if isinstance(said, Failure):
            return Reply(order=order, versions=child.versions, failure=said)
        return Reply(order=order, versions=child.versions, facts=said)

    def kill(self) -> None:
        """End all child programs."""
        for child in self._children:
            child.kill()

    def _ready(self) -> ChildProcess | None:
        """The calling thread's child, started if none is alive; None if the program cannot be used."""
        child: ChildProcess | None = getattr(self._own, "child", None)
        if child is not None and child.alive:
            return child
        if child is not None:
            child.kill()  # closes its pipes, even if it ended by itself
        for _ in range(_MOST_STARTS):
            if self._unusable is not None:
                return None
            self._own.child = child = ChildProcess(self._program, self._home, self._guard)
            self._children.append(child)
            said = child.ready(self._program.start_timeout_s)
            if not isinstance(said, Failure):
                return child
            child.kill()
            problem = said
        self._unusable = problem
        return None
