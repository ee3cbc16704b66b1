"""What a page is made of: tables, small charts, lines, sections; and the charts that several jobs have."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gnomon.report import units
from gnomon.report.charts import Axis, Drawn, Value, axis, finite

WIDTH = 940
_ROW = 26
MOST_ROWS = 500
"""Rows of a table that are shown; the embedded document has all."""
_MOST_MARKS = 40
SHADES = 9
"""How many shades of a heat map there are, from 0 on: the style sheet has a class for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading; numbers are aligned to the right."""

    title: str
    number: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts under headings: the first cell of each names it. `chosen` are the rows that stand out.

    In a heat map `shades` has a number below SHADES for each cell, or None for one that has no shade.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    chosen: frozenset[int] = frozenset()
    shades: tuple[tuple[int | None, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point of a chart: what it is called, where it is, and what it is told apart by.

    `name` is what stands at the end of its row, `left` says that there is room for the label only left of it.
    """

    label: str
    told: str
    x: Drawn
    y: Drawn
    kind: str
    name: str = ""
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Points with intervals over axes; without a second axis each has a row of its own.

    `line` goes from one place to another; `ways` are paths of SVG with a class each, "main" or "faint".
    """

    title: str
    width: int
    height: int
    x: Axis
    x_title: str
    marks: tuple[Mark, ...]
    y: Axis | None = None
    y_title: str = ""
    line: tuple[float, float, float, float] | None = None
    ways: tuple[tuple[str, str], ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A sentence; as a point of a list with the next step, or a path or command with its label."""

    text: str
    advice: str = ""
    label: str = ""
    point: bool = False


