"""The picture of an estimator: predicted against measured, what is left over by unit, and what more samples brought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnomon.jobs.estimator.report import percent
from gnomon.report import units
from gnomon.report.plain import shorten
from gnomon.report.vega import (
    FAT_CROSS,
    GRID,
    Key,
    Scale,
    Spec,
    bars,
    cut,
    drawn,
    legend,
    line,
    line_key,
    picture,
    point_key,
    points,
    scale_of,
    view,
)

# Okabe and Ito's colours, which stay apart for people who are colour-blind; marks tell them apart in print.
_IN, _OUT, _SECOND = "#0072B2", "#D55E00", "#009E73"
_UNITS = 12
_MOST_BARS = 400
"""Of more nets the intervals would be a grey wall: their points alone are drawn."""

_SIDE, _SMALL, _TIGHT = 430, 160, {"labelFontSize": 10.5, "titleFontSize": 11.5}


def evaluation_spec(evaluation: dict[str, Any]) -> Spec:
    """The picture of an evaluation's document as a specification of Vega-Lite."""
    beside: list[Spec] = []
    if evaluation["units"]:
        beside.append(_units(evaluation))
    if len(evaluation["curve"]) > 1:
        beside += [_residuals(evaluation)] * (not evaluation["units"]) + _curve(evaluation)
    else:
        beside.append(_residuals(evaluation))
    scores, ceiling = evaluation["scores"], evaluation["ceiling"]
    title = [f"Mean error {percent(scores['mean_error'])}, {units.share(scores['within_10'])} within 10 %, "]
    title[0] += f"rank {scores['spearman']:.3f} ({evaluation['how']})"
    if ceiling:
        noise = f"mean error {percent(ceiling['mean_error'])}, {units.share(ceiling['within_10'])} within 10 %"
        title.append(f"The noise of measuring alone: {noise}, rank {ceiling['spearman']:.3f}")
    both = [{"vconcat": made, "align": "none"} for made in (_nets(evaluation), beside)]
    return picture([{"hconcat": both, "align": "none", "spacing": 26}], title)


def _nets(evaluation: dict[str, Any]) -> list[Spec]:
    """Predicted against measured, with intervals, in the band of 10 %."""
    nets, nominal = evaluation["nets"], units.share(evaluation["scores"]["nominal"])
    factor, unit = units.millis(max(max(net["measured_s"], net["mean_s"]) for net in nets))
    values = [net[name] * factor for net in nets for name in ("measured_s", "mean_s")]
    scale = scale_of(values, _SIDE)
    scale = Scale(low=max(0.0, scale.low), high=scale.high, length=_SIDE)
    low, high = scale.low, scale.high
    corners = sorted(one for one in (low, low / 0.9, high / 1.1, high) if low <= one <= high)
    band = [{"x": e, "y": max(low, 0.9 * e), "y2": min(high, 1.1 * e)} for e in corners]
    layers = [drawn("area", band, color=GRID), line([(low, low), (high, high)], "black", strokeWidth=1)]
    keys = [
        Key(text="within 10 %", looks=(("rect", {"fill": GRID}),)),
        line_key("predicted as measured", "black", strokeWidth=1),
    ]
    for inside in (True, False):
        own = [net for net in nets if (net["low_s"] <= net["measured_s"] <= net["high_s"]) == inside]
        if own:
            look: dict[str, Any] = {"shape": "circle", "colour": _IN, "size": 7}
            if not inside:
                look = {"shape": FAT_CROSS, "colour": _OUT, "size": 9}
            if len(nets) <= _MOST_BARS:
                layers += cut(bars(_ends(own, factor), "y", look["colour"], caps=0, strokeWidth=1), scale, scale)
            rows = [{"x": net["measured_s"] * factor, "y": net["mean_s"] * factor} for net in own]
            layers.append(points(rows, **look, opacity=0.85))
            told = f"in the {nominal} interval" if inside else "outside of it"
            keys.append(point_key(f"{told}: {len(own)} net{'' if len(own) == 1 else 's'}", **look))
    plot = view(layers, scale.axis(f"measured, {unit}"), scale.axis(f"predicted, {unit}"), (_SIDE, _SIDE))
    # Above the axes, where no point and no interval can be.
    return [legend(keys, columns=2), plot]


def _ends(nets: Sequence[dict[str, Any]], factor: float) -> list[tuple[float, float, float, float]]:
    names = ("measured_s", "mean_s", "low_s", "high_s")
    made = [[net[name] * factor for name in names] for net in nets]
    return [(x, y, low, high) for x, y, low, high in made]


