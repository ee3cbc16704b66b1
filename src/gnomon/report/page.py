"""A page of text for a terminal: sentences, tables and lists, readable without colour and in 80 columns.

A table is declared once: its rows and, for each column, a function that turns a row's record into the text of a cell.
Terminal, HTML and Markdown each have a single way to write any table.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gnomon.report import units
from gnomon.report.plain import clean, shorten

if TYPE_CHECKING:
    from gnomon.report.chart import Chart, Look

Ends = tuple[float | None, float | None, float | None]
"""A time with the ends of its interval, in seconds."""

R = TypeVar("R")
V = TypeVar("V")
Get = Callable[[R], V]
"""A function that reads a value from a row."""


class Timed(Protocol):
    """A median time with its interval."""

    @property
    def median_s(self) -> float:
        """The median."""

    @property
    def low_s(self) -> float | None:
        """The lower end of the interval; None if it is not known."""

    @property
    def high_s(self) -> float | None:
        """The upper end of the interval; None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[R]):
    """A column of a table. Numbers are aligned to the right and never shortened; texts have `least` characters or more.

    A text is always shortened in its middle to `most` characters, and further if the table does not fit. `cell` turns a
    row's record into text. An `extra` column is shown only on HTML pages, because a terminal has no room for it.
    """

    title: str
    cell: Callable[[R], str]
    number: bool = True
    least: int = 12
    most: int = 48
    extra: bool = False


class Table(Generic[R]):
    """The rows of a table, and its columns in the order in which they are added.

    A terminal shows at most `most` rows and states how many `more` there are; an HTML page shows all rows below their
    `charts`. A table that does not fit a terminal is split before column `split` (if not 0), and the first column is
    repeated. The `chosen` rows are highlighted, and the `note` is shown below.
    """

    def __init__(
        self,
        rows: Iterable[R],
        *,
        most: int | None = None,
        more: str = "more",
        split: int = 0,
        chosen: Callable[[R], bool] = lambda _: False,
        note: str = "",
    ) -> None:
        self.rows = list(rows)
        self.most, self.more, self.split, self.chosen, self.note = most, more, split, chosen, note
        self.columns: list[Column[R]] = []
        self.charts: list[Callable[[], Chart]] = []

    def text(self, title: str, cell: Get[R, str], *, least: int = 12, most: int = 48, extra: bool = False) -> Self:
        """Add a column of texts."""
        self.columns.append(Column(title=title, cell=cell, number=False, least=least, most=most, extra=extra))
        return self

    def number(
        self, title: str, value: Get[R, V], show: Get[V, str] = str, *, most: int = 48, extra: bool = False
    ) -> Self:
        """Add a column of numbers; `show` writes each value."""
        self.columns.append(Column(title=title, cell=lambda row: show(value(row)), most=most, extra=extra))
        return self

    def times(self, title: str, value: Get[R, Timed | None], interval: str | None = "", *, least: int = 14) -> Self:
        """Add a column of median times, and one of their intervals in the unit of the median."""

        def ends(row: R) -> str:
            return "" if (time := value(row)) is None else units.interval(time.low_s, time.high_s, time.median_s)

        self.number(title, lambda row: ends_of(value(row))[0], units.time)
        return self if interval is None else self.text(interval, ends, least=least)

    def bars(self, title: str, ends: Get[R, Ends], look: Get[R, Look] | None = None, noun: str = "") -> Self:
        """Make an HTML page draw each row's time, if the row has one; `noun` names the rows."""

        def chart() -> Chart:
            from gnomon.report.chart import CHOSEN, LOOKS, Row, in_rows, time_words, timed

            def usual(row: R) -> Look:
                return CHOSEN if self.chosen(row) else LOOKS[0]

            name, shown = self.columns[0].cell, [row for row in self.rows if ends(row)[0] is not None]
            rows = (
                Row(name=name(row), value=timed(*ends(row)), text=time_words(*ends(row)), look=(look or usual)(row))
                for row in shown
            )
            return in_rows(title, "ms", rows, noun=noun)

        self.charts.append(chart)
        return self


def ends_of(time: Timed | None) -> Ends:
    """A time with its interval; (None, None, None) without a time."""
    return (None, None, None) if time is None else (time.median_s, time.low_s, time.high_s)


_WIDEST = 120
_GAP = "  "
_BOUND = re.compile(r"(?<=\d) (?=(?:%|[num]?s\b|points\b|\d{3}(?:\D|$)))| (?=\(\d+ %\))")
"""Spaces between a number and its unit, between groups of digits, and before a share, where no line may break."""


