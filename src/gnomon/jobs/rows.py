"""The operators of a placement, row by row: where each was planned, where it ran, what it takes elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.jobs.across import AcrossResult
from gnomon.jobs.contender import Contender, blocks, trace_of
from gnomon.jobs.inside import InsideResult
from gnomon.jobs.kernels import kernels, operator_times, unattributed_s
from gnomon.jobs.lab import Lab
from gnomon.jobs.prove import Verdict, Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One operator in the plan: seconds on each backend inside the whole graph (None: not taken or not seen)."""

    index: int
    name: str
    type: str
    macs: int | None
    planned: str
    ran_on: str | None
    times_s: dict[str, float | None]


def _times_of(lab: Lab, contender: Contender) -> dict[int, float]:
    """Seconds of each operator in a whole profiled run of a single contender."""
    return operator_times(contender.graph, kernels(contender.graph, lab.runner.known(trace_of(contender).key)))


def operator_rows(
    lab: Lab, verdict: Verdict, verified: Verified, inside: list[InsideResult], across: AcrossResult | None
) -> tuple[OperatorRow, ...]:
    """A row for each operator that the chosen contender assigns, with its times wherever the same operator ran."""
    graph, planned = verdict.chosen.contender.graph, verdict.chosen.contender.backends
    tables: dict[str, dict[int, float]] = {}
    several = len(inside) > 1
    for result in (r for r in inside if r.target.placed.graph is graph):
        for column, backend in enumerate(result.backends):
            name = f"{result.target.configuration.name}:{backend}" if several else backend
            finite = {i: float(p[column]) for i, p in enumerate(result.prices_s) if p[column] != float("inf")}
            tables[name] = finite
    for contender in across.contenders if across else ():
        if contender.kind == "single" and contender.graph is graph:
            tables[contender.label] = _times_of(lab, contender)
    return tuple(
        OperatorRow(
            index=op.index,
            name=op.name,
            type=op.type,
            macs=op.macs,
            planned=planned.get(op.index, ""),
            ran_on=verified.places.get(op.index),
            times_s={name: table.get(op.index) for name, table in tables.items()},
        )
        for op in graph.operators
    )


def unattributed(lab: Lab, verdict: Verdict) -> dict[str, float]:
    """Seconds of each single contender that no operator of its profiled runs accounts for."""
    gaps = {}
    for proved in verdict.proved:
        traced = lab.runner.known(trace_of(proved.contender).key)
        if proved.contender.kind == "single" and proved.summary is not None and traced.ok:
            wall = [v for b in blocks(lab.runner.known(proved.contender.key), "wall") for v in b.values_s]
            gaps[proved.contender.label] = unattributed_s(kernels(proved.contender.graph, traced), wall)
    return gaps
