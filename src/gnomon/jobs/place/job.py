"""The main job: the proven-fastest assignment of a model's operators to backends. docs/jobs/place.md is its design.

The measurement alone: a model whole on every backend, end to end and per operator.

The operators of a placement, row by row: where each was planned, where it ran, what it takes elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gnomon.core.brief import brief
from gnomon.core.graph import Graph
from gnomon.core.solver.solve import Solution
from gnomon.core.stats import Comparison, Summary, summarise
from gnomon.errors import MeasurementError
from gnomon.jobs.place.across import AcrossPlacer, AcrossResult
from gnomon.jobs.place.inside import InsideResult
from gnomon.jobs.place.sustained import Sustain, Sustained, check_sustainable, sustain
from gnomon.jobs.place.transfers import inside_placer
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import Clock
from gnomon.measure.environment import Doubt
from gnomon.measure.progress import Steps, Watch
from gnomon.report.answer import Answer
from gnomon.runtimes.base import Accelerator, resolution_of
from gnomon.session.accelerators import first_runs
from gnomon.session.contender import (
    Contender,
    Proved,
    blocks,
    choose_clock,
    choose_clocks,
    cpu_summary,
    fastest_of,
    level,
    profile_singles,
    trace_of,
    versus,
)
from gnomon.session.document import ConditionsPart
from gnomon.session.kernels import Breakdown, Kernel, breakdown, by_clock, divided, kernels
from gnomon.session.model_session import Lab, conditions_part, open_device, open_lab, stopped_doubts
from gnomon.session.package import check_destination, write_package
from gnomon.session.precision import clock_warnings, nearly_right, precision_hints
from gnomon.session.prove import Verdict, Verified, prove, verify
from gnomon.session.reference import Sensitivity, doubts, drift, reference
from gnomon.session.request import ModelRequest, patiently, timed
from gnomon.session.targets import Missing, describe
from gnomon.store.address import RecordAddress
from gnomon.system.process import guarded_folder
from gnomon.wire import Environment

if TYPE_CHECKING:
    from gnomon.jobs.place.derived import Derived


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One configuration that runs the whole model.

    `level_s` is the one number that is compared, by the deciding clock: of CPU time the median, of wall time the lower
    quintile. `against_fastest` is the interleaved comparison with the fastest column, None for itself.
    `wall` and `cpu` sum up the runs without any profiler; `kernels` are from the profiled ones, never mixed with them.
    `breakdown` is where the time of a call without profiler goes by them, by the clock that decides. `difference` is
    the largest one of the outputs from the reference. `measured` are the runs without profiler, `traced` those with it,
    in which `graph` ran: the user's own, or that of the model as it was converted. `inside` are its kernels of several
    operators taken apart, where that was asked for: derived from parts that were cut out. The profiler counts in
    `resolution_s`. `settings` are those of `Contender`.
    """

    label: str
    level_s: float
    against_fastest: Comparison | None
    wall: Summary
    cpu: Summary | None
    load_s: float
    first_call_s: float
    peak_rss_bytes: int | None
    difference: dict[str, float]
    kernels: tuple[Kernel, ...]
    breakdown: Breakdown
    graph: Graph
    measured: Measured
    traced: Measured
    accelerators: tuple[Accelerator, ...] = ()
    inside: tuple[Derived, ...] = ()
    resolution_s: float = 0.0
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    __repr__ = brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Answer):
    """What `profile` found: a column for each configuration that gives right outputs.

    `clock` is what the columns are compared by, as in a placement. `environments` are the device's snapshots around
    each session, `record` is the results database. `sustained` is what was called for long, where that was asked for.
    `turns` are the campaigns that were measured by turns, its own among them; none where it was measured alone.
    """

    model: Path
    graph: Graph
    device: str
    fingerprint: Mapping[str, Any]
    versions: dict[str, str]
    clock: Clock
    columns: tuple[Column, ...]
    missing: tuple[Missing, ...]
    doubts: tuple[Doubt, ...]
    environments: tuple[Environment, ...]
    campaign: str
    record: RecordAddress
    resumed: bool
    seconds: float
    waited_s: float = 0.0
    conditions: ConditionsPart
    sustained: tuple[Sustained, ...] = ()
    turns: tuple[str, ...] = ()

    document_by = "gnomon.jobs.place.document:profile_document"
    charts_by = "gnomon.jobs.place.picture:profile_charts"
    main = "columns"
    columns_shown: ClassVar[Mapping[str, str]] = {
        "configuration": "label",
        "wall, s": "wall.median_s",
        "low": "wall.low_s",
        "high": "wall.high_s",
        "p99": "wall.p99_s",
        "CPU, s": "cpu.median_s",
        "load, s": "load_s",
        "peak memory, B": "peak_rss_bytes",
    }

    __repr__ = Answer.__repr__

    def headline(self) -> tuple[str, str]:
        """The model and the device, and the fastest configuration."""
        return f"{self.model.name} on {self.device}", f"{self.fastest.label} is the fastest of {len(self.columns)}."

    @property
    def fastest(self) -> Column:
        """The fastest column by the clock, which others may equal."""
        return next(c for c in self.columns if c.against_fastest is None)


