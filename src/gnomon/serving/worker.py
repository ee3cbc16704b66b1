"""A program: measures the models that the jobs on its standard input name, and writes the outcome of each.

It is a process of its own, in a group of its own, one for each device, so that whatever a model does to it, the server
goes on; what it starts itself ends with it, however it ends. Between jobs it keeps what takes long to start: itself,
the way to the device, what was found there and, on this machine, the agent with the reference kernel. It lets go of the
device when no job comes for a while, and now and then in any case, as others may wait for it.

A model is measured as the nets of search spaces are: beside a reference kernel, which brings all times to the speed
that the machine had when the server was started. A command is measured alone, and lets go of the device after each
model, with all that the program left there.
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
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from gnomon.devices.address import LOCAL
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import resolve
from gnomon.errors import GnomonError, MeasurementError, ModelError, ProblemError, RuntimeMissingError
from gnomon.runtimes.declared import Declaration
from gnomon.serving.job import Job, Measurement, Outcome, job_of, to_line
from gnomon.serving.models import sent_model
from gnomon.store.address import record_address

if TYPE_CHECKING:
    from gnomon.session.bench.bench import Bench, Placed

_MORE = 2
"""Processes of the reference kernel's first measurement beyond those of models, which all rest on it."""

_LOADS = 3
"""How often a model is loaded where one process is kept."""

_KEY = "model"
"""The name of a model on the bench: its file on the device begins so."""

_LAST_LINES = 5
"""So many of the last lines are reported of a program that took too long."""

_IDLE_S, _MOST_HELD_S = 5.0, 30.0
"""How long the device is held without a job, and with jobs: then others get their turn."""

_ROOM_FOR_RECORD = 4 << 30


def main() -> None:
    """Reads, measures, writes, until there is nothing more to read."""
    signal.signal(signal.SIGTERM, _terminated)
    with closing(_HeldBench()) as held:
        while True:
            # The server sends a job at a time, so that nothing of the next one is in the buffer.
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
    """A bench that is open, with the reference kernel on it."""

    def __init__(self) -> None:
        self.bench: Bench | None = None
        self.anchor: Placed | None = None
        self._stack = ExitStack()
        self._since_s = 0.0

    def for_job(self, job: Job, subject: str) -> tuple[Bench, Placed | None]:
        """The bench with a campaign of its own for a model; no kernel stands beside a command. Raises GnomonError."""
        question = {"digest": job.digest, "processes": "one that is kept" if job.kept else job.processes}
        if self.bench is None:
            self._since_s = time.monotonic()
            self.bench = self._stack.enter_context(_opened(job, subject, question))
            self.anchor = None if job.measuring.command else _anchor(self.bench)
        else:
            self.bench.runner = self.bench.begin(subject, question)
        return self.bench, self.anchor

    def close_old(self, most_s: float) -> None:
        """Let go of it where it was held for long: whoever waits for the device comes first then."""
        if time.monotonic() - self._since_s > most_s:
            self.close()

    def close(self) -> None:
        """Let go of the device."""
        self.bench = self.anchor = None
        self._stack.close()


class _TookTooLong(Exception):
    """The model was ended at the time limit; its text is the last that was printed."""


def _outcome(job: Job, held: _HeldBench) -> Outcome:
    try:
        return Outcome(kind="measured", result=_measured(job, held))
    except _TookTooLong as error:
        return Outcome(kind="timed_out", message=_without_paths(str(error), job))
    except MemoryError:
        return Outcome(
            kind="refused",
            message=f"measuring it takes more than {job.limits.memory_bytes >> 20} MiB of memory",
            hint="Start the server with more, --memory-mb, or send a smaller model.",
        )
    except GnomonError as error:
        models_affair = job.model is not None and isinstance(error, ModelError | ProblemError | MeasurementError)
        return Outcome(
            kind="refused" if models_affair else "failed",
            # Where the server keeps the model means nothing to the client that sent it.
            message=_without_paths(error.message, job),
            hint=error.hint,
            error=type(error).__name__,
        )


