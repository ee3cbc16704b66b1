"""A contender: an assignment of operators to backends that is measured as a whole.

The module also measures candidates next to an anchor. This is needed because a machine's speed drifts, whereas the
ratio of two times that are measured together does not.

`profile_singles` makes the first measurement of every job: it runs the whole model on each single backend, first
without and then with the profiler.

The module also warns about accelerators that are only programs on the processor, and about code that is compiled in the
first run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gnomon.core.brief import brief
from gnomon.core.graph import Graph
from gnomon.core.sample import UNSTABLE
from gnomon.core.stats import (
    Block,
    Comparison,
    Summary,
    blocks_of,
    compare,
    median,
    quantile,
    summarise,
    values_by_process,
)
from gnomon.errors import MeasurementError
from gnomon.measure.campaign import CampaignRunner, Candidate, Measured, RecordedRunner
from gnomon.measure.effort import QUANTILE, Clock, Effort, cpu_tells, levels
from gnomon.measure.environment import Caveat
from gnomon.report import units
from gnomon.report.plain import many
from gnomon.runtimes.base import Accelerator, Configuration, by_names, portable
from gnomon.session.model_session import ModelSession, command_failed
from gnomon.session.targets import Missing, Target, describe, reasons_of
from gnomon.wire import Segment

Kind = Literal["single", "plan", "greedy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of the model in one configuration: its `operators` in execution order, and the backend of each."""

    target: Target
    operators: tuple[int, ...]
    backends: Mapping[int, str]

    @property
    def configuration(self) -> Configuration:
        """The configuration that runs the part."""
        return self.target.configuration

    @property
    def assignment(self) -> Mapping[int, str]:
        """The backend of each operator, under the adapter's names; empty if the configuration runs the whole part under
        a single name.
        """
        return self.backends if set(self.backends.values()) <= set(self.configuration.backends) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A complete assignment: its parts in order, its kind, and its predicted time (None: no prediction)."""

    label: str
    kind: Kind
    parts: tuple[Part, ...]
    candidate: Candidate
    predicted_s: float | None = None

    __repr__ = brief

    @property
    def key(self) -> str:
        """The name under which the campaign stores the contender's runs."""
        return self.candidate.key

    @property
    def graph(self) -> Graph:
        """The graph whose operators are assigned: that of the user's model, or that of the converted model."""
        return self.parts[0].target.placed.graph

    @property
    def backends(self) -> dict[int, str]:
        """The backend of each operator in all parts, by the operator's index."""
        return {index: backend for part in self.parts for index, backend in part.backends.items()}

    @property
    def settings(self) -> dict[str, dict[str, object]]:
        """The settings that change times (precision, environment and options), by the name of the configuration."""
        return {
            own.name: {"precision": own.precision, "environment": dict(own.environment), **portable(own.options)}
            for own in (part.configuration for part in self.parts)
        }

    @property
    def accelerators(self) -> tuple[Accelerator, ...]:
        """The accelerators that compute some of the operators."""
        return tuple(
            accelerator
            for part in self.parts
            for accelerator in part.configuration.accelerators
            if len(part.configuration.backends) == 1 or accelerator.backend in part.backends.values()
        )

    @property
    def usual(self) -> bool:
        """Whether this is a runtime's default, with no option set."""
        return any(part.configuration.usual for part in self.parts)

    @property
    def tells_operators(self) -> bool:
        """Whether a profiled run reports the times of single operators; with most commands, it does not."""
        specs = [part.configuration.options.get("command", {"operators": {}}) for part in self.parts]
        return all("operators" in spec for spec in specs)

    @property
    def checked(self) -> bool:
        """Whether the outputs are compared with the reference."""
        return all(part.configuration.checked for part in self.parts)

    @property
    def serial(self) -> bool:
        """Whether one thread does all the work."""
        return all(part.configuration.serial for part in self.parts)

    @property
    def threads(self) -> int:
        """The largest number of threads that any part was given."""
        return max((part.configuration.options.get("threads", 1) for part in self.parts), default=1)

    @property
    def precision(self) -> str:
        """The coarsest precision in which any part computes."""
        return max((p.configuration for p in self.parts), key=lambda c: c.tolerance).precision if self.parts else ""

    @property
    def on_software(self) -> bool:
        """Whether any part computes on an accelerator that is only a program; no claim is based on such times."""
        return any(a.software for a in self.accelerators)


