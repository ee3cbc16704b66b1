"""Placing and profiling in an open session: measure, decide, and build the document, with a row for each operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.core.codec import fields_of
from gnomon.core.graph import Graph
from gnomon.core.solver.solve import Solution
from gnomon.core.space import decimal
from gnomon.core.stats import may_be_as_fast, summarise
from gnomon.errors import GnomonError, InfeasibleError, MeasurementError
from gnomon.jobs.place.across import AcrossPlacer, AcrossResult
from gnomon.jobs.place.document import (
    ColumnPart,
    ContenderPart,
    DecisionPart,
    InsidePart,
    MeasuredPart,
    PlaceDocument,
    PlacedOperator,
    ProfileDocument,
    ProfiledOperator,
    SolutionPart,
    SustainedPart,
)
from gnomon.jobs.place.limits import Limits
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import Clock, Effort
from gnomon.measure.environment import Caveat
from gnomon.measure.progress import Steps, Tell
from gnomon.models.check import CURE
from gnomon.report.conditions import limit_parts
from gnomon.report.plain import listed, many
from gnomon.runtimes.base import resolution_of
from gnomon.session.contender import (
    AGAIN,
    Contender,
    Proved,
    blocks,
    choose_clock,
    choose_clocks,
    cpu_summary,
    fastest_of,
    first_runs,
    held_bytes,
    level,
    profile_singles,
    trace_of,
    versus,
)
from gnomon.session.document import (
    OperatorPart,
    SampleColumns,
    difference_part,
    environment_parts,
    graph_part,
    kernel_part,
    labels_of,
    model_part,
    runs_part,
)
from gnomon.session.judges import JudgedReference
from gnomon.session.kernels import Breakdown, Kernel, breakdown, by_clock, divided, kernels
from gnomon.session.model_session import ModelSession, conditions_part, measured_facts, stopped_doubts
from gnomon.session.package import PROGRAM, run_line, write_package
from gnomon.session.precision import clock_warnings, nearly_right, precision_hints
from gnomon.session.prove import Verdict, Verified, prove, verify
from gnomon.session.reference import checked_by, doubts, drift, reference
from gnomon.session.targets import Missing, Target, describe

if TYPE_CHECKING:
    from gnomon.jobs.place.inside import InsidePlacer, InsideResult
    from gnomon.jobs.place.sustained import Sustain


def profile_in(
    session: ModelSession, folder: Path, *, inside: bool, asked: Sustain | None, tell: Tell | None
) -> ProfileDocument:
    """Measure the whole model of an open session on every backend; see `gnomon.jobs.place.job.profile`."""
    if asked is not None:
        from gnomon.jobs.place.sustained import check_sustainable, sustain

        check_sustainable(session)
    judged = reference(session)
    contenders = _contenders(session, folder)
    alive = profile_singles(session, contenders, settle=True)
    clock = choose_clock(session, (session.runner.known(c.key) for c in alive))
    nearly_right(session, contenders, alive, clock)
    apart = _taken_apart(session, folder, alive, clock) if inside else {}
    sustained = () if asked is None else sustain(session, asked, alive, tell)
    return _profiled(session, judged, alive, clock, apart, sustained)


_CURED = 0.9
"""A configuration that cures a problem in a file counts as faster if it takes less than this share of the time without
the cure.
"""
_TRACES = 6
"""The maximum number of turns in which kernels are also timed."""
_NO_LAGGARD = 1e9
"""A limit on the ratio to the fastest configuration, high enough to stop no configuration early."""
Enough = Callable[[Sequence[Mapping[str, SampleColumns]], Clock, float], bool]
"""Whether the models' samples, by label, are enough for a verdict by this clock.

