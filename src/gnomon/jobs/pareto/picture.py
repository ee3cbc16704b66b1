"""The picture of a front: every sampled point, the front with its intervals, and what the search reached when."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from gnomon.jobs.pareto.report import headline
from gnomon.report import units
from gnomon.report.labels import Label, named
from gnomon.report.plain import finite, shorten
from gnomon.report.vega import (
    CHOSEN,
    LOOKS,
    STAR,
    WIDTH,
    Key,
    Scale,
    Spec,
    bars,
    legend,
    line,
    line_key,
    picture,
    point_key,
    points,
    reach,
    scale_of,
    sentences,
    view,
    whole,
)

# Okabe and Ito's colours, which stay apart for people who are colour-blind; marks tell them apart in print.
_SAMPLE, _FRONT = "#999999", "#0072B2"
_HEIGHT = 400
_FARTHEST = 5.0
"""How many times the front's largest value a sample may be to be drawn."""

_LONGEST_BAR = 3.0
"""How many times its value an interval is drawn to: two processes may leave one without an end to speak of."""

_LEAST_SPAN = 0.1
"""The least span of an axis, as a share of its largest value: a difference below 1 % shall not look like one."""

_Places = tuple[float, float, "dict[str, int] | None"]
"""What to multiply the values of both axes with; and, where there is one objective alone, the place of each code."""


def front_spec(document: dict[str, Any]) -> Spec | None:
    """The picture of a pareto document as a specification of Vega-Lite; None where the front has no point.

    The first two objectives are the axes; a single one is drawn over the evaluations.
    """
    document = _known(_by_one_clock(finite(document)))
    if not any(point["number"] is not None for point in document["points"]):
        return None
    plot, keys = _plot(document)
    name = Path((document["model"] or {"path": document["source"]})["path"]).name
    where = f" on {shorten(document['device'], 30)}" if document["device"] else ""
    title = sentences(f"{shorten(name, 50)}{where}. {shorten(headline(document), 220)}")
    return picture([legend(keys, columns=2), plot, *_volume(document)], title)


def _known(document: dict[str, Any]) -> dict[str, Any]:
    """The document without the points and samples that have no place."""
    points = [
        p
        for p in document["points"]
        if p["estimates"] is None or all(e is not None and e["value"] is not None for e in p["estimates"])
    ]
    samples = [s | {"cost": None} if s["cost"] and None in s["cost"] else s for s in document["samples"]]
    return document | {"points": points, "samples": samples}


def _by_one_clock(document: dict[str, Any]) -> dict[str, Any]:
    """The document with all latencies by wall time, where the clocks of its points differ."""
    if document["clock"] != "mixed":
        return document
    which = next((k for k, o in enumerate(document["objectives"]) if o["name"] == "latency"), None)

    def one(point: dict[str, Any]) -> dict[str, Any]:
        if which is None or point["estimates"] is None:
            return point
        return point | {"estimates": [point["wall"] if k == which else e for k, e in enumerate(point["estimates"])]}

    named = [o | {"name": "latency by wall time"} if k == which else o for k, o in enumerate(document["objectives"])]
    return document | {"objectives": named, "points": [one(p) for p in document["points"]]}


def _axis(document: dict[str, Any], number: int) -> tuple[float, str]:
    """What to multiply an objective's values with, and the axis's label."""
    objective = document["objectives"][number]
    largest = max(p["estimates"][number]["value"] for p in document["points"] if p["number"] is not None)
    name = objective["name"].replace("-", " ")
    if objective["unit"] == "B":
        return 2.0**-20, f"{name}, MiB"
    if objective["unit"] in ("s", "J"):
        scale, unit = units.millis(largest)
        return scale, f"{name}, {unit.removesuffix('s')}{objective['unit']}"
    return 1.0, f"{name}, {objective['unit']}" if objective["unit"] else name


def _plot(document: dict[str, Any]) -> tuple[Spec, list[Key]]:
    """The samples, the front and what is behind it, and what their marks mean."""
    single = len(document["objectives"]) == 1
    x_factor, x_title = (1.0, "evaluation") if single else _axis(document, 0)
    y_factor, y_title = _axis(document, 0 if single else 1)
    order = {sample["code"]: k + 1 for k, sample in enumerate(document["samples"])}
    places = (x_factor, y_factor, order if single else None)
    all_samples = [(k + 1, s["cost"]) for k, s in enumerate(document["samples"]) if s["cost"] is not None]
    most = _within(document)
    near = [(k, cost) for k, cost in all_samples if all(c <= m for c, m in zip(cost[:2], most, strict=False))]
    samples = [{"x": k if single else cost[0] * x_factor, "y": cost[0 if single else 1] * y_factor} for k, cost in near]
    told = _sampled(document, beyond=len(all_samples) - len(near))
    measured = [point for point in document["points"] if point["estimates"] is not None]
    layers, keys = _measured(document, measured, places)
    dots: dict[str, Any] = {"shape": "circle", "colour": _SAMPLE, "size": 4}
    layers = [points(samples, **dots), *layers]
    x, y = scale_of(reach(layers, "x"), WIDTH), _no_magnifying_glass(scale_of(reach(layers, "y"), _HEIGHT))
    x = x if single else _no_magnifying_glass(x)
    if not single and len(document["objectives"]) == 2:
        layers.append(_stairs(document, places))
    letters = iter(ascii_lowercase)
    labels = [
        Label(
            at=_place(point, places),
            mark=str(point["number"]) if point["number"] is not None else next(letters, ""),
            name=shorten(point["label"], 44),
        )
        for point in measured
    ]
    numbers = {"values": whole(1, x.high)} if single else {}
    plot = view([*layers, *named(labels, x, y)], x.axis(x_title, **numbers), y.axis(y_title), (x.length, y.length))
    return plot, [point_key(told, **dots), *keys]


