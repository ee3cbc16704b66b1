"""The JSON document of `gnomon pareto`, from which its report and its picture are made too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnomon.core.space import decimal
from gnomon.session import summary as summaries

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.core.space import Space
    from gnomon.jobs.pareto.prove import Point
    from gnomon.jobs.pareto.records import Pareto
    from gnomon.jobs.pareto.search import Plan, Searched
    from gnomon.session.objectives import Estimate
    from gnomon.session.prove import Verified


def pareto_document(found: Pareto, record: Path) -> dict[str, Any]:
    """All that `pareto` found, in JSON values; docs/jobs/pareto.md describes each key. Codes are texts, being large."""
    from gnomon.session.objectives import GOALS

    asked, lived, searched = found.asked, found.lived, found.searched
    document: dict[str, Any] = {
        "format": "gnomon-pareto",
        "version": 1,
        "source": None if asked.source is None else str(asked.source),
        "objectives": [
            {"name": name, "unit": GOALS[name].unit, "price": found.prices[name]} for name in asked.objectives
        ],
        "space": _space(found, asked.by if lived else None),
        "search": _search(" and ".join(plan.name for plan in asked.plans), found.asked.plan, searched),
        "searches": [_search(plan.name, plan, made) for plan, made in zip(asked.plans, found.searches, strict=True)],
        "certificate": found.certificate.document(),
        "samples": [
            {"code": decimal(code), "label": label, "cost": None if told.cost is None else list(told.cost)}
            for told, (code, label) in zip(searched.told, found.samples, strict=True)
        ],
        "proved": found.proved,
        "sessions": found.sessions,
        "points": [_point(point, found.space) for point in found.points],
        "left_out": found.left_out,
        "behind": found.behind,
        "noise": None if found.noise is None else {clock: list(of) for clock, of in found.noise.items()},
        "enough": None if found.enough is None else found.enough.number,
        "failures": [{"label": label, "reason": reason} for label, reason in found.failures],
        "chosen": None if found.chosen is None else found.chosen.number,
        "verified": _verified(found.verified),
        "package": None if found.package is None else str(found.package),
        "dumpfile": None if found.dumpfile is None else str(found.dumpfile),
        "pictures": [],
        "missing": summaries.missing(found.missing),
        "doubts": summaries.doubts(found.doubts),
        "seconds": found.seconds,
        "waited_s": found.waited_s,
    }
    if lived is None:
        keys = ("model", "device", "clock", "sample_clock", "campaign", "record")
        return document | dict.fromkeys(keys)
    return document | {
        "model": summaries.model(lived.model, lived.graph),
        "device": lived.device,
        "fingerprint": dict(lived.fingerprint),
        "versions": dict(lived.versions),
        "clock": lived.clock,
        "sample_clock": lived.sample_clock,
        "sensitivity": None if lived.sensitivity is None else float(lived.sensitivity),
        "reference": getattr(lived.sensitivity, "reference", "") or None,
        "campaign": lived.campaign,
        "record": str(record),
        "resumed": lived.resumed,
    }


def _search(name: str, plan: Plan, searched: Searched) -> dict[str, Any]:
    predicted = plan.strategy == "exact"
    return {
        "name": name,
        "strategy": plan.strategy,
        "seed": plan.seed,
        "evaluations": 0 if predicted else len(searched.told),
        "predicted": predicted,
        "failed": sum(t.cost is None for t in searched.told),
        "replayed": searched.replayed,
        "exhausted": searched.exhausted,
        "seconds": searched.seconds,
        "volume": list(searched.volume),
        "reference": list(searched.reference),
    }


def _space(found: Pareto, by: str | None) -> dict[str, Any]:
    slots = found.space.slots
    return {
        "by": by,
        "size": decimal(found.space.size),
        "codes": decimal(found.published.size),
        "operator_slots": found.operator_slots,
        "slots": [{"name": slot.name, "choices": list(slot.choices)} for slot in slots],
    }


def _point(point: Point, space: Space) -> dict[str, Any]:
    return {
        "number": point.number,
        "code": decimal(point.code),
        "label": point.label,
        "choices": list(space.names(point.assignment)),
        "sampled": None if point.sampled is None else list(point.sampled),
        "estimates": None if point.estimates is None else [_estimate(e) for e in point.estimates],
        "clock": point.clock,
        "wall": None if point.wall is None else _estimate(point.wall),
        "failure": summaries.failure(point.failure),
        "dominated_by": point.dominated_by,
        "ties": list(point.ties),
        "maybe_dominated_by": list(point.maybe),
        "beats": list(point.beats),
        "single": point.single,
    }


def _estimate(found: Estimate) -> dict[str, Any]:
    return {"value": found.value, "low": found.low, "high": found.high}


def _verified(found: Verified | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "ok": found.ok,
        "skipped": found.skipped,
        "moved": list(found.moved),
        "difference": summaries.difference(found.difference),
        "failure": summaries.failure(found.failure),
    }
