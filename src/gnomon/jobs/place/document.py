"""The JSON documents of `gnomon place` on one or several devices, of `gnomon profile`, and of sweeps with either.

docs/formats/place-json.md describes each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gnomon.core.sample import Failure
from gnomon.core.stats import Comparison, Speedup, Summary
from gnomon.measure.environment import Caveat
from gnomon.report import units
from gnomon.report.answer import Answer
from gnomon.report.conditions import ConditionsPart, LimitPart
from gnomon.report.plain import listed
from gnomon.runtimes.base import Accelerator
from gnomon.session.document import DifferencePart, EnvironmentPart, GraphPart, ModelPart, OperatorPart, RunsPart
from gnomon.session.kernels import KernelPart
from gnomon.session.prove import Default, Verified
from gnomon.session.targets import Missing

if TYPE_CHECKING:
    from gnomon.errors import GnomonError


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPart:
    """The choice and its reason, in terms of contenders' labels; the speed-up is null if nothing is mixed.

    `default` is the fastest of the runtimes' defaults, null if none was measured. `undecided` states what the proof
    leaves open, "" if it decides.
    """

    chosen: str
    kind: str
    reason: str
    best_single: str
    speedup_vs_best_single: Speedup | None
    tied: tuple[str, ...]
    chosen_for: tuple[str, ...]
    default: Default | None = None
    undecided: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPart:
    """Measurements of the whole model in a configuration or a mix; `settings` are those that affect its times.

    `kernels` come from runs with the profiler on, everything else from runs without it. Older documents have no
    settings.
    """

    label: str
    cpu: Summary | None
    difference: DifferencePart | None
    peak_rss_bytes: int | None
    accelerators: tuple[Accelerator, ...] = ()
    device_memory_bytes: int | None = None
    kernels: tuple[KernelPart, ...]
    runs: RunsPart
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderPart(MeasuredPart):
    """An assignment that was measured as a whole in fresh processes, interleaved with the others.

    `settings` are those of its configurations, by their names. `breaks` states the limits that it breaks ("" for none);
    if it breaks any, it was measured only in the profile.
    """

    kind: str
    configurations: tuple[str, ...]
    predicted_s: float | None
    measured: Summary | None
    level_s: float | None
    prediction_error: float | None
    against_best: Comparison | None
    threads: int | None = 1
    usual: bool = False
    precision: str = "float32"
    failure: Failure | None
    breaks: str = ""
    assignment: tuple[str | None, ...]
    operators_s: tuple[float | None, ...]
    unattributed_s: float | None
    profiler_overhead_s: float | None

    def summary(self, clock: str) -> Summary | None:
        """The measured times by a clock; None if it did not run or the clock was not reported."""
        return self.cpu if clock == "cpu" else self.measured


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledOperator(OperatorPart):
    """An operator of the model, with its seconds in each configuration by the deciding clock.

    `within` is the operator whose seconds include this one's, because one kernel computes both.
    """

    times_s: Mapping[str, float | None]
    within: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedOperator(ProfiledOperator):
    """An operator of the model, with its seconds in each place."""

    planned: str | None
    ran_on: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionPart:
    """The solver's certificate; `code` is a string because many JSON readers round large integers."""

    method: str
    optimal: bool
    value_s: float
    bound_s: float | None
    width: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MeasuredDocument(Answer):
    """The common part of the documents about a measured model on one device.

    `resolutions_s` are the resolutions of coarse profilers in seconds, by configuration and mix: no operator's time is
    known more precisely. `seconds` is the duration of the job without `waited_s`, the time it waited for its device.
    """

    format: str
    version: int
    model: ModelPart
    graph: GraphPart
    device: str
    fingerprint: Mapping[str, Any]
    versions: Mapping[str, str]
    clock: str
    missing: tuple[Missing, ...]
    doubts: tuple[Caveat, ...]
    environments: tuple[EnvironmentPart, ...]
    campaign: str
    record: str
    resumed: bool
    seconds: float
    waited_s: float
    resolutions_s: Mapping[str, float] = field(default_factory=dict)
    threads: tuple[int, ...] = ()
    conditions: ConditionsPart | None = None


