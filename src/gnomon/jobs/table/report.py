"""The reports of `gnomon table`, made from their documents alone."""

from __future__ import annotations

import shlex

from gnomon.jobs.place.shared_report import doubts, first_warnings
from gnomon.jobs.table.document import (
    SpacesDocument,
    TableDiffDocument,
    TableDocument,
    TableExportDocument,
    TablesDocument,
)
from gnomon.report import units
from gnomon.report.conditions import measured_with
from gnomon.report.page import Page, Table
from gnomon.report.parts import networks, percent
from gnomon.report.plain import many

_ROWS, _CHAINS = 20, 4
_LABEL = 58
_OF_MODELS = ("models", "operators")
"""The spaces whose tables can price any model, even one outside the space."""


def table_report(document: TableDocument, page: Page) -> None:
    """Write the content of a table: its most expensive units, and warnings."""
    counts = document.counts
    total = sum(counts.values())
    bad = [f"{counts[s]} {s}" for s in ("unstable", "failed") if counts[s]]
    vague = any(row.relative_half_width is None for row in document.units if row.status == "ok")
    fine = "nothing was measured" if not total else "of unknown precision" if vague else "all stable"
    page.headline(f"{many(total, 'unit')} of {document.space}: " + (", ".join(bad) or fine) + ".")
    page.conditions(measured_with(document.context, document.conditions, document.clock))
    first_warnings(document.doubts or (), page)
    if document.overhead_s > 0:
        page.line(
            f"A call of the no-op model takes {units.time(document.overhead_s)}; it is subtracted from each unit."
        )
    else:
        page.line("The times are those of the layers, without the overhead of a call.")
    if in_place := sum(row.nets > 0 for row in document.units):
        alone = f"; {many(total - in_place, 'unit')} measured alone" if in_place < total else ""
        page.line(f"{many(in_place, 'unit')} timed inside whole networks, by the runtime's trace{alone}.")
    page.line(_fused(document, page))
    if document.models:
        page.line(f"Built from {', '.join(document.models)}.")
    page.heading("The most expensive units")
    page.table(
        Table(
            document.units if page.every else (row for row in document.units if row.status != "failed"),
            most=5 if page.brief else _ROWS,
        )
        .text("unit", lambda row: row.label, most=_LABEL)
        .number("net latency", lambda row: row.time_s, units.time)
        .number("gross latency", lambda row: row.call_s, units.time)
        .text("95 % interval", lambda row: units.interval(row.low_s, row.high_s, row.call_s), extra=True)
        .number("known within", lambda row: row.relative_half_width, percent)
        .text("", lambda row: "" if row.status == "ok" else row.status)
        .number("processes", lambda row: row.processes or None, extra=True)
        .number("networks", lambda row: row.nets or None, extra=True)
        .text("reason", lambda row: row.reason, extra=True)
        .bars(
            "A call of each unit, with its 95 % interval", lambda row: (row.call_s, row.low_s, row.high_s), noun="units"
        )
    )
    if document.complaints:
        page.heading("Warnings")
        for warning in document.complaints:
            page.item(f"{warning}.")
    if bad and document.seconds is None:
        page.line(
            "To measure again: the same table build with --again. Predictions of models allow for unstable prices."
        )
    doubts(document.doubts or (), page)
    page.line("")
    if document.seconds is not None:
        page.line(f"{many(document.measured or 0, 'unit')} measured in {units.duration(document.seconds)}.")
    page.path("table", document.table)
    if document.seconds is not None:
        verb = "predict MODEL" if document.space in _OF_MODELS else "suggest"
        page.line(f"Next: gnomon estimator {verb} --table {shlex.quote(document.table)}", indent=1, style="dim")


_WHY = {
    "graph": "according to the runtime's trace",
    "the user": "as requested",
    "no trace": "assumed, because the runtime writes no trace",
}


def _fused(document: TableDocument, page: Page) -> str:
    """A sentence about the fused chains, with the reason why they are fused."""
    why = [_WHY[source] for entry in document.evidence[:1] if (source := str(entry.get("source"))) in _WHY]
    chains = document.fused if page.every else document.fused[:_CHAINS]
    more = f" and {len(document.fused) - len(chains)} more" if len(chains) < len(document.fused) else ""
    sentence = f"Fused: {', '.join(chains)}{more}" if chains else "No operators are fused"
    return f"{sentence} ({why[0]})." if why else f"{sentence}."


def tables_report(document: TablesDocument, page: Page) -> None:
    """Write the tables of one file, one for each runtime: first the paths, then the contents."""
    documents = document.tables
    page.headline(f"{many(len(documents), 'table')}, one for each runtime.")
    for table in documents:
        page.path(table.context["runtime"], table.table)
    for table in documents:
        page.line("")
        table_report(table, page)


def difference_report(document: TableDiffDocument, page: Page) -> None:
    """Write the differences between two tables."""
    rows = document.units
    ratio = document.ratio
    if ratio is None:
        page.headline("The tables have no unit in common.")
    else:
        page.headline(
            f"{many(len(rows), 'common unit')}: the second table's times are {ratio:.3g} times the first's (geometric "
            f"mean); {document.apart} of them differ by more than noise."
        )
    for warning in document.unlike:
        page.item(f"Different conditions: {warning}.")
    for path, only in zip(document.tables, document.only, strict=True):
        if only:
            page.item(f"{many(len(only), 'unit')} only in {path}, such as {only[0]}.")
    if rows:
        page.heading("The largest differences")
        page.draw("gnomon.jobs.table.picture:difference_charts", document)
        page.table(
            Table(rows, most=_ROWS)
            .text("unit", lambda row: row.label, most=_LABEL)
            .number("first", lambda row: row.times_s[0], units.time)
            .number("second", lambda row: row.times_s[1], units.time)
            .number("ratio", lambda row: row.ratio, "{:.2f}".format)
            .text("", lambda row: "" if row.apart else "within noise")
        )


def spaces_report(document: SpacesDocument, page: Page) -> None:
    """Write the search spaces that are known by name."""
    table = Table(document.spaces).text("space", lambda row: row.name)
    page.table(table.number("nets", lambda row: row.nets, networks).number("units", lambda row: row.units))
    page.line("")
    page.line("Your own space: FILE.py:ATTRIBUTE; docs/jobs/spaces.md shows how to write the file.")


def exported_report(document: TableExportDocument, page: Page) -> None:
    """Write the paths of the files for another tool."""
    for file in document.files:
        page.path("file", file)
