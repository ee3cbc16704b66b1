"""Writes, reads and checks the trace files of `stab`, which are named ``<package>_<backend>_<threads>``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnomon.core.graph import Graph
from gnomon.core.pricing.stab import OP_LIST, PERMUTE
from gnomon.core.sample import Origin, Run, Spread, Trace, TraceOperator
from gnomon.errors import ModelError, PackageError, ProblemError, problems_of, system_errors
from gnomon.formats.onert.operators import IR_OPCODES, ir_opcode
from gnomon.formats.onert.trace import MOST_LETTERS, read_trace, write_trace
from gnomon.jobs.place.document import PlaceDocument
from gnomon.measure.environment import Caveat
from gnomon.models.model import Model, read_regular
from gnomon.report.plain import many
from gnomon.store.base import RunQuery, Store, last_note
from gnomon.system.files import write_whole

_MEASURE = "Measure again without --no-profile, or give --traces the folder of the right traces."
_APART_S = 86_400.0
_SEVERAL = {
    "ArgMinMax",
    "BinaryArithmetic",
    "Comparison",
    "ElementwiseActivation",
    "ElementwiseBinary",
    "ElementwiseUnary",
    "Pool2D",
    "Reduce",
}
"""IR opcodes that stand for several operations, which have names of their own in traces ("Add", "AvgPool2D")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSet:
    """The traces of a model by backend, their files, and doubts about them."""

    traces: Mapping[str, Trace]
    files: Mapping[str, Path]
    doubts: tuple[Caveat, ...] = ()


def trace_name(package: str, backend: str, threads: int) -> str:
    """The file name that stab gives a trace."""
    return f"{package}_{backend}_{threads}"


def read_traces(folder: Path, package: str, threads: int, model: Model) -> TraceSet:
    """The traces of a package in a folder.

    ProblemError if there are none, if one is malformed or belongs to a different model or number of threads, or if they
    come from different devices or runtimes. A trace without an origin causes a warning.
    """
    graph = model.graph
    files = _trace_files(folder, package, threads)
    if not files:
        raise ProblemError(
            f"there is no trace of {package} with {many(threads, 'thread')} in {folder}",
            hint=f"A trace is named like {trace_name(package, 'cpu', threads)}. {_MEASURE}",
        )
    traces: dict[str, Trace] = {}
    for backend, path in files.items():
        traces[backend] = _read(path)
        _check_origin(traces[backend], path, backend, threads, graph)
        _check_operators(traces[backend], path, graph)
    _check_together(traces)
    return TraceSet(traces=traces, files=files, doubts=tuple(_doubts(traces, files, model)))


def traces_of(placement: PlaceDocument, store: Store, threads: int) -> dict[str, Trace]:
    """The traces of the single backends in the campaign of a placement inside onert, cpu first."""
    labels: Mapping[str, str] = last_note(store, placement.campaign, "labels") or {}
    keys = {label: key.removeprefix("proof/") for key, label in labels.items()}
    machine = str(placement.fingerprint.get("cpu_model") or placement.fingerprint.get("machine") or "")
    traces: dict[str, Trace] = {}
    for contender in placement.contenders:
        name = contender.configurations[0]
        single = contender.kind == "single" and contender.label.startswith(f"{name}:")
        if not single or contender.settings[name]["environment"] or contender.label not in keys:
            continue
        backend = contender.label.removeprefix(f"{name}:").partition(" ")[0]
        query = RunQuery(campaign=placement.campaign, candidate=f"{keys[contender.label]}/traced")
        runs = [run for run in store.query(query) if run.operators]
        origin = Origin(
            model_sha256=placement.model.sha256,
            device=f"{placement.device} ({machine})" if machine else placement.device,
            backend=backend,
            threads=threads,
            runtime=f"onert {placement.versions.get('onert', 'unknown')}",
            taken_at_s=max((run.started_at_s for run in runs), default=0.0),
            runs=sum(len(run.operators[0].wall_ns) for run in runs),
        )
        trace = trace_from_runs(runs, origin)
        if trace is not None:
            traces[backend] = trace
    return {b: traces[b] for b in sorted(traces, key=lambda b: (b != "cpu", b))}