class _Console(Console):
    """A console that leaves a broken pipe to the command line, which knows the exit code."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Page:
    """Writes to a file, by default the standard output; control characters in texts are escaped.

    `width` is the terminal's width, at least 40 and at most 120 columns; without a terminal, it is 100. A `brief` page
    leaves out the details and the columns of a table that do not fit next to the main ones; `omitted` holds their
    names. `own_record` means that an option named the results database, so suggested commands must name it too. A page
    with `every` shows all rows instead of a selection.
    """

    every: ClassVar[bool] = False

    def __init__(
        self, file: IO[str] | None = None, *, width: int | None = None, brief: bool = False, own_record: bool = False
    ) -> None:
        target = file or sys.stdout
        # With NO_COLOR (https://no-color.org), rich would still print bold and dim text.
        colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
        self._console = _Console(
            file=target, width=width, highlight=False, markup=False, emoji=False, color_system=colours
        )
        if width is None:
            width = self._console.width if target.isatty() else 100
        self.width = max(40, min(width, _WIDEST))
        self.brief = brief
        self.own_record = own_record
        self.omitted: list[str] = []
        self._muted = self._lost = False

    @contextlib.contextmanager
    def details(self, what: str) -> Iterator[None]:
        """A block whose text a brief page leaves out; the page then states that `what` is missing."""
        if not self.brief or self._muted:
            yield
            return
        self._muted, self._lost = True, False
        try:
            yield
        finally:
            self._muted = False
        if self._lost and what not in self.omitted:
            self.omitted.append(what)

    def headline(self, sentence: str) -> None:
        """Write the answer."""
        self._wrapped(sentence, style="bold")

    def conditions(self, sentence: str) -> None:
        """Write the conditions of the answer: model, machine, threads, precision, shapes, inputs, date."""
        self.line(sentence)

    def heading(self, title: str) -> None:
        """Write a title, with an empty line above unless the page is brief."""
        if not self.brief:
            self._print("")
        self._wrapped(title, style="bold")

    def line(self, sentence: str, *, indent: int = 0, style: str = "") -> None:
        """Write a sentence, wrapped between words but not between a number and its unit."""
        self._wrapped(sentence, first=" " * indent, style=style)

    def note(self, sentence: str) -> None:
        """Write a sentence below a table."""
        self.line(sentence, indent=1, style="dim")

    def path(self, label: str, path: str) -> None:
        """Write a labelled path or command without wrapping it, so that it can be copied."""
        self._print(f"  {label:<8} {clean(path)}")

    def item(self, text: str, advice: str = "") -> None:
        """Write an item of a list, with advice."""
        self._wrapped(text, first=" - ", later="   ")
        if advice:
            self._wrapped(advice, first="   -> ", later="      ")

    def draw(self, charts: str, *of: Any) -> None:
        """On an HTML page, draw charts made by "module:function" from the records `of`; a terminal shows none."""

    def table(self, table: Table[Any]) -> None:
        """Write a table: its first rows, and the number of further rows."""
        columns = [column for column in table.columns if not column.extra]
        if not columns:
            return
        shown = table.rows[: table.most]
        bold = frozenset(k for k, row in enumerate(shown) if table.chosen(row))
        cells = [[shorten(column.cell(row), column.most) for column in columns] for row in shown]
        if bold:
            other = "" if columns[0].number else "  "
            cells = [[("> " if k in bold else other) + row[0], *row[1:]] for k, row in enumerate(cells)]
        split = table.split
        if not split or sum(_widths(columns, cells)) + len(_GAP) * (len(columns) - 1) < self.width:
            self._table(columns, cells, bold)
        else:
            self._table(columns[:split], [row[:split] for row in cells], bold)
            if self.brief:
                titles = ", ".join(column.title for column in columns[split:] if column.title)
                self.omitted += [titles] if titles not in self.omitted and not self._muted else []
            else:
                self._print("")
                self._table([columns[0], *columns[split:]], [[row[0], *row[split:]] for row in cells], bold)
        if len(shown) < len(table.rows):
            left = len(table.rows) - len(shown)
            self.line(f"and {left} {table.more}: --json has all", indent=1, style="dim")
        if table.note:
            self.line(table.note, indent=1, style="dim")

    def _table(self, columns: Sequence[Column[Any]], rows: Sequence[Sequence[str]], bold: frozenset[int]) -> None:
        widths = _widths(columns, rows)
        least = [w if c.number else min(w, max(c.least, len(c.title))) for c, w in zip(columns, widths, strict=True)]
        while sum(widths) + len(_GAP) * (len(widths) - 1) >= self.width and widths != least:
            widest = max((k for k in range(len(widths)) if widths[k] > least[k]), key=lambda k: widths[k])
            widths[widest] -= 1
        cells = [_shortened(texts, w) for texts, w in zip(zip(*rows, strict=True), widths, strict=False)]
        lines = [[c.title for c in columns], *map(list, zip(*cells, strict=True))]
        for number, row in enumerate(lines):
            padded = (_padded(cell, w, c) for cell, w, c in zip(row, widths, columns, strict=True))
            style = "dim" if number == 0 else "bold" if number - 1 in bold else ""
            self._print((" " + _GAP.join(padded)).rstrip(), style=style)

    def _wrapped(self, text: str, *, first: str = "", later: str | None = None, style: str = "") -> None:
        indent = first if later is None else later
        room = textwrap.TextWrapper(self.width, first, indent, break_on_hyphens=False)
        held = _BOUND.sub("\0", clean(text))  # cleaned text does not contain this character
        for line in room.wrap(held) or [""]:
            self._print(line.replace("\0", " ").rstrip(), style=style)

    def _print(self, line: str, *, style: str = "") -> None:
        if self._muted:
            self._lost = True
        else:
            self._console.print(Text(line, style=style), soft_wrap=True)


def _widths(columns: Sequence[Column[Any]], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max([cell_len(c.title), *(cell_len(row[k]) for row in rows)]) for k, c in enumerate(columns)]


def _shortened(texts: Sequence[str], width: int) -> list[str]:
    """A column's texts shortened to `width`; more of the beginnings is kept if different texts would look alike."""
    short = [shorten(text, width) for text in texts]
    alike = len(set(short)) < len(set(texts))
    return [shorten(text, width, 0.75) for text in texts] if alike else short


def _padded(cell: str, width: int, column: Column[Any]) -> str:
    space = " " * max(0, width - cell_len(cell))
    return space + cell if column.number else cell + space
