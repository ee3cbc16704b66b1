"""The pictures of a search space as specifications of Vega-Lite: networks, a front, toolchains, and a choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.jobs.space.points import ChoiceRow, Pair, Point
from gnomon.report import units
from gnomon.report.labels import Label, named
from gnomon.report.parts import networks, part, percent
from gnomon.report.parts import points as in_points
from gnomon.report.plain import SEVERAL, shorten
from gnomon.report.vega import (
    LOOKS,
    OF_SEVERAL,
    WIDTH,
    Key,
    Look,
    Scale,
    Spec,
    bars,
    cut,
    drawn,
    hatched,
    in_values,
    legend,
    line,
    line_key,
    picture,
    point_key,
    points,
    reach,
    scale_of,
    sentences,
    texts,
    view,
)

_FRONT, _PREDICTED, _MEASURED = "black", "#777777", "#0072B2"
_FILL, _KEPT, _CELL = "#0072B2", "black", "#dddddd"
_HEIGHT = 380
_MOST_BARS = 400
"""Of more networks the intervals would be a grey wall: their points alone are drawn."""

_FAINT: dict[str, Any] = {"opacity": 0.45, "strokeWidth": 1, "caps": 0}
_LEAST = 0.005
"""Below this frequency nothing is drawn: it would be a speck."""

_MOST_NUMBERS = 6
"""With more cell groups there is no room for numbers beside the bars."""

_ROOM, _WHOLE, _ROW = 0.5, 0.86, 26
"""Width of a bar beside its number and without one, in cells; height of a row in pixels."""


def _looks(families: Sequence[str]) -> dict[str, Look]:
    """How the networks of each family are drawn, and those of several."""
    return {**{name: LOOKS[k % len(LOOKS)] for k, name in enumerate(families)}, SEVERAL: OF_SEVERAL}


def networks_spec(found: Sequence[Point], families: Sequence[str], toolchain: str) -> Spec:
    """Accuracy against latency of every network: a shape a family, one-change variants hollow, the front as steps."""
    looks, (factor, unit) = _looks(families), units.millis(max(one.latency_s for one in found))

    def at(one: Point) -> tuple[float, float]:
        return factor * one.latency_s, 100 * one.accuracy

    def rows(own: Sequence[Point]) -> list[Spec]:
        return [{"x": at(one)[0], "y": at(one)[1], "told": shorten(one.name, 80)} for one in own]

    layers = []
    for name, look in looks.items():
        for trained in (True, False) if len(found) <= _MOST_BARS else ():
            own = [one for one in found if one.family == name and one.trained == trained]
            dash: dict[str, Any] = {} if trained else {"strokeDash": [1.5, 2]}
            ups = [_bar(at(one), one.accuracies, 100) for one in own]
            layers += bars(ups, "y", look.colour, **_FAINT, **dash)
            acrosses = [_bar(at(one), one.latency, factor) for one in own if one.latency is not None]
            layers += bars(acrosses, "x", look.colour, **_FAINT)
    for name, look in looks.items():
        for single in (True, False):
            own = [one for one in found if one.family == name and one.single == single]
            layers.append(points(rows(own), look.shape, look.colour, hollow=single))
    chosen = [one for one in found if one.chosen]
    layers.append(points(rows(chosen), "circle", _FRONT, size=17, fill="transparent"))
    x, y = scale_of(reach(layers, "x"), WIDTH), scale_of(reach(layers, "y"), _HEIGHT)
    front = sorted((one for one in found if one.front), key=lambda one: one.latency_s)
    layers.append(_steps([at(one) for one in front], x))
    # Those without a name are not to be covered.
    names = [Label(at=at(one), mark="", name=shorten(one.name, 28)) for one in front]
    names += [Label(at=at(one), mark="", name="") for one in found if not one.front]
    axes = _axes(x, y, toolchain, unit)
    plot = view([*layers, *named(names, x, y)], *axes, (x.length, y.length))
    return picture([plot, _networks_legend(found, looks)], sentences(_networks_title(found, front, chosen)))


def _bar(at: tuple[float, float], ends: Sequence[float], factor: float) -> tuple[float, float, float, float]:
    """A place with the ends of an interval there."""
    return (*at, factor * ends[0], factor * ends[1])


def _steps(best: Sequence[tuple[float, float]], x: Scale) -> Spec:
    """The border of what a front dominates, which goes on to the right."""
    places = [*best, (x.high, best[-1][1])] if best else []
    return line(places, _FRONT, interpolate="step-after", strokeWidth=1.3)


def _axes(x: Scale, y: Scale, toolchain: str, unit: str) -> tuple[Spec, Spec]:
    grid = {"grid": True, "gridColor": "#eeeeee"}
    across = x.axis(f"latency by {shorten(toolchain, 40)}, {unit}", **grid)
    return across, y.axis("validation accuracy, %", **grid)


def _networks_title(found: Sequence[Point], front: Sequence[Point], chosen: Sequence[Point]) -> str:
    told = f"{len(found)} networks, {len(front)} of them on the front of accuracy and latency"
    if chosen:
        verb, inside = "is" if len(chosen) == 1 else "are", sum(one.chosen for one in front)
        told += f"; {len(chosen)} {verb} made of kept primitives alone, {inside} of these on the front"
    return f"{told}. Intervals are of 95 %."


def _networks_legend(found: Sequence[Point], looks: Mapping[str, Look]) -> Spec:
    keys = _families(looks, [one.family for one in found])
    for single, told in ((True, "hollow: default or one-change variant"), (False, "filled: mixed")):
        if any(one.single == single for one in found):
            keys.append(point_key(told, "circle", "#555555", hollow=single))
    if any(one.chosen for one in found):
        keys.append(point_key("ring: all its primitives are kept", "circle", "black", size=15, fill="transparent"))
    keys.append(line_key("the front", _FRONT, strokeWidth=1.3))
    if not all(one.trained for one in found):
        keys.append(line_key("dotted: accuracy believed, not trained", "#555555", strokeDash=[1.5, 2]))
    return legend(keys, columns=3)


def _families(looks: Mapping[str, Look], there: Sequence[str]) -> list[Key]:
    return [point_key(shorten(name, 24), look.shape, look.colour) for name, look in looks.items() if name in there]


def front_spec(document: Mapping[str, Any]) -> Spec:
    """Accuracy against latency of a front's networks: hollow as predicted, filled as measured, the best as steps."""
    rows = document["networks"]
    factor, unit = units.millis(max(one["predicted"]["latency_s"][0] for one in rows))
    predicted = [one["predicted"] for one in rows]
    both = [(one, one["measured"]) for one in rows if _whole(one["measured"])]
    ways = [
        {"x": _place(one["predicted"], factor)[0], "y": _place(one["predicted"], factor)[1], "x2": x, "y2": y}
        for one, found in both
        for x, y in [_place(found, factor)]
    ]
    layers = [drawn("rule", ways, color="#cccccc", strokeWidth=1)]
    layers += _front_points(predicted, factor, _PREDICTED, hollow=True)
    layers += _front_points([found for _, found in both], factor, _MEASURED, hollow=False)
    x, y = scale_of(reach(layers, "x"), WIDTH), scale_of(reach(layers, "y"), _HEIGHT)
    layers.append(_steps(sorted(_place(one["measured"], factor) for one in rows if one["best"]), x))
    bound = document["latency_bound_s"]
    if bound is not None:
        limit = [{"x": factor * bound, "y": y.low, "y2": y.high}]
        layers += cut([drawn("rule", limit, color=_FRONT, strokeWidth=1, strokeDash=[1.5, 2])], x, y)
    keys = [point_key("predicted", "circle", _PREDICTED, hollow=True)]
    if document["measured"] is not None:
        keys += [point_key("measured", "circle", _MEASURED), line_key("the best of these", _FRONT, strokeWidth=1.3)]
    plot = view(layers, *_axes(x, y, document["toolchain"], unit), (x.length, y.length))
    told = f"{len(rows)} networks that are predicted to be best. Intervals are of 95 %."
    return picture([plot, legend(keys, columns=3)], sentences(told))


