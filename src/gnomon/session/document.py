"""The parts that several documents share, as records from which `core.codec` derives JSON and a schema.

A document holds everything that a job found, so that it can be shown, compared or passed on without the results
database. Large tables are stored as columns, one list per field, all of equal length, so that a model of thousands of
operators takes only a few megabytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from gnomon.core.codec import fields_of
from gnomon.core.sample import Run
from gnomon.core.stats import Block, median, quantile
from gnomon.errors import ProblemError
from gnomon.measure.campaign import Measured
from gnomon.measure.environment import others_share, steal_share
from gnomon.session.kernels import CALLS_QUANTILE, KernelPart, kernels
from gnomon.wire import Environment, Snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import DataclassInstance

    from gnomon.core.graph import Graph
    from gnomon.session.kernels import Kernel


Record = TypeVar("Record", bound="DataclassInstance")

_DAMAGED = "The document was damaged or changed: measure again, or restore it from a copy."
_LONGEST_US, _LATEST_S = 1e15, 2.0**38
"""Limits of plausible values: no measured time is longer than 30 years, and no moment is later than the year 10000."""


def _check_rows(what: str, *columns: Sequence[Any]) -> None:
    lengths = set(map(len, columns))
    if len(lengths) > 1:
        raise ProblemError(f"{min(lengths)} {what} in one column and {max(lengths)} in another", hint=_DAMAGED)


def _check_numbers(numbers: Sequence[int]) -> None:
    if numbers and not 0 <= min(numbers) <= max(numbers) < 1 << 63:
        raise ProblemError("the number of a process, a block or calls is out of range", hint=_DAMAGED)


def _check_times(what: str, times: Sequence[float], longest: float) -> None:
    if times and not 0 <= min(times) <= max(times) <= longest:
        raise ProblemError(f"impossible {what}: {min(times):.6g} to {max(times):.6g}", hint=_DAMAGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """The model: its path, format and digest, and how many operators and multiply-accumulates an inference has."""

    path: str
    format: str
    sha256: str
    operators: int
    macs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPart:
    """An operator of the model, with its index in the file."""

    index: int
    name: str
    type: str
    macs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorColumns:
    """The tensors other than constants. A dimension of -1 is open; a shape of null means that the rank is unknown."""

    name: tuple[str, ...]
    dtype: tuple[str, ...]
    shape: tuple[tuple[int, ...] | None, ...]
    size_bytes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeColumns:
    """The edges of the graph: the indices of two operators, and the index of the tensor between them."""

    producer: tuple[int, ...]
    consumer: tuple[int, ...]
    tensor: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """The connections between the document's operators; `inputs` and `outputs` are tensor indices."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tensors: TensorColumns
    edges: EdgeColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferencePart:
    """The largest difference between the outputs and the reference, both absolute and relative to the reference's
    largest magnitude.
    """

    absolute: float | None
    relative: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns:
    """All unprofiled samples, one row per block, in order of process and block.

    `started_at_s` is in seconds since 1970. `wall_us` and `cpu_us` are microseconds per call, one value per sample, in
    the order of measurement; a sample is the mean of `inner` calls. `cpu_us` is null if CPU time is not reported.
    """

    process: tuple[int, ...]
    block: tuple[int, ...]
    started_at_s: tuple[float, ...]
    inner: tuple[int, ...]
    wall_us: tuple[tuple[float, ...], ...]
    cpu_us: tuple[tuple[float, ...], ...] | None

    def __post_init__(self) -> None:
        blocks = (self.process, self.block, self.started_at_s, self.inner, self.wall_us)
        _check_rows("blocks", *blocks, *(() if self.cpu_us is None else (self.cpu_us,)))
        _check_numbers((*self.process, *self.block, *self.inner))
        _check_times("moments", self.started_at_s, _LATEST_S)
        if not all(self.wall_us):
            raise ProblemError("a block without samples", hint=_DAMAGED)
        for block in (*self.wall_us, *(self.cpu_us or ())):
            _check_times("times of calls", block, _LONGEST_US)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockColumns:
    """All samples by one clock, one row per block: microseconds per call, in the order of measurement."""

    process: tuple[int, ...]
    block: tuple[int, ...]
    call_us: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        _check_rows("blocks", self.process, self.block, self.call_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessColumns:
    """Each fresh process: the time to load the model, the time of the first call, and the peak memory."""

    process: tuple[int, ...]
    load_s: tuple[float | None, ...]
    first_call_s: tuple[float | None, ...]
    peak_rss_bytes: tuple[int | None, ...]

    def __post_init__(self) -> None:
        _check_rows("processes", self.process, self.load_s, self.first_call_s, self.peak_rss_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelColumns:
    """The runtime's own profile, one row per kernel in order of execution; never mixed with unprofiled samples.

    `wall_us` holds the microseconds of each kernel in each process of `process`: the 30 % quantile of the calls, which
    represents uninterrupted calls; null if the kernel did not run in that process. `call_us` is the same quantile for
    the whole call with the profiler on. `operators` are the indices of the operators that the kernel computes.
    """

    process: tuple[int, ...]
    call_us: tuple[float | None, ...]
    name: tuple[str, ...]
    backend: tuple[str, ...]
    operators: tuple[tuple[int, ...], ...]
    wall_us: tuple[tuple[float | None, ...], ...]

    def __post_init__(self) -> None:
        _check_rows("kernels", self.name, self.backend, self.operators, self.wall_us)
        _check_rows("processes", self.process, self.call_us, *self.wall_us)
        _check_numbers(self.process)
        for row in (self.call_us, *self.wall_us):
            _check_times("times of kernels", [time_us for time_us in row if time_us is not None], _LONGEST_US)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPart:
    """All measurements of one configuration, from which the statistics in the document are computed.

    `load_s` and `first_call_s` are medians over the processes. `throughput_per_s` is the number of calls per second by
    one caller: the calls of all samples divided by their wall time.
    """

    load_s: float | None
    first_call_s: float | None
    throughput_per_s: float | None
    processes: ProcessColumns
    samples: SampleColumns
    profile: KernelColumns | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPart:
    """The state of the device at one moment, as far as its kernel reports it.

    `frequencies_khz` holds the current frequency of each core; `throttle_count` is the total since the machine started.
    """

    load_average_1m: float | None
    frequencies_khz: tuple[int | None, ...] | None
    governors: tuple[str, ...] | None
    temperatures_c: Mapping[str, float] | None
    throttle_count: int | None
    memory_available_bytes: int | None
    swap_used_bytes: int | None
    on_battery: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPart:
    """A round in which the configurations in `labels` each ran in one fresh process, and the state of the device before
    and after the round.

    `process` is the number of that process (null, with no labels, if the results database is too old to record it). The
    round ended at `at_s` (seconds since 1970) and lasted `seconds`. The shares are the fractions of the processors'
    time taken by other processes, and by CPU steal, during the round.
    """

    process: int | None
    labels: tuple[str, ...]
    at_s: float | None
    seconds: float | None
    before: SnapshotPart
    after: SnapshotPart
    others_share: float | None
    steal_share: float | None


def columns_of(kind: type[Record], rows: Sequence[object], **others: Any) -> Record:
    """A record of columns: fields in `others` are used as given, and every other field holds the rows' attributes of
    the same name.
    """
    names = [field.name for field in fields(kind) if field.name not in others]
    return kind(**{name: tuple(getattr(row, name) for row in rows) for name in names}, **others)


def model_part(path: Path, graph: Graph) -> ModelPart:
    """The model of a document."""
    count = len(graph.operators)
    return ModelPart(path=str(path), format=graph.format, sha256=graph.digest, operators=count, macs=graph.macs)


def operator_parts(graph: Graph) -> tuple[OperatorPart, ...]:
    """The operators of a document, in order."""
    return tuple(OperatorPart(index=op.index, name=op.name, type=op.type, macs=op.macs) for op in graph.operators)


def graph_part(graph: Graph) -> GraphPart:
    """The connections between the operators, with the tensors that are passed along them."""
    edges = tuple(graph.edges())
    flowing = sorted({*graph.inputs, *graph.outputs, *(edge.tensor for edge in edges)})
    place = {tensor: number for number, tensor in enumerate(flowing)}
    return GraphPart(
        inputs=tuple(place[tensor] for tensor in graph.inputs),
        outputs=tuple(place[tensor] for tensor in graph.outputs),
        tensors=columns_of(TensorColumns, [graph.tensors[index] for index in flowing]),
        edges=columns_of(EdgeColumns, edges, tensor=tuple(place[edge.tensor] for edge in edges)),
    )


def difference_part(difference: Mapping[str, float] | None) -> DifferencePart | None:
    """The document's record of a difference that an agent reported."""
    if difference is None:
        return None
    # The agent reports the largest float for an unbounded difference, such as a NaN in place of a number.
    bounded = {name: value for name, value in difference.items() if value < sys.float_info.max}
    return DifferencePart(absolute=bounded.get("absolute"), relative=bounded.get("relative"))


def kernel_part(kernel: Kernel) -> KernelPart:
    """The document's record of a kernel, without its `named` operators."""
    return KernelPart(**fields_of(KernelPart, kernel))


def runs_part(measured: Measured, graph: Graph | None = None, traced: Measured | None = None) -> RunsPart:
    """All measurements of a configuration; `traced` holds its profiled runs, whose operators are those of `graph`."""
    runs = [run for run in measured.runs if run.samples is not None and run.samples.wall_ns and not run.profiled]
    processes = _processes(measured)
    calls = sum(run.samples.inner * len(run.samples.wall_ns) for run in runs if run.samples is not None)
    wall_ns = sum(sum(run.samples.wall_ns) for run in runs if run.samples is not None)
    return RunsPart(
        load_s=middle(processes.load_s),
        first_call_s=middle(processes.first_call_s),
        throughput_per_s=calls / wall_ns * 1e9 if wall_ns else None,
        processes=processes,
        samples=_samples(runs),
        profile=None if graph is None or traced is None else _profile(graph, traced),
    )


def _samples(runs: Iterable[Run]) -> SampleColumns:
    ordered = sorted(runs, key=lambda run: (run.process, run.block))
    samples = [run.samples for run in ordered if run.samples is not None]
    has_cpu = any(any(sample.cpu_ns) for sample in samples)
    return SampleColumns(
        process=tuple(run.process for run in ordered),
        block=tuple(run.block for run in ordered),
        started_at_s=tuple(round(run.started_at_s, 3) for run in ordered),
        inner=tuple(sample.inner for sample in samples),
        wall_us=tuple(_microseconds(sample.wall_ns, sample.inner) for sample in samples),
        cpu_us=tuple(_microseconds(sample.cpu_ns, sample.inner) for sample in samples) if has_cpu else None,
    )


def _microseconds(times_ns: Iterable[float], inner: int = 1) -> tuple[float, ...]:
    """Convert to microseconds per call, keeping every digit that a nanosecond clock has."""
    times_us = (time_ns / inner / 1000 for time_ns in times_ns)
    return tuple(round(t, 3) if t >= 1000 else float(f"{t:.7g}") for t in times_us)


def block_columns(blocks: Iterable[Block]) -> BlockColumns | None:
    """The samples of blocks, in order of process and block; None if there are no blocks."""
    ordered = sorted(blocks, key=lambda block: (block.process, block.block))
    if not ordered:
        return None
    times_us = tuple(_microseconds(value_s * 1e9 for value_s in block.values_s) for block in ordered)
    return columns_of(BlockColumns, ordered, call_us=times_us)


def _processes(measured: Measured) -> ProcessColumns:
    facts: dict[int, dict[str, Any]] = {}
    for run in measured.runs:
        own = {name: value for name, value in run.facts.items() if value is not None}
        facts[run.process] = facts.get(run.process, {}) | own
    rows = sorted(facts.items())

    def seconds(name: str) -> tuple[float | None, ...]:
        return tuple(row[name] * 1e-9 if name in row else None for _, row in rows)

    return ProcessColumns(
        process=tuple(process for process, _ in rows),
        load_s=seconds("load_ns"),
        first_call_s=seconds("first_call_ns"),
        peak_rss_bytes=tuple(row.get("peak_rss_bytes") for _, row in rows),
    )


def middle(values: Iterable[float | None]) -> float | None:
    """The median of the known values; None if there are none."""
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def _profile(graph: Graph, traced: Measured) -> KernelColumns | None:
    """The kernels of profiled runs, process by process; None if the runtime reported none."""
    profile = kernels(graph, traced)
    runs = [run for run in traced.runs if run.operators]
    if not profile:
        return None
    rows: list[dict[tuple[str, tuple[int, ...]], list[float]]] = []
    for run in runs:
        taken: dict[tuple[str, tuple[int, ...]], list[float]] = {}
        for row in run.operators:
            if row.wall_ns:
                taken.setdefault((row.name, row.sources), []).append(quantile(row.wall_ns, CALLS_QUANTILE) / 1000)
        rows.append(taken)
    names = [key for row in runs[0].operators if any((key := (row.name, row.sources)) in taken for taken in rows)]
    calls = (quantile(s.wall_ns, CALLS_QUANTILE) if s and s.wall_ns else None for s in (run.samples for run in runs))
    return columns_of(
        KernelColumns,
        profile,
        process=tuple(run.process for run in runs),
        call_us=tuple(None if call_ns is None else round(call_ns / 1000, 3) for call_ns in calls),
        wall_us=tuple(tuple(round(median(row[name]), 4) if name in row else None for row in rows) for name in names),
    )


def environment_parts(environments: Iterable[Environment], labels: Mapping[str, str]) -> tuple[EnvironmentPart, ...]:
    """The rounds in which a labelled candidate ran, with the state of the device before and after each, in
    chronological order.
    """
    parts = []
    for pair in environments:
        keys = pair.get("candidates")
        named = tuple(dict.fromkeys(labels[key] for key in keys or () if key in labels))
        if not pair["before"] or (keys is not None and not named):
            continue
        before, after = pair["before"], pair["after"]
        parts.append(
            EnvironmentPart(
                process=pair.get("process"),
                labels=named,
                at_s=pair.get("at_s"),
                seconds=_seconds(before, after),
                before=_snapshot(before),
                after=_snapshot(after),
                others_share=others_share(before, after),
                steal_share=steal_share(before, after),
            )
        )
    return tuple(parts)


def _seconds(before: Snapshot, after: Snapshot) -> float | None:
    if "monotonic_s" not in before or "monotonic_s" not in after:
        return None
    return round(float(after["monotonic_s"] - before["monotonic_s"]), 3)


def _snapshot(state: Snapshot) -> SnapshotPart:
    values: dict[str, Any] = {field.name: state.get(field.name) for field in fields(SnapshotPart)}
    if (frequencies := state.get("frequencies_khz")) is not None:
        values["frequencies_khz"] = tuple(of[0] for of in frequencies.values())
    if (governors := state.get("governors")) is not None:
        values["governors"] = tuple(sorted(set(governors.values())))
    return SnapshotPart(**values)


def labels_of(by_label: Mapping[str, Measured]) -> dict[str, str]:
    """The label of each candidate, by the candidate's name in the results database."""
    return {run.candidate: label for label, measured in by_label.items() for run in measured.runs}