The last argument is the share of the error probability that this look at the samples may spend.
"""


def profile_turns(
    labs: Sequence[ModelSession], folders: Sequence[Path], effort: Effort, steps: Steps, enough: Enough | None
) -> list[ProfileDocument]:
    """Measure the models of open sessions in turn; see `gnomon.jobs.place.job.profile_by_turns`."""
    from gnomon.core.decision import Looks

    references = [reference(session) for session in labs]
    contenders = [_contenders(session, folder) for session, folder in zip(labs, folders, strict=True)]
    turn = list(zip(labs, contenders, strict=True))
    traces = _TRACES if enough else min(_TRACES, effort.processes_least)
    looks, look, began_s = Looks(effort.budget_s), 1.0, labs[0].request.used_s
    steps.expect(len(turn) * effort.processes_least)
    for number in itertools.count(1) if enough else range(1, effort.processes_least + 1):
        effort = replace(effort, processes_least=number, processes_most=number, laggard=_NO_LAGGARD)
        # Each model comes first as often as last; otherwise, a machine that slows down would make the last model look
        # slower.
        for session, wanted in turn if number % 2 else reversed(turn):
            measured = session.runner.measure("profile", [c.candidate for c in wanted], effort)
            right = [trace_of(c) for c in wanted if measured[c.key].ok and c.tells_operators]
            if number <= traces and right:
                session.runner.measure("profile, traced", right, effort)
            steps.step(1)
        if enough is None:
            continue
        used_s = labs[0].request.used_s - began_s
        steps.left(round(len(turn) * number * max(effort.budget_s / max(used_s, 1e-9) - 1, 0)))
        if not (share := looks.share(used_s, number)):
            continue
        look = share
        pairs = [[(c, session.runner.known(c.key)) for c in wanted] for session, wanted in turn]
        clocks = {
            choose_clock(session, (outcome for _, outcome in own)) for session, own in zip(labs, pairs, strict=True)
        }
        samples = [{c.label: runs_part(outcome).samples for c, outcome in own if outcome.ok} for own in pairs]
        if looks.are_over or enough(samples, "cpu" if clocks == {"cpu"} else "wall", look):
            break
    alive = [profile_singles(session, wanted, traces=traces) for session, wanted in turn]
    profiles = [
        _profiled(session, judged, own, choose_clock(session, (session.runner.known(c.key) for c in own)))
        for session, own, judged in zip(labs, alive, references, strict=True)
    ]
    turns = tuple(document.campaign for document in profiles)
    return [replace(document, turns=turns, look=look) for document in profiles]


def _profiled(
    session: ModelSession,
    judged: JudgedReference,
    alive: Sequence[Contender],
    clock: Clock,
    apart: Mapping[str, tuple[InsidePart, ...]] | None = None,
    sustained: tuple[SustainedPart, ...] = (),
) -> ProfileDocument:
    """Build the document of a profile and record the winner; `apart` holds the kernels taken apart, by label."""
    request = session.request
    field = {c.label: session.runner.known(c.key) for c in alive}
    fastest = fastest_of(field, clock)
    traces = {c.label: session.runner.known(trace_of(c).key) for c in alive}
    times = {
        c.label: breakdown(
            c.graph, by_clock(kernels(c.graph, traces[c.label]), traces[c.label], clock), level(field[c.label], clock)
        )
        for c in alive
    }
    columns = tuple(
        column_part(
            c, field[c.label], traces[c.label], times[c.label], field[fastest], clock, (apart or {}).get(c.label, ())
        )
        for c in alive
    )
    session.runner.finish({"fastest": fastest, "median_s": summarise(blocks(field[fastest], "wall")).median_s})
    # A converted model has operators of its own, which differ from those in the rows.
    own = [op.name for op in session.graph.operators]
    alike = {c.label: times[c.label] for c in alive if [op.name for op in c.graph.operators] == own}
    return ProfileDocument(
        **_facts(session, session.graph, field),
        clock=clock,
        fastest=fastest,
        tied=tuple(
            c.label
            for c in columns
            if c.against_fastest and may_be_as_fast(c.against_fastest.verdict, c.against_fastest.ratio)
        ),
        columns=columns,
        operators=tuple(
            ProfiledOperator(
                **fields_of(OperatorPart, op),
                times_s={label: alike[label].times_s.get(op.index) if label in alike else None for label in field},
                within={label: t.within[op.index] for label, t in alike.items() if op.index in t.within},
            )
            for op in session.graph.operators
        ),
        doubts=(
            *stopped_doubts(request, session.runner.stopped),
            *clock_warnings(field, fastest, clock),
            *_weighed(doubts(session, judged), {c.label: c.level_s for c in columns}),
            *first_runs((c, [session.runner.known(c.key)]) for c in alive),
        ),
        sustained=sustained,
        resolutions_s=_coarse(alive),
        turns=(),
    )


def _facts(session: ModelSession, graph: Graph, field: Mapping[str, Measured]) -> dict[str, Any]:
    """The fields, shared by both documents, about a graph's measurements and their conditions; `field` is by label."""
    conditions = conditions_part(session)
    return {
        "model": model_part(session.request.model, graph),
        "graph": graph_part(graph),
        "environments": environment_parts(session.runner.environments, labels_of(field)),
        "threads": conditions.threads,
        "conditions": conditions,
        **measured_facts(session),
    }