def profile(
    request: ModelRequest,
    *,
    inside: bool = False,
    asked: Sustain | None = None,
    watch: Watch | None = None,
    tell: Callable[[str], None] | None = None,
) -> Profile:
    """Measure the model whole on every backend; a device that vanishes is waited for.

    With `inside`, kernels of several operators are taken apart; see `gnomon.jobs.place.derived`. What is `asked` to be
    called for long is so afterwards. Raises GnomonError; what was measured until then is in the record.
    """
    return patiently(lambda again: _profile(again, inside, asked, watch, tell), timed(request), tell)


def _profile(
    request: ModelRequest,
    inside: bool,
    asked: Sustain | None,
    watch: Watch | None,
    tell: Callable[[str], None] | None,
) -> Profile:
    question: dict[str, Any] = {"inside": True} if inside else {}
    question |= {} if asked is None else {"sustained": asdict(asked)}
    with (
        open_lab(request, kind="profile", question=question, watch=watch, tell=tell) as lab,
        guarded_folder("gnomon-segments-") as folder,
    ):
        if asked is not None:
            check_sustainable(lab)
        sensitivity = reference(lab)
        contenders = _contenders(lab, folder)
        alive = profile_singles(lab, contenders, settle=True)
        field = {c.label: lab.runner.known(c.key) for c in alive}
        clock = choose_clock(lab, field.values())
        nearly_right(lab, contenders, alive, clock)
        best = fastest_of(field, clock)
        columns = tuple(_column(lab, c, field[best], clock) for c in alive)
        if inside:
            columns = _taken_apart(lab, folder, alive, columns, clock)
        long = () if asked is None else sustain(lab, asked, alive, tell)
        return _profiled(lab, sensitivity, alive, columns, clock, long)


_TRACES = 6
"""Turns in which kernels are timed, too."""


def profile_by_turns(
    requests: Sequence[ModelRequest], *, watch: Watch | None = None, tell: Callable[[str], None] | None = None
) -> list[Profile]:
    """Measure several models of one device by turns: a fresh process of each, then of each again.

    So what moves the machine moves all of them alike. Each is a run of its own in the results database. Raises
    GnomonError; what was measured until then is there.
    """
    first = timed(requests[0])

    def profiled(again: ModelRequest) -> list[Profile]:
        steps = Steps("by turns", watch)
        each = [replace(r, time=again.time, fresh=again.fresh) for r in requests]
        with ExitStack() as stack:
            device = stack.enter_context(open_device(again, tell))
            labs = [
                stack.enter_context(
                    open_lab(
                        r,
                        kind="profile",
                        question={"by_turns": turn},
                        watch=steps,
                        tell=tell,
                        device=device,
                        beside=f"turn-{turn}-",
                    )
                )
                for turn, r in enumerate(each)
            ]
            folders = [stack.enter_context(guarded_folder("gnomon-segments-")) for _ in labs]
            sensitivities = [reference(lab) for lab in labs]
            contenders = [_contenders(lab, folder) for lab, folder in zip(labs, folders, strict=True)]
            turn = list(zip(labs, contenders, strict=True))
            traces = min(_TRACES, again.effort.processes_least)
            steps.expect(len(turn) * again.effort.processes_least)
            for number in range(1, again.effort.processes_least + 1):
                effort = replace(again.effort, processes_least=number, processes_most=number)
                # Each goes first as often as last: else a machine that gets slower makes the last one slower.
                for lab, wanted in turn if number % 2 else reversed(turn):
                    measured = lab.runner.measure("profile", [c.candidate for c in wanted], effort)
                    right = [trace_of(c) for c in wanted if measured[c.key].ok]
                    if number <= traces:
                        lab.runner.measure("profile, traced", right, effort)
                    steps.step(1)
            alive = [profile_singles(lab, wanted, traces=traces) for lab, wanted in turn]
            found = []
            for lab, own, sensitivity in zip(labs, alive, sensitivities, strict=True):
                field = {c.label: lab.runner.known(c.key) for c in own}
                clock = choose_clock(lab, field.values())
                best = field[fastest_of(field, clock)]
                columns = tuple(_column(lab, c, best, clock) for c in own)
                found.append(_profiled(lab, sensitivity, own, columns, clock, ()))
            turns = tuple(one.campaign for one in found)
            return [replace(one, turns=turns) for one in found]

    return patiently(profiled, first, tell)


