"""The JSON document of `gnomon pareto`, which its function returns; docs/jobs/pareto.md describes each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from gnomon.core.sample import Failure
from gnomon.core.space import Slot, Space, decimal
from gnomon.errors import MeasurementError, exit_code_of
from gnomon.measure.environment import Caveat
from gnomon.report.answer import Answer
from gnomon.report.conditions import ConditionsPart
from gnomon.report.plain import many
from gnomon.session.document import EnvironmentPart, GraphPart, ModelPart, OperatorPart, RunsPart
from gnomon.session.objectives import LATENCY, Estimate, goal_of
from gnomon.session.prove import Verified
from gnomon.session.targets import Missing

if TYPE_CHECKING:
    from gnomon.search.base import Assignment, Cost, Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivePart:
    """An objective, its unit, and how its number is obtained, in words."""

    name: str
    unit: str
    price: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpacePart:
    """The choices that were searched.

    `size` is the number of assignments. Sizes and codes are texts because they may be large. The slots from number
    `operator_slots` on are the configuration and the options.
    """

    by: str | None
    size: str
    codes: str
    operator_slots: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPart:
    """One search, or all searches together: the evaluations, and the share of the volume dominated after each result.

    `reference` is the corner of that volume.
    """

    name: str
    strategy: str
    seed: int
    evaluations: int
    predicted: bool
    failed: int
    replayed: int
    exhausted: bool
    seconds: float
    volume: tuple[float | None, ...]
    reference: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPart:
    """An assignment that the search ran or priced, and its cost in each objective (null: it failed)."""

    code: str
    label: str
    cost: tuple[float | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPart:
    """A point of the front (with a `number`, from 1), or a point that was measured together with the front.

    `estimates` has one estimate for each objective, in its unit, null if the point failed in the proof. `dominated_by`,
    `ties`, `maybe_dominated_by` and `beats` are indices among the points: a point that surely dominates this one; the
    points that noise makes indistinguishable from it in every objective; the points that are better in some objective
    and surely worse in none; and the points that it surely beats in an objective by more than 1 %. `single` is True if
    one backend takes all operators that it can. `clock` is the clock of its latency; `wall` is its latency by wall time
    if the clocks of the points differ. `runs` has its measurements in the proof, null without a proof.
    """

    number: int | None = None
    code: str
    label: str
    choices: tuple[str, ...]
    sampled: tuple[float | None, ...] | None
    estimates: tuple[Estimate, ...] | None = None
    clock: str | None = None
    wall: Estimate | None = None
    failure: Failure | None = None
    dominated_by: int | None = None
    ties: tuple[int, ...] = ()
    maybe_dominated_by: tuple[int, ...] = ()
    beats: tuple[int, ...] = ()
    single: bool = False
    runs: RunsPart | None = None


def by_one_clock(objectives: Sequence[str], point: PointPart) -> tuple[Estimate, ...]:
    """The estimates of a point by a clock that all points have: wall time if their clocks differ."""
    estimates = point.estimates or ()
    return tuple(
        point.wall if name == LATENCY and point.wall is not None else estimate
        for name, estimate in zip(objectives, estimates, strict=False)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPart:
    """An assignment that failed, and the reason."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ParetoDocument(Answer):
    """The answer of `gnomon pareto`. Fields about a device are null if a dump was searched.

    `points` are the points of the proof, the front first. `proved` is True if they were measured again side by side, in
    this number of `sessions`; otherwise their values are the samples. Points that were not measured again are counted
    by `left_out` if they are on the sampled front or within noise of it, and by `behind` if noise does not explain
    their distance. `noise` has, for each clock and objective, the largest difference between two processes of the same
    assignment. `clock` is the clock of the points, `sample_clock` the clock of the samples. `enough` is the number of a
    single backend on the front that no mix on the front surely beats, and `chosen` is the number of the point that was
    deployed to `package`. `seconds` does not include `waited_s`, the wait for the device.
    """

    format: Literal["gnomon-pareto"] = "gnomon-pareto"
    version: Literal[2] = 2
    source: str | None = None
    model: ModelPart | None = None
    graph: GraphPart | None = None
    operators: tuple[OperatorPart, ...] | None = None
    device: str | None = None
    fingerprint: Mapping[str, object] | None = None
    versions: Mapping[str, str] | None = None
    clock: str | None = None
    sample_clock: str | None = None
    objectives: tuple[ObjectivePart, ...]
    space: SpacePart
    search: SearchPart
    searches: tuple[SearchPart, ...]
    certificate: str | Mapping[str, float]
    samples: tuple[SampledPart, ...]
    proved: bool = False
    sessions: int = 0
    points: tuple[PointPart, ...]
    left_out: int = 0
    behind: int = 0
    noise: Mapping[str, tuple[float, ...]] | None = None
    enough: int | None = None
    failures: tuple[FailedPart, ...] = ()
    chosen: int | None = None
    verified: Verified | None = None
    package: str | None = None
    dumpfile: str | None = None
    pictures: tuple[str, ...] = ()
    sensitivity: float | None = None
    reference: str | None = None
    reference_checked_by: str | None = None
    missing: tuple[Missing, ...] = ()
    doubts: tuple[Caveat, ...]
    environments: tuple[EnvironmentPart, ...] = ()
    campaign: str | None = None
    record: str | None = None
    resumed: bool | None = None
    seconds: float
    waited_s: float = 0.0
    conditions: ConditionsPart | None = None

    charts_by = "gnomon.jobs.pareto.picture:front_charts"
    main = "points"

    def headline(self) -> tuple[str, str]:
        """The model and the device, or the dump, and the number of points on the front."""
        of = f"{Path(self.model.path).name} on {self.device}" if self.model else str(self.source)
        points = f"{many(len(self.front), 'point')} on the front"
        objectives = " and ".join(objective.name for objective in self.objectives)
        return of, f"{points} of {objectives}, {'measured again' if self.proved else 'as sampled'}."

    def brief_rows(self) -> list[dict[str, Any]]:
        """The points with each objective's value and interval; names end in the objective's unit."""
        rows = []
        for point in self.points:
            row: dict[str, Any] = {"number": point.number, "configuration": point.label}
            for objective, estimate in zip(self.objectives, point.estimates or (), strict=False):
                for part in ("value", "low", "high"):
                    words = (objective.name, part if part != "value" else "", objective.unit)
                    row["_".join(filter(None, words)).replace("-", "_")] = getattr(estimate, part)
            rows.append(row)
        return rows

    @property
    def exit_code(self) -> int:
        """The exit code of the document's doubts, or of a failed measurement if the package is refused."""
        refused = self.verified is not None and not (self.verified.ok or self.verified.skipped)
        return MeasurementError.exit_code if refused else exit_code_of(doubt.kind for doubt in self.doubts)

    @property
    def front(self) -> tuple[PointPart, ...]:
        """The points that nothing surely dominates."""
        return tuple(point for point in self.points if point.number is not None)


