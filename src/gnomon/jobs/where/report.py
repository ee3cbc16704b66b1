"""The report of `gnomon where`."""

from __future__ import annotations

from pathlib import Path

from gnomon.jobs.where.document import WhereDocument, share_of
from gnomon.models.model import FORMATS
from gnomon.report import units
from gnomon.report.page import Page, Table
from gnomon.report.plain import listed, many, shorten
from gnomon.session.targets import merged

_ROWS, _MOST, _LONGEST = 7, 2, 240
"""The largest numbers of rows and reasons that fit on a screen, and of characters in a reason."""


def where_report(document: WhereDocument, page: Page) -> None:
    """Write the operators by backend and the reasons for fallbacks; the details list every operator."""
    model = document.model
    page.headline(f"{document.headline()[1]}.")
    what = f"{FORMATS[model.format]}, {many(model.operators, 'operator')}, loaded in {units.time(document.seconds)}"
    page.conditions(f"{Path(model.path).name} on {document.device}: {what}.")
    of = "of the MACs" if model.macs else "share"
    rows = [(part, on) for part in document.loaded for on in part.backends.items()]
    page.table(
        Table(rows, most=_ROWS, more="rows")
        .text("configuration", lambda row: row[0].name)
        .text("backend", lambda row: row[1][0])
        .number("operators", lambda row: len(row[1][1]))
        .number(of, lambda row: units.share(share_of(row[1][1], row[0].nodes)))
        .number("crossings", lambda row: row[0].crossings)
    )
    fallbacks = [part.fallback for part in document.loaded if part.fallback]
    left_out = [f"Skipped: {row.name}: {row.reason}" for row in merged(document.missing)]
    for text in (*fallbacks[:_MOST], *left_out[:_MOST]):
        page.item(f"{shorten(text, _LONGEST)}.")
    if document.doubts:
        page.line(f"Findings in the file: {listed([doubt.kind for doubt in document.doubts])}.")
    with page.details("every operator"):
        for doubt in document.doubts:
            page.item(f"{doubt.message}.", doubt.hint)
        for part in document.loaded:
            page.heading(part.name)
            page.table(
                Table(part.nodes)
                .text("operator", lambda node: node.name)
                .text("type", lambda node: node.type)
                .text("output", lambda node: node.data)
                .text("backend", lambda node: node.backend)
                .text("why", lambda node: node.reason, most=90)
            )
