"""Charts as data: points with intervals, bars, lines and cells over two axes, which `gnomon.report.svg` draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gnomon.report import units

_BEYOND = 1e300
_MOST_ROWS = 40


def finite(number: float | None) -> float | None:
    """The number, or None if it is not finite or too large for an axis with room around it."""
    return number if number is not None and abs(number) < _BEYOND else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A number with its interval. Either end may be unknown; numbers that are not finite count as unknown."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether the number is known, so that something can be drawn."""
        return finite(self.value) is not None

    @property
    def ends(self) -> tuple[float, float, float]:
        """The lower end, the value and the upper end; an unknown end equals the value."""
        at = finite(self.value)
        if at is None:
            raise ValueError("an unknown value has no place")
        low, high = (at if (end := finite(bound)) is None else end for bound in (self.low, self.high))
        return low, at, high

    def times(self, factor: float) -> Value:
        """The same value in another unit."""
        value, low, high = (None if number is None else number * factor for number in (self.value, self.low, self.high))
        return Value(value=value, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The look of a group: a colour and, because nothing may depend on colour alone, a shape, dashes and a hatch."""

    colour: str
    shape: str = "circle"
    dash: str = ""
    hatch: str = ""
    hollow: bool = False


INK = "ink"
"""The colour of the text around a chart."""

# Okabe and Ito's colours, which colour-blind people can distinguish.
LOOKS = (
    Look(colour="#0072B2"),
    Look(colour="#D55E00", shape="square", dash="7 3", hatch="/"),
    Look(colour="#009E73", shape="triangle", dash="1.5 2", hatch="."),
    Look(colour="#8C6D1F", shape="diamond", dash="8 2.5 1.5 2.5", hatch="\\"),
    Look(colour="#CC79A7", shape="turned", dash="13 4", hatch="x"),
    Look(colour="#777777", shape="cross", dash="4 1.5 1.5 1.5 1.5 1.5", hatch="-"),
    Look(colour="#56B4E9", shape="hexagon", dash="2 4", hatch="+"),
)


def look_of(number: int) -> Look:
    """The look of the group with this number; beyond LOOKS, its colours are combined with other shapes and hatches."""
    colour, other = LOOKS[number % len(LOOKS)].colour, LOOKS[(number + number // len(LOOKS)) % len(LOOKS)]
    return replace(other, colour=colour)


CHOSEN = Look(colour=INK, shape="star")
BEHIND = Look(colour="#0072B2", hollow=True)
"""The look of dominated, dropped, predicted or uncertain marks, next to other marks in the first of LOOKS."""

PLAIN = Look(colour=INK, dash="6 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis: its quantity with the unit, or the `names` of its rows or columns, whose indices are the values.

    Without `low` and `high`, the values determine the range, and also whether the axis is logarithmic, unless it is
    `linear`. `whole` means that all values are whole numbers. `chosen` are the indices of the highlighted names, and
    `room` is the height of a row.
    """

    title: str = ""
    names: tuple[str, ...] = ()
    chosen: frozenset[int] = frozenset()
    low: float | None = None
    high: float | None = None
    linear: bool = False
    whole: bool = False
    room: float = 27


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A mark at a place in a chart; `tip` is its tooltip.

    `label` is shown next to a point (only its first word if there is no room), in a cell, or at the end of its row. A
    bar extends from `x.low` to `x.high`. `share` is the darkness of a cell, from 0 to 1.
    """

    x: Value
    y: Value
    tip: str = ""
    label: str = ""
    share: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether the place of the mark is known."""
        return self.x.is_known and self.y.is_known


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Marks that look alike, with their name for the legend ("": not in the legend).

    `dots` are many small points, drawn as one path. `line` connects the marks, with gaps at unknown marks.
    """

    marks: Sequence[Mark]
    look: Look = LOOKS[0]
    name: str = ""
    kind: Literal["points", "dots", "bars", "cells", "none"] = "points"
    line: Literal["", "straight", "steps"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A dashed line across a chart at a value of an axis, with its name for the legend."""

    along: Literal["x", "y"]
    at: float
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Groups over two axes. `equal` axes share a scale and get a line where both values are equal."""

    title: str
    x: Axis
    y: Axis
    groups: tuple[Group, ...]
    rules: tuple[Rule, ...] = ()
    equal: bool = False
    height: float = 360
    note: str = ""

    @property
    def notes(self) -> str:
        """The note, and the number of marks that are not drawn because their values are unknown."""
        unknown = sum(not mark.is_known for group in self.groups for mark in group.marks if not group.line)
        left = f"Not drawn, because unknown: {unknown}." if unknown else ""
        return " ".join(filter(None, (self.note, left)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A value with its interval in a row of its own, with the row's name and the value as text."""

    name: str
    value: Value
    text: str
    look: Look = LOOKS[0]
    tip: str = ""


def in_rows(
    title: str, x_title: str, rows: Iterable[Row], *, legend: Mapping[Look, str] | None = None, noun: str = ""
) -> Chart:
    """A chart of the first rows: values with intervals. `noun` names the rows, and `legend` explains the looks."""
    every = list(rows)
    drawn = [row for row in every if row.value.is_known]
    shown = drawn[:_MOST_ROWS]
    notes = []
    if len(drawn) > len(shown):
        notes.append(f"The first {len(shown)} of {len(drawn)}{noun and ' ' + noun}; the table has all.")
    if len(every) > len(drawn):
        notes.append(f"Not drawn, because unknown: {len(every) - len(drawn)}.")
    groups = [
        Group(
            name=(legend or {}).get(look, ""),
            look=look,
            marks=[
                Mark(x=row.value, y=Value(value=k), label=row.text.partition(" [")[0], tip=row.tip or row.text)
                for k, row in enumerate(shown)
                if row.look == look
            ],
        )
        for look in dict.fromkeys(row.look for row in shown)
    ]
    chosen = frozenset(k for k, row in enumerate(shown) if row.look == CHOSEN)
    names = Axis(names=tuple(row.name for row in shown), chosen=chosen)
    return Chart(title=title, x=Axis(title=x_title), y=names, groups=tuple(groups), note=" ".join(notes))


def line(places: Iterable[tuple[float | None, float | None]]) -> list[Mark]:
    """Marks of a line through places."""
    return [Mark(x=Value(value=x), y=Value(value=y)) for x, y in places]


def timed(seconds: float | None, low_s: float | None = None, high_s: float | None = None) -> Value:
    """A time in milliseconds with its interval, for charts; an interval that is too wide to be useful is dropped."""
    if low_s and high_s and units.vague(low_s, high_s):
        low_s = high_s = None
    return Value(value=seconds, low=low_s, high=high_s).times(1e3)


def shares(share: float | None, low: float | None = None, high: float | None = None) -> Value:
    """A share (from 0 to 1) with its interval, in percent."""
    return Value(value=share, low=low, high=high).times(100)


def time_words(seconds: float | None, low_s: float | None = None, high_s: float | None = None) -> str:
    """A time with its interval in words: "1.2 ms [1.1, 1.3]"; without the interval if it is not known."""
    if seconds is None or low_s is None or high_s is None:
        return units.time(seconds)
    return f"{units.time(seconds)} {units.interval(low_s, high_s, seconds)}"
