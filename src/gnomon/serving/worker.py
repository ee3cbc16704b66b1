"""A program that measures the models named by the jobs on its standard input, and writes the outcome of each.

Each device has such a process, in its own process group, so that the server survives whatever a model does to the
process. The processes that it starts always end with it. Between jobs it keeps everything that takes long to start:
itself, the connection to the device, the facts about the device and, on this machine, the agent with the reference
kernel. It releases the device when no job comes for a while, and from time to time in any case, because other processes
may wait for it.

A model is measured like the nets of search spaces, together with a reference kernel, by which all times are scaled to
the speed that the machine had when the server started. A command is measured alone, and after each model the device is
released and the program's files are removed.
"""

from __future__ import annotations

import re
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import FrameType

from gnomon.devices.address import LOCAL
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import resolve
from gnomon.errors import GnomonError, MeasurementError, ModelError, ProblemError, RuntimeMissingError
from gnomon.jobs.table.job import EFFORT
from gnomon.measure.effort import Effort, JobTime
from gnomon.measure.environment import worst
from gnomon.models.load import is_read, load, load_unread, reachable
from gnomon.models.tflite.kernel import product_kernel
from gnomon.runtimes.base import RunSettings
from gnomon.runtimes.commands import CommandRuntime
from gnomon.runtimes.declared import Declaration
from gnomon.runtimes.registry import all_runtimes
from gnomon.serving.job import Job, Measurement, Outcome, job_of, to_line
from gnomon.serving.models import sent_model
from gnomon.session.bench.baseline import clock_of, placed_unit, timed
from gnomon.session.bench.bench import Bench, Placed, open_bench
from gnomon.session.contender import levels_of
from gnomon.session.request import ModelRequest, device_met
from gnomon.session.targets import describe
from gnomon.spaces.layers import layer
from gnomon.spaces.unit import single
from gnomon.store.address import record_address

_MORE = 2
"""The reference kernel's first measurement has this many more processes than a model's, because all models depend on
it.
"""

_LOADS = 3
"""The number of times that a model is loaded in a kept process."""

_KEY = "model"
"""The name of a model on the bench, with which its file name on the device begins."""

_LAST_LINES = 5
"""How many of its last lines are reported for a program that took too long."""

_IDLE_S, _MOST_HELD_S = 5.0, 30.0
"""How long the device is held without a job, and with jobs, before other processes get their turn."""

_ROOM_FOR_RECORD = 4 << 30


def main() -> None:
    """Read jobs, measure, and write outcomes until the input ends."""
    signal.signal(signal.SIGTERM, _terminated)
    with closing(_HeldBench()) as held:
        while True:
            # The server sends one job at a time, so the buffer contains nothing of the next one.
            if held.bench is not None and not select.select([0], [], [], _IDLE_S)[0]:
                held.close()
            line = sys.stdin.readline()
            if not line:
                return
            job = job_of(line)
            _limit(job)
            sys.stdout.write(to_line(_outcome(job, held)))
            sys.stdout.flush()
            held.close_old(0.0 if job.measuring.command else _MOST_HELD_S)


class _HeldBench:
    """An open bench with the reference kernel on it."""

    def __init__(self) -> None:
        self.bench: Bench | None = None
        self.anchor: Placed | None = None
        self._stack = ExitStack()
        self._since_s = 0.0

    def for_job(self, job: Job, subject: str) -> tuple[Bench, Placed | None]:
        """The bench with a new campaign for a model, and the reference kernel (None for a command). Raises
        GnomonError.
        """
        question = {"digest": job.digest, "processes": "one that is kept" if job.kept else job.processes}
        if self.bench is None:
            self._since_s = time.monotonic()
            self.bench = self._stack.enter_context(_opened(job, subject, question))
            self.anchor = None if job.measuring.command else _anchor(self.bench)
        else:
            self.bench.runner = self.bench.begin(subject, question)
        return self.bench, self.anchor

    def close_old(self, most_s: float) -> None:
        """Release the device if it has been held for more than `most_s`, so that waiting processes get their turn."""
        if time.monotonic() - self._since_s > most_s:
            self.close()

    def close(self) -> None:
        """Release the device."""
        self.bench = self.anchor = None
        self._stack.close()