def _contenders(session: ModelSession, folder: Path) -> list[Contender]:
    contenders: list[Contender] = []
    whole = [t for t in session.targets if len(t.configuration.backends) == 1]
    placer = AcrossPlacer(session, whole, folder)
    for target in session.targets:
        contenders += [placer.whole(target)] if target in whole else _inside_placer(session, target).singles()
    return contenders


def _inside_placer(session: ModelSession, target: Target, limits: Limits | None = None) -> InsidePlacer:
    """The placer inside one runtime; its module is imported only if a target has several backends."""
    from gnomon.jobs.place.inside import inside_placer

    return inside_placer(session, target, limits)


def column_part(
    contender: Contender,
    measured: Measured,
    traced: Measured,
    times: Breakdown,
    best: Measured,
    clock: Clock,
    inside: tuple[InsidePart, ...] = (),
) -> ColumnPart:
    """A configuration's column, from its runs with and without the profiler, compared with the best configuration."""
    return ColumnPart(
        **_measured_part(contender, measured, traced),
        level_s=level(measured, clock),
        against_fastest=None if measured.key == best.key else versus(measured, best, clock),
        wall=summarise(blocks(measured, "wall")),
        load_s=measured.fact("load_ns") * 1e-9,
        first_call_s=measured.fact("first_call_ns") * 1e-9,
        unattributed_s=times.unattributed_s,
        profiler_overhead_s=times.overhead_s,
        kernels=tuple(map(kernel_part, kernels(contender.graph, traced))),
        inside=inside,
    )


def _measured_part(contender: Contender, measured: Measured, traced: Measured | None) -> dict[str, Any]:
    """The fields of `MeasuredPart` except the kernels, by name."""
    return {
        **fields_of(MeasuredPart, contender),
        "cpu": cpu_summary(measured) if measured.ok else None,
        "difference": difference_part(measured.fact("difference")),
        "peak_rss_bytes": measured.fact("peak_rss_bytes"),
        "device_memory_bytes": held_bytes(measured),
        "runs": runs_part(measured, contender.graph, traced),
    }


def _taken_apart(
    session: ModelSession, folder: Path, contenders: Sequence[Contender], clock: Clock
) -> dict[str, tuple[InsidePart, ...]]:
    """Take apart each contender's kernels of several operators, beginning with the fastest contender; by label."""
    from gnomon.jobs.place.derived import WHOLE, Insides

    insides = Insides(session, folder, clock)
    levels_s = {c.label: level(session.runner.known(c.key), clock) for c in contenders}
    parts: dict[str, tuple[InsidePart, ...]] = {}
    for contender in sorted(contenders, key=lambda c: levels_s[c.label]):
        label, graph = contender.label, contender.graph
        operators = tuple(op.index for op in graph.operators)
        whole = Kernel(name=WHOLE, operators=operators, backend=label, time_s=levels_s[label])
        parts[label] = insides.of(contender, kernels(graph, session.runner.known(trace_of(contender).key)) or (whole,))
    return parts


def breakdowns(
    session: ModelSession, verdict: Verdict, inside: list[InsideResult], across: AcrossResult | None
) -> dict[str, Breakdown]:
    """The breakdown of each contender that ran, by label, timed by the clock that decided.

    For a runtime that takes the whole model, it comes from the profiler, scaled to the machine's speed during the
    proof. For a placement inside a runtime, it comes from the prices. For a mix of runtimes, the operators have their
    times from the whole models, and the cost of the cuts is unattributed.
    """
    wholes_s = {p.contender.label: level(p.measured, verdict.clocks.of(p.contender)) for p in verdict.proved if p.ok}
    alive = [p.contender for p in verdict.proved if p.ok]
    whole_models = {c.label for c in (across.contenders if across else ()) if c.kind == "single"}
    splits: dict[str, Breakdown] = {}
    for contender in alive:
        traced = session.runner.known(trace_of(contender).key) if contender.label in whole_models else None
        if traced is not None and traced.ok:
            # Profiled times reflect the machine's speed during profiling; see the drift in the report's warnings.
            clock = verdict.clocks.of(contender)
            profiled_s = level(session.runner.known(contender.key), clock)
            whole_s = wholes_s[contender.label]
            drift = whole_s / profiled_s if profiled_s > 0 else 1.0
            timed = by_clock(kernels(contender.graph, traced), traced, clock)
            timed = tuple(replace(kernel, time_s=kernel.time_s * drift) for kernel in timed)
            splits[contender.label] = breakdown(contender.graph, timed, whole_s)
    names = {part.configuration.name for c in alive if c.label in splits for part in c.parts}
    names |= {result.target.configuration.name for result in inside}
    for contender in alive:
        if contender.label in splits or any(part.configuration.name not in names for part in contender.parts):
            continue  # not profiled with this number of threads: times with another number would not fit its total
        tables = _tables(contender.graph, splits, inside, across)
        seconds: dict[int, float] = {}
        for part in contender.parts:
            for index, backend in part.backends.items():
                table = tables.get(f"{part.configuration.name}:{backend}", tables.get(backend, {}))
                if index in table:
                    seconds[index] = table[index]
        splits[contender.label] = divided(seconds, (), wholes_s[contender.label])
    return splits