def _whole(found: Mapping[str, Any] | None) -> bool:
    return found is not None and None not in (found["accuracy"], found["latency_s"])


def _place(told: Mapping[str, Any], factor: float) -> tuple[float, float]:
    return factor * told["latency_s"][0], 100 * told["accuracy"][0]


def _front_points(found: Sequence[Mapping[str, Any]], factor: float, colour: str, *, hollow: bool) -> list[Spec]:
    places = [_place(one, factor) for one in found]
    ups = [_bar(at, one["accuracy"][1:], 100) for at, one in zip(places, found, strict=True)]
    acrosses = [_bar(at, one["latency_s"][1:], factor) for at, one in zip(places, found, strict=True)]
    dots = points([{"x": x, "y": y} for x, y in places], "circle", colour, hollow=hollow, size=8)
    return [*bars(ups, "y", colour, **_FAINT), *bars(acrosses, "x", colour, **_FAINT), dots]


def quantised_spec(sides: Sequence[tuple[Mapping[str, Any], Sequence[Pair]]], families: Sequence[str]) -> Spec:
    """The latency of each network quantised against that in float32, a row for each quantised toolchain."""
    looks, views = _looks(families), []
    for compared, pairs in sides:
        factor, unit = units.millis(max(max(one.plain_s, one.quantised_s) for one in pairs))
        ratio = compared["ratio"]
        most_x = 1.06 * factor * max(one.plain_s for one in pairs)
        most_y = 1.06 * factor * max(max(one.quantised_s for one in pairs), ratio * max(p.plain_s for p in pairs))
        x, y = Scale(low=0, high=most_x, length=WIDTH), Scale(low=0, high=most_y, length=300)
        told = f"{units.digits(ratio)} times as long, the median; faster on {compared['faster']} of {len(pairs)}"
        full: dict[str, Any] = {"strokeWidth": 1.1}
        dashed: dict[str, Any] = {"strokeWidth": 1.3, "strokeDash": [6, 3]}
        ends = [min(most_x, most_y), min(most_x, most_y / ratio)]
        layers = [
            line([(0, 0), (ends[0], ends[0])], "black", **full),
            line([(0, 0), (ends[1], ratio * ends[1])], "black", **dashed),
        ]
        for name, look in looks.items():
            own = [one for one in pairs if one.family == name]
            few = own if len(pairs) <= _MOST_BARS else []
            at = {id(one): (factor * one.plain_s, factor * one.quantised_s) for one in own}
            acrosses = [_bar(at[id(one)], one.plain, factor) for one in few if one.plain]
            ups = [_bar(at[id(one)], one.quantised, factor) for one in few if one.quantised]
            both = [*bars(acrosses, "x", look.colour, **_FAINT), *bars(ups, "y", look.colour, **_FAINT)]
            layers += cut(both, x, y)
            layers.append(points([{"x": a, "y": b} for a, b in at.values()], look.shape, look.colour))
        keys = [line_key("as long as in float32", "black", **full), line_key(told, "black", **dashed)]
        across = x.axis(f"by {shorten(compared['twin'], 40)}, {unit}")
        up = y.axis(f"by {shorten(compared['toolchain'], 30)}, {unit}")
        views += [legend(keys, columns=2), view(layers, across, up, (x.length, y.length))]
    there = [one.family for _, pairs in sides for one in pairs]
    title = "Networks quantised and in float32: below the full line quantising makes them faster."
    return picture([*views, legend(_families(looks, there), columns=4)], [title])


