"""The reports of `gnomon table`, made from their documents alone."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.jobs.table.document import (
    BlockPart,
    BlocksDocument,
    SpacesDocument,
    TableDiffDocument,
    TableDocument,
    TableExportDocument,
    TablesDocument,
    UnitPart,
)
from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import measured_with

_ROWS = 20
_LABEL = 58


def table_report(document: TableDocument, page: Page) -> None:
    """What a table holds: the most expensive units, and what speaks against it."""
    counts = document.counts
    total = sum(counts.values())
    bad = [f"{counts[s]} {s}" for s in ("unstable", "failed") if counts[s]]
    vague = any(row.relative_half_width is None for row in document.units if row.status == "ok")
    fine = "nothing was measured" if not total else "of unknown precision" if vague else "all known well"
    page.headline(f"{total} unit{'' if total == 1 else 's'} of {document.space}: " + (", ".join(bad) or fine) + ".")
    page.line(measured_with(document.context, document.clock))
    if document.overhead_s > 0:
        page.line(
            f"A call of the no-op model takes {units.time(document.overhead_s)}; it is subtracted from each unit."
        )
    else:
        page.line("The times are of the layers alone, without the call around them.")
    fused = document.fused
    page.line(f"Run as one: {', '.join(fused)}." if fused else "Every operator runs by itself.")
    _units(document.units, page)
    if document.complaints:
        page.heading("Warnings")
        for warning in document.complaints:
            page.item(warning + ".")
    with page.details("what was seen while it was measured"):
        if document.doubts:
            page.heading("While it was measured")
            for doubt in document.doubts:
                page.item(doubt.message, doubt.hint)
    page.line("")
    if document.seconds is not None:
        page.line(f"{document.measured} units measured in {units.duration(document.seconds)}.")
    page.path("table", document.table)


def tables_report(document: TablesDocument, page: Page) -> None:
    """Tables of one file, one a runtime: first where each is, then what each holds."""
    documents = document.tables
    page.headline(f"{len(documents)} tables, one a runtime.")
    for one in documents:
        page.path(one.context["runtime"], one.table)
    for one in documents:
        page.line("")
        table_report(one, page)


def _units(rows: Sequence[UnitPart], page: Page) -> None:
    page.heading("The most expensive units")
    shown = [row for row in rows if row.status != "failed"][: 5 if page.brief else _ROWS]
    columns = [
        Column(title="unit", number=False, most=60),
        Column(title="net latency"),
        Column(title="gross latency"),
        Column(title="known within"),
        Column(title="", number=False),
    ]
    page.table(columns, [_cells(row) for row in shown])
    hidden = len(rows) - len(shown)
    if hidden > 0:
        page.line(f"and {hidden} more: --json has all of them", indent=1, style="dim")


def _cells(row: UnitPart) -> list[str]:
    width = row.relative_half_width
    known = "-" if width is None else f"{100 * width:.1f} %"
    mark = "" if row.status == "ok" else row.status
    label = row.label if len(row.label) <= _LABEL else row.label[: _LABEL - 3] + "..."
    return [label, units.time(row.time_s), units.time(row.call_s), known, mark]


def difference_report(document: TableDiffDocument, page: Page) -> None:
    """How two tables differ."""
    found = document.units
    ratio = document.ratio
    if ratio is None:
        page.headline("The tables have no unit in common.")
    else:
        page.headline(
            f"{len(found)} units in both: the second takes {ratio:.3g} times as long (geometric mean); "
            f"{document.apart} differ by more than noise."
        )
    for warning in document.unlike:
        page.item(f"unlike: {warning}.")
    for path, only in zip(document.tables, document.only, strict=True):
        if only:
            page.item(f"{len(only)} units only in {path}, such as {only[0]}.")
    if found:
        page.heading("What differs most")
        columns = [
            Column(title="unit", number=False, most=60),
            Column(title="first"),
            Column(title="second"),
            Column(title="ratio"),
            Column(title="", number=False),
        ]
        page.table(
            columns,
            [
                [
                    row.label[:_LABEL],
                    units.time(row.times_s[0]),
                    units.time(row.times_s[1]),
                    f"{row.ratio:.2f}",
                    "" if row.apart else "within noise",
                ]
                for row in found[:_ROWS]
            ],
        )


def spaces_report(document: SpacesDocument, page: Page) -> None:
    """List the search spaces that are known by name."""
    page.table(
        [Column(title="space", number=False), Column(title="nets"), Column(title="units")],
        [[row.name, _big(row.nets), str(row.units)] for row in document.spaces],
    )
    page.line("")
    page.line("Another one: FILE.py:ATTRIBUTE; docs/jobs/spaces.md shows how to write it.")


def _big(digits: str) -> str:
    return digits if len(digits) <= 7 else f"{digits[0]}.{digits[1:3]}e{len(digits) - 1}"


_NAME = 100


def exported_report(document: TableExportDocument, page: Page) -> None:
    """Write where the files of another tool are."""
    for file in document.files:
        page.path("file", file)


def blocks_report(document: BlocksDocument, page: Page) -> None:
    """The blocks, the most expensive first, and the sum of those that were named."""
    rows = sorted(document.blocks, key=lambda row: -row.mean_s)
    total = document.sum
    page.headline(
        f"{total.blocks} block{'' if total.blocks == 1 else 's'}: {units.time(total.mean_s)}."
        if total
        else f"{len(rows)} block{'' if len(rows) == 1 else 's'}."
    )
    columns = [
        Column(title="block", number=False, most=_NAME),
        Column(title="mean"),
        Column(title="deviation"),
    ]
    page.table(columns, [_block_cells(row) for row in rows])
    for warning in document.left_out:
        page.item(f"skipped: {warning}")


def _block_cells(row: BlockPart) -> list[str]:
    name = row.name if len(row.name) <= _NAME else row.name[: _NAME - 3] + "..."
    return [name, units.time(row.mean_s), "-" if row.std_s is None else units.time(row.std_s)]
