"""The JSON document of `gnomon pareto`, from which its report and its picture are made too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gnomon.core import codec
from gnomon.core.sample import Failure
from gnomon.core.space import decimal
from gnomon.errors import exit_code_of
from gnomon.jobs.place.document import VerifiedPart, verified_part
from gnomon.measure.environment import Doubt
from gnomon.session import document as parts
from gnomon.session.document import ConditionsPart, EnvironmentPart, GraphPart, ModelPart, OperatorPart, RunsPart
from gnomon.session.objectives import Estimate
from gnomon.session.reference import Sensitivity, checked_by
from gnomon.session.targets import Missing

if TYPE_CHECKING:
    from gnomon.core.space import Space
    from gnomon.jobs.pareto.prove import Point
    from gnomon.jobs.pareto.records import Pareto
    from gnomon.jobs.pareto.search import Plan, Searched


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivePart:
    """What is minimised, in which unit, and what its number is made of."""

    name: str
    unit: str
    price: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPart:
    """What takes one choice, and the choices."""

    name: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpacePart:
    """The choices that were searched: so many assignments (`size`), and codes of them, which are texts as both are
    large. Slots from `operator_slots` on are options.
    """

    by: str | None
    size: str
    codes: str
    operator_slots: int
    slots: tuple[SlotPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPart:
    """One search, or all together: what it asked, and the share of the volume that was dominated after each result.

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
    """A point of the front (with a `number`), or one that was measured beside it.

    `estimates` has one an objective, in its unit. `dominated_by`, `ties`, `maybe_dominated_by` and `beats` are indices
    among the points. `runs` is what the proof measured of it, null where there was none.
    """

    number: int | None
    code: str
    label: str
    choices: tuple[str, ...]
    sampled: tuple[float | None, ...] | None
    estimates: tuple[Estimate, ...] | None
    clock: str | None
    wall: Estimate | None
    failure: Failure | None
    dominated_by: int | None
    ties: tuple[int, ...]
    maybe_dominated_by: tuple[int, ...]
    beats: tuple[int, ...]
    single: bool
    runs: RunsPart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPart:
    """An assignment that failed, and why."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoDocument:
    """All that `gnomon pareto` found. What a device says is null where a dump was searched."""

    format: Literal["gnomon-pareto"]
    version: Literal[2]
    source: str | None
    model: ModelPart | None
    graph: GraphPart | None
    operators: tuple[OperatorPart, ...] | None
    device: str | None
    fingerprint: Mapping[str, Any] | None
    versions: Mapping[str, str] | None
    clock: str | None
    sample_clock: str | None
    objectives: tuple[ObjectivePart, ...]
    space: SpacePart
    search: SearchPart
    searches: tuple[SearchPart, ...]
    certificate: str | Mapping[str, float]
    samples: tuple[SampledPart, ...]
    proved: bool
    sessions: int
    points: tuple[PointPart, ...]
    left_out: int
    behind: int
    noise: Mapping[str, tuple[float, ...]] | None
    enough: int | None
    failures: tuple[FailedPart, ...]
    chosen: int | None
    verified: VerifiedPart | None
    package: str | None
    dumpfile: str | None
    pictures: tuple[str, ...]
    sensitivity: float | None
    reference: str | None
    reference_checked_by: str | None = None
    missing: tuple[Missing, ...]
    doubts: tuple[Doubt, ...]
    environments: tuple[EnvironmentPart, ...]
    campaign: str | None
    record: str | None
    resumed: bool | None
    seconds: float
    waited_s: float
    conditions: ConditionsPart | None = None


def pareto_document(found: Pareto) -> dict[str, Any]:
    """All that `pareto` found, in JSON values; docs/jobs/pareto.md describes each key. Codes are texts, being large."""
    from gnomon.session.objectives import goal_of

    asked, lived, searched = found.asked, found.lived, found.searched
    labels = parts.labels_of({point.label: point.measured for point in found.points if point.measured})
    return codec.document(
        ParetoDocument(
            format="gnomon-pareto",
            version=2,
            source=None if asked.source is None else str(asked.source),
            model=parts.model_part(lived.model, lived.graph) if lived else None,
            graph=parts.graph_part(lived.graph) if lived else None,
            operators=parts.operator_parts(lived.graph) if lived else None,
            device=lived.device if lived else None,
            conditions=lived.conditions if lived else None,
            fingerprint=lived.fingerprint if lived else None,
            versions=lived.versions if lived else None,
            clock=lived.clock if lived else None,
            sample_clock=lived.sample_clock if lived else None,
            objectives=tuple(
                ObjectivePart(name=name, unit=goal_of(name).unit, price=found.prices[name]) for name in asked.objectives
            ),
            space=_space(found, asked.by if lived else None),
            search=_search(" and ".join(plan.name for plan in asked.plans), asked.plan, searched),
            searches=tuple(
                _search(plan.name, plan, made) for plan, made in zip(asked.plans, found.searches, strict=True)
            ),
            certificate=found.certificate.document(),
            samples=tuple(
                SampledPart(code=decimal(code), label=label, cost=told.cost)
                for told, (code, label) in zip(searched.told, found.samples, strict=True)
            ),
            proved=found.proved,
            sessions=found.sessions,
            points=tuple(_point(point, found.space) for point in found.points),
            left_out=found.left_out,
            behind=found.behind,
            noise=None if found.noise is None else {str(clock): of for clock, of in found.noise.items()},
            enough=None if found.enough is None else found.enough.number,
            failures=tuple(FailedPart(label=label, reason=reason) for label, reason in found.failures),
            chosen=None if found.chosen is None else found.chosen.number,
            verified=None if found.verified is None else verified_part(found.verified),
            package=None if found.package is None else str(found.package),
            dumpfile=None if found.dumpfile is None else str(found.dumpfile),
            pictures=found.pictures,
            sensitivity=float(lived.sensitivity) if lived else None,
            reference=(getattr(lived.sensitivity, "reference", "") or None) if lived else None,
            reference_checked_by=_checked_by(found),
            missing=tuple(dict.fromkeys(found.missing)),
            doubts=found.doubts,
            environments=parts.environment_parts(lived.environments, labels) if lived else (),
            campaign=lived.campaign if lived else None,
            record=str(lived.record) if lived else None,
            resumed=lived.resumed if lived else None,
            seconds=found.seconds,
            waited_s=found.waited_s,
        )
    )


def _checked_by(found: Pareto) -> str | None:
    """Who else computed the reference's outputs; null where there is no reference."""
    if found.lived is None or not isinstance(found.lived.sensitivity, Sensitivity):
        return None
    measured = ((p.contender, p.measured) for p in found.points if p.contender and p.measured)
    proves_nothing = exit_code_of(doubt.kind for doubt in found.doubts)
    return "" if proves_nothing else checked_by(found.lived.sensitivity, measured)