def _profiled(
    lab: Lab,
    sensitivity: Sensitivity,
    alive: Sequence[Contender],
    columns: tuple[Column, ...],
    clock: Clock,
    sustained: tuple[Sustained, ...],
) -> Profile:
    """What was found, also in the results database."""
    request = lab.request
    field = {c.label: lab.runner.known(c.key) for c in alive}
    best = fastest_of(field, clock)
    fastest = next(c for c in columns if c.against_fastest is None)
    lab.runner.finish({"fastest": best, "median_s": fastest.wall.median_s})
    return Profile(
        model=request.model,
        graph=lab.graph,
        device=lab.device.name,
        fingerprint=lab.device.fingerprint,
        versions={name: probe.version for name, probe in lab.probes.items()},
        conditions=conditions_part(lab),
        clock=clock,
        columns=columns,
        missing=tuple(lab.missing),
        doubts=(
            *stopped_doubts(request, lab.runner.stopped),
            *clock_warnings(field, best, clock),
            *doubts(lab, sensitivity),
            *first_runs((c, [lab.runner.known(c.key)]) for c in alive),
        ),
        environments=tuple(lab.runner.environments),
        campaign=lab.runner.campaign.id,
        record=request.database,
        resumed=lab.runner.resumed,
        seconds=request.used_s,
        waited_s=request.waited_s,
        sustained=sustained,
    )


def _contenders(lab: Lab, folder: Path) -> list[Contender]:
    made: list[Contender] = []
    whole = [t for t in lab.targets if len(t.configuration.backends) == 1]
    placer = AcrossPlacer(lab, whole, folder)
    for target in lab.targets:
        made += [placer.whole(target)] if target in whole else inside_placer(lab, target).singles()
    return made


def _column(lab: Lab, contender: Contender, best: Measured, clock: Clock) -> Column:
    known = lab.runner.known(contender.key)
    traced = lab.runner.known(trace_of(contender).key)
    found = kernels(contender.graph, traced)
    wall = summarise(blocks(known, "wall"))
    return Column(
        label=contender.label,
        level_s=level(known, clock),
        against_fastest=None if known.key == best.key else versus(known, best, clock),
        wall=wall,
        cpu=cpu_summary(known),
        load_s=known.fact("load_ns") * 1e-9,
        first_call_s=known.fact("first_call_ns") * 1e-9,
        peak_rss_bytes=known.fact("peak_rss_bytes"),
        difference=known.fact("difference"),
        kernels=found,
        breakdown=breakdown(contender.graph, by_clock(found, traced, clock), level(known, clock)),
        accelerators=contender.accelerators,
        graph=contender.graph,
        measured=known,
        traced=traced,
        resolution_s=max(resolution_of(part.target.runtime) for part in contender.parts),
        settings=contender.settings,
    )


