"""A worker: one job in one process, driven by its supervisor with a JSON line a command."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from .driver import Refused, driver_for
from .lifeline import die_with_parent
from .timing import inner_loop, take, warm_up

if TYPE_CHECKING:
    from .job import Job


def peak_rss_bytes() -> int | None:
    """The kernel's own high-water mark of this process's memory (VmHWM), where there is one."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


class Worker:
    """Answers one command after the other; the first is "open", "probe" or "supports"."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.profiled = False
        self.calls = 0
        self.best_ns = 1

    def open(self, command: dict[str, Any]) -> dict[str, Any]:
        """Load the job, call it once and apart, then warm it up."""
        from .job import Job  # with numpy, which a device that is only asked what it has may lack

        imported = peak_rss_bytes()
        self.profiled = bool(command.get("profiled"))
        start = time.perf_counter_ns()
        self.job = Job(command["job"], profiled=self.profiled)
        loaded = time.perf_counter_ns()
        self.job.call()
        first = time.perf_counter_ns() - loaded
        answer: dict[str, Any] = {
            "load_ns": loaded - start,
            "first_call_ns": first,
            "bare_rss_bytes": imported,
            "where": self.job.where(),
        }
        made = 1
        if command.get("save"):
            answer["sensitivity"] = self.job.save_outputs(command["save"], command["seeds"])
        if command.get("check"):
            answer["difference"] = self.job.check(command["check"], command["seeds"])
            made += len(command["seeds"])
        inner = self.job.call

        def counted() -> None:
            self.calls += 1
            inner()

        self.calls = made
        if "save" not in command:
            warm = counted if self.profiled else inner
            self.best_ns = warm_up(warm, count=max(1, command["warm_count"] - made), seconds=command["warm_s"])
        return answer

    def block(self, command: dict[str, Any]) -> dict[str, Any]:
        """A block of samples, after calls that bring this process's data back into the caches."""
        assert self.job is not None
        call = self.job.call
        warm_up(call, count=1, seconds=command["rewarm_s"])
        inner = inner_loop(self.best_ns, command["sample_ns"])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        wall, cpu = take(call, inner=inner, seconds=command["seconds"], least=command["least"], most=command["most"])
        waits = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before
        taken = {"wall_ns": wall, "cpu_ns": cpu, "inner": inner, "peak_rss_bytes": peak_rss_bytes()}
        return {**taken, "waits": waits}

    def profile(self, command: dict[str, Any]) -> dict[str, Any]:
        """A block of profiled calls, one sample each, and what the profiler says; ends the job."""
        assert self.job is not None
        wall, cpu = take(
            self.job.call, inner=1, seconds=command["seconds"], least=command["least"], most=command["most"]
        )
        operators = self.job.operators(self.calls)
        return {"wall_ns": wall, "cpu_ns": cpu, "inner": 1, "operators": operators, "peak_rss_bytes": peak_rss_bytes()}

    def probe(self, command: dict[str, Any]) -> dict[str, Any]:
        """What the runtime's driver says of itself."""
        return driver_for(command["runtime"]).probe()

    def supports(self, command: dict[str, Any]) -> dict[str, Any]:
        """What the runtime's driver says of a model's operators."""
        return driver_for(command["segment"]["runtime"]).supports(command["segment"])


def _answer(worker: Worker, command: dict[str, Any]) -> dict[str, Any]:
    verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "open": worker.open,
        "block": worker.block,
        "profile": worker.profile,
        "probe": worker.probe,
        "supports": worker.supports,
    }
    try:
        return {"ok": verbs[command["do"]](command)}
    except (Refused, ImportError, ValueError, OSError) as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    except MemoryError:
        return {"refused": "MemoryError: the device has too little memory"}


def _private_streams() -> tuple[TextIO, TextIO]:
    """The protocol's streams, with standard output handed to standard error: runtimes print there."""
    source = os.fdopen(os.dup(0), "r", encoding="utf-8")
    sink = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return source, sink


def work() -> int:
    """Answer commands until standard input ends."""
    die_with_parent()
    source, sink = _private_streams()
    worker = Worker()
    for line in source:
        sink.write(json.dumps(_answer(worker, json.loads(line))) + "\n")
        sink.flush()
    if worker.job is not None:
        worker.job.close()
    sys.stderr.flush()
    os._exit(0)  # a runtime's exit handlers may crash or hang after everything was said