def contender_in(
    session: ModelSession,
    target: Target,
    kind: Kind,
    label: str,
    backends: Mapping[int, str],
    *,
    key: str,
    assigned: bool,
) -> Contender:
    """A contender for the whole model in one configuration; if `assigned`, the runtime is given the backend of each
    operator.
    """
    configuration = target.configuration
    chain = getattr(target.runtime, "chain", None)
    if chain is None:
        job = session.job([target.runtime.segment(target.placed, configuration, backends if assigned else {})])
    else:  # a package may have several segments
        job = session.job(*chain(target.placed))
    candidate = Candidate(
        key=key,
        job=job,
        environment=configuration.environment,
        check=configuration.checked,
        separate="command" in configuration.options,
        tolerance=session.tolerance(configuration),
    )
    part = Part(target=target, operators=tuple(backends), backends=backends)
    return Contender(label=label, kind=kind, parts=(part,), candidate=candidate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """A contender with its measurements; `against_best` compares it with the best single backend.

    `against_best` is None for the best itself, for a contender that failed, or if either of the two computes on an
    accelerator that is only a program.
    """

    contender: Contender
    measured: Measured
    against_best: Comparison | None

    __repr__ = brief

    @property
    def ok(self) -> bool:
        """Whether the contender ran and its outputs were right."""
        return self.measured.ok


def blocks(measured: Measured, clock: Clock) -> tuple[Block, ...]:
    """The times measured by a clock, block by block."""
    return blocks_of(measured.runs, clock=clock)


def level(measured: Measured, clock: Clock) -> float:
    """The level of a contender: the seconds per call that prices, predictions, checks of predictions, and latency
    tables all use.

    Within each process, the level is the median of the CPU times or the lower quintile of the wall times. The lower
    quintile represents uninterrupted calls: on a busy machine, the median depends more on other processes than on the
    model. The result is the median over the processes, so neither the luckiest process nor the number of processes
    matters.
    """
    return median(list(levels_of(measured, clock).values()))


def levels_of(measured: Measured, clock: Clock) -> dict[int, float]:
    """The level of each process in seconds, by process."""
    by_process = values_by_process(blocks(measured, clock))
    return {process: quantile(values, QUANTILE[clock]) for process, values in by_process.items()}


def cpu_summary(measured: Measured) -> Summary | None:
    """A summary of the CPU times; None if CPU times were not reported."""
    rows = blocks(measured, "cpu")
    return summarise(rows) if any(any(block.values_s) for block in rows) else None


def versus(a: Measured, b: Measured, clock: Clock) -> Comparison:
    """The comparison of two interleaved candidates by the levels of matching blocks."""
    return compare(levels(a.runs, clock), levels(b.runs, clock))


def fastest_of(field: Mapping[str, Measured], clock: Clock) -> str:
    """The key of the fastest interleaved candidate: the one with the lowest level, unless another is surely faster."""
    best = min(field, key=lambda key: level(field[key], clock))
    for _ in field:
        compared = {key: versus(own, field[best], clock) for key, own in field.items() if key != best}
        faster = [key for key, pair in compared.items() if pair.verdict == "faster" and pair.unit == "process"]
        if not faster:
            break
        best = min(faster, key=lambda key: compared[key].ratio)
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clock that compares two contenders: `serial` if both use one thread, otherwise wall time."""

    serial: Clock

    def of(self, *contenders: Contender) -> Clock:
        """The clock that compares all these contenders."""
        return self.serial if all(contender.serial for contender in contenders) else "wall"


def choose_clocks(session: ModelSession, results: Mapping[str, Measured], contenders: Iterable[Contender]) -> Clocks:
    """The clocks for contenders whose measurements are in `results`, by key: CPU time for single-threaded contenders if
    it covers all their work, otherwise wall time.
    """
    ran = [results[c.key] for c in contenders if c.serial and results[c.key].ok]
    beside = any(map(_takes_beside, session.targets))
    return Clocks(serial="cpu" if not beside and all(cpu_tells(own.runs) for own in ran) else "wall")


def choose_clock(session: ModelSession, measured: Iterable[Measured]) -> Clock:
    """The clock to decide by: CPU time if one thread was requested and it does all the work, otherwise wall time.

    Unlike wall time, the CPU time of one thread stays stable while other processes are busy. It is meaningless if the
    work is done by several threads (some runtimes start them unasked) or by another processor. Therefore wall time
    decides as soon as an accelerator takes any operator, even if its driver uses CPU time while waiting.
    """
    settings = session.request.settings
    if settings.thread_counts != (1,) or settings.commands or any(map(_takes_beside, session.targets)):
        return "wall"
    return "cpu" if all(cpu_tells(own.runs) for own in measured if own.ok) else "wall"


def _takes_beside(target: Target) -> bool:
    """Whether an accelerator takes any operator of the target."""
    return any(target.support.operators.get(a.backend) for a in target.configuration.accelerators)


def trace_of(contender: Contender) -> Candidate:
    """The contender's job with the profiler on; if the profiler needs node names, on the copy of the model that has
    them.
    """
    targets = [part.target for part in contender.parts]
    named = {t.placed.path: t.placed.named for t in targets if t.placed.named and by_names(t.runtime)}
    candidate = contender.candidate
    if named:
        segments: list[Segment] = [{**s, "model": named.get(s["model"], s["model"])} for s in candidate.job["segments"]]
        candidate = replace(candidate, job={**candidate.job, "segments": segments})
    return traced_candidate(candidate, len(contender.backends))


def traced_candidate(candidate: Candidate, operators: int) -> Candidate:
    """The same job with the profiler on, and with enough calls to trace even a model with few operators."""
    calls = max(5, -(-100 // max(1, operators)))
    return replace(candidate, key=f"{candidate.key}/traced", profiled=True, check=False, calls_least=calls)


Runner = CampaignRunner | RecordedRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A profiled candidate that is run again next to everything that is later compared with its profile."""

    candidate: Candidate
    clock: Clock


def measure_beside(
    runner: Runner, stage: str, candidates: Sequence[Candidate], anchor: Anchor, effort: Effort
) -> tuple[dict[str, Measured], Mapping[str, float]]:
    """Measure candidates in groups, each of which includes a fresh run of the anchor.

    Returns the measurements and, for each candidate, the factor that scales its times to the speed that the machine had
    when the anchor was profiled (1 if the anchor failed this time).
    """
    room = max(1, effort.together - 1)
    count = -(-len(candidates) // room)
    own = anchor.candidate
    name = f"{own.key}/beside {candidates[0].key}" if candidates else own.key
    again = [replace(own, key=f"{name}/{k}", check=False) for k in range(count)]
    # The campaign deals candidates out to as many groups as there are anchors: each group begins with an anchor.
    measured = runner.measure(stage, [*again, *candidates], replace(effort, together=room + 1))
    profiled = level(runner.known(own.key), anchor.clock)
    factors = [profiled / level(measured[a.key], anchor.clock) if measured[a.key].ok else 1.0 for a in again]
    return measured, {c.key: factors[k % count] for k, c in enumerate(candidates)}


_LONGEST = 200
"""The maximum length of a reason in a warning, in characters."""


def not_compared(label: str, *stages: Measured) -> Caveat | None:
    """A warning about a contender that worked and then failed, or whose failure may not be its own fault.

    `stages` holds its measurements, stage by stage. None if the contender works, was not measured, or has never worked
    and is itself to blame. In that last case, the list of skipped contenders gives the reason.
    """
    failure = stages[-1].failure
    took = next((m for m in reversed(stages) if m.worked), None)
    if failure is None or failure.kind == "unmeasured" or (took is None and not failure.transient):
        return None
    time_s = level(took, "cpu" if cpu_tells(took.runs) else "wall") if took is not None else None
    if failure.kind == UNSTABLE:
        message = f"{label} is unstable and not recommended: {failure.message}; in the others it took "
        hint = "Choose another configuration. To see what its processes printed: gnomon runs show last -v"
        return Caveat(kind=UNSTABLE, message=f"{message}{units.time(time_s)}", hint=hint)
    reason = " ".join((failure.message if failure.kind in ("crash", "memory") else describe(failure)).split())
    before = "was not measured" if time_s is None else f"was measured ({units.time(time_s)}) and then"
    outcome = f"{before}: {reason[:_LONGEST]}" if time_s is None else f"{before} {reason[:_LONGEST]}: not compared"
    return Caveat(kind="not-compared", message=f"{label} {outcome}", hint=AGAIN)


AGAIN = "Run the same command again: what failed is measured once more."
"""The next step if the machine may have caused a failure."""


def profile_singles(
    session: ModelSession,
    contenders: Sequence[Contender],
    *,
    settle: bool = False,
    traces: int | None = None,
    trace: Callable[[Sequence[Contender]], Sequence[Contender]] = list,
) -> list[Contender]:
    """Measure all contenders interleaved; trace and return those that run with correct outputs.

    The others are added to `session.missing`. MeasurementError if no contender is left. The runs are stored in the
    session's campaign, under the contenders' keys. With `settle`, these runs are the answer, and the stop rule decides
    when they are precise enough. `traces` is the number of processes in which each contender is traced (default: as
    many as it is measured in), and `trace` selects the contenders to be traced.
    """
    # The minimum number of processes is enough for prices; in the proof, the stop rule makes the answer certain.
    effort = replace(session.request.effort, processes_most=session.request.effort.processes_least)
    candidates = [replace(c.candidate, label=c.label, serial=c.serial) for c in contenders]
    measured = session.runner.measure("profile", candidates, session.request.effort if settle else effort)
    alive = []
    for contender in contenders:
        if measured[contender.key].ok:
            alive.append(contender)
        else:
            session.missing.append(Missing(name=contender.label, reason=describe(measured[contender.key].failure)))
            doubt = not_compared(contender.label, measured[contender.key])
            if doubt is None and any("command" in part.configuration.options for part in contender.parts):
                doubt = command_failed(session.missing[-1])
            session.doubts += [doubt] if doubt is not None else []
    if not alive:
        what, hint = "no configuration runs the model with correct outputs", "Try another runtime with --runtime."
        if not any(contender.checked for contender in contenders):
            what, hint = "no command measured the model", "See how a command is declared: docs/jobs/commands.md."
        if session.runner.stopped:
            what = "no configuration with correct outputs was measured in time"
        elif any(doubt.kind == "not-compared" for doubt in session.doubts):
            what, hint = "no measurement could be completed", AGAIN
        raise MeasurementError(f"{what} ({reasons_of(session.missing)})", hint=hint)
    if traces is not None:
        effort = replace(effort, processes_least=traces, processes_most=traces)
    wanted = [c for c in trace(alive) if c.tells_operators]
    traced = session.runner.measure("profile, traced", [trace_of(c) for c in wanted], effort) if wanted else {}
    for contender in wanted:
        if not traced[trace_of(contender).key].ok:
            failure = traced[trace_of(contender).key].failure
            session.missing.append(Missing(name=f"{contender.label}, traced", reason=describe(failure)))
    return alive


def software_devices(targets: Sequence[Target]) -> list[Caveat]:
    """A warning for each accelerator that is only a program on the processor."""
    devices = {f"{t.configuration.runtime}:{a.backend}": a for t in targets for a in t.configuration.accelerators}
    return [
        Caveat(
            kind="software-device",
            message=f"{backend} is {device.name}, a program on the processor: its times say nothing about a GPU",
            hint="Outputs and placements are valid; measure times on a machine with a GPU.",
        )
        for backend, device in devices.items()
        if device.software
    ]


def first_runs(measured: Iterable[tuple[Contender, Sequence[Measured]]]) -> list[Caveat]:
    """A warning for each contender that uses an accelerator or is compiled when it is loaded. It states how long
    loading and the first call took together, which no measured call time includes.

    Shaders or code are compiled at that moment: in the first process and, unless they are cached, in all others too.
    `measured` holds the contenders that ran, each with its measurements in order.
    """
    warnings = []
    for contender, runs in measured:
        compiled = any("compile_s" in row for part in runs[-1].fact("where") or () for row in part)
        if not (contender.accelerators or compiled):
            continue
        what = "shaders are" if contender.accelerators else "its code is"
        first, *later = (1e-9 * ns for run in runs for ns in _begun_ns(run))
        count = many(len(later), "later process", "later processes")
        others = f", and {median(later):.2g} s (median) in {count}" if later else ""
        held = held_bytes(runs[-1])
        memory = "" if held is None else f"; the model takes {held / 2**20:.3g} MiB of the device's memory"
        took = f"in its first process, {contender.label} took {first:.2g} s to load and make the first call{others}"
        message = f"{took}: {what} compiled then, which the times of calls do not include{memory}"
        warnings.append(Caveat(kind="first-run", message=message, hint="Count this time if processes are short-lived."))
    return warnings


def _begun_ns(measured: Measured) -> list[int]:
    """The nanoseconds that loading the model and making the first call took, process by process."""
    first = {run.process: run.facts for run in reversed(measured.runs) if "load_ns" in run.facts}
    return [first[process]["load_ns"] + first[process]["first_call_ns"] for process in sorted(first)]


def held_bytes(measured: Measured) -> int | None:
    """The device memory that a model occupies, in bytes; None if the runtime does not report it."""
    reported = [row.get("device_memory_bytes") for part in measured.fact("where") or () for row in part]
    return sum(sizes) if (sizes := [held for held in reported if held is not None]) else None