def _taken_apart(
    lab: Lab, folder: Path, contenders: list[Contender], columns: tuple[Column, ...], clock: Clock
) -> tuple[Column, ...]:
    """The columns with their kernels of several operators taken apart, the fastest column's first."""
    from gnomon.jobs.place.derived import WHOLE, Insides

    insides = Insides(lab, folder, clock)
    found: dict[str, tuple[Derived, ...]] = {}
    for column, contender in sorted(zip(columns, contenders, strict=True), key=lambda pair: pair[0].level_s):
        operators = tuple(op.index for op in column.graph.operators)
        whole = Kernel(name=WHOLE, operators=operators, backend=column.label, time_s=column.level_s)
        found[column.label] = insides.of(contender, column.kernels or (whole,))
    return tuple(replace(column, inside=found[column.label]) for column in columns)


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
    wholes_s = {p.contender.label: level(p.measured, verdict.clocks.of(p.contender)) for p in verdict.proved if p.ok}
    alive = [p.contender for p in verdict.proved if p.ok]
    whole_models = {c.label for c in (across.contenders if across else ()) if c.kind == "single"}
    found: dict[str, Breakdown] = {}
    for contender in alive:
        traced = lab.runner.known(trace_of(contender).key) if contender.label in whole_models else None
        if traced is not None and traced.ok:
            # What was profiled is as fast as the machine was then: see the drift that the report warns of.
            clock = verdict.clocks.of(contender)
            profiled_s = level(lab.runner.known(contender.key), clock)
            whole_s = wholes_s[contender.label]
            drift = whole_s / profiled_s if profiled_s > 0 else 1.0
            timed = by_clock(kernels(contender.graph, traced), traced, clock)
            timed = tuple(replace(kernel, time_s=kernel.time_s * drift) for kernel in timed)
            found[contender.label] = breakdown(contender.graph, timed, whole_s)
    names = {part.configuration.name for c in alive if c.label in found for part in c.parts}
    names |= {result.target.configuration.name for result in inside}
    for contender in alive:
        if contender.label in found or any(part.configuration.name not in names for part in contender.parts):
            continue  # it was not profiled at these threads: times at others would divide another whole
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement(Answer):
    """What `place` found: the verdict over all contenders, the plan operator by operator, and every doubt.

    `breakdowns` tell, by label, where the time of each contender goes that ran. `solutions` are the solver's
    certificates, by configuration or "across". `inside` and `across` are the prices behind them. `traces` are the runs
    with the runtime's profiler on, by label, of contenders in one configuration. `fingerprint` is the device's,
    `environments` are its snapshots around each session; `record` is the results database. `resumed` says that an
    interrupted campaign was taken up. `seconds` is what the job took, without `waited_s` for its device.
    """

    model: Path
    graph: Graph
    device: str
    fingerprint: Mapping[str, Any]
    versions: dict[str, str]
    clock: Clock
    verdict: Verdict
    verified: Verified
    rows: tuple[OperatorRow, ...]
    breakdowns: Mapping[str, Breakdown]
    solutions: dict[str, Solution]
    why_not_mixed: str
    ideal_s: float | None
    inside: tuple[InsideResult, ...]
    across: AcrossResult | None
    missing: tuple[Missing, ...]
    doubts: tuple[Doubt, ...]
    sensitivity: Sensitivity
    traces: Mapping[str, Measured]
    environments: tuple[Environment, ...]
    package: Path | None
    campaign: str
    record: RecordAddress
    resumed: bool
    seconds: float
    waited_s: float = 0.0
    conditions: ConditionsPart
    pictures: tuple[str, ...] = ()

    document_by = "gnomon.jobs.place.document:place_document"
    charts_by = "gnomon.jobs.place.picture:placement_charts"
    main = "contenders"
    columns_shown: ClassVar[Mapping[str, str]] = {
        "configuration": "label",
        "kind": "kind",
        "wall, s": "measured.median_s",
        "low": "measured.low_s",
        "high": "measured.high_s",
        "p99": "measured.p99_s",
        "CPU, s": "cpu.median_s",
        "peak memory, B": "peak_rss_bytes",
    }

    __repr__ = Answer.__repr__

    def headline(self) -> tuple[str, str]:
        """The model and the device, and the verdict."""
        return f"{self.model.name} on {self.device}", self.verdict.reason