def _tables(
    graph: Graph, splits: dict[str, Breakdown], inside: list[InsideResult], across: AcrossResult | None
) -> dict[str, dict[int, float]]:
    """The seconds of the graph's operators by the place where they were measured."""
    tables: dict[str, dict[int, float]] = {}
    several = len(inside) > 1
    for result in (r for r in inside if r.target.placed.graph is graph):
        for column, backend in enumerate(result.backends):
            name = f"{result.target.configuration.name}:{backend}" if several else backend
            tables[name] = {i: float(p[column]) for i, p in enumerate(result.prices_s) if p[column] != float("inf")}
    for contender in across.contenders if across else ():
        if contender.kind == "single" and contender.graph is graph and contender.label in splits:
            tables[contender.label] = dict(splits[contender.label].times_s)
    return tables


def operator_rows(
    verdict: Verdict,
    places: Mapping[int, str],
    splits: dict[str, Breakdown],
    inside: list[InsideResult],
    across: AcrossResult | None,
) -> tuple[PlacedOperator, ...]:
    """A row for each operator of the chosen contender's graph, with its times in all places where it was measured.

    `places` says where the package ran each operator, by the operator's index.
    """
    graph, planned = verdict.chosen.contender.graph, verdict.chosen.contender.backends
    tables = _tables(graph, splits, inside, across)
    return tuple(
        PlacedOperator(
            **fields_of(OperatorPart, op),
            planned=planned.get(op.index),
            ran_on=places.get(op.index),
            times_s={name: table.get(op.index) for name, table in tables.items()},
            within={
                name: splits[name].within[op.index]
                for name in tables
                if name in splits and op.index in splits[name].within
            },
        )
        for op in graph.operators
    )


def contender_part(
    proved: Proved, clock: Clock, rows: Sequence[PlacedOperator], times: Breakdown | None, traced: Measured | None
) -> ContenderPart:
    """A contender and its runs, timed by the clock with which it is compared.

    `rows` are the operators if the contender has the same ones; otherwise, as for a converted model, it is empty.
    `times` is the contender's breakdown, and `traced` holds its runs with the profiler on, if known.
    """
    contender, measured = proved.contender, proved.measured
    level_s = level(measured, clock) if proved.ok else None
    # If nothing has been measured since the pricing, the prediction is based on the measured time itself.
    predicted_s = None if measured.key == contender.key else contender.predicted_s
    backends = contender.backends
    own = {"threads": None if contender.usual else contender.threads, "predicted_s": predicted_s}
    return ContenderPart(
        **_measured_part(contender, measured, traced) | fields_of(ContenderPart, contender) | own,
        configurations=tuple(part.configuration.name for part in contender.parts),
        measured=summarise(blocks(measured, "wall")) if proved.ok else None,
        level_s=level_s,
        prediction_error=predicted_s / level_s - 1 if predicted_s is not None and level_s else None,
        against_best=proved.against_best,
        failure=measured.failure,
        assignment=tuple(backends.get(row.index) for row in rows),
        operators_s=tuple(times.times_s.get(row.index) if times else None for row in rows),
        unattributed_s=times.unattributed_s if times else None,
        profiler_overhead_s=times.overhead_s if times else None,
        kernels=tuple(map(kernel_part, times.own)) if times else (),
    )


