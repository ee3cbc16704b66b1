"""The reports of suites, each derived only from its document."""

from __future__ import annotations

from pathlib import Path

from gnomon.jobs.compare.document import kind_of
from gnomon.jobs.compare.report import compare_report
from gnomon.jobs.suite.document import SuiteCompareDocument, SuiteDocument
from gnomon.report import units
from gnomon.report.page import Page, Table
from gnomon.report.plain import listed, many

_FEW, _MOST = 20, 200
_ORDER = {"failed": 0, "waiting": 1, "done": 2}


def suite_report(document: SuiteDocument, page: Page) -> None:
    """Write the report: the number of cells that are done, each cell, and the reasons for failures."""
    cells = document.cells
    page.headline(f"Suite {': '.join(document.headline())}")
    page.line(f"Run {document.run[:12]} in {document.record}.")
    if document.out:
        verb = "gets" if len(document.out) == 1 else "get"
        page.item(
            f"{', '.join(document.out)} failed too often and {verb} no more cells.",
            "To find the problem: gnomon devices check",
        )
    rows = sorted(cells, key=lambda cell: _ORDER[cell.state])
    page.table(
        Table(rows, most=_FEW if page.brief else _MOST)
        .text("job", lambda cell: cell.job, least=6)
        .text("model", lambda cell: Path(cell.model).name)
        .text("on", lambda cell: cell.device or cell.selector, least=8)
        .number("repeat", lambda cell: cell.repeat)
        .text("state", lambda cell: cell.state, least=7)
        .number("took", lambda cell: "" if cell.seconds is None else units.time(cell.seconds))
        .text("", lambda cell: cell.error.message if cell.error else cell.answer or "", least=20, most=72)
    )
    hints = dict.fromkeys((c.error.message, c.error.hint) for c in cells if c.error)
    for message, hint in list(hints)[:_FEW]:
        page.item(message, hint)
    if document.waiting:
        page.line("Repeat the command to measure the waiting cells.")


def suite_compare_report(document: SuiteCompareDocument, page: Page) -> None:
    """Write the report: the number of changed configurations, then each cell with a change or an undecided gate."""
    rows, compared = document.verdicts(), sum(cell.comparison is not None for cell in document.cells)
    counts = f"{many(len(rows), 'configuration')} in {many(compared, 'cell')}: {document.counts()}"
    page.headline(f"Suite {document.suite}, {counts}.")
    page.line(f"Before: run {document.before[:12]}. After: run {document.after[:12]}.")
    lost = [cell.label for cell in document.cells if cell.lost]
    if lost:
        page.line(f"Done before, but not after: {listed(lost)}.")
    for cell in document.cells:
        if cell.comparison and any(
            pair.unlike
            or pair.lost
            or any(kind_of(row) in ("slower", "undecided", "faster") for row in pair.configurations)
            for pair in cell.comparison.pairs
        ):
            page.heading(cell.label)
            compare_report(cell.comparison, page)
    for cell in document.cells:
        if cell.why:
            page.item(f"{cell.label}: not compared", cell.why)