def place(
    request: ModelRequest,
    out: Path,
    *,
    overwrite: bool = False,
    watch: Watch | None = None,
    tell: Callable[[str], None] | None = None,
) -> Placement:
    """Profile, price, solve, prove, write the package of the winner to `out`, and run it.

    `watch` is told of progress, `tell` gets sentences for people. A device that vanishes is waited for. Raises
    GnomonError; what was measured until then is in the record, and the next call with the same request goes on from
    there.
    """
    began_without = not out.exists()

    request = timed(request)

    def once(again: ModelRequest) -> Placement:
        # What lies there then was written before the device vanished.
        return _place(again, out, overwrite=overwrite or began_without, watch=watch, tell=tell)

    return patiently(once, request, tell)


def _place(
    request: ModelRequest, out: Path, *, overwrite: bool, watch: Watch | None, tell: Callable[[str], None] | None
) -> Placement:
    with ExitStack() as stack:
        lab = stack.enter_context(
            open_lab(
                request,
                kind="place",
                question={},
                watch=watch,
                tell=tell,
                check=lambda: check_destination(out, overwrite=overwrite),
            )
        )
        folder = stack.enter_context(guarded_folder("gnomon-segments-"))
        sensitivity = reference(lab)
        inside, across, others, refused = _price(lab, folder)
        contenders = [c for r in inside for c in r.contenders] + list(across.contenders if across else ()) + others
        lab.runner.note("labels", {f"proof/{c.key}": c.label for c in contenders})
        priced = bool(inside) or bool(across and (across.solution or across.ideal_s is not None))
        clocks = choose_clocks(lab, {c.key: lab.runner.known(c.key) for c in contenders}, contenders)
        verdict = prove(lab, contenders, clocks, priced=priced)
        verdict = replace(verdict, proved=(*verdict.proved, *refused))
        verdict, verified = _deploy(lab, verdict, out, overwrite=overwrite)
        chosen = verdict.chosen.contender
        lab.runner.finish({"chosen": chosen.label, "reason": verdict.reason})
        parts = breakdowns(lab, verdict, inside, across)
        solutions = {r.target.configuration.name: r.solution for r in inside}
        if across and across.solution:
            solutions["across"] = across.solution
        return Placement(
            model=request.model,
            graph=verdict.chosen.contender.graph,
            device=lab.device.name,
            fingerprint=lab.device.fingerprint,
            versions={name: probe.version for name, probe in lab.probes.items()},
            conditions=conditions_part(lab),
            clock=verdict.clock,
            verdict=verdict,
            verified=verified,
            rows=operator_rows(verdict, verified, parts, inside, across),
            breakdowns=parts,
            solutions=solutions,
            why_not_mixed=across.why if across else next((r.why for r in inside if r.why), ""),
            ideal_s=across.ideal_s if across else None,
            inside=tuple(inside),
            across=across,
            missing=tuple(lab.missing),
            doubts=_all_doubts(lab, request, verdict, sensitivity),
            sensitivity=sensitivity,
            traces={
                proved.contender.label: lab.runner.known(trace_of(proved.contender).key)
                for proved in verdict.proved
                if len(proved.contender.parts) == 1
            },
            package=out,
            environments=tuple(lab.runner.environments),
            campaign=lab.runner.campaign.id,
            record=request.database,
            resumed=lab.runner.resumed,
            seconds=request.used_s,
            waited_s=request.waited_s,
        )