def _contender_parts(
    session: ModelSession,
    verdict: Verdict,
    rows: Sequence[PlacedOperator],
    times: Mapping[str, Breakdown],
    limits: Limits,
) -> tuple[ContenderPart, ...]:
    parts = []
    for proved in verdict.proved:
        contender = proved.contender
        alike = rows if contender.graph is verdict.chosen.contender.graph else ()
        traced = session.runner.known(trace_of(contender).key) if len(contender.parts) == 1 else None
        clock = verdict.clocks.of(contender)
        part = contender_part(proved, clock, alike, times.get(contender.label), traced)
        parts.append(replace(part, breaks=limits.broken(contender)))
    return tuple(parts)


def decision_part(verdict: Verdict) -> DecisionPart:
    """The verdict as a part of the document, which refers to contenders by label."""
    own = {
        "chosen": verdict.chosen.contender.label,
        "kind": verdict.chosen.contender.kind,
        "best_single": verdict.best_single.contender.label,
        "speedup_vs_best_single": verdict.speedup,
    }
    return DecisionPart(**fields_of(DecisionPart, verdict) | own)


def _solutions(inside: Sequence[InsideResult], across: AcrossResult | None) -> dict[str, SolutionPart]:
    """The solver's certificates, by configuration or under "across"."""
    solutions = {result.target.configuration.name: result.solution for result in inside}
    if across is not None and across.solution is not None:
        solutions["across"] = across.solution
    own = {
        name: {"value_s": solution.value, "bound_s": solution.bound, "code": decimal(solution.code)}
        for name, solution in solutions.items()
    }
    return {name: SolutionPart(**fields_of(SolutionPart, solution) | own[name]) for name, solution in solutions.items()}


def _resolutions(inside: Sequence[InsideResult], rows: Sequence[PlacedOperator], verdict: Verdict) -> dict[str, float]:
    """The resolution in seconds of coarse profilers, by place and contender."""
    shown = {name for row in rows for name in row.times_s}
    places = {
        name: resolution_of(result.target.runtime)
        for result in inside
        for backend in result.backends
        for name in (backend, f"{result.target.configuration.name}:{backend}")
        if name in shown and resolution_of(result.target.runtime)
    }
    return places | _coarse(proved.contender for proved in verdict.proved)


def _coarse(contenders: Iterable[Contender]) -> dict[str, float]:
    """The resolution in seconds of the contenders' coarse profilers, by label."""
    every = {c.label: max(resolution_of(part.target.runtime) for part in c.parts) for c in contenders}
    return {label: seconds for label, seconds in every.items() if seconds}


def place_in(session: ModelSession, folder: Path, out: Path, *, overwrite: bool) -> PlaceDocument:
    """Profile, price, solve, prove and write the package in an open session; see `gnomon.jobs.place.job.place`."""
    limits = Limits(session.request.under)
    limits.check(session.graph, session.targets)
    judged = reference(session)
    inside, across, others, refused = _price(session, folder, limits)
    contenders = [c for r in inside for c in r.contenders] + list(across.contenders if across else ()) + others
    session.runner.note("labels", {f"proof/{c.key}": c.label for c in contenders})
    mixes = bool(inside) or bool(across and (across.solution or across.ideal_s is not None))
    clocks = choose_clocks(session, {c.key: session.runner.known(c.key) for c in contenders}, contenders)
    barred = {c.key: why for c in contenders if (why := limits.broken(c))}
    contenders = [c for c in contenders if c.kind == "single" or c.key not in barred]
    verdict = prove(session, contenders, clocks, priced=mixes and not session.runner.stopped, barred=barred)
    verdict = replace(verdict, proved=(*verdict.proved, *refused))
    verdict, verified, ran_on = _deploy(session, verdict, out, limits, overwrite=overwrite)
    chosen = verdict.chosen.contender
    session.runner.finish({"chosen": chosen.label, "reason": verdict.reason})
    times = breakdowns(session, verdict, inside, across)
    rows = operator_rows(verdict, ran_on, times, inside, across)
    parts = _contender_parts(session, verdict, rows, times, limits)
    solution = _solution_of(chosen, inside, across)
    warnings = _weighed(_all_doubts(session, verdict, judged), {c.label: c.level_s for c in parts if c.level_s})
    field = [(proved.contender, proved.measured) for proved in verdict.proved]
    return PlaceDocument(
        **_facts(session, chosen.graph, {contender.label: measured for contender, measured in field}),
        clock=verdict.clock,
        decision=decision_part(verdict),
        contenders=parts,
        operators=rows,
        verified=verified,
        solutions=_solutions(inside, across),
        limits=limit_parts(limits.asked, limits.uses(chosen, ran_on), solution.prices if solution else ()),
        limits_cost_s=_limits_cost_s(parts, chosen.label, solution) if limits.asked else None,
        unattributed_s={label: split.unattributed_s for label, split in times.items()},
        ideal_s=across.ideal_s if across else None,
        why_not_mixed=(across.why if across else next((r.why for r in inside if r.why), "")) or None,
        sensitivity=judged["relative"],
        reference=judged["by"] or None,
        reference_checked_by=checked_by(judged, field, warnings),
        reference_agreement=judged.get("agreement"),
        doubts=warnings,
        package=str(out),
        program=PROGRAM if (out / PROGRAM).is_file() else None,
        run=run_line({**chosen.candidate.job, "environment": dict(chosen.candidate.environment)}),
        pictures=(),
        resolutions_s=_resolutions(inside, rows, verdict),
    )


