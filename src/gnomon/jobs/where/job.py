"""Asking runtimes where they run a model: each loads it, calls it a few times at most, and reports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from gnomon import wire
from gnomon.core.codec import fields_of
from gnomon.core.graph import Graph
from gnomon.errors import MeasurementError
from gnomon.jobs.where.document import LoadedPart, NodePart, WhereDocument
from gnomon.measure.progress import Tell
from gnomon.models.model import named_shape
from gnomon.runtimes.base import Probe
from gnomon.session.contender import contender_in, trace_of
from gnomon.session.document import OperatorPart, model_part
from gnomon.session.kernels import Sources, absorb
from gnomon.session.model_session import Lab, open_lab
from gnomon.session.request import ModelRequest
from gnomon.session.targets import Missing, Target, describe, reason_of, reasons_of
from gnomon.store.address import record_address
from gnomon.system.process import guarded_folder

_UNKNOWN = "unknown"


def where(request: ModelRequest, *, fail_below: float | None = None, tell: Tell | None = None) -> WhereDocument:
    """Where runtimes run the operators of a model on a device. Raises GnomonError."""
    began_s = time.monotonic()
    with guarded_folder("gnomon-where-") as folder:
        # Nothing is measured that anybody would want to see again.
        record, wish = record_address(folder / "where.sqlite"), replace(request.wish, by_itself="only")
        with open_lab(replace(request, record=record, wish=wish), kind="where", question={}, tell=tell) as lab:
            loaded = _loaded(lab)
            for name, probe in lab.probes.items():
                lacking = probe.details.get("lacking", {})
                lab.missing += [Missing(name=f"{name}:{backend}", reason=why) for backend, why in lacking.items()]
            if not loaded:
                raise MeasurementError(f"no runtime runs the model ({reasons_of(lab.missing)})")
            return WhereDocument(
                model=model_part(request.model, lab.graph),
                device=lab.device.name,
                versions={name: probe.version for name, probe in lab.probes.items()},
                asked=request.wish.backends,
                loaded=loaded,
                doubts=tuple(lab.doubts),
                missing=tuple(dict.fromkeys(lab.missing)),
                fail_below=fail_below,
                seconds=time.monotonic() - began_s,
            )


def _loaded(lab: Lab) -> tuple[LoadedPart, ...]:
    """What a fresh process of each target reports of the model, by a few calls with its profiler on.

    Why one does not load it goes to what is missing.
    """
    candidates, parts = [], []
    for target in lab.targets:
        own, asked = target.configuration, _asked(lab, target)
        given = {i: b for b in reversed(own.backends[1:]) if b in asked for i in target.support.operators.get(b, ())}
        traced = trace_of(contender_in(lab, target, "single", own.name, given, key=own.name, assigned=True))
        (segment,) = traced.job["segments"]
        explained: wire.Segment = {**segment, "options": {**segment["options"], "explain": True}}
        candidates.append(replace(traced, job={**traced.job, "segments": [explained]}))
    effort = replace(lab.request.effort, processes_least=1, processes_most=1, block_s=0.0, warm_count=1, warm_s=0.0)
    known = lab.runner.measure("load", candidates, effort)
    for target, candidate in zip(lab.targets, candidates, strict=True):
        found = known[candidate.key]
        if found.failure is not None:
            lab.missing.append(Missing(name=target.configuration.name, reason=describe(found.failure)))
            continue
        traces = found.runs[-1].operators
        rows = (found.fact("where") or [[]])[0] or [{"operators": t.sources, "backend": t.backend} for t in traces]
        places = _places(target.placed.graph, rows, lab.read.names)
        parts.append(_part(target, lab.probes[target.runtime.name], _asked(lab, target), places))
    return tuple(parts)


def _asked(lab: Lab, target: Target) -> tuple[str, ...]:
    """The backends that are meant to take the model in a configuration; none where any will do."""
    own, home = target.configuration, lab.probes[target.runtime.name].backends[0]
    beside = tuple(accelerator.backend for accelerator in own.accelerators)
    whole = len(own.backends) == 1 and "order" not in own.options
    named = own.backends if whole else tuple(name for name in lab.request.wish.backends if name != home)
    return () if own.usual else beside or named or own.backends


def _places(graph: Graph, rows: Sequence[wire.Place], names: frozenset[str]) -> list[wire.Place]:
    """The row of each operator: one that none names was fused or folded, and lies with a neighbour or where all do."""
    sources, home = Sources(graph, names), dict[int, int]()
    for number, row in enumerate(rows):
        for told in row["operators"]:
            index = told if isinstance(told, int) else sources(told)
            if index is not None:
                home.setdefault(index, number)
    absorb(graph, home)
    backends = list({row["backend"] for row in rows})
    rest: wire.Place = {"operators": [], "backend": backends[0] if len(backends) == 1 else _UNKNOWN}
    return [rows[home[op.index]] if op.index in home else rest for op in graph.operators]


def _part(target: Target, probe: Probe, asked: tuple[str, ...], places: Sequence[wire.Place]) -> LoadedPart:
    """The operators with their places. Backends are called as the probe calls them."""
    graph, own = target.placed.graph, target.configuration
    names = {**own.reported, **{backend: backend for backend in probe.backends}}
    labels = [names.get(row["backend"], row["backend"]) for row in places]
    # What a runtime does by itself is asked of those beside its first backend, if it gives them anything.
    asked = asked or tuple(backend for backend in probe.backends[1:] if backend in labels)
    refusals = [reason_of(failure, target.runtime) for b, failure in target.support.failures.items() if b in asked]
    nodes = []
    for op, label, row in zip(graph.operators, labels, places, strict=True):
        there = label in asked if asked else label != _UNKNOWN
        makes = [graph.tensors[index] for index in op.outputs[:1]]
        nodes.append(
            NodePart(
                **fields_of(OperatorPart, op),
                data=" ".join(f"{tensor.dtype} {named_shape(tensor)}" for tensor in makes),
                backend=label,
                there=there,
                reason="" if there else row.get("reason") or " ".join(refusals),
            )
        )
    weights = [node.macs or 0 for node in nodes] if graph.macs else [1] * len(nodes)
    crossing = {(e.tensor, labels[e.consumer]) for e in graph.edges() if labels[e.producer] != labels[e.consumer]}
    return LoadedPart(
        name=own.name,
        runtime=own.runtime,
        asked=asked,
        share=sum(w for w, node in zip(weights, nodes, strict=True) if node.there) / max(1, sum(weights)),
        crossings=len(crossing),
        nodes=tuple(nodes),
    )
