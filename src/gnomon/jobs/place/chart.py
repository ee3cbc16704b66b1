"""The configurations of a placement or a profile as a Vega-Lite chart, made from the document."""

from __future__ import annotations

import math
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
            **{
                name: None if found[f"{of}_s"] is None else found[f"{of}_s"] * 1e3
                for name, of in (("value", "median"), ("low", "low"), ("high", "high"))
            },
        }
        for one in document.get("contenders") or document.get("columns") or ()
        if (found := one[key]) is not None
    ]
    known = [row for row in rows if row["value"] is not None and math.isfinite(row["value"])]
    if not known:
        return None
    return intervals(sorted(known, key=lambda row: row["value"]), f"{'CPU' if clock == 'cpu' else 'wall'} time, ms")
