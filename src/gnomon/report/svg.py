"""Draws charts as SVG: into pages, notebooks and files. Nothing depends on a colour alone.

Colours are attributes, which a page's style sheet overrides through the classes `ink`, `heat`, `hollow` and `grid`.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from gnomon.report import units
from gnomon.report.chart import CHOSEN, INK, PLAIN, Axis, Chart, Group, Look, Mark, finite
from gnomon.report.plain import clean, shorten

_PAGE, _PHONE, _FILE = 940, 340, 760
"""The width of pictures in pixels: on a page in a wide and in a narrow window, and in a file."""

_NAMES_ABOVE = 520
"""In narrower pictures, names are placed above their rows."""

_MOST_INTERVALS = 400
"""With more points, the intervals would be a grey wall, so only the points are drawn."""

_FAR = 20.0
"""An axis is logarithmic if the largest value is more than this many times the smallest."""

_RADIUS, _KEY, _LINE, _BAR, _ABOVE = 4.5, 26, 19, 15, 17

_SIZE, _HEIGHT = 12.0, 14.0
"""The height of letters and of lines of text."""

_REACH = 8.0
"""Half the size of a mark with its surroundings."""

_OFFSETS = (
    *((9, -12), (9, 12), (-9, -12), (-9, 12)),
    *((19, y) for y in (-28, 26, -44, 42)),
    *((-19, y) for y in (-28, 26, -44, 42)),
    *((19, y) for y in (-60, 58, -76, 74)),
)
"""Offsets from a point to its label, the best first: to the middle of the label's left end or, if it lies to the left
of the point, of its right end.
"""

_NEAR = 9
"""A label that is farther from its point than this is connected to it by a line."""

_NARROW = frozenset(" .,:;'|!()[]ijltfI/")
_WIDE = frozenset("mwMW%@")

Box = tuple[float, float, float, float]
"""The left, upper, right and lower edge."""

_SHAPES = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle": ((0, -1.1), (1.05, 0.8), (-1.05, 0.8)),
    "turned": ((0, 1.1), (1.05, -0.8), (-1.05, -0.8)),
    "diamond": ((0, -1.25), (1, 0), (0, 1.25), (-1, 0)),
    "hexagon": ((0, -1.1), (0.95, -0.55), (0.95, 0.55), (0, 1.1), (-0.95, 0.55), (-0.95, -0.55)),
    "upright": ((-0.1, -2.2), (0.1, -2.2), (0.1, 2.2), (-0.1, 2.2)),
    "cross": (
        *((-1, -0.6), (-0.6, -1), (0, -0.4), (0.6, -1), (1, -0.6), (0.4, 0)),
        *((1, 0.6), (0.6, 1), (0, 0.4), (-0.6, 1), (-1, 0.6), (-0.4, 0)),
    ),
    "star": tuple(
        (radius * math.sin(k * math.pi / 5), -radius * math.cos(k * math.pi / 5))
        for k in range(10)
        for radius in [0.6 if k % 2 else 1.4]
    ),
}

_HATCHES = {
    "": "",
    "/": "M0 6L6 0",
    "\\": "M0 0L6 6",
    "x": "M0 6L6 0M0 0L6 6",
    "-": "M0 3H6",
    "+": "M0 3H6M3 0V6",
    ".": "M2.3 3h1.4M3 2.3v1.4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps values to pixels from `start` to `end`; a value outside the range is placed at its nearer end."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """The place of a finite value."""
        value, low, high = min(max(value, self.low), self.high), self.low, self.high
        if self.logarithmic:
            value, low, high = math.log(value), math.log(low), math.log(high)  # their quotients may overflow a float
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int, *, whole: bool = False) -> list[tuple[float, str]]:
        """About `most` round values with their texts, all within the scale despite rounding."""
        values = (units.log_ticks if self.logarithmic else units.steps)(self.low, self.high, most)
        rounded = [value for value in values if not whole or value == round(value)]
        return [(min(max(value, self.low), self.high), _number(value)) for value in rounded]


def scale_of(axis: Axis, values: Sequence[float], start: float, end: float) -> Scale:
    """The scale of an axis, which covers all finite values with some room."""
    if axis.names:
        return Scale(low=-0.5, high=len(axis.names) - 0.5, start=start, end=end)
    numbers = [number for value in values if (number := finite(value)) is not None]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    if not axis.linear and axis.low is None and low > 0 and high / low > _FAR:
        return Scale(low=low / 1.2, high=high * 1.2, start=start, end=end, logarithmic=True)
    room = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
    low = max(0.0, low - room) if low >= 0 else low - room
    low, high = low if axis.low is None else axis.low, high + room if axis.high is None else axis.high
    return Scale(low=low, high=high, start=start, end=end)


def picture(charts: Sequence[Chart]) -> str:
    """A standalone picture: the charts one above the other, each under its title."""
    parts, width, down = [], float(_FILE), 12.0
    for number, chart in enumerate(charts):
        size = 13 if number else 14
        lines = textwrap.wrap(shorten(chart.title, 300), _FILE // (size // 2))
        parts.append(_lines(lines, down, size))
        down += 18 * len(lines) + 8
        body, high, wide = _plot(chart, _FILE, f"c{number}")
        parts.append(_tag("g", body, transform=f"translate(12 {_n(down)})"))
        down, width = down + high, max(width, wide)
        notes = textwrap.wrap(chart.notes, _FILE // 6)
        parts.append(_lines(notes, down, 12))
        down += 16 * len(notes) + 18
    inside = f"{_tag('rect', width='100%', height='100%', fill='white')}{''.join(parts)}"
    name = " ".join(chart.title for chart in charts)
    return _svg(inside, name, width + 24, down, xmlns="http://www.w3.org/2000/svg", font_family="sans-serif") + "\n"


def inline(chart: Chart, key: str) -> str:
    """The chart for a page, drawn for wide and for narrow windows; the page's style sheet shows one of the two.

    `key` is the prefix of the names of its parts.
    """
    plots = ((kind, _plot(chart, width, f"{key}-{kind}")) for kind, width in (("wide", _PAGE), ("narrow", _PHONE)))
    wide, narrow = (_svg(body, chart.title, size, high, class_=f"chart {kind}") for kind, (body, high, size) in plots)
    return wide + re.sub("<title>[^<]*</title>", "", narrow)  # a phone has no pointer for tooltips


def _svg(inside: str, name: str, width: float, height: float, **more: str) -> str:
    size = {"width": width, "height": height, "viewBox": f"0 0 {_n(width)} {_n(height)}", "font_size": 12}
    return _tag("svg", inside, role="img", aria_label=clean(name), **size, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The place of a plot in its picture, its scales, and whether the names of rows are above them."""

    chart: Chart
    x: Scale
    y: Scale
    above: bool
    key: str

    def at(self, mark: Mark) -> tuple[float, float]:
        """The place of a mark."""
        return self.x.place(mark.x.ends[1]), self.up(mark.y.ends[1])

    def up(self, value: float) -> float:
        """The place of a value on the vertical axis or in a row."""
        if not self.chart.y.names:
            return self.y.place(value)
        row = round(value)
        return self.y.place(row) + (value - row) * self.chart.y.room + (_ABOVE / 2 if self.above else 0)


