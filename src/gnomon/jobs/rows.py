"""The operators of a placement, row by row: where each was planned, where it ran, what it takes elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnomon.core.graph import Graph
from gnomon.jobs.across import AcrossResult
from gnomon.jobs.contender import Contender, level, trace_of
from gnomon.jobs.inside import InsideResult
from gnomon.jobs.kernels import Breakdown, breakdown, by_clock, divided, kernels
from gnomon.jobs.lab import Lab
from gnomon.jobs.prove import Verdict, Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One operator in the plan: seconds on each backend inside the whole graph (None: not taken, not seen, or within).

    `within` names for each backend the operator with which it is computed there in one kernel, whose time has its own.
    """

    index: int
    name: str
    type: str
    macs: int | None
    planned: str
    ran_on: str | None
    times_s: dict[str, float | None]
    within: dict[str, int]


def breakdowns(
    lab: Lab, verdict: Verdict, inside: list[InsideResult], across: AcrossResult | None
) -> dict[str, Breakdown]:
    """By label, where the time of each contender goes that ran, by the clock that decided.

    Of a runtime that takes the model whole, by its profiler, at the speed that the machine has had since; inside a
    runtime, by the prices. A mix of runtimes is made
    of its operators' times in the whole models; what its cuts cost is unattributed.
    """
    wholes_s = {p.contender.label: level(p.measured, verdict.clock) for p in verdict.proved if p.ok}
    alive = [p.contender for p in verdict.proved if p.ok]
    whole_models = {c.label for c in (across.contenders if across else ()) if c.kind == "single"}
    found: dict[str, Breakdown] = {}
    for contender in alive:
        traced = lab.runner.known(trace_of(contender).key) if contender.label in whole_models else None
        if traced is not None and traced.ok:
            # What was profiled is as fast as the machine was then: see the drift that the report warns of.
            profiled_s = level(lab.runner.known(contender.key), verdict.clock)
            whole_s = wholes_s[contender.label]
            drift = whole_s / profiled_s if profiled_s > 0 else 1.0
            timed = by_clock(kernels(contender.graph, traced), traced, verdict.clock)
            timed = tuple(replace(kernel, time_s=kernel.time_s * drift) for kernel in timed)
            found[contender.label] = breakdown(contender.graph, timed, whole_s)
    for contender in alive:
        if contender.label in found:
            continue
        tables = _tables(contender.graph, found, inside, across)
        times = {i: tables[name].get(i) for i, name in columns(contender, frozenset(tables)).items() if name in tables}
        known = {i: time_s for i, time_s in times.items() if time_s is not None}
        found[contender.label] = divided(known, (), wholes_s[contender.label])
    return found


def _tables(
    graph: Graph, found: dict[str, Breakdown], inside: list[InsideResult], across: AcrossResult | None
) -> dict[str, dict[int, float]]:
    """Seconds of the graph's operators in each place that was seen."""
    tables: dict[str, dict[int, float]] = {}
    several = len(inside) > 1
    for result in (r for r in inside if r.target.placed.graph is graph):
        for column, backend in enumerate(result.backends):
            name = f"{result.target.configuration.name}:{backend}" if several else backend
            tables[name] = {i: float(p[column]) for i, p in enumerate(result.prices_s) if p[column] != float("inf")}
    for contender in across.contenders if across else ():
        if contender.kind == "single" and contender.graph is graph and contender.label in found:
            tables[contender.label] = dict(found[contender.label].times_s)
    return tables


def columns(contender: Contender, known: frozenset[str]) -> dict[int, str]:
    """Operator index -> the name, of those known, under which the times on its backend are."""
    made: dict[int, str] = {}
    for part in contender.parts:
        for index, backend in part.backends.items():
            qualified = f"{part.configuration.name}:{backend}"
            made[index] = qualified if qualified in known else backend
    return made


def operator_rows(
    verdict: Verdict,
    verified: Verified,
    found: dict[str, Breakdown],
    inside: list[InsideResult],
    across: AcrossResult | None,
) -> tuple[OperatorRow, ...]:
    """A row for each operator that the chosen contender assigns, with its times wherever the same operator ran."""
    graph, planned = verdict.chosen.contender.graph, verdict.chosen.contender.backends
    tables = _tables(graph, found, inside, across)
    return tuple(
        OperatorRow(
            index=op.index,
            name=op.name,
            type=op.type,
            macs=op.macs,
            planned=planned.get(op.index, ""),
            ran_on=verified.places.get(op.index),
            times_s={name: table.get(op.index) for name, table in tables.items()},
            within={
                name: found[name].within[op.index]
                for name in tables
                if name in found and op.index in found[name].within
            },
        )
        for op in graph.operators
    )