class _TookTooLong(Exception):
    """The measurement was ended at its time limit; the text is the end of the printed output."""


def _outcome(job: Job, held: _HeldBench) -> Outcome:
    try:
        return Outcome(kind="measured", result=_measured(job, held))
    except _TookTooLong as error:
        return Outcome(kind="timed_out", message=_without_paths(str(error), job))
    except MemoryError:
        return Outcome(
            kind="refused",
            message=f"measuring the model takes more than {job.limits.memory_bytes >> 20} MiB of memory",
            hint="Start the server with a larger --memory-mb, or send a smaller model.",
        )
    except GnomonError as error:
        models_affair = job.model is not None and isinstance(error, ModelError | ProblemError | MeasurementError)
        return Outcome(
            kind="refused" if models_affair else "failed",
            # The path of the model on the server means nothing to the client.
            message=_without_paths(error.message, job),
            hint=error.hint,
            error=type(error).__name__,
        )


def _without_paths(text: str, job: Job) -> str:
    """A text without the model's path on the server or the device."""
    if job.model is None:
        return text
    path = Path(job.model)
    own = "|".join(map(re.escape, (str(path.parent), f"{_KEY}-{path.name}")))
    return re.sub(rf"[^\s:,'\"]*(?:{own})[^\s:,'\"]*", "the model", text)


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # so that every context is closed and ends what it started


