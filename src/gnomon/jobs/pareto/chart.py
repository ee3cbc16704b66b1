"""The points of a front as a Vega-Lite chart, made from the document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.report.vega import scatter


def front_chart(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first two objectives of the points, with their intervals; None of one objective."""
    objectives = document["objectives"]
    rows = [
        {
            "label": point["label"],
            "kind": "front" if point["number"] is not None else "behind",
            **_place(point["estimates"][:2]),
        }
        for point in document["points"]
        if point["estimates"] is not None
    ]
    if len(objectives) < 2 or not rows:
        return None
    first, second = (f"{o['name'].replace('-', ' ')}, {o['unit']}" for o in objectives[:2])
    return scatter(rows, (first, second))


def _place(estimates: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        key: value
        for name, found in zip("xy", estimates, strict=False)
        for key, value in ((name, found["value"]), (f"{name}_low", found["low"]), (f"{name}_high", found["high"]))
    }
