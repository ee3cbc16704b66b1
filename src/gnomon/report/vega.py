"""Pictures as Vega-Lite specifications: plain JSON with its data inside, which notebooks draw and `render` writes.

What marks and lines look like never tells anything by its colour alone.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gnomon.report import units
from gnomon.report.plain import shorten

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
"""Names the version; nothing is fetched from there."""

Spec = dict[str, Any]
Row = Mapping[str, Any]

WIDTH = 640
"""The usual width of a plot, in pixels."""

CHOSEN = "#B00020"
GRID = "#e4e4e4"

STAR = "M0,-1L.24,-.32L.95,-.31L.38,.12L.59,.81L0,.4L-.59,.81L-.38,.12L-.95,-.31L-.24,-.32Z"
FAT_CROSS = "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z"
THIN_CROSS = "M-1,-1L1,1M-1,1L1,-1"
CHECK = "M-1,.1L-.35,.75L1,-.8"
UPRIGHT, LYING = "M0,-1L0,1", "M-1,0L1,0"
_HEXAGON = "M0,-1L.87,-.5L.87,.5L0,1L-.87,.5L-.87,-.5Z"
_CAPS = {"x": UPRIGHT, "y": LYING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How one of several is drawn: in a colour, and told apart without it by a shape and the dashes of its line."""

    colour: str
    shape: str
    dash: tuple[float, ...] = (1, 0)


# Okabe and Ito's colours, which stay apart for people who are colour-blind; dashes and shapes do in print.
LOOKS = (
    Look(colour="#0072B2", shape="circle"),
    Look(colour="#D55E00", shape="square", dash=(7, 3)),
    Look(colour="#009E73", shape="triangle-up", dash=(1.5, 2)),
    Look(colour="#8C6D1F", shape="diamond", dash=(8, 2.5, 1.5, 2.5)),
    Look(colour="#CC79A7", shape="triangle-down", dash=(13, 4)),
    Look(colour="#444444", shape="cross", dash=(4, 1.5, 1.5, 1.5, 1.5, 1.5)),
    Look(colour="#56B4E9", shape=_HEXAGON, dash=(2, 4)),
)
OF_SEVERAL = Look(colour="#444444", shape=FAT_CROSS)

_PLAIN = "replace(format(%s, abs(%s) >= 1000 ? ',.0f' : '.4~r'), regexp(',', 'g'), ' ')"

SIZE = 11.0
"""How high the letters beside marks are."""

LINE = 14
"""How far apart lines of text stand."""