def _solution_of(chosen: Contender, inside: Sequence[InsideResult], across: AcrossResult | None) -> Solution | None:
    """The solution of the problem to which a contender belongs; None without one."""
    own = {part.configuration.name for part in chosen.parts}
    solutions = (result.solution for result in inside if {result.target.configuration.name} == own)
    return next(solutions, across.solution if across else None)


def _limits_cost_s(parts: Sequence[ContenderPart], chosen: str, solution: Solution | None) -> float | None:
    """The time that the limits cost: by the prices or, without any, compared with contenders that break a limit."""
    if solution is not None and solution.free is not None:
        return max(0.0, solution.value - solution.free)
    chosen_s = next((part.level_s for part in parts if part.label == chosen), None)
    return max([0.0, *(chosen_s - part.level_s for part in parts if part.breaks and part.level_s and chosen_s)])


def _price(
    session: ModelSession, folder: Path, limits: Limits
) -> tuple[list[InsideResult], AcrossResult | None, list[Contender], list[Proved]]:
    """Profile all single contenders together. Then, with as many threads as the fastest contender, place inside each
    configuration with several backends and across those that take the whole model. Also return the remaining
    contenders, and the refused ones whose outputs are nearly right.
    """
    whole = [t for t in session.targets if len(t.configuration.backends) == 1]
    within = [_inside_placer(session, t, limits) for t in session.targets if t not in whole]
    across = AcrossPlacer(session, whole, folder, limits)
    singles = {placer: placer.singles() for placer in within}
    wholes = [across.whole(target) for target in whole]
    every = [c for group in (*singles.values(), wholes) for c in group]
    alive = profile_singles(session, every, traces=1, trace=partial(_mixable, session))
    measured = {c.key: session.runner.known(c.key) for c in alive}
    field = _mixable(session, alive)
    clock = choose_clocks(session, measured, field).of(*field)
    refused = nearly_right(session, every, field, clock)
    session.doubts += precision_hints(session, field, clock)
    results: list[InsideResult] = []
    problems: list[GnomonError] = []
    untraced: list[Contender] = []
    for placer in within:
        mine = [c for c in singles[placer] if c in field]
        if session.runner.stopped and not any(session.runner.known(trace_of(c).key).ok for c in mine):
            untraced += mine  # there are no prices, because of --quick or because the time was up
            continue
        try:
            results += [placer.run(mine, clock)] if mine else []
        except (MeasurementError, InfeasibleError) as error:  # an error of one placer does not end the others
            problems.append(error)
            session.missing.append(
                Missing(name=placer.target.configuration.name, reason=error.message, hint=error.hint)
            )
    mixed, wholes = None, [c for c in wholes if c in field]
    try:
        mixed = across.run(wholes, clock) if wholes else None
    except InfeasibleError as error:
        problems.append(error)
    if problems and not results and mixed is None:
        raise problems[0]
    return results, mixed, [c for c in alive if c not in field] + untraced, refused


def _mixable(session: ModelSession, alive: Sequence[Contender]) -> list[Contender]:
    """The contenders that can be mixed: those with as many threads as the fastest of the contenders that gnomon
    configures, because thread pools of different sizes in one process would wait for each other.
    """
    set_ = [c for c in alive if not any(part.configuration.apart for part in c.parts)]
    measured = {c.key: session.runner.known(c.key) for c in set_}
    clocks = choose_clocks(session, measured, set_)
    if not set_:
        return list(alive)
    fastest = min(set_, key=lambda c: level(measured[c.key], clocks.of(*set_)))
    return [c for c in set_ if c.threads == fastest.threads]


