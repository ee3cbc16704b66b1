"""The supervisor: fresh worker processes are visited in random order, and each event is written as one line.

A crash, hang or refusal of a worker is an event like any other; the other workers continue.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from .lifeline import die_with_parent, kill_tree
from .rounds import ProcessFailed, Rounds, ended_by
from .settings import Settings, SettingsRefused
from .snapshot import snapshot

if TYPE_CHECKING:
    from gnomon import wire

_LOG_TAIL_BYTES = 2000


class WorkerProcess:
    """A worker process and its streams; `stop` ends it in any state."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile(dir=os.getcwd())
        # The agent itself: the zip application, or the package by its path.
        program = [sys.executable, sys.argv[0], "work"]
        self._process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # Killed runtimes leave temporary files behind; in this folder, they are removed with it.
            env={**os.environ, "TMPDIR": os.getcwd(), **environment},
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._pending = b""
        self._log_start = 0

    def ask(self, command: wire.Command, timeout_s: float) -> Any:
        """Send a command and wait for its result; raises ProcessFailed."""
        self.send(command)
        return self.answer(command, timeout_s)

    def send(self, command: wire.Command) -> None:
        """Send a command; raises ProcessFailed if the worker has ended."""
        try:
            self._stdin.write(json.dumps(command).encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self, command: wire.Command, timeout_s: float) -> Any:
        """Wait for the result of a command that was sent; raises ProcessFailed."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0:
                kill_tree(self._process.pid)  # including a program that it waits for
                self.stop()
                message = f"no answer to {command['do']!r} within {timeout_s:.0f} s; the process was killed"
                raise ProcessFailed("hang", message, self.log_tail())
            if not self._selector.select(min(left, 1.0)):
                say({"event": "alive"})  # also notices when nobody is listening any longer
                continue
            chunk = self._stdout.read(1 << 20)
            if chunk == b"":
                raise self._ended()
            self._pending += chunk or b""
        line, _, self._pending = self._pending.partition(b"\n")
        reply = json.loads(line)
        if "refused" in reply:
            failed = ProcessFailed(
                reply.get("kind", "refused"), reply["refused"], self.log_tail(), transient=reply["transient"]
            )
            if "segment" in reply:
                failed.facts["segment"] = reply["segment"]
            raise failed
        return reply["ok"]

    def _ended(self) -> ProcessFailed:
        code = self._process.wait()
        if code < 0:
            return ended_by(-code, self.log_tail())
        return ProcessFailed("crash", f"ended by itself with status {code}", self.log_tail())

    def log_tail(self) -> str:
        """The end of the worker's output."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._log_start, size - _LOG_TAIL_BYTES))
        return self._log.read().decode("utf-8", "replace")

    def forget_log(self) -> None:
        """Leave the output so far, which belongs to an earlier request, out of `log_tail`."""
        self._log_start = self._log.seek(0, os.SEEK_END)

    @property
    def alive(self) -> bool:
        """True if the worker is running."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Kill the worker and close its streams."""
        self._process.kill()
        self._process.wait()
        for stream in (self._stdin, self._stdout):
            with suppress(BrokenPipeError):
                stream.close()
        self._selector.close()


def _started(environment: dict[str, str]) -> WorkerProcess:
    """Start a fresh worker; raises ProcessFailed if the machine has no room for it."""
    try:
        return WorkerProcess(environment)
    except OSError as error:
        raise ProcessFailed("refused", f"no process could be started: {error}", transient=True) from error


_saying = threading.Lock()


def say(event: wire.Event) -> None:
    """Write an event. If the reader is gone, the supervisor ends, and its workers with it."""
    with _saying:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


Kept = dict[str, "tuple[WorkerProcess, dict[str, wire.Opening]]"]
"""Processes that wait for the next request, with their open jobs; the keys are the names that candidates give the
processes.
"""


