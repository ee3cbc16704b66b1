"""The JSON document of `gnomon place`, from which its report and its picture are made too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnomon.cli import summaries
from gnomon.jobs.contender import level

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.core.solve import Solution
    from gnomon.jobs.contender import Proved
    from gnomon.jobs.place import Placement
    from gnomon.jobs.rows import OperatorRow


def place_document(found: Placement, record: Path) -> dict[str, Any]:
    """All that `place` found, in JSON values; docs/commands.md describes each key."""
    return {
        "format": "gnomon-place",
        "version": 1,
        "model": summaries.model(found.model, found.graph),
        "device": found.device,
        "fingerprint": dict(found.fingerprint),
        "versions": dict(found.versions),
        "clock": found.clock,
        "decision": _decision(found),
        "contenders": [_contender(found, proved) for proved in found.verdict.proved],
        "operators": [_operator(row) for row in found.rows],
        "verified": {
            "ok": found.verified.ok,
            "skipped": found.verified.skipped,
            "moved": list(found.verified.moved),
            "difference": summaries.difference(found.verified.difference),
            "failure": summaries.failure(found.verified.failure),
        },
        "solutions": {name: _solution(solution) for name, solution in found.solutions.items()},
        "unattributed_s": {label: parts.unattributed_s for label, parts in found.breakdowns.items()},
        "ideal_s": found.ideal_s,
        "why_not_mixed": found.why_not_mixed or None,
        "sensitivity": float(found.sensitivity),
        "reference": found.sensitivity.reference or None,
        "missing": summaries.missing(found.missing),
        "doubts": summaries.doubts(found.doubts),
        "package": str(found.package),
        "pictures": [],
        "campaign": found.campaign,
        "record": str(record),
        "resumed": found.resumed,
        "seconds": found.seconds,
        "waited_s": found.waited_s,
    }


def _decision(found: Placement) -> dict[str, Any]:
    chosen, best = found.verdict.chosen, found.verdict.best_single
    speedup = None
    if chosen.contender.key != best.contender.key and chosen.against_best is not None:
        ratio = chosen.against_best
        speedup = {
            "ratio": 1 / ratio.ratio,
            "low": 1 / ratio.high,
            "high": 1 / ratio.low if ratio.low > 0 else None,
        }
    return {
        "chosen": chosen.contender.label,
        "kind": chosen.contender.kind,
        "reason": found.verdict.reason,
        "best_single": best.contender.label,
        "speedup_vs_best_single": speedup,
        "tied": list(found.verdict.tied),
        "chosen_for": list(found.verdict.chosen_for),
    }


def _contender(found: Placement, proved: Proved) -> dict[str, Any]:
    contender = proved.contender
    level_s = level(proved.measured, found.clock) if proved.ok else None
    predicted_s = contender.predicted_s
    error = predicted_s / level_s - 1 if predicted_s is not None and level_s else None
    backends = contender.backends
    parts = found.breakdowns.get(contender.label)
    # A model that was converted has operators of its own, which are not those of the rows.
    rows = found.rows if contender.graph is found.graph else ()
    return {
        "label": contender.label,
        "kind": contender.kind,
        "configurations": [part.configuration.name for part in contender.parts],
        "predicted_s": predicted_s,
        "measured": summaries.summary(proved.summary),
        "cpu": summaries.summary(proved.cpu),
        "level_s": level_s,
        "prediction_error": error,
        "against_best": summaries.comparison(proved.against_best),
        "difference": summaries.difference(proved.measured.fact("difference")),
        "peak_rss_bytes": proved.measured.fact("peak_rss_bytes"),
        "failure": summaries.failure(proved.measured.failure),
        "assignment": [backends.get(row.index) for row in rows],
        "operators_s": [parts.times_s.get(row.index) if parts else None for row in rows],
        "unattributed_s": parts.unattributed_s if parts else None,
        "profiler_overhead_s": parts.overhead_s if parts else None,
        "kernels": [summaries.kernel(kernel) for kernel in (parts.own if parts else ())],
    }


def _operator(row: OperatorRow) -> dict[str, Any]:
    return {
        "index": row.index,
        "name": row.name,
        "type": row.type,
        "macs": row.macs,
        "planned": row.planned or None,
        "ran_on": row.ran_on,
        "times_s": dict(row.times_s),
        "within": dict(row.within),
    }


def _solution(solution: Solution) -> dict[str, Any]:
    """The certificate; `code` is a text, as many readers of JSON round large integers."""
    from gnomon.core.space import decimal

    return {
        "method": solution.method,
        "optimal": solution.optimal,
        "value_s": solution.value,
        "bound_s": solution.bound,
        "width": solution.width,
        "code": decimal(solution.code),
    }