def choice_spec(rows: Sequence[ChoiceRow], selection: Mapping[str, Any]) -> Spec:
    """A matrix of primitives and cell groups: a bar as long as the frequency, a thick frame around what is kept."""
    groups = len(rows[0].kept)
    x = Scale(low=-0.52, high=groups - 0.48, length=480)
    y = Scale(low=len(rows) - 0.48, high=-0.52, length=_ROW * len(rows))
    cells = [(at, k, row) for k, row in enumerate(rows) for at in range(groups)]
    known = any(share is not None for row in rows for share in row.frequencies)
    room = _ROOM if groups <= _MOST_NUMBERS else _WHOLE
    every = [_box(at, k, (-0.5, 0.5), 0.5) for at, k, _ in cells]
    kept = [_box(at, k, (-0.46, 0.46), 0.44) for at, k, row in cells if row.kept[at]]
    filled, numbers = [], []
    for at, k, row in cells:
        share = row.frequencies[at]
        if share is not None and share >= _LEAST:
            filled.append(_box(at, k, (-0.43, -0.43 + room * min(share, 1.0)), 0.22))
        if share is not None and room < _WHOLE:
            numbers.append({"x": at + 0.42, "y": k, "text": units.share(share)})
    frame = {"fill": "transparent", "stroke": _KEPT, "strokeWidth": 2.4}
    borders = [
        {"x": -0.5, "x2": groups - 0.5, "y": k - 0.5}
        for k in range(1, len(rows))
        if rows[k].family != rows[k - 1].family
    ]
    pixels = [
        (x.place(b["x"]), y.length - y.place(b["y"]), x.place(b["x2"]), y.length - y.place(b["y2"])) for b in kept
    ]
    layers = [
        drawn("rect", every, fill="transparent", stroke=_CELL, strokeWidth=0.8),
        drawn("rect", filled, fill=_FILL),
        *([] if known else in_values(hatched("/", pixels), x, y)),
        drawn("rect", kept, **frame),
        drawn("rule", borders, color="black", strokeWidth=1.8),
        *texts(numbers, align="right"),
        *texts(
            [{"x": x.low, "y": k, "text": shorten(row.name, 26)} for k, row in enumerate(rows)], align="right", dx=-6
        ),
        *texts([{"x": x.high, "y": k, "text": shorten(row.meaning, 24)} for k, row in enumerate(rows)], dx=6),
    ]
    bare = {"domain": False, "ticks": False}
    across = x.axis("cell group", orient="top", values=list(range(groups)), **bare)
    plot = view(layers, across, y.axis(None), (x.length, y.length))
    keys = [Key(text="framed: kept", looks=(("rect", frame),), hatch="" if known else "/")]
    if known:
        told = "bar: share of posterior samples in which the primitive is on the front"
        keys.append(Key(text=told, looks=(("rect", {"fill": _FILL}),)))
    return picture([plot, legend(keys, columns=2)], sentences(_title(selection)))


def _box(at: int, row: int, ends: tuple[float, float], half: float) -> Spec:
    return {"x": at + ends[0], "x2": at + ends[1], "y": row - half, "y2": row + half}


def _title(selection: Mapping[str, Any]) -> str:
    after, before = selection["networks_after"], selection["networks_before"]
    told = (
        f"Kept by the rule {selection['rule']} for {selection['toolchain']}: {networks(after)} of {networks(before)} "
        f"networks ({part(after, before)})"
    )
    if selection.get("share_kept"):
        value, low, high = selection["share_kept"]
        told += f", with {percent(value)} [{in_points(low)}, {in_points(high)}] of the expected hypervolume"
    return f"{told}."
