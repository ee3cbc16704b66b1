"""The JSON document of `gnomon stab`, from which its report is made too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gnomon.core import codec
from gnomon.formats.onert.config import published_settings
from gnomon.jobs.place.document import PlaceDocument, placed
from gnomon.measure.environment import Doubt
from gnomon.session import document as parts
from gnomon.session.document import GraphPart, ModelPart

if TYPE_CHECKING:
    from gnomon.core.pricing.stab import Priced
    from gnomon.jobs.stab.job import Scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePart:
    """A trace file that the decision was made from: one backend's, as its writer noted where it is from."""

    backend: str
    file: str
    whole_run_us: int | None
    operators: int
    device: str | None
    runtime: str | None
    taken_at_s: float | None
    runs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPart:
    """The exact decision by the prices, and whether it is proved the least. `counts` are operators by backend."""

    predicted_us: float | None
    counts: Mapping[str, int]
    optimal: bool
    method: str
    mixes: bool
    best_single: str
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPart:
    """What the published scheduler decides by the same traces; all but `why_not` is null where it does not."""

    decides: bool
    why_not: str | None
    predicted_us: float | None = None
    counts: Mapping[str, int] | None = None
    default: str | None = None
    told_us: Mapping[str, int | None] | None = None
    scheduled_us: int | None = None
    settings: Mapping[str, str] | None = None
    unlike_exact: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledOperator:
    """An operator, its microseconds on each backend, and where each decision puts it."""

    index: int
    name: str
    type: str
    macs: int | None
    times_us: Mapping[str, float]
    exact: str
    published: str | None
    written: str | None
    ran_on: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StabDocument:
    """All that `gnomon stab` found. `proof` is the document of the placement that proved it, null without profiling."""

    format: Literal["gnomon-stab"]
    version: Literal[2]
    nnpackage: ModelPart
    graph: GraphPart
    threads: int
    profiled: bool
    written: str
    package: str
    traces: tuple[TracePart, ...]
    exact: ExactPart
    singles: Mapping[str, float | None]
    published: PublishedPart
    operators: tuple[ScheduledOperator, ...]
    proof: PlaceDocument | None
    doubts: tuple[Doubt, ...]
    seconds: float


def stab_document(found: Scheduled) -> dict[str, Any]:
    """All that `stab` found, in JSON values; docs/jobs/stab.md describes each. Times are in microseconds (`_us`)."""
    exact = found.exact
    ran = found.placement.verified.places if found.placement else {}
    published = {} if found.published is None else found.published.placed(exact.types)
    operators = {op.index: op for op in found.model.graph.operators}
    return codec.document(
        StabDocument(
            format="gnomon-stab",
            version=2,
            nnpackage=parts.model_part(found.model.path, found.model.graph),
            graph=parts.graph_part(found.model.graph),
            threads=found.threads,
            profiled=found.placement is not None,
            written="published" if found.compat else "exact",
            package=str(found.package),
            traces=tuple(_trace(found, backend) for backend in found.traces.traces),
            exact=ExactPart(
                predicted_us=exact.chosen.predicted_us,
                counts=_counts(exact.chosen, exact.prices_us),
                optimal=exact.solution.optimal,
                method=exact.solution.method,
                mixes=exact.mixes,
                best_single=exact.best_single,
                lacks=exact.lacks,
            ),
            singles={backend: single.predicted_us for backend, single in exact.singles.items()},
            published=_published(found),
            operators=tuple(
                ScheduledOperator(
                    index=index,
                    name=operators[index].name,
                    type=type_,
                    macs=operators[index].macs,
                    times_us=exact.prices_us[index],
                    exact=exact.chosen.placement[index],
                    published=published.get(index),
                    written=found.written.get(index),
                    ran_on=ran.get(index) if not found.compat else None,
                )
                for index, type_ in exact.types.items()
            ),
            proof=None if found.placement is None else placed(found.placement),
            doubts=found.doubts,
            seconds=found.seconds,
        )
    )


def _trace(found: Scheduled, backend: str) -> TracePart:
    trace = found.traces.traces[backend]
    origin = trace.origin
    return TracePart(
        backend=backend,
        file=str(found.traces.files[backend]),
        whole_run_us=None if trace.graph is None else trace.graph.avg_us,
        operators=len(trace.main),
        device=origin.device if origin else None,
        runtime=origin.runtime if origin else None,
        taken_at_s=origin.taken_at_s if origin else None,
        runs=origin.runs if origin else None,
    )


def _counts(priced: Priced, prices: Mapping[int, Mapping[str, float]]) -> dict[str, int]:
    backends = sorted({backend for row in prices.values() for backend in row})
    return {backend: sum(1 for b in priced.placement.values() if b == backend) for backend in backends}


def _published(found: Scheduled) -> PublishedPart:
    decision, price = found.published, found.published_price
    if decision is None or price is None:
        return PublishedPart(decides=False, why_not=found.why_not_published)
    return PublishedPart(
        decides=True,
        why_not=decision.ended_by or None,
        predicted_us=price.predicted_us,
        counts=_counts(price, found.exact.prices_us),
        default=decision.default,
        told_us=decision.told_us,
        scheduled_us=decision.scheduled_us,
        settings=published_settings(decision, found.threads),
        unlike_exact=tuple(i for i, b in price.placement.items() if found.exact.chosen.placement[i] != b),
    )
