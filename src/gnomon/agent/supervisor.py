"""The supervisor: fresh worker processes, visited in random order, an event a line.

A worker that crashes, hangs or is refused is an event like any other; the rest goes on.
"""

from __future__ import annotations

import json
import math
import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from .lifeline import die_with_parent
from .settings import Settings, SettingsRefused
from .snapshot import snapshot

_LOG_TAIL_BYTES = 2000


class WorkerFailed(Exception):
    """A worker crashed, hung, or was refused; the record is ready to be sent."""

    def __init__(self, kind: str, message: str, log_tail: str, transient: bool = False, **more: str) -> None:
        super().__init__(message)
        self.record = {"kind": kind, "message": message, "log_tail": log_tail, "transient": transient, **more}


class WorkerProcess:
    """A worker and the way to talk to it; ended by `stop`, whatever state it is in."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile(dir=os.getcwd())
        program = [sys.executable, *_self_command(), "work"]
        self._process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            # Runtimes leave files behind when they are killed: here they go away with the private folder.
            env={**os.environ, "TMPDIR": os.getcwd(), **environment},
            start_new_session=False,
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._pending = b""
        self._log_start = 0

    def ask(self, command: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a command and wait for its answer; raises WorkerFailed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0:
                self.stop()
                message = f"no answer to {command['do']!r} within {timeout_s:.0f} s; the process was killed"
                raise WorkerFailed("hang", message, self.log_tail())
            if not self._selector.select(min(left, 1.0)):
                say({"event": "alive"})  # also notices when nobody listens any more
                continue
            chunk = self._process.stdout.read(1 << 20)
            if chunk == b"":
                raise self._ended()
            self._pending += chunk or b""
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise WorkerFailed("refused", answer["refused"], self.log_tail(), bool(answer.get("transient")))
        result: dict[str, Any] = answer["ok"]
        return result

    def _ended(self) -> WorkerFailed:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            message = "killed by SIGKILL, most likely for want of memory"
            return WorkerFailed("memory", message, self.log_tail(), transient=True, signal="SIGKILL")
        if code < 0:
            names = {int(s): s.name for s in signal.Signals}
            name = names.get(-code, f"signal {-code}")  # real-time signals have no name
            return WorkerFailed("crash", f"ended by {name}", self.log_tail(), signal=name)
        return WorkerFailed("crash", f"ended by itself with status {code}", self.log_tail())

    def log_tail(self) -> str:
        """The end of what the worker printed."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._log_start, size - _LOG_TAIL_BYTES))
        return self._log.read().decode("utf-8", "replace")

    def forget_log(self) -> None:
        """What it printed so far is of an earlier request."""
        self._log_start = self._log.seek(0, os.SEEK_END)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the worker: by itself if it can, by force otherwise."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass
        self._selector.close()


def _started(environment: dict[str, str]) -> WorkerProcess:
    """A fresh worker; raises WorkerFailed where the machine has no room for it."""
    try:
        return WorkerProcess(environment)
    except OSError as error:
        raise WorkerFailed("refused", f"no process could be started: {error}", "", transient=True) from error


def _self_command() -> list[str]:
    """How to start this agent again: the zip application itself, or the package by its path."""
    return [sys.argv[0]]