def _limit(job: Job) -> None:
    """Set only soft limits: the programs that this one starts are gnomon's own, and some set their own limits."""
    limits = {
        resource.RLIMIT_AS: job.limits.memory_bytes,
        # The same processes write the record of runs, which grows.
        resource.RLIMIT_FSIZE: _ROOM_FOR_RECORD + 8 * job.limits.most_bytes,
        resource.RLIMIT_CORE: 0,
    }
    for name, soft in limits.items():
        hard = resource.getrlimit(name)[1]
        resource.setrlimit(name, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _device_of(job: Job) -> DeviceConfig:
    # A model is sent only once, so it is not kept in the device's cache of pushed files.
    return replace(resolve(job.device), keep=False)


def _opened(job: Job, subject: str, question: Mapping[str, object]) -> AbstractContextManager[Bench]:
    measuring = job.measuring
    commands = (measuring.command,) if measuring.command else ()
    own = [*map(CommandRuntime, commands), *(r for r in all_runtimes()[0] if r.name == measuring.runtime)]
    formats = own[0].formats if own else frozenset()
    request = ModelRequest(
        model=Path(),
        device=_device_of(job),
        runtimes=(measuring.runtime,) if measuring.runtime else (),
        settings=RunSettings(
            threads=measuring.threads,
            backends=(measuring.backend,) if measuring.backend else (),
            precisions=(measuring.precision,) if measuring.precision else (),
            commands=commands,
        ),
        effort=_effort(job),
        time=JobTime(job.limits.job_s) if commands else None,
        seed=measuring.seed,
        record=None if measuring.record is None else record_address(measuring.record),
        fresh=True,
    )
    return open_bench(
        request,
        kind="serve",
        subject=subject,
        question=question,
        tell=_print,
        loads=min(formats - reachable("onnx"), default="onnx") if not formats & reachable("onnx") else "onnx",
        kept=job.kept,
    )


def _measured(job: Job, held: _HeldBench) -> Measurement:
    command, model = job.measuring.command, None if job.model is None else Path(job.model)
    if command is None and model is not None:
        model = sent_model(model, job.limits.most_bytes)
    if command is not None and model is None:
        _check_program(_device_of(job), command)
    subject = "the start of a server" if model is None else f"served model {job.digest[:16]}"
    bench, anchor = held.for_job(job, subject)
    with device_met(bench.runner):
        placed = anchor if model is None else _placed(bench, model)
        beside = [] if anchor is None else [replace(anchor.candidate, stays=model is not None)]
        wanted = [*beside, placed.candidate] if model and placed else beside
        try:
            measured = bench.runner.measure("served", wanted, _effort(job))
        finally:
            bench.runner.finish({"reason": "a server was asked for it"})
    measurement = Measurement(
        runtime=bench.runtime.name,
        version=bench.probe.version,
        configuration=bench.configuration.name,
        device=bench.device.name,
        doubts=tuple(worst(bench.runner.environments)),
    )
    if placed is None:
        return measurement
    failure = measured[placed.key].failure
    if failure is not None and failure.kind == "hang":
        raise _TookTooLong(" | ".join(failure.log_tail.strip().splitlines()[-_LAST_LINES:]))
    if not measured[placed.key].ok:
        raise MeasurementError(
            f"{bench.runtime.name} does not run the model: {describe(failure)}",
            hint="Try the model on the server's machine: gnomon profile MODEL",
        )
    clock = clock_of(bench, list(measured.values()))
    anchors = [] if anchor is None else [measured[anchor.key]]
    taken = timed(measured[placed.key], clock, reference_s=job.reference_s, anchors=anchors)
    kept = bench.link.kept
    return replace(
        measurement,
        latency_s=taken.call_s,
        low_s=taken.low_s,
        high_s=taken.high_s,
        processes=1 if kept else taken.processes,
        loads=taken.processes,
        interval_of="loads in one process" if kept else "processes",
        samples=sum(map(len, taken.samples.values())),
        drift=taken.drift,
        clock=clock,
        reference_s=job.reference_s or tuple(level for m in anchors for level in levels_of(m, clock).values()),
        workload_mop=None if placed.graph.macs is None else 2e-6 * placed.graph.macs,
    )


def _check_program(config: DeviceConfig, command: Declaration) -> None:
    """Raise RuntimeMissingError at once, even while other processes measure, for a program that this machine lacks."""
    program = command.run[0]
    if config.address.kind == LOCAL and shutil.which(program, path=config.environment.get("PATH")) is None:
        raise RuntimeMissingError(
            f"there is no program {program!r} on {config.name}",
            hint=command.hint or "Install it there, and give its full path if it is not on the PATH of its user.",
        )


def _placed(bench: Bench, path: Path) -> Placed:
    """The model on the device. ModelError for a format that the runtime does not load."""
    model = load_unread(path) if bench.request.settings.commands and not is_read(path) else load(path)
    wanted = bench.runtime.formats
    if not wanted & reachable(model.graph.format):
        loads = ", ".join(sorted(wanted))
        raise ModelError(
            f"the model has the format {model.graph.format}, but {bench.runtime.name} loads only {loads}",
            hint="Send it to a server with a runtime for this format. To list all runtimes: gnomon runtimes",
        )
    if model.package and "circle" not in wanted:
        return _placed(bench, model.package.models[0])  # only onert loads whole packages
    return bench.put(_KEY, model, path)


def _effort(job: Job) -> Effort:
    """The effort for a small net: a tenth of a second per process; the remaining time is for starting processes."""
    processes = (_LOADS if job.kept else job.processes) + (0 if job.model is not None else _MORE)
    return replace(
        EFFORT,
        rounds=3,
        block_s=0.02,
        warm_s=0.02,
        processes_least=processes,
        processes_most=processes,
        together=2,
        timeout_s=job.limits.job_s,
    )


def _anchor(bench: Bench) -> Placed:
    """A kernel of about ten microseconds, long enough to be timed well, in a format that the runtime loads."""
    if bench.runtime.formats & reachable("onnx"):
        unit = single(layer("Conv", out_channels=16, kernel=3, pad=1), ((1, 16, 32, 32),))
        return placed_unit(bench, unit, "anchor")
    path = bench.folder / "anchor.tflite"
    path.write_bytes(product_kernel(96))
    return bench.place("anchor", path)


def _print(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