def _search(name: str, plan: Plan, searched: Searched) -> SearchPart:
    predicted = plan.strategy == "exact"
    return SearchPart(
        name=name,
        strategy=plan.strategy,
        seed=plan.seed,
        evaluations=0 if predicted else len(searched.told),
        predicted=predicted,
        failed=sum(t.cost is None for t in searched.told),
        replayed=searched.replayed,
        exhausted=searched.exhausted,
        seconds=searched.seconds,
        volume=searched.volume,
        reference=searched.reference,
    )


def _space(found: Pareto, by: str | None) -> SpacePart:
    return SpacePart(
        by=by,
        size=decimal(found.space.size),
        codes=decimal(found.published.size),
        operator_slots=found.operator_slots,
        slots=tuple(SlotPart(name=slot.name, choices=slot.choices) for slot in found.space.slots),
    )


def _point(point: Point, space: Space) -> PointPart:
    return PointPart(
        number=point.number,
        code=decimal(point.code),
        label=point.label,
        choices=tuple(space.names(point.assignment)),
        sampled=point.sampled,
        estimates=point.estimates,
        clock=point.clock,
        wall=point.wall,
        failure=point.failure,
        dominated_by=point.dominated_by,
        ties=point.ties,
        maybe_dominated_by=point.maybe,
        beats=point.beats,
        single=point.single,
        runs=None if point.measured is None else parts.runs_part(point.measured),
    )