class Session(Rounds[WorkerProcess]):
    """One request: candidates in fresh processes, measured in interleaved rounds.

    Candidates with the same `process` share one process. If it ends because of one candidate, the others are opened
    again in a new process at their next visit. A failure in a shared process counts as transient, because another
    candidate may have damaged the process or left too little memory. After a candidate is refused, the others keep
    using the process. If the request has `keep`, shared processes without any failure are put into `kept`; the jobs of
    candidates with `stay` remain open in them.
    """

    def __init__(self, request: wire.MeasuringRequest, settings: wire.MachineSettings, kept: Kept) -> None:
        super().__init__(request, say, settings)
        self.kept = kept
        self.spoilt: set[str | None] = set()
        self.open_there: set[str] = set()
        self._awake: dict[str, WorkerProcess] = {}

    def run(self) -> None:
        """Serve the request. All processes that are not shared are started at once, on all cores, before anything is
        loaded into any of them.
        """
        try:
            for key, candidate in self.candidates.items():
                if candidate.get("process") is None:
                    with suppress(ProcessFailed):  # loading starts another process, whose failure is reported
                        self._awake[key] = worker = _started(candidate.get("environment", {}))
                        worker.send({"do": "wake"})
            for key, worker in list(self._awake.items()):
                try:
                    worker.answer({"do": "wake"}, self.timeout_s)
                except ProcessFailed:
                    self._awake.pop(key).stop()
            super().run()
        finally:
            for worker in self._awake.values():
                worker.stop()

    def state(self) -> wire.Snapshot:
        """The current state of the machine."""
        return snapshot()

    def load(self, key: str) -> wire.OpenedFacts | None:
        """Open a candidate in its worker; None if it is still open from an earlier request."""
        candidate = self.candidates[key]
        self.processes[key] = worker = self._worker(candidate)
        if key in self.open_there:
            self.open_there.discard(key)
            return None
        command: wire.OpenCommand = {"do": "open", "job_name": key, **self.request["warm"], **candidate["open"]}
        opened: wire.OpenedFacts = worker.ask(command, self.timeout_s)
        return opened

    def measure(self, key: str) -> wire.BlockFacts:
        """Measure one block of an open candidate."""
        candidate = self.candidates[key]
        command: wire.BlockCommand | wire.ProfileCommand = {"do": "block", "job_name": key, **self.request["block"]}
        if candidate["open"].get("profiled"):
            least = candidate["calls_least"]
            command = {"do": "profile", "job_name": key, **self.request["profile"], "least": least}
        taken: wire.BlockFacts = self.processes[key].ask(command, self.timeout_s)
        if self.request.get("watched"):
            taken["state"] = snapshot()
        return taken

    def release(self, key: str) -> None:
        """End the process of a profiled candidate after its only block."""
        self.processes.pop(key).stop()

    def drop(self, key: str, facts: wire.FailureFacts) -> None:
        """End the process of a failed candidate, unless the process is shared and the candidate was only refused."""
        self.spoilt.add(self.candidates[key].get("process"))
        worker = self.processes.pop(key, None)
        sharing = [other for other, theirs in self.processes.items() if theirs is worker]
        if sharing and facts["kind"] in ("crash", "refused"):
            facts["transient"] = True
        if worker is not None and not (sharing and facts["kind"] in ("refused", "wrong-output")):
            worker.stop()
            self.orphans.update(sharing)
            for other in sharing:
                del self.processes[other]

    def log_tail(self, key: str) -> str:
        """The end of the output of an open candidate's process."""
        return self.processes[key].log_tail()

    def finish(self) -> None:
        """End the processes after all visits, or keep them."""
        for worker in set(self.processes.values()):
            if not (self.request.get("keep") and self._put_by(worker)):
                worker.stop()

    def _put_by(self, worker: WorkerProcess) -> bool:
        """Keep a process for the next request, with only those of its jobs that stay; return whether it can be kept."""
        inside = [self.candidates[key] for key, theirs in self.processes.items() if theirs is worker]
        label = inside[0].get("process")
        if label is None or label in self.spoilt:
            return False
        try:
            for candidate in inside:
                if not candidate.get("stay"):
                    worker.ask({"do": "close", "job_name": candidate["key"]}, self.timeout_s)
        except ProcessFailed:
            return False
        self.kept[label] = worker, {c["key"]: c["open"] for c in inside if c.get("stay")}
        return True

    def _worker(self, candidate: wire.Candidate) -> WorkerProcess:
        """The process that a candidate shares with others, or a fresh one."""
        label = candidate.get("process")
        if label is not None:
            for other, worker in self.processes.items():
                if self.candidates[other].get("process") == label:
                    return worker
            if label in self.kept and self._taken_up(label):
                return self.kept.pop(label)[0]
        return self._awake.pop(candidate["key"], None) or _started(candidate.get("environment", {}))

    def _taken_up(self, label: str) -> bool:
        """Close the jobs of a kept process that are not requested again; return whether the process still works."""
        worker, there = self.kept[label]
        if worker.alive:
            worker.forget_log()
            asked = {key: candidate["open"] for key, candidate in self.candidates.items()}
            again = {key for key, opening in there.items() if asked.get(key) == opening}
            try:
                for key in there.keys() - again:
                    worker.ask({"do": "close", "job_name": key}, self.timeout_s)
                self.open_there |= again
                return True
            except ProcessFailed:
                pass
        self.kept.pop(label)[0].stop()
        return False