def objective_parts(names: tuple[str, ...], prices: Mapping[str, str]) -> tuple[ObjectivePart, ...]:
    """The objectives; `prices` describes in words how the number of each objective is obtained."""
    return tuple(ObjectivePart(name=name, unit=goal_of(name).unit, price=prices[name]) for name in names)


def space_part(space: Space, codes: Space, operator_slots: int, by: str | None) -> SpacePart:
    """A decision space, and the space of the codes."""
    return SpacePart(
        by=by, size=decimal(space.size), codes=decimal(codes.size), operator_slots=operator_slots, slots=space.slots
    )


class Coded(Protocol):
    """A space whose assignments have codes and labels."""

    @property
    def space(self) -> Space:
        """The choices."""

    def code(self, assignment: Assignment) -> int:
        """The published code of an assignment."""

    def label(self, assignment: Assignment) -> str:
        """An assignment in words."""


def point_part(coded: Coded, assignment: Assignment, cost: Cost | None) -> PointPart:
    """A point by the names of its choices, with the cost of one sample."""
    return PointPart(
        code=decimal(coded.code(assignment)),
        label=coded.label(assignment),
        choices=tuple(coded.space.names(assignment)),
        sampled=cost,
    )


def sample_parts(coded: Coded, trials: Sequence[Evaluation]) -> tuple[SampledPart, ...]:
    """The trials of a search, in order."""
    return tuple(
        SampledPart(code=decimal(coded.code(t.assignment)), label=coded.label(t.assignment), cost=t.cost)
        for t in trials
    )
