"""Charts as Vega-Lite specifications: plain JSON that notebooks and web pages draw, with their data inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.plain import finite

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
"""Names the version; nothing is fetched from there."""


def _known(rows: Sequence[Mapping[str, Any]], needed: Sequence[str]) -> list[dict[str, Any]]:
    """The rows that have what is drawn of them, with null for all else that is not known: JSON has no NaN."""
    made: list[dict[str, Any]] = [finite(row) for row in rows]
    return [row for row in made if all(row[name] is not None for name in needed)]


def intervals(rows: Sequence[Mapping[str, Any]], title: str) -> dict[str, Any]:
    """A bar a row (`label`, `value`) with its interval (`low` to `high`, null: not known); `title` names the values.

    A row without a value is left out; what is not finite is not known.
    """
    shown = _known(rows, ("value",))
    sort = [row["label"] for row in shown]
    label = {"field": "label", "type": "nominal", "sort": sort, "title": None, "axis": {"labelLimit": 240}}
    return {
        "$schema": SCHEMA,
        "data": {"values": shown},
        "encoding": {"y": label},
        "layer": [
            {
                "mark": {"type": "bar", "tooltip": {"content": "data"}},
                "encoding": {"x": {"field": "value", "type": "quantitative", "title": title}},
            },
            {
                "transform": [{"filter": "datum.low != null && datum.high != null"}],
                "mark": {"type": "rule", "strokeWidth": 2, "color": "black"},
                "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
            },
        ],
    }


def scatter(rows: Sequence[Mapping[str, Any]], titles: tuple[str, str]) -> dict[str, Any]:
    """A point a row (`label`, `x`, `y`, `kind`) with intervals (`x_low`, `x_high`, ..); `titles` are of the axes.

    As in `intervals`, rows without both values are left out.
    """

    def axis(field: str, title: str) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": False}}

    rules = [
        {
            "transform": [{"filter": f"datum.{name}_low != null && datum.{name}_high != null"}],
            "mark": {"type": "rule", "opacity": 0.5},
            "encoding": {
                name: axis(f"{name}_low", title),
                f"{name}2": {"field": f"{name}_high"},
                other: axis(other, other_title),
            },
        }
        for name, title, other, other_title in (
            ("x", titles[0], "y", titles[1]),
            ("y", titles[1], "x", titles[0]),
        )
    ]
    points = {
        "mark": {"type": "point", "filled": True, "size": 60, "tooltip": {"content": "data"}},
        "encoding": {
            "x": axis("x", titles[0]),
            "y": axis("y", titles[1]),
            "color": {"field": "kind", "type": "nominal", "title": None},
        },
    }
    return {"$schema": SCHEMA, "data": {"values": _known(rows, ("x", "y"))}, "layer": [*rules, points]}