def _single(request: wire.CommandRequest) -> None:
    """Serve commands for fresh workers, such as probes, with as many workers at once as there are cores.

    A command with the same `process` as the command before it uses the same worker, unless that command failed.
    """
    lanes: list[list[wire.KeyedCommand]] = []
    for item in request["commands"]:
        own = item["command"].get("process")
        if own is None or not lanes or own != lanes[-1][-1]["command"].get("process"):
            lanes.append([])
        lanes[-1].append(item)
    from concurrent.futures import ThreadPoolExecutor  # most requests only measure; they start faster without it

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(lambda lane: _lane(lane, float(request["timeout_s"])), lanes))


def _lane(commands: Sequence[wire.KeyedCommand], timeout_s: float) -> None:
    """Run one command after another, in the same worker as long as it lives."""
    worker: WorkerProcess | None = None
    try:
        for item in commands:
            try:
                if worker is None:
                    worker = _started({})
                worker.forget_log()
                answer = worker.ask(item["command"], timeout_s)
                say({"event": "answer", "key": item["key"], "answer": answer})
            except ProcessFailed as failure:
                say({"event": "failure", "candidate": item["key"], "stage": "probe", **failure.facts})
                if worker is not None:
                    worker.stop()
                    worker = None
    finally:
        if worker is not None:
            worker.stop()


def _serve(request: wire.Request, kept: Kept) -> None:
    """Serve a request with the machine settings that it asks for; if the machine refuses them, nothing runs."""
    settings = Settings(request.get("machine", {}), waiting=lambda: say({"event": "alive"}))
    try:
        if "commands" in request:
            _single(request)
        else:
            Session(request, settings.applied, kept).run()
    finally:
        settings.undo()


def _sweep() -> None:
    """End processes that workers left behind, so that none of them runs during the next request.

    They belong to the process group that this process leads; if it leads none, nothing is ended.
    """
    if os.getpgrp() != os.getpid():
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


def supervise() -> int:
    """Serve the requests on standard input, one per line; more may follow while processes are kept."""
    die_with_parent()
    # An interrupt ends this process at once, without waiting for answers: its workers end with it, and the warden
    # restores the governor.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    kept: Kept = {}
    try:
        for line in sys.stdin:
            try:
                _serve(json.loads(line), kept)
            except SettingsRefused as refusal:
                say(refusal.event())
            if not kept:
                _sweep()
            say({"event": "end"})
        for worker, _ in kept.values():
            worker.stop()
    except BrokenPipeError:
        # Nobody is listening: the workers die with this process.
        os._exit(1)
    return 0
