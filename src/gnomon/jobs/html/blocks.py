"""The parts of a page: tables, charts, lines, sections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gnomon.report.chart import Chart
from gnomon.report.page import Column, Table

MOST_ROWS = 500
"""At most this many rows of a table are shown; the embedded document has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table as texts under headings; the first cell of each row names the row. `chosen` are the highlighted rows."""

    title: str
    columns: tuple[Column[Any], ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    chosen: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A sentence, which may be a list item with advice, or a path or command with its label."""

    text: str
    advice: str = ""
    label: str = ""
    point: bool = False


Part = Chart | Grid | Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page: its anchor, its heading, and its contents in order."""

    id: str
    title: str
    parts: tuple[Part, ...]

    @property
    def short(self) -> str:
        """The title without its details, for a list of sections."""
        return re.split(r"[,(]|: ", self.title)[0].strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The displayed contents of one document: the `conditions` of the answer next to the title, `lead` below the
    answer, and `after` below the parts that the script draws.
    """

    title: str
    conditions: str
    answer: str
    lead: tuple[Line, ...]
    warnings: tuple[Line, ...]
    sections: tuple[Section, ...]
    after: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...]


def grid(title: str, table: Table[Any], most: int = MOST_ROWS) -> Grid:
    """A table as a page shows it: all its columns that are not empty, and at most `most` rows."""
    shown = table.rows[:most]
    columns = [c for k, c in enumerate(table.columns) if not k or any(c.cell(row) not in ("", "-") for row in shown)]
    left = len(table.rows) - len(shown)
    more = f"and {left} more: the document has all" if left else ""
    return Grid(
        title=title,
        columns=tuple(columns),
        rows=tuple(tuple(column.cell(row) for column in columns) for row in shown),
        note="; ".join(filter(None, (table.note, more))),
        chosen=frozenset(k for k, row in enumerate(shown) if table.chosen(row)),
    )
