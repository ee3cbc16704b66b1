"""What the report of a table says in its headline."""

from __future__ import annotations

import io
from typing import Any

import pytest

from gnomon.jobs.table.report import table_report
from gnomon.report.page import Page


@pytest.mark.parametrize(("count", "headline"), [(0, "nothing was measured"), (2, "all known well")])
def test_an_empty_table_is_not_known_well(count: int, headline: str) -> None:
    document: dict[str, Any] = {
        "space": "s",
        "counts": {"ok": count, "unstable": 0, "failed": 0},
        "units": [],
        "context": {},
        "clock": "cpu",
        "overhead_s": 0.0,
        "fused": [],
        "complaints": [],
        "table": "one.table",
    }
    file = io.StringIO()
    table_report(document, Page(file, width=80))
    assert f"{count} units of s: {headline}." in file.getvalue()