def _deploy(
    session: ModelSession, verdict: Verdict, out: Path, limits: Limits, *, overwrite: bool
) -> tuple[Verdict, Verified, Mapping[int, str]]:
    """Write the winner's package and run it; a package that does not work as it should is replaced by that of the best
    single backend.

    Also returns the place where each operator ran. MeasurementError if the last package broke a limit when it ran.
    """
    order = [verdict.chosen, *(best for best in [verdict.best_single] if not limits.broken(best.contender))]
    for number, proved in enumerate(order):
        write_package(session, proved.contender, out, overwrite=overwrite or number > 0)
        verified, ran_on = verify(session, out, proved.contender)
        broken = limits.broken(proved.contender, ran_on)
        last = proved is order[-1]
        if last and broken:
            raise MeasurementError(f"{proved.contender.label} broke a limit when it ran: {broken}", hint=AGAIN)
        if not broken and (verified.ok or verified.skipped or last):
            return replace(verdict, chosen=proved), verified, ran_on
        moved = many(len(verified.moved), "operator")
        reason = describe(verified.failure) if verified.failure else f"{moved} ran elsewhere"
        session.missing.append(Missing(name=proved.contender.label, reason=f"its package was refused: {reason}"))
        single = verdict.best_single.contender.label
        verdict = replace(verdict, reason=f"Use {single}: the package of the plan, a mix, was refused.")
    raise AssertionError("unreachable")


def _weighed(doubts: Sequence[Caveat], levels_s: Mapping[str, float]) -> tuple[Caveat, ...]:
    """The warnings; the one about subnormal weights reports the gain from treating them as 0, if it was measured."""
    cured = [level_s for label, level_s in levels_s.items() if CURE in label]
    as_it_is = [level_s for label, level_s in levels_s.items() if CURE not in label and label.startswith("onnxruntime")]
    if not cured or not as_it_is:
        return tuple(doubts)
    gain = f"; ONNX Runtime is {min(as_it_is) / min(cured):.2g} times as fast if it treats them as 0"
    kind = "subnormal-cured" if min(cured) < _CURED * min(as_it_is) else "file"
    return tuple(replace(d, kind=kind, message=d.message + gain) if d.kind == "subnormal" else d for d in doubts)


def _all_doubts(session: ModelSession, verdict: Verdict, judged: JudgedReference) -> tuple[Caveat, ...]:
    missed = [p for p in verdict.proved if p.measured.failure and p.measured.failure.kind == "unmeasured"]
    stopped = stopped_doubts(session.request, session.runner.stopped, [p.contender.label for p in missed])
    best = verdict.best_single
    drifted = drift(session.runner.known(best.contender.key), best.measured, verdict.clocks.of(best.contender))
    profiled = {p.contender.key: session.runner.known(p.contender.key) for p in verdict.proved if p.ok}
    begun = first_runs(
        (p.contender, list({m.key: m for m in (profiled[p.contender.key], p.measured)}.values()))
        for p in verdict.proved
        if p.ok
    )
    own = [] if verdict.chosen.contender.usual else _left_out(session, verdict)
    return (*stopped, *verdict.warnings, *own, *doubts(session, judged), *begun, *([drifted] if drifted else []))


def _left_out(session: ModelSession, verdict: Verdict) -> list[Caveat]:
    """A warning that the choice was measured without the settings in the nnpackage's own config, if it has any."""
    package = session.read.model.package
    if package is None:
        return []
    from gnomon.formats.onert.config import placement_settings, steering

    left = steering(package.config, placement_settings({}, 1))
    if not left:
        return []
    rows = [p.contender.label for p in verdict.proved if p.contender.usual and p.ok]
    with_it = f"; {' and '.join(rows)} ran with them" if rows else ""
    return [
        Caveat(
            kind="package-config",
            message=f"the nnpackage's own config sets {listed([f'{k}={v}' for k, v in left.items()])}; the choice "
            f"was measured without these settings, and the written package does not have them{with_it}",
            hint="" if rows else "Leave out -n and --backend to measure the nnpackage with its own config too.",
        )
    ]