def trace_from_runs(runs: Sequence[Run], origin: Origin) -> Trace | None:
    """The trace of all profiled runs together, in whole microseconds like onert's; None if no operator was timed."""
    times: dict[tuple[int, str, str], list[int]] = {}
    whole: list[int] = []
    for run in runs:
        whole += [] if run.samples is None else [t // run.samples.inner for t in run.samples.wall_ns]
        for row in run.operators:
            for index in row.sources:
                times.setdefault((index, row.name, row.backend), []).extend(row.wall_ns)
    operators = tuple(
        TraceOperator(index=index, type=name, backend=backend, time=_spread(wall_ns), subgraph=0)
        for (index, name, backend), wall_ns in sorted(times.items())
        if wall_ns
    )
    if not operators:
        return None
    return Trace(operators=operators, graph=_spread(whole) if whole else None, origin=origin)


def write_traces(traces: Mapping[str, Trace], folder: Path, package: str, threads: int) -> dict[str, Path]:
    """Write each trace under its name, completely or not at all; returns the traces' files. Raises PackageError."""
    files: dict[str, Path] = {}
    hint = "Give another folder: --traces DIR"
    with system_errors(PackageError, f"the traces cannot be written to {folder}", hint=hint):
        folder.mkdir(parents=True, exist_ok=True)
        for backend, trace in traces.items():
            files[backend] = folder / trace_name(package, backend, threads)
            write_whole(write_trace(trace).encode("utf-8"), files[backend])
    return files


def _spread(times_ns: Sequence[int]) -> Spread:
    return Spread(
        avg_us=sum(times_ns) // (len(times_ns) * 1000), min_us=min(times_ns) // 1000, max_us=max(times_ns) // 1000
    )


def _trace_files(folder: Path, package: str, threads: int) -> dict[str, Path]:
    pattern = re.compile(re.escape(package) + r"_([A-Za-z][A-Za-z0-9_]*)_" + str(threads))
    with system_errors(ProblemError, f"the folder of traces {folder} cannot be read", hint=_MEASURE):
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
    files = {match[1]: path for path in paths if (match := pattern.fullmatch(path.name))}
    order = ["cpu", *OP_LIST]
    return {b: files[b] for b in sorted(files, key=lambda b: (order.index(b) if b in order else len(order), b))}


def _read(path: Path) -> Trace:
    try:
        with problems_of(str(path)):
            return read_trace(read_regular(path, MOST_LETTERS, "give the trace.json of fewer operators"))
    except ModelError as error:
        raise ProblemError(error.message, hint=_MEASURE) from error


def _check_origin(trace: Trace, path: Path, backend: str, threads: int, graph: Graph) -> None:
    origin = trace.origin
    if origin is None:
        return
    wrong = ""
    if origin.model_sha256 != graph.digest:
        wrong = f"another model: SHA-256 {origin.model_sha256[:12]}.., not {graph.digest[:12]}.."
    elif origin.threads != threads:
        wrong = f"runs with {many(origin.threads, 'thread')}, not {threads}"
    elif origin.backend != backend:
        wrong = f"the backend {origin.backend}, not {backend}"
    if wrong:
        raise _unfit(f"the trace {path} comes from {wrong}")


def _check_operators(trace: Trace, path: Path, graph: Graph) -> None:
    """Raise ProblemError unless the trace's main graph has exactly the model's operators, with the model's types."""
    if len(trace.sessions) > 1:
        raise _unfit(f"the trace {path} has {len(trace.sessions)} sessions instead of one")
    types = {op.index: op.type for op in trace.main if op.type != PERMUTE}
    for op in graph.operators:
        name = types.pop(op.index, None)
        if name is None:
            raise _unfit(f"the trace {path} has no time for operator {op.index} ({op.type}) of the model")
        if not same_operation(name, op.type):
            raise _unfit(f"operator {op.index} is {name} in the trace {path} and {op.type} in the model")
    if types:
        index, name = min(types.items())
        raise _unfit(
            f"the trace {path} has an operator {index} ({name}), but the model has {len(graph.operators)} operators"
        )


def _unfit(message: str) -> ProblemError:
    """The error for traces that do not fit the model or each other."""
    return ProblemError(message, hint=_MEASURE)


def same_operation(name: str, type_: str) -> bool:
    """Return True if an operation's name in a trace ("AvgPool2D") fits an operator type of the model (AVERAGE_POOL_2D).

    If one IR opcode stands for several operations, any name is accepted that is not an opcode for a single operation.
    """
    opcode = ir_opcode(type_)
    plain, names = _plain(name), {_plain(o) for o in IR_OPCODES.values()}
    if opcode is None or plain in {_plain(opcode), _plain(type_)}:
        return True
    return opcode in _SEVERAL and plain not in names - {_plain(o) for o in _SEVERAL}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _check_together(traces: Mapping[str, Trace]) -> None:
    origins = {b: t.origin for b, t in traces.items() if t.origin is not None}
    for what in ("device", "runtime"):
        sources = {getattr(origin, what): backend for backend, origin in origins.items()}
        if len(sources) > 1:
            (source, first), (other, second) = list(sources.items())[:2]
            differ = f"the trace of {first} comes from {source}, the trace of {second} from {other}"
            raise _unfit(f"the traces are not comparable: {differ}")


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _doubts(traces: Mapping[str, Trace], files: Mapping[str, Path], model: Model) -> list[Caveat]:
    messages: dict[str, str] = {}
    nameless = [files[b] for b, t in traces.items() if t.origin is None]
    if nameless:
        names = ", ".join(path.name for path in nameless)
        messages["origin"] = f"traces do not name their model, device and time: {names}; their operators fit the model"
    older = [path.name for path in nameless if _changed_s(path) < _changed_s(model.file)]
    if older:
        messages["older"] = f"some traces are older than the model's file, perhaps of another model: {', '.join(older)}"
    taken = [t.origin.taken_at_s for t in traces.values() if t.origin is not None]
    if taken and max(taken) - min(taken) > _APART_S:
        hours = (max(taken) - min(taken)) / 3600
        messages["apart"] = f"the traces were taken {hours:.0f} hours apart; the machine's speed may have changed"
    if "cpu" not in traces:
        messages["no-cpu"] = "there is no trace of the backend cpu, with which other backends are compared"
    hint = "Measure again without --no-profile: the traces then name their model, device and time."
    return [Caveat(kind=kind, message=message, hint=hint) for kind, message in messages.items()]