def _without_paths(text: str, job: Job) -> str:
    """A text without where the server, or the device, keeps the model."""
    if job.model is None:
        return text
    path = Path(job.model)
    own = "|".join(map(re.escape, (str(path.parent), f"{_KEY}-{path.name}")))
    return re.sub(rf"[^\s:,'\"]*(?:{own})[^\s:,'\"]*", "the model", text)


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # so that every block is left, and ends what it started


def _limit(job: Job) -> None:
    """Soft limits alone: the programs behind this one are the house's own, and some set theirs themselves."""
    limits = {
        resource.RLIMIT_AS: job.limits.memory_bytes,
        # The record of runs is written by the same processes, and grows.
        resource.RLIMIT_FSIZE: _ROOM_FOR_RECORD + 8 * job.limits.most_bytes,
        resource.RLIMIT_CORE: 0,
    }
    for name, soft in limits.items():
        hard = resource.getrlimit(name)[1]
        resource.setrlimit(name, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _device_of(job: Job) -> DeviceConfig:
    # A model is sent once: none of it stays in the device's cache of pushed files.
    return replace(resolve(job.device), keep=False)


def _opened(job: Job, subject: str, question: Mapping[str, object]) -> Any:
    from gnomon.measure.effort import JobTime
    from gnomon.models.load import reachable
    from gnomon.runtimes.base import RunSettings
    from gnomon.runtimes.commands import CommandRuntime
    from gnomon.runtimes.registry import all_runtimes
    from gnomon.session.bench.bench import open_bench
    from gnomon.session.request import ModelRequest

    measuring = job.measuring
    commands = (measuring.command,) if measuring.command else ()
    own = [*map(CommandRuntime, commands), *(r for r in all_runtimes()[0] if r.name == measuring.runtime)]
    formats = own[0].formats if own else frozenset()
    request = ModelRequest(
        model=Path(),
        device=_device_of(job),
        runtimes=(measuring.runtime,) if measuring.runtime else (),
        wish=RunSettings(
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
    from gnomon.measure.environment import worst
    from gnomon.measure.link import KeptLink
    from gnomon.session.bench.baseline import clock_of, levels_of, timed
    from gnomon.session.request import device_met
    from gnomon.session.targets import describe

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
            f"{bench.runtime.name} does not run it: {describe(failure)}",
            hint="Try it on the server's machine: gnomon profile MODEL",
        )
    clock = clock_of(bench, list(measured.values()))
    anchors = [] if anchor is None else [measured[anchor.key]]
    taken = timed(measured[placed.key], clock, reference_s=job.reference_s, anchors=anchors)
    kept = isinstance(bench.link, KeptLink)
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
    """RuntimeMissingError at once, also while others measure, for a program that this machine lacks."""
    program = command.run[0]
    if config.address.kind == LOCAL and shutil.which(program, path=config.environment.get("PATH")) is None:
        raise RuntimeMissingError(
            f"there is no program {program!r} on {config.name}",
            hint=command.hint or "Install it there, and give its whole path where it is not on the PATH of its user.",
        )


def _placed(bench: Bench, path: Path) -> Placed:
    """The model on the device. ModelError for one of a format that the runtime does not load."""
    from gnomon.models.load import is_read, load, load_unread, reachable

    model = load_unread(path) if bench.request.wish.commands and not is_read(path) else load(path)
    wanted = bench.runtime.formats
    if not wanted & reachable(model.graph.format):
        loads = ", ".join(sorted(wanted))
        raise ModelError(
            f"it is a model of the format {model.graph.format}, and {bench.runtime.name} loads {loads}",
            hint="Send it to a server with a runtime for that format: gnomon runtimes lists them.",
        )
    if model.package and "circle" not in wanted:
        return _placed(bench, model.package.models[0])  # a package is loaded whole by onert alone
    return bench.put(_KEY, model, path)


def _effort(job: Job) -> Any:
    """A whole small net's: a tenth of a second in each process. What it takes beyond that is starting processes."""
    from gnomon.jobs.table.job import EFFORT

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
    """A kernel of some ten microseconds, in the format that the runtime loads: long enough to be timed well."""
    from gnomon.models.load import reachable
    from gnomon.models.tflite.kernel import product_kernel
    from gnomon.session.bench.baseline import placed_unit
    from gnomon.spaces.layers import layer
    from gnomon.spaces.unit import single

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
