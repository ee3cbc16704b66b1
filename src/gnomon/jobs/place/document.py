"""The JSON documents of `gnomon place`, on one device and on several, of `gnomon profile`, and of either for several
sizes or inputs.

Their reports and pictures are made from them; docs/formats/place-json.md describes each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from gnomon.core import codec
from gnomon.core.sample import Failure
from gnomon.core.stats import may_be_as_fast, median, quantile
from gnomon.jobs.place.sustained import Change, Cooling, Level, Row, Sustained, frequency_khz
from gnomon.measure.environment import Doubt
from gnomon.runtimes.base import Accelerator, resolution_of
from gnomon.session import document as parts
from gnomon.session.accelerators import held_bytes
from gnomon.session.contender import level
from gnomon.session.document import (
    ComparisonPart,
    ConditionsPart,
    DifferencePart,
    EnvironmentPart,
    GraphPart,
    KernelPart,
    ModelPart,
    RunsPart,
    SummaryPart,
)
from gnomon.session.package import run_line
from gnomon.session.reference import checked_by
from gnomon.session.targets import Missing

if TYPE_CHECKING:
    from gnomon.core.solver.solve import Solution
    from gnomon.errors import GnomonError
    from gnomon.jobs.place.derived import Derived, Seconds
    from gnomon.jobs.place.fleet import Fleet
    from gnomon.jobs.place.job import Column, OperatorRow, Placement, Profile
    from gnomon.session.contender import Proved
    from gnomon.session.prove import Default, Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupPart:
    """How many times as fast the choice is, with its 95 % interval (null: not bounded)."""

    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPart:
    """The fastest of what runtimes do with nothing set; `gain` compares it with the choice (null: it is the choice)."""

    label: str
    gain: ComparisonPart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPart:
    """What was chosen, and why: labels of contenders; the speed-up is null where nothing is mixed.

    `default` is null where no runtime's own default was measured. `undecided` says what the proof leaves open, "" where
    it decides.
    """

    chosen: str
    kind: str
    reason: str
    best_single: str
    speedup_vs_best_single: SpeedupPart | None
    tied: tuple[str, ...]
    chosen_for: tuple[str, ...]
    default: DefaultPart | None = None
    undecided: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderPart:
    """An assignment that was measured as a whole, interleaved with the others, in fresh processes.

    `settings` are those of `Contender`; none in a document of before.
    """

    label: str
    kind: str
    configurations: tuple[str, ...]
    predicted_s: float | None
    measured: SummaryPart | None
    cpu: SummaryPart | None
    level_s: float | None
    prediction_error: float | None
    against_best: ComparisonPart | None
    difference: DifferencePart | None
    peak_rss_bytes: int | None
    threads: int | None = 1
    usual: bool = False
    precision: str = "float32"
    accelerators: tuple[Accelerator, ...] = ()
    device_memory_bytes: int | None = None
    failure: Failure | None
    assignment: tuple[str | None, ...]
    operators_s: tuple[float | None, ...]
    unattributed_s: float | None
    profiler_overhead_s: float | None
    kernels: tuple[KernelPart, ...]
    runs: RunsPart
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOperator:
    """An operator of the model, with its seconds in each place by the deciding clock; in `within` another has them."""

    index: int
    name: str
    type: str
    macs: int | None
    planned: str | None
    ran_on: str | None
    times_s: Mapping[str, float | None]
    within: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPart:
    """How the package did, run from its own files."""

    ok: bool
    skipped: bool
    moved: tuple[int, ...]
    difference: DifferencePart | None
    failure: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionPart:
    """The solver's certificate; `code` is a text, as many readers of JSON round large integers."""

    method: str
    optimal: bool
    value_s: float
    bound_s: float | None
    width: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceDocument:
    """All that `gnomon place` found on one device.

    `resolutions_s` are the seconds in which profilers count that do so coarsely, by places and contenders: below them
    no time of an operator is known. `reference_checked_by` is who else computed the reference's outputs, "" where
    nobody did (null: an older document does not tell); `reference_agreement` how far that was off, relatively.
    """

    format: Literal["gnomon-place"]
    version: Literal[2]
    model: ModelPart
    graph: GraphPart
    device: str
    fingerprint: Mapping[str, Any]
    versions: Mapping[str, str]
    clock: str
    decision: DecisionPart
    contenders: tuple[ContenderPart, ...]
    operators: tuple[PlacedOperator, ...]
    verified: VerifiedPart
    solutions: Mapping[str, SolutionPart]
    unattributed_s: Mapping[str, float]
    ideal_s: float | None
    why_not_mixed: str | None
    sensitivity: float | None
    reference: str | None
    reference_checked_by: str | None = None
    reference_agreement: float | None = None
    missing: tuple[Missing, ...]
    doubts: tuple[Doubt, ...]
    environments: tuple[EnvironmentPart, ...]
    package: str | None
    run: str
    pictures: tuple[str, ...]
    campaign: str
    record: str
    resumed: bool
    seconds: float
    waited_s: float
    resolutions_s: Mapping[str, float] = field(default_factory=dict)
    threads: tuple[int, ...] = ()
    conditions: ConditionsPart | None = None


