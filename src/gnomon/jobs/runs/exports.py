"""A job's answer in the formats of other tools: a trace for Perfetto, node data for Model Explorer, or notes for
Netron.

All are derived from the job's document (docs/formats/documents.md). The trace is in Chrome's Trace Event Format, which
Perfetto and chrome://tracing can open. Node data is in the format of `model_explorer.node_data_builder`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gnomon.core.stats import median
from gnomon.errors import RecordError
from gnomon.report import units

if TYPE_CHECKING:
    from gnomon.jobs.pareto.document import ParetoDocument, PointPart
    from gnomon.jobs.place.document import ColumnPart, ContenderPart, PlaceDocument, ProfileDocument
    from gnomon.session.document import RunsPart, SnapshotPart

    Exported: TypeAlias = PlaceDocument | ProfileDocument | ParetoDocument
    Configuration: TypeAlias = ContenderPart | ColumnPart | PointPart

_LISTS = {"gnomon-place": "contenders", "gnomon-profile": "columns", "gnomon-pareto": "points"}
"""For each format, the key under which a document lists its configurations, which have `runs`."""
_CALL, _MEASURING = 1, 2
"""The processes of a trace: one call of each configuration, and the timeline of all measurements."""
_COUNTERS = 0
Event = dict[str, object]
_PALE, _DARK = "#fff5d6", "#d7301f"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """An operator in a configuration: its seconds (None: unknown), its backend, and the operator whose time includes
    its own (`within`).
    """

    name: str
    index: int
    time_s: float | None
    backend: str
    within: int | None


def configurations(answer: Exported) -> list[tuple[Configuration, RunsPart]]:
    """The configurations of an answer that have runs, each with its runs. RecordError if there are none."""
    rows: Sequence[Configuration] = getattr(answer, _LISTS.get(answer.format, ""), ())
    measured = [(row, row.runs) for row in rows if row.runs]
    if not measured:
        raise RecordError(f"the answer ({answer.format}) has no runs", hint="Give a run of place, profile or pareto.")
    return measured


def operator_times(answer: Exported) -> dict[str, list[OperatorTime]]:
    """The operators of each configuration that has operator times, by label. RecordError if there are none."""
    times: dict[str, list[OperatorTime]] = {}
    for configuration, runs in configurations(answer):
        rows = _operators(answer, configuration, runs)
        if any(row.time_s is not None for row in rows):
            times[configuration.label] = rows
    if not times:
        raise RecordError(
            "the answer contains no times of operators",
            hint="Measure with a runtime that reports them: gnomon runtimes",
        )
    return times


def _operators(answer: Exported, configuration: Configuration, runs: RunsPart) -> list[OperatorTime]:
    from gnomon.jobs.place.document import ContenderPart, ProfiledOperator

    operators = answer.operators or ()
    places: Sequence[str | None] = ()
    if isinstance(configuration, ContenderPart):
        times, places = configuration.operators_s, configuration.assignment
    else:
        label = configuration.label
        times = tuple(row.times_s.get(label) if isinstance(row, ProfiledOperator) else None for row in operators)
    if len(times) != len(operators):  # a converted model has operators of its own
        return []
    timed = {row.index for row, time_s in zip(operators, times, strict=True) if time_s is not None}
    backends: dict[int, str] = {}
    leaders: dict[int, int] = {}
    for backend, members in zip(runs.profile.backend, runs.profile.operators, strict=True) if runs.profile else ():
        leader = next((index for index in members if index in timed), None)
        for index in members:
            backends.setdefault(index, backend)
            if leader is not None:
                leaders.setdefault(index, leader)
    return [
        OperatorTime(
            name=row.name,
            index=row.index,
            time_s=time_s,
            backend=backends.get(row.index) or place or "",
            within=leaders.get(row.index) if time_s is None else None,
        )
        for row, time_s, place in zip(operators, times, places or [None] * len(operators), strict=True)
    ]


def node_data(operators: Sequence[OperatorTime], *, by_name: bool) -> dict[str, object]:
    """The times of operators as Model Explorer's node data: in microseconds, and coloured from pale to red.

    Nodes are identified by their names (ONNX) or by their numbers in the file (TFLite and circle).
    """
    values = {
        op.name if by_name else str(op.index): {"value": round(op.time_s * 1e6, 3)}
        for op in operators
        if op.time_s is not None
    }
    return {"results": values, "gradient": [{"stop": 0, "bgColor": _PALE}, {"stop": 1, "bgColor": _DARK}]}


def node_notes(answer: Exported) -> dict[str, dict[str, str]]:
    """The notes for Netron, by operator: the time and backend in each configuration."""
    times, counts = operator_times(answer), _resolutions_s(answer)
    notes: dict[str, dict[str, str]] = {}
    for label, operators in times.items():
        names = {op.index: op.name for op in operators}
        for op in operators:
            own = notes.setdefault(op.name, {})
            if op.time_s is not None:
                own[f"gnomon {label} time"] = units.counted_time(op.time_s, counts.get(label, 0.0))
            elif op.within is not None:
                own[f"gnomon {label} time"] = f"included in {names[op.within]}"
            if op.backend:
                own[f"gnomon {label} backend"] = op.backend
    return notes


def _resolutions_s(answer: Exported) -> Mapping[str, float]:
    return {} if answer.format == "gnomon-pareto" else answer.resolutions_s


def chrome_trace(answer: Exported) -> dict[str, object]:
    """A trace of two processes, each with a track per configuration.

    The first process shows one call of each configuration: its kernels in order from time 0, with their median times
    over the measured processes. The second shows when each block of calls was measured and, as counters, the recorded
    state of the device.
    """
    measured = configurations(answer)
    names = [(_CALL, "one call, kernel by kernel"), (_MEASURING, "when it was measured")]
    events = [_meta("process_name", pid, 0, {"name": name}) for pid, name in names]
    for number, (configuration, runs) in enumerate(measured, 1):
        for pid, _ in names:
            events.append(_meta("thread_name", pid, number, {"name": configuration.label}))
            events.append(_meta("thread_sort_index", pid, number, {"sort_index": number}))
        events += _call(answer, configuration, runs, number)
    environments = [(part, part.at_s) for part in answer.environments if part.at_s is not None]
    starts_s = [at_s for _, runs in measured for at_s in runs.samples.started_at_s]
    starts_s += [at_s - (part.seconds or 0.0) for part, at_s in environments]
    begin_s = min(starts_s, default=0.0)
    for number, (_, runs) in enumerate(measured, 1):
        events += _blocks(runs, number, begin_s)
    for part, at_s in environments:
        events += _state(part.before, at_s - (part.seconds or 0.0) - begin_s)
        events += _state(part.after, at_s - begin_s)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "made_by": "gnomon",
            "model": answer.model.path if answer.model else "",
            "device": answer.device or "",
            "begins_at_s": begin_s,
        },
    }


def _call(answer: Exported, configuration: Configuration, runs: RunsPart, track: int) -> Iterator[Event]:
    profile = runs.profile
    if profile is None:
        return
    types = {row.index: f"{row.index} {row.type}" for row in answer.operators or ()}
    if not any(row.time_s is not None for row in _operators(answer, configuration, runs)):
        types = {}  # a converted model has operators of its own
    slices = []
    at_ns = 0
    columns = (profile.name, profile.backend, profile.operators, profile.wall_us)
    for name, backend, members, wall_us in zip(*columns, strict=True):
        values_us = [value for value in wall_us if value is not None]
        took_ns = round(median(values_us) * 1000) if values_us else 0
        more = {
            "backend": backend,
            "operators": [types.get(index, str(index)) for index in members],
            "processes": len(values_us),
            "min_us": min(values_us, default=None),
            "max_us": max(values_us, default=None),
        }
        slices.append(_slice(name, _CALL, track, at_ns, took_ns, more))
        at_ns += took_ns
    calls = [value for value in profile.call_us if value is not None]
    call_us = median(calls) if calls else None
    whole_ns = max(at_ns, round(call_us * 1000) if call_us else 0)
    counted_us = _resolutions_s(answer).get(configuration.label, 0.0) * 1e6 or None
    times_us: Event = {"call_us": call_us, "kernels_us": at_ns / 1000, "kernels_counted_in_us": counted_us}
    yield _slice("call", _CALL, track, 0, whole_ns, times_us)
    yield from slices


def _blocks(runs: RunsPart, track: int, begin_s: float) -> Iterator[Event]:
    samples = runs.samples
    rows = (samples.process, samples.block, samples.started_at_s, samples.inner, samples.wall_us)
    for process, block, started_at_s, inner, wall_us in zip(*rows, strict=True):
        took_ns = round(sum(wall_us) * inner * 1000)
        more: Event = {"process": process, "block": block, "samples": len(wall_us), "median_us": median(wall_us)}
        at_ns = round((started_at_s - begin_s) * 1e9)
        yield _slice(f"process {process}, block {block}", _MEASURING, track, at_ns, took_ns, more)


def _state(state: SnapshotPart, at_s: float) -> Iterator[Event]:
    """The counters that the device reported at a moment."""
    for core, frequency_khz in enumerate(state.frequencies_khz or ()):
        if frequency_khz is not None:
            yield _counter(f"frequency of core {core} (MHz)", at_s, frequency_khz / 1000)
    for zone, temperature_c in (state.temperatures_c or {}).items():
        yield _counter(f"temperature of {zone} (C)", at_s, temperature_c)
    memory_bytes = state.memory_available_bytes
    for name, value in (
        ("load average of 1 min", state.load_average_1m),
        ("throttle count", state.throttle_count),
        ("memory available (MiB)", None if memory_bytes is None else memory_bytes / 2**20),
    ):
        if value is not None:
            yield _counter(name, at_s, value)


def _slice(name: str, process: int, track: int, at_ns: int, took_ns: int, arguments: Event) -> Event:
    given = {key: value for key, value in arguments.items() if value is not None}
    times = {"ts": at_ns / 1000, "dur": took_ns / 1000}
    return {"ph": "X", "name": name, "cat": "gnomon", "pid": process, "tid": track, **times, "args": given}


def _counter(name: str, at_s: float, value: float) -> Event:
    at_us = round(at_s * 1e9) / 1000
    return {"ph": "C", "name": name, "pid": _MEASURING, "tid": _COUNTERS, "ts": at_us, "args": {"value": value}}


def _meta(what: str, process: int, track: int, arguments: Event) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": dict(arguments)}