def _price(lab: Lab, folder: Path) -> tuple[list[InsideResult], AcrossResult | None, list[Contender], list[Proved]]:
    """Profile all single contenders together; then place inside each configuration that has several backends, and
    across those that take the model whole, with as many threads as the fastest. The others are returned as they are;
    last are those that are refused, but nearly right.
    """
    whole = [t for t in lab.targets if len(t.configuration.backends) == 1]
    within = [inside_placer(lab, t) for t in lab.targets if t not in whole]
    across = AcrossPlacer(lab, whole, folder)
    singles = {placer: placer.singles() for placer in within}
    wholes = [across.whole(target) for target in whole]
    every = [c for group in (*singles.values(), wholes) for c in group]
    alive = profile_singles(lab, every, trace=partial(_mixable, lab))
    known = {c.key: lab.runner.known(c.key) for c in alive}
    field = _mixable(lab, alive)
    clock = choose_clocks(lab, known, field).of(*field)
    refused = nearly_right(lab, every, field, clock)
    lab.doubts += precision_hints(lab, field, clock)
    results: list[InsideResult] = []
    problems: list[MeasurementError] = []
    for placer in within:
        mine = [c for c in singles[placer] if c in field]
        try:
            results += [placer.run(mine, clock)] if mine else []
        except MeasurementError as error:  # one configuration that cannot be priced does not end the others
            problems.append(error)
            lab.missing.append(Missing(name=placer.target.configuration.name, reason=error.message, hint=error.hint))
    wholes = [c for c in wholes if c in field]
    if problems and not results and not wholes:
        raise problems[0]
    return results, across.run(wholes, clock) if wholes else None, [c for c in alive if c not in field], refused


def _mixable(lab: Lab, alive: Sequence[Contender]) -> list[Contender]:
    """Those with as many threads as the fastest that does not run by defaults: in one process threads of several
    numbers would wait for each other.
    """
    set_ = [c for c in alive if not c.usual]
    known = {c.key: lab.runner.known(c.key) for c in set_}
    clocks = choose_clocks(lab, known, set_)
    if not set_:
        return list(alive)
    fastest = min(set_, key=lambda c: level(known[c.key], clocks.of(*set_)))
    return [c for c in set_ if c.threads == fastest.threads]


def _deploy(lab: Lab, verdict: Verdict, out: Path, *, overwrite: bool) -> tuple[Verdict, Verified]:
    """Write the winner's package and run it; a package that does not do what it should gives way to the next."""
    order = [verdict.chosen, verdict.best_single]
    for number, proved in enumerate(order):
        write_package(lab, proved.contender, out, overwrite=overwrite or number > 0)
        verified = verify(lab, out, proved.contender)
        if verified.ok or verified.skipped or proved is verdict.best_single:
            return replace(verdict, chosen=proved), verified
        told = describe(verified.failure) if verified.failure else f"{len(verified.moved)} operators ran elsewhere"
        lab.missing.append(Missing(name=proved.contender.label, reason=f"its package was refused: {told}"))
        single = verdict.best_single.contender.label
        verdict = replace(verdict, reason=f"Use {single}: the package of the plan, a mix, was refused.")
    raise AssertionError("unreachable")


def _all_doubts(lab: Lab, request: ModelRequest, verdict: Verdict, sensitivity: Sensitivity) -> tuple[Doubt, ...]:
    missed = [p for p in verdict.proved if p.measured.failure and p.measured.failure.kind == "unmeasured"]
    stopped = stopped_doubts(request, lab.runner.stopped, [p.contender.label for p in missed])
    best = verdict.best_single
    drifted = drift(lab.runner.known(best.contender.key), best.measured, verdict.clocks.of(best.contender))
    begun = first_runs((p.contender, [lab.runner.known(p.contender.key), p.measured]) for p in verdict.proved if p.ok)
    own = [] if verdict.chosen.contender.usual else _left_out(lab, verdict)
    return (*stopped, *verdict.warnings, *own, *doubts(lab, sensitivity), *begun, *([drifted] if drifted else []))


def _left_out(lab: Lab, verdict: Verdict) -> list[Doubt]:
    """What an nnpackage's own config sets that the choice was measured without, so that it is not written."""
    package = lab.model.package
    if package is None:
        return []
    from gnomon.formats.onert.config import placement_settings, steering

    left = steering(package.config, placement_settings({}, 1))
    if not left:
        return []
    rows = [p.contender.label for p in verdict.proved if p.contender.usual and p.ok]
    with_it = f"; {' and '.join(rows)} ran with it" if rows else ""
    return [
        Doubt(
            kind="package-config",
            message=f"the nnpackage's own config sets {', '.join(f'{k}={v}' for k, v in left.items())}, which the "
            f"choice was measured without and the written package leaves out{with_it}",
            hint="" if rows else "Without -n and --backend the nnpackage is also measured as it is.",
        )
    ]