def say(event: dict[str, Any]) -> None:
    """Write an event; a reader that is gone ends the supervisor, and its workers with it."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


Kept = dict[str, tuple[WorkerProcess, dict[str, Any]]]
"""Processes that wait for the next request, by what candidates call them, with the jobs that are open in them."""


class Session:
    """One request: candidates in fresh processes, measured in interleaved rounds.

    Candidates with the same `process` share one. Where it ends because of one of them, the others are opened again in
    a new one when they are visited next. Its failure may pass, as another may have spoilt the process, or left too
    little memory. Who is refused leaves the process to the others. `told` are the machine's settings that hold
    meanwhile. Where the request says `keep`, shared processes of which nothing failed are put into `kept`, with the
    jobs of candidates that `stay` still open.
    """

    def __init__(self, request: dict[str, Any], told: dict[str, Any], kept: Kept) -> None:
        self.request = request
        self.kept = kept
        self.spoilt: set[str | None] = set()
        self.open_there: set[str] = set()
        self.told = {"settings": told} if told else {}
        self.candidates: dict[str, dict[str, Any]] = {c["key"]: c for c in request["candidates"]}
        self.workers: dict[str, WorkerProcess] = {}
        self.orphans: set[str] = set()
        self.times: dict[str, list[float]] = {}
        self.random = random.Random(request["seed"])
        self.timeout_s = float(request["timeout_s"])

    def run(self) -> None:
        """Open all candidates, then visit them in rounds until the request's rounds are done."""
        before = snapshot()
        for key in self._shuffled():
            self._attempt(key, "load", self._open)
        for index in range(self.request["rounds"]):
            for key in self._shuffled():
                if key in self.orphans and index in self.candidates[key]["visits"]:
                    self.orphans.discard(key)
                    self._attempt(key, "load", self._open, index)
                if key in self.workers and not self._lags(key):
                    self._attempt(key, "run", lambda k, i=index: self._visit(k, i), index)
        for worker in set(self.workers.values()):
            if not (self.request.get("keep") and self._put_by(worker)):
                worker.stop()
        # This process took both snapshots and waited for its workers: their time is told from that of others.
        say({"event": "environment", "data": {"before": before, "after": snapshot(), **self.told}})

    def _put_by(self, worker: WorkerProcess) -> bool:
        """Keep a process for the next request, but only the jobs that stay in it; whether it can be kept."""
        inside = [self.candidates[key] for key, theirs in self.workers.items() if theirs is worker]
        label = inside[0].get("process")
        if label is None or label in self.spoilt:
            return False
        try:
            for candidate in inside:
                if not candidate.get("stay"):
                    worker.ask({"do": "close", "job_name": candidate["key"]}, self.timeout_s)
        except WorkerFailed:
            return False
        self.kept[label] = worker, {c["key"]: c["open"] for c in inside if c.get("stay")}
        return True

    def _shuffled(self) -> list[str]:
        keys = sorted(self.candidates)
        self.random.shuffle(keys)
        return keys

    def _attempt(self, key: str, stage: str, action: Any, block: int = 0) -> None:
        try:
            action(key)
        except WorkerFailed as failure:
            record = failure.record
            self.spoilt.add(self.candidates[key].get("process"))
            worker = self.workers.pop(key, None)
            sharing = [other for other, theirs in self.workers.items() if theirs is worker]
            if sharing and record["kind"] in ("crash", "refused"):
                record = {**record, "transient": True}
            told = "check" if record["kind"] == "wrong-output" else stage
            say({"event": "failure", "candidate": key, "stage": told, "block": block, **record})
            if worker is not None and not (sharing and record["kind"] in ("refused", "wrong-output")):
                worker.stop()
                self.orphans.update(sharing)
                for other in sharing:
                    del self.workers[other]

    def _lags(self, key: str) -> bool:
        """Whether it had two visits and is far slower than the fastest: the host asks for no more of it either."""
        own, fastest = self.times.get(key, []), min(map(min, self.times.values()), default=0.0)
        limit = self.request["laggard"] if len(own) >= 2 else self.request["hopeless"]
        return bool(own) and min(own) > limit * fastest

    def _open(self, key: str) -> None:
        candidate = self.candidates[key]
        self.workers[key] = worker = self._worker(candidate)
        if key in self.open_there:
            self.open_there.discard(key)
            return  # open since an earlier request
        command = {"do": "open", "job_name": key, **self.request["warm"], **candidate["open"]}
        opened = worker.ask(command, self.timeout_s)
        difference = opened.get("difference", {"relative": 0.0})["relative"]
        if not difference <= candidate.get("tolerance", math.inf):
            told = "inf" if difference == sys.float_info.max else f"{difference:.2g}"
            message = (
                f"outputs differ from the reference by {told} of its largest magnitude, "
                f"where {candidate['tolerance']:.2g} is tolerated"
            )
            raise WorkerFailed("wrong-output", message, worker.log_tail())
        say({"event": "opened", "candidate": key, **opened})
        if candidate["open"].get("profiled"):
            # A profiled process has one block, which ends it: no other candidate waits for its memory.
            self._visit(key, 0)
            self.workers.pop(key).stop()

    def _worker(self, candidate: dict[str, Any]) -> WorkerProcess:
        """The process of those that share one with a candidate, or a fresh one."""
        label = candidate.get("process")
        if label is not None:
            for other, worker in self.workers.items():
                if self.candidates[other].get("process") == label:
                    return worker
            if label in self.kept and self._taken_up(label):
                return self.kept.pop(label)[0]
        return _started(candidate.get("environment", {}))

    def _taken_up(self, label: str) -> bool:
        """Close what is open in a kept process and not asked for again; whether the process is still good."""
        worker, there = self.kept[label]
        if worker.alive:
            worker.forget_log()
            again = {key for key, opening in there.items() if self.candidates.get(key, {}).get("open") == opening}
            try:
                for key in there.keys() - again:
                    worker.ask({"do": "close", "job_name": key}, self.timeout_s)
                self.open_there |= again
                return True
            except WorkerFailed:
                pass
        self.kept.pop(label)[0].stop()
        return False

    def _visit(self, key: str, index: int) -> None:
        candidate = self.candidates[key]
        if index not in candidate["visits"]:
            return
        if candidate["open"].get("profiled"):
            command = {"do": "profile", **self.request["profile"], "least": candidate["calls_least"]}
        else:
            command = {"do": "block", **self.request["block"]}
        command["job_name"] = key
        started = time.time()
        taken = self.workers[key].ask(command, self.timeout_s)
        self.times.setdefault(key, []).append(min(taken["wall_ns"]) / taken["inner"])
        state = {"state": snapshot()} if self.request.get("watched") else {}
        say({"event": "block", "candidate": key, "block": index, "started_at_s": started, **taken, **state})