def place_document(found: Placement) -> dict[str, Any]:
    """All that `place` found, in JSON values."""
    return codec.document(placed(found))


def placed(found: Placement) -> PlaceDocument:
    """The same as a record, for documents that hold it."""
    proved = found.verdict.proved
    measured = ((one.contender, one.measured) for one in proved)
    return PlaceDocument(
        format="gnomon-place",
        version=2,
        model=parts.model_part(found.model, found.graph),
        graph=parts.graph_part(found.graph),
        device=found.device,
        fingerprint=found.fingerprint,
        versions=found.versions,
        threads=found.conditions.threads,
        conditions=found.conditions,
        clock=found.clock,
        decision=_decision(found),
        contenders=tuple(_contender(found, one) for one in proved),
        operators=tuple(_operator(row) for row in found.rows),
        verified=verified_part(found.verified),
        solutions={name: _solution(solution) for name, solution in found.solutions.items()},
        unattributed_s={label: parts.unattributed_s for label, parts in found.breakdowns.items()},
        ideal_s=found.ideal_s,
        why_not_mixed=found.why_not_mixed or None,
        sensitivity=float(found.sensitivity),
        reference=found.sensitivity.reference or None,
        reference_checked_by="" if found.exit_code else checked_by(found.sensitivity, measured),
        reference_agreement=found.sensitivity.agreement,
        missing=tuple(dict.fromkeys(found.missing)),
        doubts=found.doubts,
        environments=parts.environment_parts(
            found.environments, parts.labels_of({one.contender.label: one.measured for one in proved})
        ),
        package=str(found.package) if found.package else None,
        run=run_line(found.verdict.chosen.contender.candidate.environment),
        pictures=found.pictures,
        campaign=found.campaign,
        record=str(found.record),
        resumed=found.resumed,
        seconds=found.seconds,
        waited_s=found.waited_s,
        resolutions_s=_resolutions(found),
    )


def _resolutions(found: Placement) -> dict[str, float]:
    places = {
        name: resolution_of(result.target.runtime)
        for result in found.inside
        for backend in result.backends
        for name in (backend, f"{result.target.configuration.name}:{backend}")
    }
    shown = {name for row in found.rows for name in row.times_s}
    whole = {
        one.contender.label: max((resolution_of(part.target.runtime) for part in one.contender.parts), default=0.0)
        for one in found.verdict.proved
    }
    return {name: s for name, s in {**places, **whole}.items() if s and (name in shown or name in whole)}


def _decision(found: Placement) -> DecisionPart:
    chosen, best = found.verdict.chosen, found.verdict.best_single
    speedup = None
    if chosen.contender.key != best.contender.key and chosen.against_best is not None:
        ratio = chosen.against_best
        speedup = SpeedupPart(ratio=1 / ratio.ratio, low=1 / ratio.high, high=1 / ratio.low if ratio.low > 0 else None)
    return DecisionPart(
        chosen=chosen.contender.label,
        kind=chosen.contender.kind,
        reason=found.verdict.reason,
        best_single=best.contender.label,
        speedup_vs_best_single=speedup,
        tied=found.verdict.tied,
        chosen_for=found.verdict.chosen_for,
        default=_default(found.verdict.default),
        undecided=found.verdict.undecided,
    )


