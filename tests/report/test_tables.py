"""Tables that are declared once: what a terminal and a page show of them; and a latency table's report."""

from __future__ import annotations

import io

import pytest

from gnomon.jobs.html.blocks import grid
from gnomon.jobs.table.document import TableDocument
from gnomon.jobs.table.report import table_report
from gnomon.report.chart import CHOSEN, LOOKS
from gnomon.report.page import Page, Table


@pytest.mark.parametrize(("count", "headline"), [(0, "nothing was measured"), (2, "all stable")])
def test_an_empty_table_is_not_known_well(count: int, headline: str) -> None:
    document = TableDocument(
        format="gnomon-table",
        version=1,
        space="s",
        counts={"ok": count, "unstable": 0, "failed": 0},
        units=(),
        context={},
        clock="cpu",
        overhead_s=0.0,
        anchor=None,
        fused=(),
        evidence=(),
        complaints=(),
        table="one.table",
    )
    file = io.StringIO()
    table_report(document, Page(file, width=80))
    assert f"{count} units of s: {headline}." in file.getvalue()


def squares(**how: object) -> Table[int]:
    """Numbers and their squares, of which 2 is chosen."""
    table = Table(range(1, 6), chosen=lambda n: n == 2, note="Whole ones.", **how)  # type: ignore[arg-type]
    table.text("name", lambda n: f"n{n}").number("square", lambda n: n * n).number("cube", lambda n: n**3, extra=True)
    return table.bars(
        "Squares", lambda n: (n * n if n > 1 else None, None, None), lambda n: CHOSEN if n == 2 else LOOKS[0]
    )


def test_a_terminal_shows_the_first_rows_without_the_columns_of_a_page() -> None:
    file = io.StringIO()
    Page(file, width=80).table(squares(most=3, more="more numbers"))
    assert file.getvalue().splitlines() == [
        " name  square",
        "   n1       1",
        " > n2       4",
        "   n3       9",
        " and 2 more numbers: --json has all",
        " Whole ones.",
    ]


def test_names_that_differ_before_their_middle_stay_apart_where_they_are_shortened() -> None:
    file = io.StringIO()
    names = [f"onert[threads={n}]:ruy (+cpu for 2 of 29)" for n in (1, 2)]
    Page(file, width=44).table(Table(names).text("name", str).number("length of all", len))
    assert [line.split("]")[0] for line in file.getvalue().splitlines()[1:]] == [" onert[threads=1", " onert[threads=2"]


def test_a_page_shows_all_rows_and_columns_and_draws_them() -> None:
    table = squares(most=3)
    shown = grid("Numbers", table)
    assert [column.title for column in shown.columns] == ["name", "square", "cube"]
    assert (len(shown.rows), shown.rows[4], {*shown.chosen}, shown.note) == (5, ("n5", "25", "125"), {1}, "Whole ones.")
    assert grid("Numbers", table, 2).note == "Whole ones.; and 3 more: the document has all"
    (chart,) = (one() for one in table.charts)
    assert (chart.title, chart.y.names, {*chart.y.chosen}) == ("Squares", ("n2", "n3", "n4", "n5"), {0})