_CONFIG: Spec = {
    "font": "sans-serif",
    "background": "white",
    "view": {"stroke": None},
    "mark": {"aria": False},  # the picture is described as a whole, and half as large
    "axis": {
        "grid": False,
        "labelFontSize": 12,
        "labelLimit": 0,
        "labelColor": "black",
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "titleColor": "black",
        "domainColor": "black",
        "tickColor": "black",
        "labelFlush": False,
    },
    "title": {"anchor": "start", "fontSize": 14, "fontWeight": "normal", "offset": 10, "lineHeight": 18, "limit": 0},
    "text": {"fontSize": SIZE, "lineHeight": LINE, "baseline": "middle", "align": "left"},
    "point": {"opacity": 1},
    "line": {"strokeJoin": "round"},
    "concat": {"spacing": 10},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From values to an axis of `length` pixels, from its left or lower end on; `constant` is that of a symlog."""

    low: float
    high: float
    length: float
    kind: Literal["linear", "log", "symlog"] = "linear"
    constant: float = 1.0

    def place(self, value: float) -> float:
        """How many pixels from the beginning of the axis a value is."""
        low, high, at = map(self._even, (self.low, self.high, float(value)))
        return self.length * (at - low) / (high - low)

    def value(self, place: float) -> float:
        """The value that is so many pixels from the beginning of the axis, which may be beyond its ends."""
        low, high = self._even(self.low), self._even(self.high)
        even = low + (high - low) * place / self.length
        if self.kind == "log":
            return math.exp(even)
        return math.copysign(self.constant * math.expm1(abs(even)), even) if self.kind == "symlog" else even

    def _even(self, value: float) -> float:
        if self.kind == "log":
            return math.log(value)
        return math.copysign(math.log1p(abs(value / self.constant)), value) if self.kind == "symlog" else value

    def axis(self, title: str | Sequence[str] | None, **look: Any) -> Spec:
        """The channel of values on this scale, with an axis; None as the title: without one."""
        shown: Spec | None = None
        if title is not None:
            shown = {"labelExpr": _PLAIN % ("datum.value", "datum.value"), "labelOverlap": False, **look}
            if self.kind == "log":
                shown = {"values": units.log_ticks(self.low, self.high), **shown}
            if "values" not in shown:
                shown = {"tickCount": 7, **shown}  # where values are told it would leave out some
        return {
            "type": "quantitative",
            "title": title if title is None or isinstance(title, str) else list(title),
            "scale": {
                "type": self.kind,
                "domain": [self.low, self.high],
                "nice": False,
                "zero": False,
                **({"constant": self.constant} if self.kind == "symlog" else {}),
            },
            "axis": shown,
        }


def whole(low: float, high: float, most: int = 7) -> list[float]:
    """Round ticks of an axis that has whole numbers alone."""
    return [one for one in units.steps(low, high, most) if one == round(one)]


def reach(layers: Sequence[Spec], name: str) -> list[float]:
    """All values of layers along "x" or "y"."""
    rows = [row for layer in layers for row in layer["data"]["values"]]
    return [row[key] for row in rows for key in (name, f"{name}2") if row.get(key) is not None]


def scale_of(values: Sequence[float], length: float) -> Scale:
    """A linear scale of values with some room about them."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return Scale(low=low - room, high=high + room, length=length)


def drawn(kind: str, rows: Sequence[Row], **look: Any) -> Spec:
    """A layer of marks that look alike: a row has `x` and `y`, and of the channels `x2`, `y2`, `text` what it needs.

    `told` of rows is what a reader sees who points there.
    """
    first = rows[0] if rows else {}
    channels: Spec = {name: {"field": name} for name in ("x2", "y2") if name in first}
    channels |= {"text": {"field": "text", "type": "nominal"}} if "text" in first else {}
    channels |= {"tooltip": {"field": "told", "type": "nominal"}} if "told" in first else {}
    return {"data": {"values": [dict(row) for row in rows]}, "mark": {"type": kind, **look}, "encoding": channels}


def points(rows: Sequence[Row], shape: str, colour: str, *, hollow: bool = False, size: float = 9, **look: Any) -> Spec:
    """Marks of a shape, `size` pixels wide."""
    fill = {"fill": "white" if hollow else colour, "stroke": colour, "strokeWidth": 1.4}
    return drawn("point", rows, **{"shape": shape, "size": size**2, **fill, **look})


def line(places: Sequence[tuple[float, float | None]], colour: str, **look: Any) -> Spec:
    """A line from left to right, which has gaps where a value is None."""
    return drawn("line", [{"x": x, "y": y} for x, y in places], **{"color": colour, "strokeWidth": 1.5, **look})


def bars(
    rows: Sequence[tuple[float, float, float, float]], along: str, colour: str, *, caps: float = 6, **look: Any
) -> list[Spec]:
    """Intervals: x, y, and the ends along "x" or "y", with caps so many pixels wide."""
    if not rows:
        return []
    across = "y" if along == "x" else "x"
    held = [{across: y if along == "x" else x, along: low, f"{along}2": high} for x, y, low, high in rows]
    ends = [{across: row[across], along: row[name]} for row in held for name in (along, f"{along}2")]
    made = [drawn("rule", held, **{"color": colour, "strokeWidth": 1.2, **look})]
    cap = {"shape": _CAPS[along], "size": caps**2, "stroke": colour, "strokeWidth": 1.2, **look}
    return [*made, drawn("point", ends, **cap)] if caps else made


def cut(layers: Sequence[Spec], x: Scale, y: Scale) -> list[Spec]:
    """Layers whose points, and rules along an axis, are without what is beyond the ends of the scales.

    Vega could do so, but calls the ends otherwise in each picture that a process draws.
    """
    made = []
    for layer in layers:
        rows = layer["data"]["values"]
        if layer["mark"]["type"] in ("point", "rule"):
            rows = [kept for row in rows if (kept := _cut(_cut(row, "x", x), "y", y)) is not None]
        made.append({**layer, "data": {"values": rows}})
    return made


def _cut(row: Row | None, name: str, scale: Scale) -> Row | None:
    if row is None:
        return None
    low, high = sorted((scale.low, scale.high))
    own = {key: row[key] for key in (name, f"{name}2") if key in row}
    if min(own.values()) > high or max(own.values()) < low:
        return None
    return {**row, **{key: min(max(value, low), high) for key, value in own.items()}}


def texts(rows: Sequence[Row], *, dy: float = 0, **look: Any) -> list[Spec]:
    """Texts, or lists of lines, each from its place on to the right and with its middle there."""
    counts = [len(row["text"]) if isinstance(row["text"], list) else 1 for row in rows]
    # Vega has the middle of the first line there.
    return [
        drawn("text", [row for row, own in zip(rows, counts, strict=True) if own == count], dy=dy + up, **look)
        for count in sorted(set(counts))
        for up in [-LINE * (count - 1) / 2]
    ]


def view(layers: Sequence[Spec], x: Spec, y: Spec, size: tuple[float, float]) -> Spec:
    """A plot of layers over two channels, in pixels."""
    across, up = {"field": "x", **x}, {"field": "y", **y}
    kept = [layer for layer in layers if layer["data"]["values"]]
    return {"width": size[0], "height": size[1], "encoding": {"x": across, "y": up}, "layer": kept}


def second_axis(plot: Spec, y: Scale, factor: float, title: str) -> Spec:
    """The plot with a further axis left of its own, of the same heights times a factor in round numbers of its own."""
    low, high = y.low * factor, y.high * factor
    if y.kind == "linear":
        ticks = units.steps(low, high, 7)
    else:
        least = y.constant * factor if y.kind == "symlog" else low
        ticks = [*([0.0] if low <= 0 else []), *units.log_ticks(least, high)]
    told = f"datum.value * {json.dumps(float(factor))}"
    own = plot["encoding"]["y"]
    other = {
        "orient": "left",
        "labelExpr": _PLAIN % (told, told),
        "values": [one / factor for one in ticks],
        "offset": 62,
    }
    plain = {**plot["encoding"], "y": {**own, "axis": None}}
    inner: Spec = {"layer": plot["layer"], "encoding": plain}
    further = {**{key: value for key, value in own["axis"].items() if key != "tickCount"}, **other}
    nothing = {"data": {"values": [{"y": y.low}]}, "mark": {"type": "point", "opacity": 0}}
    axes = [
        {**nothing, "encoding": {"y": {**own, "field": "y"}}},
        {**nothing, "encoding": {"y": {**own, "field": "y", "title": title, "axis": further}}},
    ]
    size = {key: plot[key] for key in ("width", "height")}
    return {**size, "layer": [inner, *axes], "resolve": {"axis": {"y": "independent"}}}


def text_width(text: str, size: float = SIZE) -> float:
    """About how wide a text is drawn in a sans serif font: rather too wide than too narrow."""
    return size * sum(map(_width, text))


def _width(letter: str) -> float:
    if letter in _NARROW:
        return 0.33
    if letter in _WIDE or ord(letter) > 0x2E80:  # from there on letters are as wide as high
        return 1.0
    return 0.74 if letter.isupper() else 0.58


_NARROW = frozenset(" .,:;'|!()[]ijltfI/")
_WIDE = frozenset("mwMW%@")


_PIXELS: Spec = {"type": "quantitative", "scale": None, "axis": None, "title": None}
_KEY, _LINE = 26, 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A line of a legend: what is drawn in it, and what that means. `look` is of a mark of Vega-Lite, by its kind.

    Kinds are "point", "rule", which lies, and "rect", on which a `hatch` may be drawn.
    """

    text: str
    looks: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    hatch: str = ""


def point_key(text: str, shape: str, colour: str, *, hollow: bool = False, size: float = 9, **look: Any) -> Key:
    """A line of a legend that shows a mark as `points` draws it."""
    return Key(text=text, looks=(("point", points([], shape, colour, hollow=hollow, size=size, **look)["mark"]),))


def line_key(text: str, colour: str, *, shape: str = "", **look: Any) -> Key:
    """A line of a legend that shows a line, and the mark on it."""
    made = (("rule", {"color": colour, "strokeWidth": 1.5, **look}),)
    return Key(text=text, looks=(*made, *(point_key("", shape, colour, size=7).looks if shape else ())))


def legend(keys: Sequence[Key], *, columns: int) -> Spec:
    """What the marks mean, line by line in columns as wide as they need be."""
    columns = min(columns, len(keys)) or 1
    wide = [_KEY + 18 + max(text_width(key.text, 12) for key in keys[k::columns]) for k in range(columns)]
    layers, words = [], []
    for number, key in enumerate(keys):
        left, middle = sum(wide[: number % columns]), _LINE * (number // columns) + _LINE / 2
        ends = {"x": left, "x2": left + _KEY - 2}
        for kind, look in key.looks:
            place = {"x": left + _KEY / 2 - 1} if kind == "point" else ends
            rows = [{**place, "y": middle - 6, "y2": middle + 6} if kind == "rect" else {**place, "y": middle}]
            layers.append(drawn(kind, rows, **{name: value for name, value in look.items() if name != "type"}))
        layers += hatched(key.hatch, [(left, middle - 6, left + _KEY - 2, middle + 6)])
        words.append({"x": left + _KEY + 3, "y": middle, "text": key.text})
    layers += texts(words, fontSize=12)
    return view(layers, _PIXELS, _PIXELS, (sum(wide), _LINE * math.ceil(len(keys) / columns)))


HATCHES = ("", "/", ".", "\\", "x", "-", "+", "o")
"""What tells areas apart in print, as `hatched` draws it."""

_STEP = 6.0


def hatched(hatch: str, boxes: Sequence[tuple[float, float, float, float]]) -> list[Spec]:
    """Lines or dots over rectangles (left, top, right, bottom) in pixels, which go on from one to the next."""
    lines: list[Spec] = []
    for left, top, right, bottom in boxes:
        if hatch in ("/", "x"):
            for c in _multiples(left + top, right + bottom):
                a, b = max(left, c - bottom), min(right, c - top)
                lines.append({"x": a, "x2": b, "y": c - a, "y2": c - b})
        if hatch in ("\\", "x"):
            for c in _multiples(left - bottom, right - top):
                a, b = max(left, c + top), min(right, c + bottom)
                lines.append({"x": a, "x2": b, "y": a - c, "y2": b - c})
        if hatch in ("-", "+"):
            lines += [{"x": left, "x2": right, "y": y, "y2": y} for y in _multiples(top, bottom)]
        if hatch == "+":
            lines += [{"x": x, "x2": x, "y": top, "y2": bottom} for x in _multiples(left, right)]
    dots = [
        {"x": x, "y": y}
        for left, top, right, bottom in (boxes if hatch in (".", "o") else ())
        for x in _multiples(left + 1, right - 1)
        for y in _multiples(top + 1, bottom - 1)
    ]
    made = [drawn("rule", lines, color="#303030", strokeWidth=0.8, opacity=0.75)] if lines else []
    look = {"size": 4, "strokeWidth": 0, "fill": "#303030"} if hatch == "." else {"size": 14, "stroke": "#303030"}
    return [*made, *([drawn("point", dots, **{"shape": "circle", "strokeWidth": 0.8, **look})] if dots else [])]


def in_values(layers: Sequence[Spec], x: Scale, y: Scale) -> list[Spec]:
    """Layers of places in pixels from the upper left corner, over the scales of a plot."""

    def moved(row: Row) -> Spec:
        across = {name: x.value(row[name]) for name in ("x", "x2") if name in row}
        return {**row, **across, **{name: y.value(y.length - row[name]) for name in ("y", "y2") if name in row}}

    return [{**one, "data": {"values": [moved(row) for row in one["data"]["values"]]}} for one in layers]


def _multiples(low: float, high: float) -> list[float]:
    return [_STEP * k for k in range(math.ceil(low / _STEP), math.floor(high / _STEP) + 1)]


_BOUND = re.compile(r"(?<=\d) (?=(?:%|[num]?s\b|times\b|devices\b))")


def sentences(told: str, most: int = 300, wide: int = 105) -> list[str]:
    """What a picture says, in lines of which none ends between a number and its unit."""
    held = _BOUND.sub("\0", shorten(told, most))  # what is clean has no such character
    return [row.replace("\0", " ") for row in textwrap.wrap(held, wide, break_on_hyphens=False)]


def picture(views: Sequence[Spec], title: Sequence[str]) -> Spec:
    """Plots and legends one above the other, under what they say."""
    return {
        "$schema": SCHEMA,
        "description": " ".join(title),
        "title": {"text": list(title)},
        "config": _CONFIG,
        "padding": 12,
        "align": "none",
        "bounds": "full",
        "vconcat": list(views),
    }