def _default(found: Default | None) -> DefaultPart | None:
    return None if found is None else DefaultPart(label=found.label, gain=parts.comparison_part(found.gain))


def _contender(found: Placement, proved: Proved) -> ContenderPart:
    contender = proved.contender
    level_s = level(proved.measured, found.verdict.clocks.of(contender)) if proved.ok else None
    predicted_s = contender.predicted_s
    backends = contender.backends
    divided = found.breakdowns.get(contender.label)
    # A model that was converted has operators of its own, which are not those of the rows.
    rows = found.rows if contender.graph is found.graph else ()
    return ContenderPart(
        label=contender.label,
        kind=contender.kind,
        configurations=tuple(part.configuration.name for part in contender.parts),
        predicted_s=predicted_s,
        measured=parts.summary_part(proved.summary),
        cpu=parts.summary_part(proved.cpu),
        level_s=level_s,
        prediction_error=predicted_s / level_s - 1 if predicted_s is not None and level_s else None,
        against_best=parts.comparison_part(proved.against_best),
        difference=parts.difference_part(proved.measured.fact("difference")),
        peak_rss_bytes=proved.measured.fact("peak_rss_bytes"),
        threads=None if contender.usual else contender.threads,
        usual=contender.usual,
        precision=contender.precision,
        accelerators=contender.accelerators,
        device_memory_bytes=held_bytes(proved.measured),
        failure=proved.measured.failure,
        assignment=tuple(backends.get(row.index) for row in rows),
        operators_s=tuple(divided.times_s.get(row.index) if divided else None for row in rows),
        unattributed_s=divided.unattributed_s if divided else None,
        profiler_overhead_s=divided.overhead_s if divided else None,
        kernels=tuple(map(parts.kernel_part, divided.own)) if divided else (),
        runs=parts.runs_part(proved.measured, contender.graph, found.traces.get(contender.label)),
        settings=contender.settings,
    )


def _operator(row: OperatorRow) -> PlacedOperator:
    return PlacedOperator(
        index=row.index,
        name=row.name,
        type=row.type,
        macs=row.macs,
        planned=row.planned or None,
        ran_on=row.ran_on,
        times_s=row.times_s,
        within=row.within,
    )


def verified_part(found: Verified) -> VerifiedPart:
    """How a package did, run from its own files."""
    return VerifiedPart(
        ok=found.ok,
        skipped=found.skipped,
        moved=found.moved,
        difference=parts.difference_part(found.difference),
        failure=found.failure,
    )


