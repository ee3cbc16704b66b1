"""A worker: a process with loaded jobs, to which its supervisor sends commands as JSON lines.

A worker imports only the modules that its command needs, because a measurement starts many workers.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import sys
import time
from typing import TYPE_CHECKING, TextIO, cast

from .driver import driver_for
from .lifeline import die_with_parent
from .timing import inner_loop, take, take_at_once, take_paced, warm_up

if TYPE_CHECKING:
    from gnomon import wire

    from .job import Job


def peak_rss_bytes() -> int | None:
    """The kernel's high-water mark for this process's memory (VmHWM); None if the kernel does not report it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


class Held:
    """An open job of a worker, with the values that its blocks need."""

    def __init__(self, job: Job, *, profiled: bool) -> None:
        self.job = job
        self.profiled = profiled
        self.calls = 0
        self.best_ns = 1
        self.grid_ns = 0
        self.warm: wire.WarmUp = {"warm_count": 0, "warm_s": 0.0}

    def counted(self) -> None:
        """Call the job and count the call, because a profiler's trace contains every call."""
        self.calls += 1
        self.job.call()

    def next_slot(self, every_ns: int) -> int:
        """The time of the next slot of paced calls; the grid starts with the first block, whose first slot is now."""
        now = time.perf_counter_ns()
        self.grid_ns = self.grid_ns or now
        return self.grid_ns - (self.grid_ns - now) // every_ns * every_ns


class Worker:
    """Answers one command after another, each with the method of the same name.

    Several jobs may be open at once: each command names its job in "job_name", which is "" if there is only one.
    """

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}

    def wake(self, command: wire.WakeCommand) -> wire.Answer:
        """Import the modules that every job needs, before any job is opened."""
        from . import job  # noqa: F401 - for later

        return {}

    def open(self, command: wire.OpenCommand) -> wire.OpenedFacts:
        """Load a job, time its first call separately, then warm it up."""
        from .job import Job  # imports numpy, which a device that is only probed may lack

        imported = peak_rss_bytes()
        start = time.perf_counter_ns()
        job = Job(command["job"], profiled=bool(command.get("profiled")))
        held = self.held[command.get("job_name", "")] = Held(job, profiled=bool(command.get("profiled")))
        loaded = time.perf_counter_ns()
        job.call()
        first = time.perf_counter_ns() - loaded
        answer: wire.OpenedFacts = {
            "load_ns": loaded - start,
            "first_call_ns": first,
            "bare_rss_bytes": imported,
            "where": job.where(),
        }
        calls = 1
        if command.get("save"):
            answer["sensitivity"] = job.save_outputs(command["save"], command["seeds"])
        if command.get("check"):
            answer["difference"] = job.check(command["check"], command["seeds"])
            calls += len(command["seeds"])
        held.calls = calls
        held.warm = {"warm_count": command["warm_count"], "warm_s": command["warm_s"]}
        if "save" not in command and job.program is None:
            warm = held.counted if held.profiled else job.call
            held.best_ns = warm_up(warm, count=max(1, command["warm_count"] - calls), seconds=command["warm_s"])
            for other in job.beside:
                warm_up(other.call, count=command["warm_count"], seconds=0)
        return answer

    def block(self, command: wire.BlockCommand) -> wire.BlockFacts:
        """Take a block of samples, after calls that bring this process's data back into the caches.

        With `energy`, the energy counters are read before the first sample and after the last. With `every_ns`, calls
        start on a grid that continues from block to block.
        """
        held = self.held[command.get("job_name", "")]
        if held.job.program is not None:
            return held.job.program.take(command, held.warm)
        call = held.job.call
        meter = None
        if command.get("energy"):
            from .energy import Meter

            meter = Meter(command["energy"])
        if command["rewarm_s"] > 0:
            warm_up(call, count=1, seconds=command["rewarm_s"])
        every_ns = command.get("every_ns")
        inner = 1 if every_ns else inner_loop(held.best_ns, command["sample_ns"])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        if meter is not None:
            meter.start()
        more: dict[str, object] = {}
        seconds, least, most = command["seconds"], command["least"], command["most"]
        if held.job.beside:
            calls = [job.call for job in (held.job, *held.job.beside)]
            wall, cpu, more["per_s"] = take_at_once(calls, inner=inner, seconds=seconds, least=least, most=most)
        elif every_ns:
            wall, cpu, more["pace"] = take_paced(
                call, every_ns=every_ns, slots=command["slots"], start_ns=held.next_slot(every_ns)
            )
        else:
            wall, cpu = take(call, inner=inner, seconds=seconds, least=least, most=most)
        if meter is not None:
            more["energy"] = meter.stop()
        waits = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before
        rss = peak_rss_bytes()
        taken = {"wall_ns": wall, "cpu_ns": cpu, "inner": inner, "peak_rss_bytes": rss, "waits": waits, **more}
        return cast("wire.BlockFacts", taken)

    def profile(self, command: wire.ProfileCommand) -> wire.BlockFacts:
        """Take a block of profiled calls, one per sample, with the operators' times from the profiler; ends the job."""
        held = self.held[command.get("job_name", "")]
        if held.job.program is not None:
            limits = {**command, "sample_ns": 1, "rewarm_s": 0.0}
            return held.job.program.take(cast("wire.BlockLimits", limits), held.warm)
        wall, cpu = take(
            held.job.call, inner=1, seconds=command["seconds"], least=command["least"], most=command["most"]
        )
        operators = held.job.operators(held.calls)
        return {"wall_ns": wall, "cpu_ns": cpu, "inner": 1, "operators": operators, "peak_rss_bytes": peak_rss_bytes()}

    def close(self, command: wire.CloseCommand) -> wire.Answer:
        """Release a job; the process stays available for its other jobs and for later ones."""
        self.held.pop(command.get("job_name", "")).job.close()
        return {}

    def probe(self, command: wire.ProbeCommand) -> wire.ProbeAnswer:
        """The driver's description of the runtime, and the versions of the requested pip packages."""
        answer = driver_for(command["runtime"]).probe()
        if "packages" in command:
            from .installed import installed

            answer["packages"] = installed(command["packages"])
        return answer

    def energy(self, command: wire.EnergyCommand) -> wire.EnergyCounters | wire.EnergyRefused:
        """The energy counters of the machine, and how often they change."""
        from .energy import probe

        return probe(command["counters"])

    def supports(self, command: wire.SupportsCommand) -> wire.Answer:
        """The driver's answer about a model's operators."""
        return driver_for(command["segment"]["runtime"]).supports(command["segment"])


