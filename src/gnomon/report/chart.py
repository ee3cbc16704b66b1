"""Charts as data: points with intervals, bars, lines and cells over two axes, which `gnomon.report.svg` draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gnomon.report import units

_BEYOND = 1e300
_MOST_ROWS = 40


def finite(number: float | None) -> float | None:
    """The number, and None for one that is not finite, or so large that no axis could have room around it."""
    return number if number is not None and abs(number) < _BEYOND else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A number with its interval, of which either end may not be known; nor is what is not finite."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is a number, without which nothing can be drawn."""
        return finite(self.value) is not None

    @property
    def ends(self) -> tuple[float, float, float]:
        """The lower end, the value and the upper end; an end that is not known is at the value."""
        at = finite(self.value)
        if at is None:
            raise ValueError("a value that is not known has no place")
        low, high = (at if (end := finite(bound)) is None else end for bound in (self.low, self.high))
        return low, at, high

    def times(self, factor: float) -> Value:
        """The same in another unit."""
        value, low, high = (None if number is None else number * factor for number in (self.value, self.low, self.high))
        return Value(value=value, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a group is drawn: a colour and, so that nothing depends on it, a shape, the dashes of a line and a hatch."""

    colour: str
    shape: str = "circle"
    dash: str = ""
    hatch: str = ""
    hollow: bool = False


INK = "ink"
"""The colour of the text around a chart."""

# Okabe and Ito's colours, which stay apart for people who are colour-blind.
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
    """How the group of this number is drawn: those after LOOKS have its colours with the shape and hatch of another."""
    colour, other = LOOKS[number % len(LOOKS)].colour, LOOKS[(number + number // len(LOOKS)) % len(LOOKS)]
    return replace(other, colour=colour)


CHOSEN = Look(colour=INK, shape="star")
BEHIND = Look(colour="#0072B2", hollow=True)
"""The look of dominated, dropped, predicted or unsure marks, beside others in the first of LOOKS."""

PLAIN = Look(colour=INK, dash="6 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis: what it is of with the unit, or the `names` of its rows or columns, whose numbers are the values.

    Without `low` and `high` the values decide; so they do whether it is logarithmic, unless it is `linear`. `whole`
    says that there are only whole numbers, `chosen` are the names that stand out, `room` is how high a row is.
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
    """A place of a chart. `tip` is what one reads over it.

    `label` stands beside a point (its first word alone where there is no room), in a cell, or at the end of its row.
    A bar goes from `x.low` to `x.high`. `share` is how dark a cell is, of 1.
    """

    x: Value
    y: Value
    tip: str = ""
    label: str = ""
    share: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether it has a place."""
        return self.x.is_known and self.y.is_known


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Marks that look alike, and what they are (for the legend; "": left out of it).

    `dots` are many small points, drawn as one. `line` goes through the marks, and has gaps where one is not known.
    """

    marks: Sequence[Mark]
    look: Look = LOOKS[0]
    name: str = ""
    kind: Literal["points", "dots", "bars", "cells", "none"] = "points"
    line: Literal["", "straight", "steps"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A dashed line across a chart at a value of an axis, and what it is, for the legend."""

    along: Literal["x", "y"]
    at: float
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Groups over two axes. Where the axes are `equal` they have one scale, and a line where both are alike."""

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
        """The note, and how many marks are not drawn, as they have no number."""
        unknown = sum(not mark.is_known for group in self.groups for mark in group.marks if not group.line)
        left = f"Not drawn, as it is not known: {unknown}." if unknown else ""
        return " ".join(filter(None, (self.note, left)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A value with its interval in a row of its own: the row's name, and the value as text."""

    name: str
    value: Value
    text: str
    look: Look = LOOKS[0]
    tip: str = ""


def in_rows(
    title: str, x_title: str, rows: Iterable[Row], *, legend: Mapping[Look, str] | None = None, noun: str = ""
) -> Chart:
    """Values with intervals, a row each, of very many the first; `noun` is what they are, `legend` what looks mean."""
    every = list(rows)
    drawn = [row for row in every if row.value.is_known]
    shown = drawn[:_MOST_ROWS]
    notes = []
    if len(drawn) > len(shown):
        notes.append(f"The first {len(shown)} of {len(drawn)}{noun and ' ' + noun}; the table has all.")
    if len(every) > len(drawn):
        notes.append(f"Not drawn, as it is not known: {len(every) - len(drawn)}.")
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
    """A time in milliseconds with its interval, as charts have it: without one that is too wide to say anything."""
    if low_s and high_s and units.vague(low_s, high_s):
        low_s = high_s = None
    return Value(value=seconds, low=low_s, high=high_s).times(1e3)


def shares(share: float | None, low: float | None = None, high: float | None = None) -> Value:
    """A share of 1 with its interval, in percent."""
    return Value(value=share, low=low, high=high).times(100)


def time_words(seconds: float | None, low_s: float | None = None, high_s: float | None = None) -> str:
    """A time with its interval in words: "1.2 ms [1.1, 1.3]"; the interval only where it is known."""
    if seconds is None or low_s is None or high_s is None:
        return units.time(seconds)
    return f"{units.time(seconds)} {units.interval(low_s, high_s, seconds)}"