def _plot(chart: Chart, width: float, key: str) -> tuple[str, float, float]:
    """A chart without its title, its height and its width."""
    legend, top = _legend(chart, width, key)
    rows, columns = chart.y.names, chart.x.names
    above = bool(rows) and width < _NAMES_ABOVE
    ends = _ends(chart)
    xs, ys = _values(chart, "x"), _values(chart, "y")
    if chart.equal:
        xs = ys = [*xs, *ys]
        width = min(width, chart.height + 180)
    high = len(rows) * (chart.y.room + (_ABOVE if above else 0)) if rows else chart.height
    left, right, pitch = 8.0, width - 14, 0.0
    if rows and not above:
        left = min(0.42 * width, 1.1 * max(map(text_width, rows)) + 34)
        right -= 1.1 * max(map(text_width, ends.values()), default=0.0)  # because one may be bold
    if columns:
        pitch = min(110.0, max(52.0, (right - left) / len(columns)))
        right = left + pitch * len(columns)
        head = max(map(text_width, columns))
        top += 22 if head < pitch else min(head, 130.0) + 6
    top += 6
    y = scale_of(chart.y, ys, *((top, top + high) if rows else (top + high, top)))
    steps = [] if rows else y.ticks(max(3, int(high // 50)), whole=chart.y.whole)
    if not rows:
        left = 30 + max((text_width(text) for _, text in steps), default=0.0)
    frame = _Frame(chart=chart, x=scale_of(chart.x, xs, left, right), y=y, above=above, key=key)
    axes, depth = _axes(frame, steps)
    parts = [legend, axes, *_rules(frame)]
    for number, group in enumerate(chart.groups):
        parts += _group(group, frame, f"{key}-{number}")
    parts += [*_names(frame, ends), *_heads(frame, pitch), *_labels(frame)]
    return "".join(parts), top + high + depth, max(width, right + 14)


def _values(chart: Chart, along: str) -> list[float]:
    """All values on an axis."""
    marks = [mark for group in chart.groups for mark in group.marks if mark.is_known]
    ends = [end for mark in marks for end in getattr(mark, along).ends]
    return ends + [rule.at for rule in chart.rules if rule.along == along]


def _ends(chart: Chart) -> dict[int, str]:
    """The texts at the ends of the rows."""
    if not chart.y.names or chart.x.names:
        return {}
    marks = [mark for group in chart.groups for mark in group.marks if mark.label and mark.is_known]
    return {round(mark.y.value or 0.0): mark.label for mark in marks}


def _axes(frame: _Frame, steps: Sequence[tuple[float, str]]) -> tuple[str, float]:
    """The axes with their ticks and titles, and the room that they take below the plot."""
    chart, x, y = frame.chart, frame.x, frame.y
    upper, lower = min(y.start, y.end), max(y.start, y.end)
    parts = []
    for value, text in steps:
        at = y.place(value)
        parts += [_grid(f"M{_n(x.start)} {_n(at)}H{_n(x.end)}"), _text(text, x.start - 6, at + 4, anchor="end")]
    if not chart.y.names:
        title = _fit(f"{chart.y.title}{_logarithmic(y)}", lower - upper + 40)
        parts.append(_turned(title, 12, (upper + lower) / 2, anchor="middle"))
    if chart.x.names:
        return "".join(parts), 8.0
    for value, text in x.ticks(max(3, int((x.end - x.start) // 90)), whole=chart.x.whole):
        at = x.place(value)
        parts += [_grid(f"M{_n(at)} {_n(upper)}V{_n(lower)}"), _text(text, at, lower + 15, anchor="middle")]
    lines = textwrap.wrap(clean(f"{chart.x.title}{_logarithmic(x)}"), max(20, int((x.end - x.start) // 6.5)))
    for number, text in enumerate(lines):
        parts.append(_text(text, (x.start + x.end) / 2, lower + 33 + 15 * number, anchor="middle"))
    return "".join(parts), 26.0 + 15 * len(lines)


def _grid(d: str) -> str:
    return _tag("path", class_="grid", stroke="#e4e4e4", d=d)


def _logarithmic(scale: Scale) -> str:
    return " (logarithmic)" if scale.logarithmic else ""


def _rules(frame: _Frame) -> Iterator[str]:
    """The diagonal of equal axes, and the lines across the plot."""
    x, y = frame.x, frame.y
    if frame.chart.equal:
        yield _way(f"M{_n(x.start)} {_n(y.start)}L{_n(x.end)} {_n(y.end)}", PLAIN)
    for rule in frame.chart.rules:
        across = f"M{_n(x.start)} {_n(y.place(rule.at))}H{_n(x.end)}"
        yield _way(f"M{_n(x.place(rule.at))} {_n(y.start)}V{_n(y.end)}" if rule.along == "x" else across, PLAIN)


def _way(d: str, look: Look, width: float = 1.1) -> str:
    return _tag("path", fill="none", stroke_width=width, stroke_dasharray=look.dash, d=d, **_coloured(look, "stroke"))


def _coloured(look: Look, *attributes: str) -> dict[str, str]:
    """A look's colour as attributes; a page may override the colour of text."""
    if look.colour != INK:
        return dict.fromkeys(attributes, look.colour)
    return {"class_": " ".join(f"ink-{name}" for name in attributes), **dict.fromkeys(attributes, "black")}


def _group(group: Group, frame: _Frame, name: str) -> Iterator[str]:
    """All marks of a group."""
    marks = [mark for mark in group.marks if mark.is_known]
    if group.line:
        d, drawing = "", False
        for mark in group.marks:  # with gaps at unknown marks
            if mark.is_known:
                x, y = map(_n, frame.at(mark))
                d += f"M{x} {y}" if not drawing else f"H{x}V{y}" if group.line == "steps" else f"L{x} {y}"
            drawing = mark.is_known
        yield _way(d, group.look, 1.8) if d else ""
    if not marks or group.kind == "none":
        return
    if group.kind == "dots":
        places = dict.fromkeys((round(a), round(b)) for a, b in map(frame.at, marks))  # no duplicates
        dots = "".join(f"M{a} {b}h0" for a, b in places)
        yield _tag("path", stroke_linecap="round", stroke_width=3.4, d=dots, **_coloured(group.look, "stroke"))
    elif group.kind == "bars":
        bars = ""
        for mark in marks:
            left, _, right = map(frame.x.place, mark.x.ends)
            top = frame.up(mark.y.ends[1]) - _BAR / 2
            bars += _tag("rect", _tip(mark), x=left, y=top, width=right - left, height=_BAR)
        fill = _tag("rect", width=6, height=6, opacity=".55", **_coloured(group.look, "fill"))
        hatch = _HATCHES[group.look.hatch]
        fill += _tag("path", d=hatch, stroke="#303030", stroke_width=".9") if hatch else ""
        yield f"<defs>{_tag('pattern', fill, id=name, width=6, height=6, patternUnits='userSpaceOnUse')}</defs>"
        yield _tag("g", bars, fill=f"url(#{name})", stroke="#303030", stroke_opacity=".6", stroke_width=".6")
    elif group.kind == "cells":
        yield from (_cell(mark, frame, framed=group.look == CHOSEN) for mark in marks)
    else:
        bare = len(marks) > _MOST_INTERVALS
        points = ((_tip(m), "" if bare else _interval(m, frame), _shape(group.look, *frame.at(m))) for m in marks)
        inside = "".join(_tag("g", "".join(point)) for point in points)
        yield _tag("g", inside, stroke_width=1.4, **_coloured(group.look, "stroke", "fill"))


def _cell(mark: Mark, frame: _Frame, *, framed: bool) -> str:
    """A cell of a heat map, as dark as its share, with its text."""
    left, right = (frame.x.place(mark.x.ends[1] + by) for by in (-0.5, 0.5))
    middle = frame.up(mark.y.ends[1])
    share = min(max(finite(mark.share) or 0.0, 0.0), 1.0)
    box = {"x": left + 1.5, "y": middle - 11.5, "width": right - left - 3, "height": 23}
    heat = _tag("rect", class_="heat", fill="#f0953a", fill_opacity=f"{0.7 * share:.2f}", **box)
    edge = {**_coloured(CHOSEN, "stroke"), "stroke_width": 2.2} if framed else {"class_": "grid", "stroke": "#e4e4e4"}
    text = _text(mark.label, (left + right) / 2, middle + 4, anchor="middle", bold=framed)
    return _tag("g", _tip(mark) + heat + _tag("rect", fill="none", **box, **edge) + text)


def _interval(mark: Mark, frame: _Frame) -> str:
    (left, _, right), (lower, _, upper) = map(frame.x.place, mark.x.ends), map(frame.up, mark.y.ends)
    x, y = frame.at(mark)
    d = f"M{_n(left)} {_n(y)}H{_n(right)}" + "".join(f"M{_n(a)} {_n(y - 4)}v8" for a in (left, right))
    up = f"M{_n(x)} {_n(lower)}V{_n(upper)}" + "".join(f"M{_n(x - 4)} {_n(b)}h8" for b in (lower, upper))
    both = d * (left != right) + up * (lower != upper)
    return _tag("path", fill="none", d=both) if both else ""


def _shape(look: Look, x: float, y: float) -> str:
    if look.shape == "ring":
        return _tag("path", d=f"M{_n(x - 8)} {_n(y)}a8 8 0 1 0 16 0a8 8 0 1 0 -16 0Z", fill="none", class_="ring")
    if look.shape == "circle":
        d = f"M{_n(x - _RADIUS)} {_n(y)}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z"
    else:
        d = f"M{'L'.join(f'{_n(x + _RADIUS * a)} {_n(y + _RADIUS * b)}' for a, b in _SHAPES[look.shape])}Z"
    return _tag("path", d=d, **({"class_": "hollow", "fill": "white"} if look.hollow else {}))


def _names(frame: _Frame, ends: dict[int, str]) -> Iterator[str]:
    """The names of the rows, and the texts at their ends; chosen rows are highlighted."""
    x, axis = frame.x, frame.chart.y
    for number, name in enumerate(axis.names):
        bold, end = number in axis.chosen, ends.get(number, "")
        text, at = f"{'> ' if bold else ''}{name}", frame.y.place(number)
        if frame.above:
            at -= axis.room / 2 - 4
            yield _text(_fit(text, x.end - x.start - text_width(end) - 12), x.start, at, bold=bold)
            yield _text(end, x.end, at, anchor="end", bold=bold)
        else:
            yield _text(_fit(text, x.start - 14), x.start - 12, at + 4, anchor="end", bold=bold)
            yield _text(end, x.end + 10, at + 4, bold=bold)


def _heads(frame: _Frame, pitch: float) -> Iterator[str]:
    """The names of the columns."""
    names, top = frame.chart.x.names, frame.y.start - 5
    lying = all(text_width(name) < pitch for name in names)
    for number, name in enumerate(names):
        at = frame.x.place(number)
        yield _text(name, at, top, anchor="middle") if lying else _turned(_fit(name, 130), at + 4, top)


def _labels(frame: _Frame) -> Iterator[str]:
    """The labels next to points, as far as there is room."""
    x, y, groups = frame.x, frame.y, frame.chart.groups
    marks = [mark for group in groups if group.kind == "points" for mark in group.marks if mark.is_known]
    if frame.chart.y.names or not any(mark.label for mark in marks):
        return
    marks.sort(key=lambda mark: not mark.label)
    wanted = [(frame.at(mark), shorten(mark.label, 44)) for mark in marks]
    for label in place_labels(wanted, (x.start, y.end, x.end, y.start)):
        if label.far:
            d = f"M{_n(label.point[0])} {_n(label.point[1])}L{_n(label.x)} {_n(label.y)}"
            yield _tag("path", class_="ink-stroke", stroke="black", stroke_width=".6", d=d)
        halo: dict[str, Any] = {"class_": "halo", "stroke": "white", "stroke_width": 3, "paint_order": "stroke"}
        yield _text(label.text, label.x, label.y + 4, anchor="start" if label.left else "end", **halo)


def _legend(chart: Chart, width: float, key: str) -> tuple[str, float]:
    """The legend of the marks, and its height."""
    parts, x, y = [], 8.0, 12.0
    groups = [(f"{key}-{k}", g) for k, g in enumerate(chart.groups) if any(mark.is_known for mark in g.marks)]
    groups += [("", Group(name=rule.name, marks=(), look=PLAIN, kind="none", line="straight")) for rule in chart.rules]
    for pattern, group in groups:
        if not group.name:
            continue
        text = _fit(group.name, width - _KEY - 24)
        wide = _KEY + 22 + text_width(text)
        if x > 8 and x + wide > width:
            x, y = 8.0, y + _LINE
        parts += [_swatch(group, pattern, x, y), _text(text, x + _KEY + 5, y + 4)]
        x += wide
    return "".join(parts), y + 12 if parts else 4.0


def _swatch(group: Group, pattern: str, x: float, y: float) -> str:
    """The swatch of a group in the legend."""
    look = group.look
    if group.kind in ("bars", "cells"):
        fill = f"url(#{pattern})" if group.kind == "bars" else "none"
        box = {"x": x, "y": y - 7, "width": _KEY - 2, "height": 14}
        return _tag("rect", fill=fill, **box, **_coloured(look, "stroke"))
    line = _way(f"M{_n(x)} {_n(y)}h{_KEY - 2}", look, 1.8) if group.line else ""
    shape = "" if group.kind == "none" else _shape(look, x + _KEY / 2 - 1, y)
    return line + _tag("g", shape, stroke_width=1.4, **_coloured(look, "stroke", "fill")) * bool(shape)


def _text(text: str, x: float, y: float, *, anchor: str = "start", bold: bool = False, **more: Any) -> str:
    how = {"text_anchor": "" if anchor == "start" else anchor, "font_weight": "bold" if bold else ""}
    return _tag("text", escape(clean(text)), x=x, y=y, **how, **more) if text else ""


def _turned(text: str, x: float, y: float, *, anchor: str = "start") -> str:
    """A text that runs upwards."""
    return _text(text, 0, 0, anchor=anchor, transform=f"translate({_n(x)} {_n(y)}) rotate(-90)")


def _lines(lines: Sequence[str], y: float, size: float) -> str:
    return "".join(_text(text, 12, y + 12 + (size + 4) * k, font_size=size) for k, text in enumerate(lines))


def _tip(mark: Mark) -> str:
    return _tag("title", escape(clean(mark.tip))) if mark.tip else ""


def _tag(name: str, inside: str = "", /, **attributes: Any) -> str:
    """An element; attributes with the value "" are left out."""
    kept = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value != ""}
    text = "".join(f" {key}={quoteattr(value if isinstance(value, str) else _n(value))}" for key, value in kept.items())
    return f"<{name}{text}>{inside}</{name}>" if inside else f"<{name}{text}/>"


def _fit(text: str, room: float) -> str:
    """The text, without its middle if it is wider than the room."""
    wide = text_width(text)
    return clean(text) if wide <= room else shorten(text, max(4, int(len(text) * room / wide)))


def _number(value: float) -> str:
    if not value:
        return "0"
    return f"{value:.1e}" if abs(value) < 1e-4 or abs(value) >= 1e6 else f"{float(units.digits(value)):g}"


def _n(value: float) -> str:
    """Pixels with one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def text_width(text: str) -> float:
    """The approximate width of a text in a sans serif font, too wide rather than too narrow."""
    return _SIZE * sum(map(_width, text))


def _width(letter: str) -> float:
    if letter in _NARROW:
        return 0.33
    if letter in _WIDE or ord(letter) > 0x2E80:  # from this code point on, letters are as wide as they are high
        return 1.0
    return 0.74 if letter.isupper() else 0.58


Label = tuple[tuple[float, float], str]
"""The place of a point and its name, which may be shortened to its first word if there is no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A placed label: `x` is where it begins (if `left`) or ends, and `y` is the height of its middle."""

    point: tuple[float, float]
    text: str
    x: float
    y: float
    left: bool

    @property
    def far(self) -> bool:
        """Whether a line connects the label to its point."""
        return abs(self.x - self.point[0]) > _NEAR

    @property
    def box(self) -> Box:
        """The area that the label covers."""
        wide, high = text_width(self.text), _HEIGHT / 2
        return (self.x if self.left else self.x - wide, self.y - high, self.x + wide * self.left, self.y + high)


def place_labels(labels: Sequence[Label], area: Box) -> list[Placed]:
    """Place labels in an area, in the given order; they cover neither each other nor a point.

    A label without room is shortened to its first word; without room even for that, it is left out. Points without a
    text get no label but must not be covered.
    """
    placed: list[Placed] = []
    points: list[Box] = [(x - _REACH, y - _REACH, x + _REACH, y + _REACH) for (x, y), _ in labels]
    for k, label in enumerate(labels):
        others = [*points[:k], *points[k + 1 :], *(other.box for other in placed)] if label[1] else []
        (x, y), whole = label
        choices = (
            Placed(point=(x, y), text=text, x=x + across, y=y + down, left=across > 0)
            for text in dict.fromkeys((whole, whole.partition(" ")[0]))
            for across, down in (_OFFSETS if text else ())
        )
        for choice in choices:
            left, upper, right, lower = choice.box
            inside = left >= area[0] and upper >= area[1] and right <= area[2] and lower <= area[3]
            if inside and not any(a < right and left < c and b < lower and upper < d for a, b, c, d in others):
                placed.append(choice)
                break
    return placed
