"""The configurations of a placement or a profile as a Vega-Lite chart, made from the document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.vega import intervals


def configurations_chart(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """A bar for each configuration that ran: the median by the deciding clock, in milliseconds, with its interval."""
    clock = document["clock"]
    key = "cpu" if clock == "cpu" else "wall" if document["format"] == "gnomon-profile" else "measured"
    rows = [
        {
            "label": one["label"],
            "value": found["median_s"] * 1e3,
            "low": None if found["low_s"] is None else found["low_s"] * 1e3,
            "high": None if found["high_s"] is None else found["high_s"] * 1e3,
        }
        for one in document.get("contenders") or document.get("columns") or ()
        if (found := one[key]) is not None
    ]
    if not rows:
        return None
    return intervals(sorted(rows, key=lambda row: row["value"]), f"{'CPU' if clock == 'cpu' else 'wall'} time, ms")
