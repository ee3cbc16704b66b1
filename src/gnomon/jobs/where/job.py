"""Asks runtimes where they run a model: each loads the model, calls it a few times at most, and reports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from gnomon import wire
from gnomon.core.codec import fields_of
from gnomon.core.graph import Graph
from gnomon.jobs.where.document import LoadedPart, NodePart, WhereDocument, share_of
from gnomon.measure.progress import Tell
from gnomon.models.model import named_shape
from gnomon.runtimes.base import Probe
from gnomon.session.contender import contender_in, trace_of
from gnomon.session.document import OperatorPart, model_part
from gnomon.session.kernels import Sources, absorb
from gnomon.session.model_session import ModelSession, open_session
from gnomon.session.request import ModelRequest
from gnomon.session.targets import Missing, Target, describe, nothing_runs, reason_of
from gnomon.store.address import record_address
from gnomon.system.process import guarded_folder


def where(request: ModelRequest, *, fail_below: float | None = None, tell: Tell | None = None) -> WhereDocument:
    """Find the backend that each runtime on a device uses for each operator of a model. Raises GnomonError."""
    began_s = time.monotonic()
    with guarded_folder("gnomon-where-") as folder:
        # The measurements are not needed later.
        record, settings = record_address(folder / "where.sqlite"), replace(request.settings, by_itself="only")
        with open_session(
            replace(request, record=record, settings=settings), kind="where", question={}, tell=tell
        ) as session:
            loaded = [part for target in session.targets if (part := _loaded(session, target))]
            for name, probe in session.probes.items():
                lacking = probe.details.get("lacking", {})
                session.missing += [Missing(name=f"{name}:{backend}", reason=why) for backend, why in lacking.items()]
            if not loaded:
                raise nothing_runs(
                    session.device.name, tuple(target.runtime for target in session.targets), session.missing
                )
            return WhereDocument(
                model=model_part(request.model, session.graph),
                device=session.device.name,
                versions={name: probe.version for name, probe in session.probes.items()},
                asked=request.settings.backends,
                loaded=tuple(loaded),
                doubts=tuple(session.doubts),
                missing=tuple(dict.fromkeys(session.missing)),
                fail_below=fail_below,
                seconds=time.monotonic() - began_s,
            )


def _loaded(session: ModelSession, target: Target) -> LoadedPart | None:
    """A fresh process's report on the model, from a few calls with the runtime's profiler on.

    None if the process cannot run the model; the reason is then added to the session's `missing`.
    """
    own, probe = target.configuration, session.probes[target.runtime.name]
    beside = tuple(accelerator.backend for accelerator in own.accelerators)
    whole = len(own.backends) == 1 and "order" not in own.options
    named = (
        own.backends if whole else tuple(b for b in session.request.settings.backends if b not in probe.backends[:1])
    )
    asked = () if own.usual else beside or named or own.backends
    given = {i: b for b in reversed(own.backends[1:]) if b in asked for i in target.support.operators.get(b, ())}
    traced = trace_of(contender_in(session, target, "single", own.name, given, key=own.name, assigned=True))
    (segment,) = traced.job["segments"]
    segment = {**segment, "options": {**segment["options"], "explain": True}}
    # A trace may be cut off at its end, so a model with few operators is called more often.
    calls = 1 if own.reported else -(-100 // max(1, len(target.placed.graph.operators)))
    traced = replace(traced, job={**traced.job, "segments": [segment]}, calls_least=calls)
    effort = replace(session.request.effort, processes_least=1, processes_most=1, block_s=0.0, warm_count=1, warm_s=0.0)
    ran = session.runner.measure(own.name, [traced], effort)[traced.key]
    if ran.failure is not None:
        session.missing.append(Missing(name=own.name, reason=describe(ran.failure)))
        return None
    kernels: list[wire.Place] = [{"operators": row.sources, "backend": row.backend} for row in ran.runs[-1].operators]
    rows = (ran.fact("where") or [[]])[0] or kernels
    return _part(target, probe, asked, _places(target.placed.graph, rows, session.read.names))


def _places(graph: Graph, rows: Sequence[wire.Place], names: frozenset[str]) -> list[wire.Place]:
    """The row of each operator.

    An operator that no row names was fused or folded. It gets the row of a neighbour or, if there is none, the backend
    that all rows share, if they share one.
    """
    sources, home = Sources(graph, names), dict[int, int]()
    for number, row in enumerate(rows):
        for source in row["operators"]:
            index = source if isinstance(source, int) else sources(source)
            if index is not None:
                home.setdefault(index, number)
    absorb(graph, home)
    alike = len({row["backend"] for row in rows}) == 1
    rest: wire.Place = {"operators": [], "backend": rows[0]["backend"] if alike else "unknown"}
    return [rows[home[op.index]] if op.index in home else rest for op in graph.operators]


def _part(target: Target, probe: Probe, asked: tuple[str, ...], places: Sequence[wire.Place]) -> LoadedPart:
    """The operators with their places; backends have the names that the probe uses."""
    graph, own = target.placed.graph, target.configuration
    names = {**own.reported, **{backend: backend for backend in probe.backends}}
    labels = [names.get(row["backend"], row["backend"]) for row in places]
    # A runtime's default counts as a request for those backends after its first that it uses.
    asked = asked or tuple(backend for backend in probe.backends[1:] if backend in labels)
    asked = asked or tuple(dict.fromkeys(label for label in labels if label != "unknown"))
    refusals = [reason_of(failure, target.runtime) for b, failure in target.support.failures.items() if b in asked]
    nodes = tuple(
        NodePart(
            **fields_of(OperatorPart, op),
            data=" ".join(f"{t.dtype} {named_shape(t)}" for t in (graph.tensors[index] for index in op.outputs[:1])),
            backend=label,
            reason="" if label in asked else row.get("reason") or " ".join(refusals),
        )
        for op, label, row in zip(graph.operators, labels, places, strict=True)
    )
    crossing = {(e.tensor, labels[e.consumer]) for e in graph.edges() if labels[e.producer] != labels[e.consumer]}
    return LoadedPart(
        name=own.name,
        runtime=own.runtime,
        asked=asked,
        share=share_of([node for node in nodes if node.backend in asked], nodes),
        crossings=len(crossing),
        nodes=nodes,
    )
