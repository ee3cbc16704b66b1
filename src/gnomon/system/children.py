"""One child program: started, asked a job at a time with a clock on each answer, killed with all that it started.

Many jobs by child programs: each started once, several side by side, and one lost costs the job that it was at.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.errors import DeviceError, RuntimeMissingError
from gnomon.system.process import Conversation, Guard, guarded
from gnomon.system.stopping import stop_at

CHILDREN = Path(__file__).parents[1] / "children"
"""The folder of the child programs, which any interpreter runs with the name of one."""

_PASSED = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "SYSTEMROOT", "CXX", "CC")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_LINE_BYTES = 1 << 20
_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How a child program is started.

    `name` is its module in `CHILDREN`. `python` is the interpreter, `packages` a folder of packages that go before the
    interpreter's own. `settings` are given to it once. Times are for the start and for each
    job, `line_bytes` is the longest answer, `memory_bytes` what it may address (None: no limit).
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
        """The command."""
        return (self.python, "-P", str(self.folder), self.name)


def child_environment(program: Program, home: Path) -> dict[str, str]:
    """A child's environment: little of the user's, one thread, no telemetry, and a home that goes away."""
    variables = {name: value for name in _PASSED if (value := os.environ.get(name))}
    variables |= dict.fromkeys(_ONE_THREAD, "1")
    variables |= {"HOME": str(home), "TMPDIR": str(home), "PYTHONNOUSERSITE": "1", "ORT_DISABLE_TELEMETRY": "1"}
    # ninja is installed beside the interpreter, whose folder need not be on the user's path.
    variables["PATH"] = os.pathsep.join((variables.get("PATH", os.defpath), str(Path(program.python).parent)))
    if program.packages is not None:
        variables["PYTHONPATH"] = str(program.packages.absolute())
    return variables | dict(program.environment)


class ChildProcess:
    """A started child program. Ends with `kill`; belongs to one thread."""

    def __init__(self, program: Program, home: Path, guard: Guard) -> None:
        self._log = home / f"child-{threading.get_ident()}-{time.monotonic_ns()}.log"
        self._request = {"memory_bytes": program.memory_bytes, "settings": dict(program.settings)}
        environment = child_environment(program, home)
        try:
            with self._log.open("wb") as stderr:
                self._program = Conversation(
                    program.argv, env=environment, cwd=home, guard=guard, stderr=stderr, line_bytes=program.line_bytes
                )
        except DeviceError as error:
            raise RuntimeMissingError(error.message, hint="Name a Python that is there.") from error

    def ready(self, timeout_s: float) -> dict[str, str] | Failure:
        """The versions of what it loaded, or why it cannot be used."""
        said = self._answer("load", timeout_s, self._log, self._request)
        if isinstance(said, Failure):
            return said
        if said.get("state") == "ready" and isinstance(said.get("versions"), dict):
            return dict(said["versions"])
        if said.get("state") == "unusable":
            return _failure("load", "refused", str(said.get("message"))[:_TAIL_BYTES], self._log)
        return _failure("load", "wrong-output", "the program answered out of turn", self._log)

    def ask(self, job: Mapping[str, object], *, stage: str, timeout_s: float, log: Path | None) -> Any:
        """The facts of a job that was done (a dict), or its Failure. After a Failure see `alive`."""
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
        """Whether it can be asked again: it was not killed, and has not ended by itself."""
        return self._program.alive

    def kill(self) -> None:
        """End it and all that it started. Does nothing the second time."""
        self._program.close()

    def _answer(
        self, stage: str, timeout_s: float, log: Path, message: Mapping[str, object]
    ) -> dict[str, Any] | Failure:
        """Its answer to a message; after a Failure it is ended."""
        kind, why = "wrong-output", "the program's answer is not a JSON object"
        try:
            said = self._program.answer(json.dumps(message).encode() + b"\n", timeout_s=timeout_s)
            if isinstance(said, str):
                answer = json.loads(said)
                if isinstance(answer, dict):
                    return answer
            elif said.timed_out:
                kind, why = "hang", f"took longer than {timeout_s:g} s"
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
    """The end of a log; "" for a missing one."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


_MOST_STARTS = 2
"""A program that cannot be started twice in a row is not started for the rest either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job for a child program: `message` is what it is sent, `log` gets what it prints, `stage` names its failure."""

    key: str
    message: Mapping[str, object]
    stage: str
    log: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The outcome of an order: facts of a job that was done, or its failure."""

    order: Order
    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None


def run_orders(program: Program, orders: Sequence[Order]) -> Iterator[Reply]:
    """Yield a reply for each order as soon as it is there; no process is left when the iterator ends or is closed."""
    if not orders:
        return
    guard, home = guarded("gnomon-child-")
    crew = _Crew(program, orders, home, guard)
    threads = [
        threading.Thread(target=crew.work, name=f"{program.name}-{number}", daemon=True)
        for number in range(min(program.workers, len(orders)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in orders:
            reply = crew.replies.get()
            if isinstance(reply, BaseException):
                raise reply
            yield reply
    finally:
        crew.stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        guard.close()


class _Crew:
    """The threads' common state: what is to be done, what was done, and whether the program can be used at all."""

    def __init__(self, program: Program, orders: Sequence[Order], home: Path, guard: Guard) -> None:
        self.replies: queue.SimpleQueue[Reply | BaseException] = queue.SimpleQueue()
        self.stop = threading.Event()
        self._program, self._home, self._guard = program, home, guard
        self._waiting = deque(orders)
        self._unusable: Failure | None = None

    def work(self) -> None:
        """Do orders until there are none; exceptions go to the thread that waits for replies."""
        child: ChildProcess | None = None
        versions: dict[str, str] = {}
        stop_at(self.stop)
        try:
            while not self.stop.is_set():
                try:
                    order = self._waiting.popleft()
                except IndexError:
                    return
                began_s = time.monotonic()
                if child is None or not child.alive:
                    if child is not None:
                        child.kill()
                    child, versions = self._started()
                    # The start is not a share of the job that happens to be the first.
                    began_s = time.monotonic()
                self.replies.put(self._reply(order, child, versions, began_s))
        except BaseException as error:
            self.replies.put(error)
        finally:
            if child is not None:
                child.kill()

    def _reply(self, order: Order, child: ChildProcess | None, versions: dict[str, str], began_s: float) -> Reply:
        if child is None:
            return Reply(order=order, seconds=0.0, failure=self._unusable)
        message = {**order.message, "log": str(order.log) if order.log else ""}
        said = child.ask(message, stage=order.stage, timeout_s=self._program.job_timeout_s, log=order.log)
        took_s = time.monotonic() - began_s
        if isinstance(said, Failure):
            return Reply(order=order, seconds=took_s, versions=versions, failure=said)
        return Reply(order=order, seconds=took_s, versions=versions, facts=said)

    def _started(self) -> tuple[ChildProcess | None, dict[str, str]]:
        """A child that is ready, with the versions that it told; None where the program cannot be used."""
        for _ in range(_MOST_STARTS):
            if self._unusable is not None or self.stop.is_set():
                break
            child = ChildProcess(self._program, self._home, self._guard)
            said = child.ready(self._program.start_timeout_s)
            if not isinstance(said, Failure):
                return child, said
            child.kill()
            problem = said
        else:
            self._unusable = problem
        return None, {}
