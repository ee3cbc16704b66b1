"""Tables, each declared once: its rows and, of each column, what it shows of a row's record.

A terminal, a page in HTML and Markdown each have one way to write any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from gnomon.report import units
from gnomon.report.chart import CHOSEN, LOOKS, Chart, Look, Row, in_rows, time_words, timed

Ends = tuple[float | None, float | None, float | None]
"""A time with the ends of its interval, in seconds."""

R = TypeVar("R")
V = TypeVar("V")


class Timed(Protocol):
    """A median time with its interval."""

    @property
    def median_s(self) -> float:
        """The median."""

    @property
    def low_s(self) -> float | None:
        """The lower end of the interval; None where it is not known."""

    @property
    def high_s(self) -> float | None:
        """The upper end of the interval; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[R]):
    """A column of a table. Numbers are aligned to the right and never shortened; texts have at least `least` columns.

    A text is shortened in its middle to `most` columns at once, and further where the table does not fit. `cell` writes
    a row's record; an `extra` column is one of pages in HTML alone, for which a terminal has no room.
    """

    title: str
    cell: Callable[[R], str]
    number: bool = True
    least: int = 12
    most: int = 48
    extra: bool = False


class Table(Generic[R]):
    """Rows and the columns that are added to it, in order.

    A terminal shows `most` of the rows, and says how many `more` there are; a page in HTML has all, below `charts` of
    them. One that does not fit a terminal is split before column `split` (if not 0), the first column being repeated.
    The `chosen` rows stand out, and the `note` stands below.
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

    def text(
        self, title: str, cell: Callable[[R], str], *, least: int = 12, most: int = 48, extra: bool = False
    ) -> Self:
        """Add a column of texts."""
        self.columns.append(Column(title=title, cell=cell, number=False, least=least, most=most, extra=extra))
        return self

    def number(
        self,
        title: str,
        value: Callable[[R], V],
        show: Callable[[V], str] = str,
        *,
        most: int = 48,
        extra: bool = False,
    ) -> Self:
        """Add a column of numbers, each as `show` writes its value."""
        self.columns.append(Column(title=title, cell=lambda row: show(value(row)), most=most, extra=extra))
        return self

    def times(
        self, title: str, value: Callable[[R], Timed | None], interval: str | None = "", *, least: int = 14
    ) -> Self:
        """Add the medians of times, and their intervals in the unit of the median under a title of their own."""

        def ends(row: R) -> str:
            return "" if (time := value(row)) is None else units.interval(time.low_s, time.high_s, time.median_s)

        self.number(title, lambda row: ends_of(value(row))[0], units.time)
        return self if interval is None else self.text(interval, ends, least=least)

    def bars(
        self, title: str, ends: Callable[[R], Ends], look: Callable[[R], Look] | None = None, noun: str = ""
    ) -> Self:
        """Have a page in HTML draw a time of each row that has one; `noun` is what the rows are."""

        def chart() -> Chart:
            known = ((row, found) for row in self.rows if (found := ends(row))[0] is not None)
            rows = (
                Row(
                    name=self.columns[0].cell(row),
                    value=timed(*found),
                    text=time_words(*found),
                    look=(look or self._look)(row),
                )
                for row, found in known
            )
            return in_rows(title, "ms", rows, noun=noun)

        self.charts.append(chart)
        return self

    def _look(self, row: R) -> Look:
        return CHOSEN if self.chosen(row) else LOOKS[0]


def ends_of(time: Timed | None) -> Ends:
    """A time with its interval; all None where there is none."""
    return (None, None, None) if time is None else (time.median_s, time.low_s, time.high_s)
