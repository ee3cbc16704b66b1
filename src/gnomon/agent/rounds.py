"""The measuring loop: candidates are opened, then visited in interleaved rounds.

The agent runs it on the device, with only the standard library; for a device without Python, `gnomon.measure.program`
runs it on the host.
"""

from __future__ import annotations

import math
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from gnomon import wire

Process = TypeVar("Process")


class ProcessFailed(Exception):
    """A process crashed, hung, refused a command, could not be started, or gave wrong outputs.

    `facts` are the fields that describe the failure in the event `failure`.
    """

    def __init__(
        self, kind: str, message: str, log_tail: str = "", *, transient: bool = False, signal: str = ""
    ) -> None:
        super().__init__(message)
        self.facts: wire.FailureFacts = {"kind": kind, "message": message, "log_tail": log_tail, "transient": transient}
        if signal:
            self.facts["signal"] = signal


def ended_by(number: int, log_tail: str) -> ProcessFailed:
    """The failure of a process that a signal ended."""
    name = {int(sig): sig.name for sig in signal.Signals}.get(
        number, f"signal {number}"
    )  # real-time signals have no name
    if number == signal.SIGKILL:
        message = f"killed by {name}, most likely because memory ran out"
        return ProcessFailed("memory", message, log_tail, transient=True, signal=name)
    return ProcessFailed("crash", f"ended by {name}", log_tail, signal=name)


class Rounds(Generic[Process]):
    """One request: candidates in processes, measured in interleaved rounds.

    `processes` are the open processes, by candidate. `orphans` are candidates that lost their process because of
    another candidate: they are opened again at their next visit. `settings` are the machine's settings during the
    request. A subclass defines how a process is opened, measured and ended.
    """

    def __init__(
        self, request: wire.MeasuringRequest, on_event: Callable[[wire.Event], None], settings: wire.MachineSettings
    ) -> None:
        self.request, self.settings = request, settings
        self.candidates = {candidate["key"]: candidate for candidate in request["candidates"]}
        self.timeout_s = float(request["timeout_s"])
        self.processes: dict[str, Process] = {}
        self.orphans: set[str] = set()
        self._on_event = on_event
        self._times: dict[str, list[float]] = {}
        self._random = random.Random(request["seed"])

    def run(self) -> None:
        """Open all candidates, then visit them in rounds until the request's rounds are done."""
        before = self.state()
        for key in self._shuffled():
            self._attempt(key, "load", 0)
        for block in range(self.request["rounds"]):
            for key in self._shuffled():
                if key in self.orphans and block in self.candidates[key]["visits"]:
                    self.orphans.discard(key)
                    self._attempt(key, "load", block)
                own, fastest = self._times.get(key, []), min(map(min, self._times.values()), default=0.0)
                # A candidate that has had two visits and is far slower than the fastest gets no further visits, because
                # the host would not ask for any.
                lags = len(own) >= 2 and min(own) > self.request["laggard"] * fastest
                if key in self.processes and not lags:
                    self._attempt(key, "run", block)
        self.finish()
        # One process takes both snapshots and waits for the measured processes, so their CPU time can be separated from
        # that of other processes.
        data: wire.Environment = {"before": before, "after": self.state()}
        if self.settings:
            data["settings"] = self.settings
        self._on_event({"event": "environment", "data": data})

    def state(self) -> wire.Snapshot:
        """The current state of the machine."""
        raise NotImplementedError

    def load(self, key: str) -> wire.OpenedFacts | None:
        """Open a candidate's process and add it to `processes`; return None if its job was already open."""
        raise NotImplementedError

    def measure(self, key: str) -> wire.BlockFacts:
        """Measure one block of an open candidate."""
        raise NotImplementedError

    def release(self, key: str) -> None:
        """End the process of a profiled candidate after its only block."""
        del self.processes[key]

    def drop(self, key: str, facts: wire.FailureFacts) -> None:
        """Close a candidate that failed; `facts`, which may be changed here, are reported afterwards."""
        self.processes.pop(key, None)

    def log_tail(self, key: str) -> str:
        """The end of the output of an open candidate's process."""
        return ""

    def finish(self) -> None:
        """Called when all visits are done."""

    def _shuffled(self) -> list[str]:
        keys = sorted(self.candidates)
        self._random.shuffle(keys)
        return keys

    def _attempt(self, key: str, stage: str, block: int) -> None:
        """Open or visit a candidate; a failure is reported as an event."""
        try:
            if stage == "load":
                self._open(key)
            else:
                self._visit(key, block)
        except ProcessFailed as failure:
            self.drop(key, failure.facts)
            stage = "check" if failure.facts["kind"] == "wrong-output" else stage
            self._on_event({"event": "failure", "candidate": key, "stage": stage, "block": block, **failure.facts})

    def _open(self, key: str) -> None:
        opened = self.load(key)
        if opened is None:
            return
        candidate = self.candidates[key]
        difference = opened["difference"]["relative"] if "difference" in opened else 0.0
        if not difference <= candidate.get("tolerance", math.inf):
            off = "inf" if difference == sys.float_info.max else f"{difference:.2g}"
            message = (
                f"outputs differ from the reference by {off} of its largest magnitude; "
                f"the tolerance is {candidate['tolerance']:.2g}"
            )
            raise ProcessFailed("wrong-output", message, self.log_tail(key))
        self._on_event({"event": "opened", "candidate": key, **opened})
        if candidate["open"].get("profiled"):
            # A profiled process ends after its only block, so its memory is free for other candidates.
            self._visit(key, 0)
            self.release(key)

    def _visit(self, key: str, block: int) -> None:
        if block not in self.candidates[key]["visits"]:
            return
        started = time.time()
        taken = self.measure(key)
        self._times.setdefault(key, []).append(min(taken["wall_ns"]) / taken["inner"])
        self._on_event({"event": "block", "candidate": key, "block": block, "started_at_s": started, **taken})
