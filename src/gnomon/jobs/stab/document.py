"""The JSON document of `gnomon stab`, from which its report is made too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnomon.formats.onert.config import published_settings
from gnomon.jobs.place.document import place_document
from gnomon.session import summary as summaries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gnomon.core.stab import Priced
    from gnomon.jobs.stab.job import Scheduled


def stab_document(found: Scheduled, record: Path) -> dict[str, Any]:
    """All that `stab` found, in JSON values; docs/jobs/stab.md describes each. Times are in microseconds (`_us`)."""
    exact = found.exact
    ran = found.placement.verified.places if found.placement else {}
    published = {} if found.published is None else found.published.placed(exact.types)
    return {
        "format": "gnomon-stab",
        "version": 1,
        "nnpackage": summaries.model(found.model.path, found.model.graph),
        "threads": found.threads,
        "profiled": found.placement is not None,
        "written": "published" if found.compat else "exact",
        "package": str(found.package),
        "traces": [_trace(found, backend) for backend in found.traces.traces],
        "exact": {
            **_priced(exact.chosen, exact.prices_us),
            "optimal": exact.solution.optimal,
            "method": exact.solution.method,
            "mixes": exact.mixes,
            "best_single": exact.best_single,
            "lacks": list(exact.lacks),
        },
        "singles": {backend: single.predicted_us for backend, single in exact.singles.items()},
        "published": _published(found),
        "operators": [
            {
                "index": index,
                "type": type_,
                "times_us": dict(exact.prices_us[index]),
                "exact": exact.chosen.placement[index],
                "published": published.get(index),
                "written": found.written.get(index),
                "ran_on": ran.get(index) if not found.compat else None,
            }
            for index, type_ in exact.types.items()
        ],
        "proof": None if found.placement is None else place_document(found.placement, record),
        "doubts": summaries.doubts(found.doubts),
        "seconds": found.seconds,
    }


def _trace(found: Scheduled, backend: str) -> dict[str, Any]:
    trace = found.traces.traces[backend]
    origin = trace.origin
    return {
        "backend": backend,
        "file": str(found.traces.files[backend]),
        "whole_run_us": None if trace.graph is None else trace.graph.avg_us,
        "operators": len(trace.main),
        "device": origin and origin.device,
        "runtime": origin and origin.runtime,
        "taken_at_s": origin and origin.taken_at_s,
        "runs": origin and origin.runs,
    }


def _priced(priced: Priced, prices: Mapping[int, Mapping[str, float]]) -> dict[str, Any]:
    return {
        "predicted_us": priced.predicted_us,
        "counts": {
            backend: sum(1 for b in priced.placement.values() if b == backend)
            for backend in sorted({b for row in prices.values() for b in row})
        },
    }


def _published(found: Scheduled) -> dict[str, Any]:
    decision, price = found.published, found.published_price
    if decision is None or price is None:
        return {"decides": False, "why_not": found.why_not_published}
    return {
        "decides": True,
        "why_not": decision.ended_by or None,
        **_priced(price, found.exact.prices_us),
        "default": decision.default,
        "told_us": dict(decision.told_us),
        "scheduled_us": decision.scheduled_us,
        "settings": published_settings(decision, found.threads),
        "unlike_exact": [i for i, b in price.placement.items() if found.exact.chosen.placement[i] != b],
    }
