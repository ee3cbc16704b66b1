"""What a page is made of: tables, charts, lines, sections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gnomon.report.chart import Chart

MOST_ROWS = 500
"""Rows of a table that are shown; the embedded document has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading; numbers are aligned to the right."""

    title: str
    number: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts under headings: the first cell of each names it. `chosen` are the rows that stand out."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    chosen: frozenset[int] = frozenset()


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