def _units(evaluation: dict[str, Any]) -> Spec:
    """By how much nets that hold a unit are predicted too long, for the units where that is clearest."""
    shown = evaluation["units"][:_UNITS]
    rows = [(place, *(100 * unit[name] for name in ("mean", "low", "high"))) for place, unit in enumerate(shown)]
    x = scale_of([0.0, *(end for row in rows for end in row[1:])], _SIDE - 60)
    y = Scale(low=len(shown) - 0.4, high=-0.6, length=18 * len(shown) + 10)
    layers = [drawn("rule", [{"x": 0, "y": y.low, "y2": y.high}], color="black", strokeWidth=1)]
    for clear, shape, colour in ((False, "circle", _IN), (True, "diamond", _OUT)):
        own = [row for row in rows if (row[2] > 0 or row[3] < 0) == clear]
        layers += bars([(mean, place, low, high) for place, mean, low, high in own], "x", colour, caps=0)
        layers.append(points([{"x": mean, "y": place} for place, mean, _, _ in own], shape, colour, size=7))
    names = [
        {"x": x.low, "y": k, "text": f"{shorten(u['unit'].replace('BatchNormalization', 'BN'), 40)} ({u['nets']})"}
        for k, u in enumerate(shown)
    ]
    layers.append(drawn("text", names, align="right", dx=-6, fontSize=10))
    title = "nets with this unit (how many): predicted too long by, %"
    return view(layers, x.axis(title, **_TIGHT), y.axis(None), (x.length, y.length))


def _residuals(evaluation: dict[str, Any]) -> Spec:
    """What is left over by predicted size."""
    nets = evaluation["nets"]
    factor, unit = units.millis(max(net["mean_s"] for net in nets))
    rows = [{"x": net["mean_s"] * factor, "y": 100 * (net["mean_s"] / net["measured_s"] - 1)} for net in nets]
    x = scale_of([row["x"] for row in rows], _SIDE - 60)
    y = scale_of([-10, 10, *(row["y"] for row in rows)], _SMALL)
    layers = [
        drawn("rect", [{"x": x.low, "x2": x.high, "y": -10, "y2": 10}], fill=GRID),
        drawn("rule", [{"x": x.low, "x2": x.high, "y": 0}], color="black", strokeWidth=1),
        points(rows, "circle", _IN, size=5),
    ]
    axes = x.axis(f"predicted, {unit}", **_TIGHT), y.axis("too long by, %", **_TIGHT)
    return view(layers, *axes, (x.length, y.length))


def _curve(evaluation: dict[str, Any]) -> list[Spec]:
    """The error on nets held out, against the number of samples that were fitted to, and what its lines mean."""
    curve = evaluation["curve"]
    at = [spent["samples"] for spent in curve]
    errors = [100 * spent["mean_error"] for spent in curve]
    beyond = [100 * (1 - spent["within_10"]) for spent in curve]
    ceiling = evaluation["ceiling"]
    noise = None if not ceiling else 100 * ceiling["mean_error"]
    x = Scale(low=min(at), high=1.06 * max(at), length=_SIDE - 60, kind="symlog", constant=5)
    y = Scale(low=0, high=1.06 * max(*errors, *beyond, noise or 0.0, 1e-3), length=_SMALL)
    dashed: dict[str, Any] = {"strokeDash": [6, 3]}
    dotted: dict[str, Any] = {"strokeDash": [1.5, 2]}
    layers, keys = [], []
    for values, colour, shape, dash, told in (
        (errors, _IN, "circle", {}, "mean error, %"),
        (beyond, _SECOND, "square", dashed, "nets off by more than 10 %, %"),
    ):
        places = list(zip(at, values, strict=True))
        layers += [line(places, colour, **dash), points([{"x": a, "y": b} for a, b in places], shape, colour, size=7)]
        keys.append(line_key(told, colour, shape=shape, **dash))
    if noise is not None:
        layers.append(line([(x.low, noise), (x.high, noise)], "black", **dotted))
        keys.append(line_key("mean error of measuring alone, %", "black", **dotted))
    ticks = [n for n in (0, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if x.low <= n <= x.high]
    title = "nets fitted to, the first of the samples; all others held out"
    axes = x.axis(title, values=ticks, **_TIGHT), y.axis("%", tickCount=6, **_TIGHT)
    return [view(layers, *axes, (x.length, y.length)), legend(keys, columns=1)]
