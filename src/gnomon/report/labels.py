"""Names beside points and at the ends of lines, which cover nothing: where they stand, in pixels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.report.vega import LINE, Scale, Spec, drawn, in_values, text_width, texts

_REACH = 8.0
"""Half of a mark with its surroundings."""

_OFFSETS = (
    *((9, -12), (9, 12), (-9, -12), (-9, 12)),
    *((19, y) for y in (-28, 26, -44, 42)),
    *((-19, y) for y in (-28, 26, -44, 42)),
    *((19, y) for y in (-60, 58, -76, 74)),
)
"""Where the middle of a label may stand beside its point, the best first; to the left it ends there."""

_NEAR = 9
"""A label that is farther from its point than this has a line to it."""

Box = tuple[float, float, float, float]
"""The left, the upper, the right and the lower end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a point is called: a mark, and a name for which there may be no room."""

    at: tuple[float, float]
    mark: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A label that has a place: where it begins (`left`) or ends, and in what height its middle is."""

    point: tuple[float, float]
    text: str
    x: float
    y: float
    left: bool

    @property
    def far(self) -> bool:
        """Whether a line leads to it."""
        return abs(self.x - self.point[0]) > _NEAR

    @property
    def box(self) -> Box:
        """What it covers."""
        wide, high = text_width(self.text), LINE / 2
        return (self.x if self.left else self.x - wide, self.y - high, self.x + wide * self.left, self.y + high)


def place_labels(labels: Sequence[Label], width: float, height: float) -> list[Placed]:
    """Labels that stand in a rectangle from (0, 0) on and cover neither each other nor a point, the first ones first.

    One for which there is no room is shortened to its mark; where there is none even for that, it is left out.
    """
    made: list[Placed] = []
    points: list[Box] = [(x - _REACH, y - _REACH, x + _REACH, y + _REACH) for x, y in (one.at for one in labels)]
    for k, label in enumerate(labels):
        others = [*points[:k], *points[k + 1 :], *(one.box for one in made)]
        for one in _choices(label):
            left, upper, right, lower = one.box
            inside = left >= 0 and upper >= 0 and right <= width and lower <= height
            if inside and not any(_overlap(one.box, other) for other in others):
                made.append(one)
                break
    return made


def _choices(label: Label) -> Iterable[Placed]:
    """What may be written at which places, the best first."""
    x, y = label.at
    for text in (f"{label.mark} {label.name}".strip(), label.mark):
        for across, down in _OFFSETS if text else ():
            yield Placed(point=label.at, text=text, x=x + across, y=y + down, left=across > 0)


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def spread(wanted: Sequence[float], lines: Sequence[int], room: float) -> list[float]:
    """Where texts of so many lines have their middle, as near to the wanted places as there is room, in any order."""
    order = sorted(range(len(wanted)), key=lambda k: (wanted[k], k))
    heights = [float(LINE * lines[k]) for k in order]
    placed: list[float] = []
    for place, k in enumerate(order):
        half = heights[place] / 2
        least = placed[-1] + heights[place - 1] / 2 + half if placed else half
        placed.append(max(wanted[k], least))
    most = room
    for place in range(len(order) - 1, -1, -1):  # what stands beyond the end pushes the others back
        placed[place] = min(placed[place], most - heights[place] / 2)
        most = placed[place] - heights[place] / 2
    found = dict(zip(order, placed, strict=True))
    return [found[k] for k in range(len(wanted))]


def named(labels: Sequence[Label], x: Scale, y: Scale) -> list[Spec]:
    """Names beside points, which are places in values, as far as there is room; a thin line leads to one that is far.

    Those without mark and name are only not to be covered.
    """
    seen = [
        Label(at=(x.place(one.at[0]), y.length - y.place(one.at[1])), mark=one.mark, name=one.name) for one in labels
    ]
    placed = place_labels(seen, x.length, y.length)
    lines = [
        {"x": a, "y": b, "x2": one.x - (2 if one.left else -2), "y2": one.y}
        for one in placed
        if one.far
        for a, b in [one.point]
    ]
    made = [drawn("rule", lines, color="#555555", strokeWidth=0.6)]
    halo: dict[str, Any] = {"stroke": "white", "strokeWidth": 3, "strokeOpacity": 0.7}
    for left, align in ((True, "left"), (False, "right")):
        rows = [{"x": one.x, "y": one.y, "text": one.text} for one in placed if one.left == left]
        made += [*texts(rows, align=align, **halo), *texts(rows, align=align)]
    return in_values(made, x, y)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLabel:
    """The name of a line, in lines, beside its last point."""

    at: tuple[float, float]
    lines: tuple[str, ...]
    colour: str


def end_labels(labels: Sequence[EndLabel], x: Scale, y: Scale) -> list[Spec]:
    """Names right of a plot, each at the height of its line, or as near as there is room, with a thin line to it."""
    heights = [min(max(y.place(one.at[1]), 0.0), y.length) for one in labels]
    middles = spread(heights, [len(one.lines) for one in labels], y.length)
    beside, made = x.value(x.length + 20), []
    for one, middle in zip(labels, middles, strict=True):
        end = {"x": beside, "y": y.value(middle)}
        way = {"x": one.at[0], "y": one.at[1], "x2": end["x"], "y2": end["y"]}
        made.append(drawn("rule", [way], color=one.colour, strokeWidth=0.7))
        made += texts([{**end, "text": list(one.lines)}], color=one.colour, dx=3)
    return made