_OF_THE_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
)


def _reply(worker: Worker, command: wire.Command) -> dict[str, object]:
    try:
        return {"ok": getattr(worker, command["do"])(command)}
    except MemoryError:
        return {"refused": "MemoryError: the device has too little memory", "transient": True}
    except Exception as error:  # a runtime may raise anything
        where = f" (in {os.getcwd()})" if getattr(error, "errno", None) in _OF_THE_MACHINE else ""
        more = {name: getattr(error, name) for name in ("kind", "segment") if hasattr(error, name)}
        return {"refused": f"{type(error).__name__}: {error}{where}", "transient": _may_pass(error), **more}


def _may_pass(error: BaseException | None) -> bool:
    """Return True if the machine is to blame: it has no memory, disk space or processes left, or software is not
    installed.
    """
    while error is not None:
        if isinstance(error, (ImportError, MemoryError)) or getattr(error, "errno", None) in _OF_THE_MACHINE:
            return True
        error = error.__cause__ or error.__context__
    return False


def _private_streams() -> tuple[TextIO, TextIO]:
    """The protocol's streams; standard output is redirected to standard error, because runtimes print to standard
    output.
    """
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
    # numpy is needed only to compare outputs. Its threads, one per core, would spin while the runtime is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    source, sink = _private_streams()
    worker = Worker()
    for line in source:
        sink.write(json.dumps(_reply(worker, json.loads(line))) + "\n")
        sink.flush()
    for held in worker.held.values():
        held.job.close()
    sys.stderr.flush()
    os._exit(0)  # a runtime's exit handlers may crash or hang after all answers have been sent
