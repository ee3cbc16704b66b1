"""The JSON document of `gnomon profile`, from which its report is made too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnomon.cli import summaries

if TYPE_CHECKING:
    from pathlib import Path

    from gnomon.jobs.profile import Column, Profile


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