def _solution(solution: Solution) -> SolutionPart:
    from gnomon.core.space import decimal

    return SolutionPart(
        method=solution.method,
        optimal=solution.optimal,
        value_s=solution.value,
        bound_s=solution.bound,
        width=solution.width,
        code=decimal(solution.code),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedSeconds:
    """Seconds with their 95 % interval (null: not bounded), of so many fresh processes of each part."""

    value_s: float
    low_s: float | None
    high_s: float | None
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideStep:
    """Operators of a kernel: `derived` is their price inside it, `alone` what they take as a model of their own."""

    operators: tuple[int, ...]
    derived: DerivedSeconds
    alone: DerivedSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class InsidePart:
    """A kernel of several operators taken apart: derived from parts that were cut out and run, never from the model.

    `saved` is what the parts take one by one beyond all `together`: fusion, and a call for each part but one. `why`
    says what was not cut (null: all was).
    """

    derived: Literal[True]
    kernel: str
    operators: tuple[int, ...]
    together: DerivedSeconds | None
    steps: tuple[InsideStep, ...]
    saved: DerivedSeconds | None
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPart:
    """One configuration that runs the whole model; `settings` as in `ContenderPart`."""

    label: str
    level_s: float
    against_fastest: ComparisonPart | None
    wall: SummaryPart | None
    cpu: SummaryPart | None
    load_s: float
    first_call_s: float
    peak_rss_bytes: int | None
    accelerators: tuple[Accelerator, ...] = ()
    device_memory_bytes: int | None = None
    difference: DifferencePart | None
    unattributed_s: float
    profiler_overhead_s: float
    kernels: tuple[KernelPart, ...]
    runs: RunsPart
    inside: tuple[InsidePart, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledOperator:
    """An operator of the model, with its seconds in each configuration; in `within` another operator has them."""

    index: int
    name: str
    type: str
    macs: int | None
    times_s: Mapping[str, float | None]
    within: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedColumns:
    """The blocks of a sustained run in order: each ended `at_s` of calling, in the process of its `part`.

    Times are microseconds of one call, `cpu_us` is the median. `late` calls were running when the next was due,
    `skipped` are slots in which none began. `frequency_khz` is the mean over the cores, `temperature_c` the hottest
    zone, `others_share` what other processes had of the processors' time since the block before.
    """

    block: tuple[int, ...]
    part: tuple[int, ...]
    at_s: tuple[float, ...]
    calls: tuple[int, ...]
    p50_us: tuple[float, ...]
    p90_us: tuple[float, ...]
    p99_us: tuple[float, ...]
    max_us: tuple[float, ...]
    cpu_us: tuple[float, ...]
    late: tuple[int, ...]
    skipped: tuple[int, ...]
    frequency_khz: tuple[float | None, ...]
    temperature_c: tuple[float | None, ...]
    load_average_1m: tuple[float | None, ...]
    others_share: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PacePart:
    """How calls kept to a grid: a call that still runs when the next is due is late, and slots may pass meanwhile.

    The delays are from a slot to the beginning of its call.
    """

    every_s: float
    late: int
    skipped: int
    delay_p50_s: float | None
    delay_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedPart:
    """One configuration called for long in one process, or in `parts` of them where it was interrupted.

    The quantiles are over its `samples`, of one call each or the mean of a few short ones. `first` is minute 1, `last`
    the last one (a quarter of what ran under four minutes). `searched` says whether there were blocks enough to look
    for changes of level in; the calls became slower for good when they had gone on for `slower_after_s` (null: never).
    """

    label: str
    for_s: float
    ran_s: float
    parts: int
    calls: int
    samples: int
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    max_s: float | None
    first: Level | None
    last: Level | None
    searched: bool
    changes: tuple[Change, ...]
    slower_after_s: float | None
    paced: PacePart | None
    cooling: Cooling | None
    failure: Failure | None
    blocks: SustainedColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDocument:
    """All that `gnomon profile` found: a column for each configuration that gives right outputs.

    `resolutions_s` as in `PlaceDocument`, by columns. `turns` are the campaigns that were measured by
    turns, a fresh process of each after the other, its own among them; null in a document of before that was told.
    """

    format: Literal["gnomon-profile"]
    version: Literal[2]
    model: ModelPart
    graph: GraphPart
    device: str
    fingerprint: Mapping[str, Any]
    versions: Mapping[str, str]
    clock: str
    fastest: str
    tied: tuple[str, ...]
    columns: tuple[ColumnPart, ...]
    operators: tuple[ProfiledOperator, ...]
    missing: tuple[Missing, ...]
    doubts: tuple[Doubt, ...]
    environments: tuple[EnvironmentPart, ...]
    campaign: str
    record: str
    resumed: bool
    seconds: float
    waited_s: float
    sustained: tuple[SustainedPart, ...] = ()
    resolutions_s: Mapping[str, float] = field(default_factory=dict)
    threads: tuple[int, ...] = ()
    conditions: ConditionsPart | None = None
    turns: tuple[str, ...] | None = None


def profile_document(found: Profile) -> dict[str, Any]:
    """All that `profile` found, in JSON values."""
    columns = found.columns
    own = [op.name for op in found.graph.operators]
    # A model that was converted has operators of its own, which are not those of the rows.
    alike = {column.label for column in columns if [op.name for op in column.graph.operators] == own}
    return codec.document(
        ProfileDocument(
            format="gnomon-profile",
            version=2,
            model=parts.model_part(found.model, found.graph),
            graph=parts.graph_part(found.graph),
            device=found.device,
            fingerprint=found.fingerprint,
            versions=found.versions,
            threads=found.conditions.threads,
            conditions=found.conditions,
            clock=found.clock,
            fastest=found.fastest.label,
            tied=tuple(
                c.label
                for c in columns
                if c.against_fastest and may_be_as_fast(c.against_fastest.verdict, c.against_fastest.ratio)
            ),
            columns=tuple(_column(column) for column in columns),
            operators=tuple(
                ProfiledOperator(
                    index=op.index,
                    name=op.name,
                    type=op.type,
                    macs=op.macs,
                    times_s={
                        column.label: column.breakdown.times_s.get(op.index) if column.label in alike else None
                        for column in columns
                    },
                    within={
                        column.label: column.breakdown.within[op.index]
                        for column in columns
                        if column.label in alike and op.index in column.breakdown.within
                    },
                )
                for op in found.graph.operators
            ),
            missing=tuple(dict.fromkeys(found.missing)),
            doubts=found.doubts,
            environments=parts.environment_parts(
                found.environments, parts.labels_of({column.label: column.measured for column in columns})
            ),
            campaign=found.campaign,
            record=str(found.record),
            resumed=found.resumed,
            seconds=found.seconds,
            waited_s=found.waited_s,
            sustained=tuple(map(_sustained, found.sustained)),
            resolutions_s={column.label: column.resolution_s for column in columns if column.resolution_s},
            turns=found.turns,
        )
    )


def _sustained(found: Sustained) -> SustainedPart:
    calls_s = [call_s for row in found.rows for call_s in row.wall_s]
    runs = [(row.run.samples, row.run.facts.get("pace", {})) for row in found.rows if row.run.samples is not None]
    paced = None
    if found.asked.every_s is not None:
        delays_ns = [delay for _, pace in runs for delay in pace.get("delay_ns", ())]
        paced = PacePart(
            every_s=found.asked.every_s,
            late=sum(pace.get("late", 0) for _, pace in runs),
            skipped=sum(pace.get("skipped", 0) for _, pace in runs),
            delay_p50_s=quantile(delays_ns, 0.5) * 1e-9 if delays_ns else None,
            delay_p99_s=quantile(delays_ns, 0.99) * 1e-9 if delays_ns else None,
        )
    return SustainedPart(
        label=found.label,
        for_s=found.asked.for_s,
        ran_s=found.rows[-1].at_s if found.rows else 0.0,
        parts=found.rows[-1].part + 1 if found.rows else 0,
        calls=sum(samples.inner * len(samples.wall_ns) for samples, _ in runs),
        samples=len(calls_s),
        p50_s=quantile(calls_s, 0.5) if calls_s else None,
        p90_s=quantile(calls_s, 0.9) if calls_s else None,
        p99_s=quantile(calls_s, 0.99) if calls_s else None,
        max_s=max(calls_s, default=None),
        first=found.first,
        last=found.last,
        searched=found.searched,
        changes=found.changes,
        slower_after_s=found.slower_after_s,
        paced=paced,
        cooling=found.cooling,
        failure=found.failure,
        blocks=_blocks(found.rows),
    )


def _blocks(rows: tuple[Row, ...]) -> SustainedColumns:
    def us(row: Row, q: float) -> float:
        return round(quantile(row.wall_s, q) * 1e6, 3)

    def pace(row: Row, name: str) -> int:
        return int(row.run.facts.get("pace", {}).get(name, 0))

    samples = [row.run.samples for row in rows if row.run.samples is not None]
    temperatures = [row.state.get("temperatures_c") for row in rows]
    return SustainedColumns(
        block=tuple(row.block for row in rows),
        part=tuple(row.part for row in rows),
        at_s=tuple(round(row.at_s, 3) for row in rows),
        calls=tuple(one.inner * len(one.wall_ns) for one in samples),
        p50_us=tuple(us(row, 0.5) for row in rows),
        p90_us=tuple(us(row, 0.9) for row in rows),
        p99_us=tuple(us(row, 0.99) for row in rows),
        max_us=tuple(us(row, 1.0) for row in rows),
        cpu_us=tuple(round(median(one.cpu_s) * 1e6, 3) for one in samples),
        late=tuple(pace(row, "late") for row in rows),
        skipped=tuple(pace(row, "skipped") for row in rows),
        frequency_khz=tuple(frequency_khz(row.state) for row in rows),
        temperature_c=tuple(max(found.values()) if found else None for found in temperatures),
        load_average_1m=tuple(row.state.get("load_average_1m") for row in rows),
        others_share=tuple(row.others_share for row in rows),
    )


def _column(column: Column) -> ColumnPart:
    return ColumnPart(
        label=column.label,
        level_s=column.level_s,
        against_fastest=parts.comparison_part(column.against_fastest),
        wall=parts.summary_part(column.wall),
        cpu=parts.summary_part(column.cpu),
        load_s=column.load_s,
        first_call_s=column.first_call_s,
        peak_rss_bytes=column.peak_rss_bytes,
        accelerators=column.accelerators,
        device_memory_bytes=held_bytes(column.measured),
        difference=parts.difference_part(column.difference),
        unattributed_s=column.breakdown.unattributed_s,
        profiler_overhead_s=column.breakdown.overhead_s,
        kernels=tuple(map(parts.kernel_part, column.kernels)),
        runs=parts.runs_part(column.measured, column.graph, column.traced),
        inside=tuple(map(_inside, column.inside)),
        settings=column.settings,
    )


def _inside(found: Derived) -> InsidePart:
    return InsidePart(
        derived=True,
        kernel=found.kernel.name,
        operators=found.kernel.operators,
        together=_seconds(found.together),
        steps=tuple(
            InsideStep(operators=s.operators, derived=_bounded(s.price), alone=_bounded(s.alone)) for s in found.steps
        ),
        saved=_seconds(found.saved),
        why=found.why or None,
    )


def _seconds(found: Seconds | None) -> DerivedSeconds | None:
    return None if found is None else _bounded(found)


def _bounded(found: Seconds) -> DerivedSeconds:
    return DerivedSeconds(value_s=found.value_s, low_s=found.low_s, high_s=found.high_s, processes=found.processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPart:
    """What ended the part of a device, or of a value."""

    kind: str
    message: str
    hint: str
    exit_code: int


def error_part(error: GnomonError) -> ErrorPart:
    """An error, in the words and with the code of the command line."""
    return ErrorPart(kind=type(error).__name__, message=error.message, hint=error.hint, exit_code=error.exit_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """What one device gave: its own document, or the error that ended it."""

    name: str
    placement: PlaceDocument | None
    error: ErrorPart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDocument:
    """All that `gnomon place` found on several devices: each one's own document."""

    format: Literal["gnomon-fleet"]
    version: Literal[3]
    model: str
    devices: tuple[DevicePart, ...]
    record: str
    seconds: float


def fleet_document(found: Fleet) -> dict[str, Any]:
    """All that `place_on` found, in JSON values; each placement has made its own document."""
    devices = (
        DevicePart(name=result.name, placement=None, error=None if result.error is None else error_part(result.error))
        for result in found.results
    )
    document = codec.document(
        FleetDocument(
            format="gnomon-fleet",
            version=3,
            model=str(found.model),
            devices=tuple(devices),
            record=str(found.record),
            seconds=found.seconds,
        )
    )
    for device, result in zip(document["devices"], found.results, strict=True):
        device["placement"] = None if result.placement is None else result.placement.document()
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPart:
    """For the `values` of one part, by dimension or input, its answer (`gnomon-place` or `-profile`) or its error."""

    values: Mapping[str, str]
    answer: Mapping[str, Any] | None
    error: ErrorPart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDocument:
    """What `gnomon place` or `gnomon profile` answered for each of several sizes or inputs."""

    format: Literal["gnomon-sweep"]
    version: Literal[1]
    model: str
    parts: tuple[SweepPart, ...]
    seconds: float


def answers_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The answers in a sweep's document; of another document itself."""
    if document["format"] != "gnomon-sweep":
        return [cast("dict[str, Any]", document)]
    return [part["answer"] for part in document["parts"] if part["answer"]]


def label_of(values: Mapping[str, str]) -> str:
    """The values of a part as text: "seq=16, batch=1"."""
    return ", ".join(f"{name}={value}" for name, value in values.items())