def _brief(wall: str, against: str) -> dict[str, str]:
    """The columns of a frame of configurations, given the keys of their wall time and of their comparison."""
    cpu = {"cpu_us": "cpu.median_s", "cpu_low_us": "cpu.low_s", "cpu_high_us": "cpu.high_s"}
    ratio = {"ratio": f"{against}.ratio", "ratio_low": f"{against}.low", "ratio_high": f"{against}.high"}
    return {"configuration": "label", **cpu, "wall_us": f"{wall}.median_s", **ratio}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeployDocument(Answer):
    """A package that was deployed to a device. `folder` and `unit` are paths on the device, and `run` is a command to
    run on it.

    `median_s` is the median of the `calls` of one run. `unlike` states the differences from the conditions in which the
    package was proved, "" for none.
    """

    format: Literal["gnomon-deployed"] = "gnomon-deployed"
    version: Literal[1] = 1
    package: str
    device: str
    folder: str
    run: str
    unit: str
    median_s: float
    calls: int
    unlike: str

    def headline(self) -> tuple[str, str]:
        """The package and the device, and the time of a call there."""
        name, took = Path(self.package).name, units.time(self.median_s)
        return f"{name} on {self.device}", f"{name} runs on {self.device}: {took} a call, the median of {self.calls}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlaceDocument(MeasuredDocument):
    """The answer of `gnomon place` on one device.

    `reference_checked_by` is the other runtime that computed the same outputs as the reference, "" without one (null in
    older documents). `reference_agreement` is the relative difference between the two. `limits_cost_s` is the
    additional time of the choice due to `limits`, null if it is not known.
    """

    format: Literal["gnomon-place"] = "gnomon-place"
    version: Literal[2] = 2
    decision: DecisionPart
    contenders: tuple[ContenderPart, ...]
    operators: tuple[PlacedOperator, ...]
    verified: Verified
    solutions: Mapping[str, SolutionPart]
    limits: tuple[LimitPart, ...] = ()
    limits_cost_s: float | None = None
    unattributed_s: Mapping[str, float]
    ideal_s: float | None
    why_not_mixed: str | None
    sensitivity: float | None
    reference: str | None
    reference_checked_by: str | None = None
    reference_agreement: float | None = None
    package: str | None
    run: str
    program: str | None = None
    pictures: tuple[str, ...]
    deployed: DeployDocument | None = None

    charts_by = "gnomon.jobs.place.picture:placement_charts"
    main = "contenders"
    brief = _brief("measured", "against_best")

    def headline(self) -> tuple[str, str]:
        """The model and the device, and the verdict."""
        return f"{Path(self.model.path).name} on {self.device}", self.decision.reason

    @property
    def chosen(self) -> ContenderPart:
        """The contender that was chosen."""
        return next(contender for contender in self.contenders if contender.label == self.decision.chosen)

    def ratios(self) -> dict[str, float]:
        """The times of the contenders that ran, by label, divided by that of the best single backend."""
        return {c.label: c.against_best.ratio if c.against_best else 1.0 for c in self.contenders if c.measured}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """A sum or difference of times by the deciding clock, with its 95 % interval (null with only one process).

    `processes` is the number of fresh processes in which each part was measured.
    """

    value_s: float
    low_s: float | None
    high_s: float | None
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideStep:
    """Operators of a kernel: `derived` is their price inside the kernel, `alone` their time as a separate model.

    The first step of a kernel includes the fixed cost of a call.
    """

    operators: tuple[int, ...]
    derived: Seconds
    alone: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class InsidePart:
    """A kernel of several operators taken apart; its times are derived from parts that were cut out and run.

    `together` is the time of its operators cut out and run as one model. `saved` is the additional time of the parts of
    the first round when run one by one: the time that fusing saves, plus a call for each part except one. `why` states
    what could not be taken apart (null: nothing). Without steps, the kernel was left whole.
    """

    derived: Literal[True] = True
    kernel: str
    operators: tuple[int, ...]
    together: Seconds | None = None
    steps: tuple[InsideStep, ...] = ()
    saved: Seconds | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPart(MeasuredPart):
    """One configuration that runs the whole model.

    `level_s` is the number that is compared, by the deciding clock: the median of CPU times, or the lower quintile of
    wall times. `against_fastest` is the interleaved comparison with the fastest column, null for the fastest itself.
    """

    level_s: float
    against_fastest: Comparison | None
    wall: Summary
    load_s: float
    first_call_s: float
    unattributed_s: float
    profiler_overhead_s: float
    inside: tuple[InsidePart, ...] = ()

    def summary(self, clock: str) -> Summary | None:
        """The measured times by a clock; None if the clock was not reported."""
        return self.cpu if clock == "cpu" else self.wall

    def typical_s(self, clock: str) -> float:
        """The time of a call as pages show it: the median by a clock, or the level if the clock was not reported."""
        summary = self.summary(clock)
        return summary.median_s if summary else self.level_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The level of the blocks between two change points: the median, the 10 % and the 90 % quantile of their
    medians.
    """

    seconds: float
    blocks: int
    median_s: float
    p10_s: float
    p90_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change to another level, at `at_s` of the run and `since_s` of its part.

    `before_s` and `after_s` are the levels on both sides. `seen` has the kinds of warnings that the device gave
    after the change (as in `Caveat`: "throttled", "busy", ..). `frequency_ratio` is the change of the cores' frequency,
    and `cpu_ratio` the change of a call's CPU time, which waiting for other processes does not affect. Each is None if
    it is not reported.
    """

    at_s: float
    part: int
    since_s: float
    before_s: float
    after_s: float
    seen: tuple[str, ...]
    frequency_ratio: float | None
    cpu_ratio: float | None

    @property
    def ratio(self) -> float:
        """The time of a call after the change, divided by that before."""
        return self.after_s / self.before_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooling:
    """A wait for the thermal zone that was furthest above its temperature at the start of the campaign.

    `to_c` is null if the temperature was no longer reported.
    """

    zone: str
    baseline_c: float
    from_c: float
    to_c: float | None
    waited_s: float
    reached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedColumns:
    """The blocks of a sustained run in order; each ended after `at_s` seconds of calling, in the process of its `part`.

    Times are microseconds per call; `cpu_us` is the median. `late` calls were still running when the next was due;
    `skipped` are slots in which no call began. `frequency_khz` is the mean over the cores, `temperature_c` is that of
    the hottest zone, and `others_share` is the share of the processors' time used by other processes since the previous
    block.
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
    """The punctuality of calls on a time grid: a call that still runs when the next is due is late and may skip slots.

    The delays are measured from a slot to the beginning of its call.
    """

    every_s: float
    late: int
    skipped: int
    delay_p50_s: float | None
    delay_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedPart:
    """One configuration called for a long time in one process, or in `parts` processes if it was interrupted.

    It was called by `streams` streams at once. With more than one, it ran in several processes: the quantiles are
    latencies under this load, and `request` is the time per request, summarised over processes; its reciprocal is the
    number of requests per second.

    The quantiles are over the `samples`, each of one call or the mean of a few short calls. `first` is the first minute
    and `last` the last one (a quarter of the run if it is shorter than four minutes). `searched` tells whether there
    were enough blocks to look for changes of level. After `slower_after_s` of calling, the calls became permanently
    slower (null: never).
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
    streams: int = 1
    request: Summary | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProfileDocument(MeasuredDocument):
    """The answer of `gnomon profile`: a column for each configuration with right outputs.

    `turns` are the campaigns, including its own, that were measured in turn, a fresh process of each at a time; null in
    older documents. The samples were looked at repeatedly until they decided; `look` is the share of the error
    probability that the last look may spend.
    """

    format: Literal["gnomon-profile"] = "gnomon-profile"
    version: Literal[2] = 2
    fastest: str
    tied: tuple[str, ...]
    columns: tuple[ColumnPart, ...]
    operators: tuple[ProfiledOperator, ...]
    sustained: tuple[SustainedPart, ...] = ()
    turns: tuple[str, ...] | None = None
    look: float = 1.0

    charts_by = "gnomon.jobs.place.picture:profile_charts"
    main = "columns"
    brief = _brief("wall", "against_fastest")

    def headline(self) -> tuple[str, str]:
        """The model and the device, and the fastest configuration."""
        of = f"{Path(self.model.path).name} on {self.device}"
        took = units.time(self.chosen.typical_s(self.clock))
        return of, f"{self.fastest} is the fastest of {len(self.columns)}: {took} a call."

    @property
    def chosen(self) -> ColumnPart:
        """The fastest column by the clock, which others may equal."""
        return next(column for column in self.columns if column.label == self.fastest)

    def ratios(self) -> dict[str, float]:
        """The times of the columns, by label, divided by that of the fastest."""
        return {c.label: c.against_fastest.ratio if c.against_fastest else 1.0 for c in self.columns}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPart:
    """The error that ended the part of a device or of a value."""

    kind: str
    message: str
    hint: str
    exit_code: int