Part = Chart | Table | Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page: its anchor and heading, and what is in it, in order: first `lines`, then `parts`."""

    id: str
    title: str
    parts: tuple[Part, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The title without what it says more closely, for a list of sections."""
        return re.split(r"[,:(]", self.title)[0].strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """What speaks against the figures, and the next step."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is shown of one document: `lead` under the answer, `after` below what the script draws of it."""

    title: str
    answer: str
    subject: str
    warnings: tuple[Warned, ...]
    sections: tuple[Section, ...]
    after: tuple[Section, ...] = ()
    lead: tuple[Line, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Something that was found: what it is called, its values with intervals, and how it is told apart.

    `kind` is "chosen", "other", or "behind", which is drawn hollow. `told` is what one reads over it, `label` what
    stands beside it.
    """

    told: str
    x: Value
    y: Value
    kind: str = "other"
    label: str = ""


def in_rows(title: str, x_title: str, rows: Sequence[tuple[str, Value, str, str]], *, name: str = "") -> Chart:
    """Values with intervals, a row each: its label, the value, how that is told, and its kind as in `Point`.

    Rows without a number are left out, and of very many the first are drawn; a note says so.
    """
    known = [row for row in rows if row[1].known]
    shown = known[:_MOST_MARKS]
    scale = axis([value for _, value, _, _ in shown], 290, WIDTH - 110)
    marks = []
    for k, (label, value, told, kind) in enumerate(shown):
        middle = 18.0 + _ROW * k
        marks.append(
            Mark(
                label=label,
                name=told.partition(" [")[0],
                told=f"{label}: {told}",
                x=scale.drawn(value),
                y=Drawn(at=middle, low=middle, high=middle),
                kind=kind,
            )
        )
    left = len(known) - len(shown)
    more = f"The first {len(shown)} of {len(known)}{name and ' ' + name}; the table has all." if left > 0 else ""
    return Chart(
        title=title,
        width=WIDTH,
        height=44 + _ROW * len(shown),
        x=scale,
        x_title=f"{x_title}{_logarithmic(scale)}",
        marks=tuple(marks),
        note=_noted(more, len(rows) - len(known)),
    )


def scattered(
    title: str,
    titles: tuple[str, str],
    points: Sequence[Point],
    *,
    equal: bool = False,
    width: int = WIDTH,
    lines: Sequence[tuple[str, Sequence[tuple[float | None, float | None]]]] = (),
    height: int = 400,
    even: bool = False,
    note: str = "",
) -> Chart:
    """Points over two axes. `equal`: both axes are one, with the line on which they are equal; `even`: as time goes on.

    `lines` go through values, each with a class as in `Chart.ways`.
    """
    bottom = height - 50.0
    known = [p for p in points if p.x.known and p.y.known]
    drawn = [(kind, _known(through)) for kind, through in lines]
    across, up = [p.x for p in known], [p.y for p in known]
    for _, through in drawn:
        across += [Value(value=one) for one, _ in through]
        up += [Value(value=one) for _, one in through]
    both = [*across, *up]
    x = axis(both if equal else across, 90, width - 40, even=even)
    y = axis(both if equal else up, bottom, 20)
    marks = tuple(Mark(label=p.label, told=p.told, x=x.drawn(p.x), y=y.drawn(p.y), kind=p.kind) for p in known)
    return Chart(
        title=title,
        width=width,
        height=height,
        x=x,
        x_title=f"{titles[0]}{_logarithmic(x)}",
        y=y,
        y_title=f"{titles[1]}{_logarithmic(y)}",
        marks=apart(marks),
        line=(90, bottom, width - 40, 20) if equal else None,
        ways=tuple(
            ("M" + "L".join(f"{x.place(a)} {y.place(b)}" for a, b in through), kind)
            for kind, through in drawn
            if through
        ),
        note=_noted(note, len(points) - len(known)),
    )


def _known(through: Sequence[tuple[float | None, float | None]]) -> list[tuple[float, float]]:
    """The places of a line that are known."""
    places = [(finite(a), finite(b)) for a, b in through]
    return [(a, b) for a, b in places if a is not None and b is not None]


def _noted(note: str, unknown: int) -> str:
    """A chart's note, and how many of what it is of are not drawn, as they have no number."""
    left = f"Not drawn, as it is not known: {unknown}." if unknown else ""
    return " ".join(filter(None, (note, left)))


def _logarithmic(scale: Axis) -> str:
    return " (logarithmic)" if scale.logarithmic else ""


def apart(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """The marks, with labels to the left where another mark stands close to the right."""

    def crowded(one: Mark) -> bool:
        return bool(one.label) and any(
            other is not one and 0 <= other.x.at - one.x.at < 20 and abs(other.y.at - one.y.at) < 16 for other in marks
        )

    return tuple(replace(mark, left=crowded(mark)) for mark in marks)


def shade(share: float | None) -> int | None:
    """The shade of a share of 1: the darkest from 1 on, none for what is not known."""
    return None if share is None or math.isnan(share) else round(min(max(share, 0.0), 1.0) * (SHADES - 1))


def timed(seconds: float | None, low_s: float | None = None, high_s: float | None = None) -> Value:
    """A time in milliseconds with its interval, as charts have it."""
    return Value(value=seconds, low=low_s, high=high_s).times(1e3)


def told_time(seconds: float | None, low_s: float | None = None, high_s: float | None = None) -> str:
    """A time with its interval in words: "1.2 ms [1.1, 1.3]"; the interval only where it is known."""
    if seconds is None or low_s is None or high_s is None:
        return units.time(seconds)
    return f"{units.time(seconds)} {units.interval(low_s, high_s, seconds)}"


def table(
    title: str,
    columns: Iterable[str],
    rows: Iterable[tuple[str, ...]],
    *,
    words: Sequence[int] = (0,),
    note: str = "",
    chosen: frozenset[int] = frozenset(),
) -> Table:
    """A table of which the columns of `words` are texts, and all others numbers."""
    made = tuple(rows)
    left = len(made) - MOST_ROWS
    more = f"and {left} more, which the embedded document has" if left > 0 else ""
    return Table(
        title=title,
        columns=tuple(Column(title=name, number=k not in words) for k, name in enumerate(columns)),
        rows=made[:MOST_ROWS],
        note="; ".join(filter(None, (note, more))),
        chosen=chosen,
    )
