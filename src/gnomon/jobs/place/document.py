"""The JSON document of `gnomon place`, from which its report and its picture are made too.

The JSON document of `gnomon profile`, from which its report is made too.

The JSON document of `gnomon place` on several devices, from which its report is made too; docs/jobs/fleet.md.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gnomon.session import summary as summaries
from gnomon.session.contender import level
from gnomon.session.package import run_line

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.core.solver.solve import Solution
    from gnomon.jobs.place.common_plan import Common, Option
    from gnomon.jobs.place.fleet import CommonProof, DeviceResult, Fleet
    from gnomon.jobs.place.job import Column, OperatorRow, Placement, Profile
    from gnomon.session.contender import Proved


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
        "package": str(found.package) if found.package else None,
        "run": run_line(found.verdict.chosen.contender.candidate.environment),
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


def profile_document(found: Profile, record: Path) -> dict[str, Any]:
    """All that `profile` found, in JSON values; docs/commands.md describes each key."""
    return {
        "format": "gnomon-profile",
        "version": 1,
        "model": summaries.model(found.model, found.graph),
        "device": found.device,
        "versions": dict(found.versions),
        "clock": found.clock,
        "fastest": found.fastest.label,
        "tied": [c.label for c in found.columns if c.against_fastest and c.against_fastest.verdict == "tie"],
        "columns": [_column(column) for column in found.columns],
        "operators": [
            {
                "index": op.index,
                "name": op.name,
                "type": op.type,
                "macs": op.macs,
                "times_s": {column.label: column.breakdown.times_s.get(op.index) for column in found.columns},
                "within": {
                    c.label: c.breakdown.within[op.index] for c in found.columns if op.index in c.breakdown.within
                },
            }
            for op in found.graph.operators
        ],
        "missing": summaries.missing(found.missing),
        "doubts": summaries.doubts(found.doubts),
        "campaign": found.campaign,
        "record": str(record),
        "resumed": found.resumed,
        "seconds": found.seconds,
        "waited_s": found.waited_s,
    }


def _column(column: Column) -> dict[str, Any]:
    return {
        "label": column.label,
        "level_s": column.level_s,
        "against_fastest": summaries.comparison(column.against_fastest),
        "wall": summaries.summary(column.wall),
        "cpu": summaries.summary(column.cpu),
        "load_s": column.load_s,
        "first_call_s": column.first_call_s,
        "peak_rss_bytes": column.peak_rss_bytes,
        "difference": summaries.difference(column.difference),
        "unattributed_s": column.breakdown.unattributed_s,
        "profiler_overhead_s": column.breakdown.overhead_s,
        "kernels": [summaries.kernel(kernel) for kernel in column.kernels],
    }


def fleet_document(found: Fleet, record: Path) -> dict[str, Any]:
    """All that `place_on` found, in JSON values: each device's own document, and the plan that is best for all."""
    return {
        "format": "gnomon-fleet",
        "version": 1,
        "model": str(found.model),
        "devices": [_device(result, record) for result in found.results],
        "common": _common(found.common),
        "proofs": [_proof(proof) for proof in found.proofs],
        "record": str(record),
        "seconds": found.seconds,
    }


def _device(result: DeviceResult, record: Path) -> dict[str, Any]:
    error = result.error
    return {
        "name": result.name,
        "placement": None if result.placement is None else place_document(result.placement, record),
        "error": None
        if error is None
        else {"kind": type(error).__name__, "message": error.message, "hint": error.hint, "exit_code": error.exit_code},
    }


def _common(found: Common) -> dict[str, Any]:
    """The options, and the place in their list of that of least total time."""
    return {
        "options": [_option(option) for option in found.options],
        "least_total": None if found.total is None else found.options.index(found.total),
        "notes": list(found.notes),
    }


def _option(option: Option) -> dict[str, Any]:
    certificate = option.certificate
    return {
        "label": option.label,
        "configurations": list(option.configurations),
        "assignment": [option.backends[index] for index in sorted(option.backends)],
        "total": option.total,
        "worst": option.worst,
        "devices": {name: dataclasses.asdict(share) for name, share in option.shares.items()},
        "predicted_on": list(option.predicted_on),
        "certificate": None
        if certificate is None
        else {
            "method": certificate.method,
            "optimal": certificate.optimal,
            "total": certificate.total,
            "worst": certificate.worst,
            "bound": certificate.bound,
        },
    }


def _proof(proof: CommonProof) -> dict[str, Any]:
    return {
        "label": proof.label,
        "devices": {name: dataclasses.asdict(share) for name, share in proof.shares.items()},
        "failed": dict(proof.failed),
    }
