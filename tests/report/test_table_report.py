"""What the report of a table says in its headline."""

from __future__ import annotations

import io

import pytest

from gnomon.jobs.table.document import TableDocument
from gnomon.jobs.table.report import table_report
from gnomon.report.page import Page


@pytest.mark.parametrize(("count", "headline"), [(0, "nothing was measured"), (2, "all known well")])
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