def _single(request: dict[str, Any]) -> None:
    """A request of one command each for fresh workers, such as probes.

    One that has the same `process` as the command before it is for that one's worker, unless that failed.
    """
    worker: WorkerProcess | None = None
    label = None
    try:
        for item in request["commands"]:
            own = item["command"].get("process")
            if worker is not None and (own is None or own != label):
                worker.stop()
                worker = None
            if worker is None:
                try:
                    worker, label = _started(item.get("environment", {})), own
                except WorkerFailed as failure:
                    say({"event": "failure", "candidate": item["key"], "stage": "probe", **failure.record})
                    continue
            worker.forget_log()
            try:
                answer = worker.ask(item["command"], float(request["timeout_s"]))
                say({"event": "answer", "key": item["key"], "answer": answer})
            except WorkerFailed as failure:
                say({"event": "failure", "candidate": item["key"], "stage": "probe", **failure.record})
                worker.stop()
                worker = None
    finally:
        if worker is not None:
            worker.stop()


def _serve(request: dict[str, Any], kept: Kept) -> None:
    """Serve a request with the machine set as it asks; where the machine refuses that, nothing runs."""
    settings = Settings(request.get("machine", {}), waiting=lambda: say({"event": "alive"}))
    try:
        if "commands" in request:
            _single(request)
        else:
            Session(request, settings.told, kept).run()
    finally:
        settings.undo()


def _sweep() -> None:
    """End what workers have left behind: nothing of one request runs beside the next.

    They are in the group of this process, where it leads one.
    """
    if os.getpgrp() != os.getpid():
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)


def supervise() -> int:
    """Serve the requests on standard input, a line each: one, or more that come while processes are kept."""
    die_with_parent()
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
        # Nobody listens: the workers die with this process.
        os._exit(1)
    return 0