def _no_magnifying_glass(scale: Scale) -> Scale:
    missing = max(0.0, _LEAST_SPAN * max(abs(scale.low), abs(scale.high)) - (scale.high - scale.low))
    return Scale(low=scale.low - missing / 2, high=scale.high + missing / 2, length=scale.length)


def _measured(
    document: dict[str, Any], measured: Sequence[dict[str, Any]], places: _Places
) -> tuple[list[Spec], list[Key]]:
    """The points with estimates: what is behind the front, the front, the choice."""
    groups: dict[str, list[dict[str, Any]]] = {"behind": [], "front": [], "chosen": []}
    for point in measured:
        chosen = point["number"] is not None and point["number"] == document["chosen"]
        groups["chosen" if chosen else "front" if point["number"] is not None else "behind"].append(point)
    proved = f"the front, with 95 % intervals{_cut(document)}" if document["proved"] else "the front, as sampled"
    looks: dict[str, tuple[str, dict[str, Any]]] = {
        "behind": (
            "measured again and dominated",
            {"shape": "square", "colour": "#E69F00", "hollow": True},
        ),
        "front": (proved, {"shape": "circle", "colour": _FRONT}),
        "chosen": ("the choice", {"shape": STAR, "colour": CHOSEN, "size": 20}),
    }
    layers, keys = [], []
    for kind, (told, look) in looks.items():
        rows = [
            {"x": x, "y": y, "told": shorten(point["label"], 80)}
            for point in groups[kind]
            for x, y in [_place(point, places)]
        ]
        if rows:
            for along in "y" if places[2] is not None else "xy":
                layers += bars(list(_intervals(groups[kind], along, places)), along, look["colour"])
            layers.append(points(rows, **look))
            keys.append(point_key(told, **look))
    return layers, keys


def _place(point: dict[str, Any], places: _Places) -> tuple[float, float]:
    """Where a point lies: by two objectives, or by its evaluation and the only one."""
    x_scale, y_scale, order = places
    found = point["estimates"]
    if order is not None:
        return order.get(point["code"], 0), found[0]["value"] * y_scale
    return found[0]["value"] * x_scale, found[1]["value"] * y_scale


def _within(document: dict[str, Any]) -> list[float]:
    """How large a sample of the first objectives may be to be drawn: others would leave the front no room."""
    found = [point["estimates"] for point in document["points"] if point["estimates"] and point["number"] is not None]
    return [_FARTHEST * max(estimates[k]["value"] for estimates in found) for k in range(len(found[0][:2]))]


def _sampled(document: dict[str, Any], *, beyond: int) -> str:
    if document["search"]["predicted"]:
        return "by the prices"
    told = "sampled, one process each" if document["model"] else "in the dump"
    return f"{told} ({beyond} far outside)" if beyond else told


def _cut(document: dict[str, Any]) -> str:
    """Words for the legend where an interval is longer than it is drawn."""
    drawn = [e for p in document["points"] for e in (p["estimates"] or [])[:2]]
    longer = any(e["high"] is not None and e["high"] > _LONGEST_BAR * e["value"] for e in drawn)
    return f" (drawn to {_LONGEST_BAR:g} times a value at most)" if longer else ""


def _intervals(
    measured: Sequence[dict[str, Any]], along: str, places: _Places
) -> Iterator[tuple[float, float, float, float]]:
    """Places with the ends of their intervals: not at all where one is unknown, nor beyond thrice a value."""
    objective, factor = (0, places[0]) if along == "x" else (0 if places[2] is not None else 1, places[1])
    for point in measured:
        found = point["estimates"][objective]
        value, low, high = found["value"], found["low"], found["high"]
        down = value if low is None else min(low, value)
        up = value if high is None else max(value, min(high, _LONGEST_BAR * value))
        if up > down:
            yield (*_place(point, places), down * factor, up * factor)


def _stairs(document: dict[str, Any], places: _Places) -> Spec:
    """The border of what the front dominates."""
    front = [[e["value"] for e in p["estimates"]] for p in document["points"] if p["number"] is not None]
    best: list[tuple[float, float]] = []
    for x, y in sorted(front):
        if not best or y < best[-1][1]:
            best.append((x, y))
    steps = [(x * places[0], y * places[1]) for x, y in best] if len(best) > 1 else []
    return line(steps, _FRONT, interpolate="step-after", strokeWidth=1, strokeDash=[5, 3])


def _volume(document: dict[str, Any]) -> list[Spec]:
    """What each search had reached after so many evaluations, all in one box; nothing where no volume is known."""
    searches = document["searches"]
    most = max((len(search["volume"]) for search in searches), default=0)
    if not most:
        return []
    layers, keys = [], []
    for search, look in zip(searches, itertools.cycle(LOOKS)):
        told = f"{search['name']}, {units.duration(search['seconds'])}"
        # The last evaluation counts as much as any: its step is drawn too.
        shares = [*search["volume"], *search["volume"][-1:]]
        steps = [(count, 100 * share) for count, share in enumerate(shares, 1) if share is not None]
        style: dict[str, Any] = {"strokeDash": list(look.dash), "strokeWidth": 1.8}
        layers.append(line(steps, look.colour, interpolate="step-after", **style))
        keys.append(line_key(told, look.colour, **style))
    x, y = Scale(low=1, high=most + 1, length=WIDTH), Scale(low=0, high=102, length=110)
    title = "evaluations" if len(searches) > 1 else f"evaluations ({told})"
    axes = x.axis(title, values=whole(1, most + 1)), y.axis("hypervolume, %", tickCount=4)
    plot = view(layers, *axes, (x.length, y.length))
    return [plot, legend(keys, columns=3)] if len(searches) > 1 else [plot]