def error_part(error: GnomonError) -> ErrorPart:
    """An error with the same wording and exit code as on the command line."""
    return ErrorPart(kind=type(error).__name__, message=error.message, hint=error.hint, exit_code=error.exit_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """The answer of one device: its own document, or the error that ended it."""

    name: str
    placement: PlaceDocument | None
    error: ErrorPart | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FleetDocument(Answer):
    """The answer of `gnomon place` on several devices: a document of each, in the order of the request."""

    format: Literal["gnomon-fleet"] = "gnomon-fleet"
    version: Literal[3] = 3
    model: str
    devices: tuple[DevicePart, ...]
    record: str
    seconds: float

    main = "devices"

    def headline(self) -> tuple[str, str]:
        """The model and the devices, and the number of devices that have a plan."""
        answer = f"{len(self.placements)} of {len(self.devices)} devices have a plan."
        return f"{Path(self.model).name} on {', '.join(device.name for device in self.devices)}", answer

    @property
    def exit_code(self) -> int:
        """The highest of its placements' exit codes."""
        return max((placement.exit_code for placement in self.placements.values()), default=0)

    @property
    def placements(self) -> dict[str, PlaceDocument]:
        """The placements of the devices that have one, by name."""
        return {device.name: device.placement for device in self.devices if device.placement is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPart:
    """The answer or the error for one part, which is given by its `values` for dimensions or inputs."""

    values: Mapping[str, str]
    answer: PlaceDocument | ProfileDocument | None
    error: ErrorPart | None

    @property
    def label(self) -> str:
        """The values as text: "seq=16, batch=1"."""
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepDocument(Answer):
    """The answers of `gnomon place` or `gnomon profile` for several sizes or inputs."""

    format: Literal["gnomon-sweep"] = "gnomon-sweep"
    version: Literal[1] = 1
    model: str
    parts: tuple[SweepPart, ...]
    seconds: float

    main = "parts"

    @property
    def answers(self) -> list[PlaceDocument | ProfileDocument]:
        """The answers of the parts that have one."""
        return [part.answer for part in self.parts if part.answer is not None]

    @property
    def exit_code(self) -> int:
        """The highest of its parts' exit codes."""
        return max([*(p.error.exit_code for p in self.parts if p.error), *(a.exit_code for a in self.answers)])

    def headline(self) -> tuple[str, str]:
        """The model, and the choice for each group of values."""
        by_choice: dict[str, list[str]] = {}
        for part in self.parts:
            if part.answer is not None:
                by_choice.setdefault(part.answer.chosen.label, []).append(part.label)
        name = Path(self.model).name
        if [len(labels) for labels in by_choice.values()] == [len(self.parts)]:
            return name, f"{next(iter(by_choice))} for all {len(self.parts)} cases."
        return name, f"{'; '.join(f'{choice} for {listed(labels)}' for choice, labels in by_choice.items())}."
