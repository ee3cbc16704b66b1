"""What all reports of tuning and of overlays have in common: golden texts, any width, names that want to steer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.report.tuning_kit import Report, analyze, collect, hostile, ran, text_of, tune, view

from gnomon.jobs.documents import read_document
from gnomon.jobs.overlay.report import analyze_report, collect_report
from gnomon.jobs.tune.report import exec_report, tune_report, view_report

DATA = Path(__file__).parent / "data"
REPORTS: dict[str, tuple[Report, dict[str, Any]]] = {
    "tune": (tune_report, tune()),
    "exec": (exec_report, ran()),
    "view": (view_report, view()),
    "collect": (collect_report, collect()),
    "analyze": (analyze_report, analyze()),
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", REPORTS)
def test_the_report_is_the_golden_one(name: str, width: int) -> None:
    assert text_of(*REPORTS[name], width) == (DATA / f"tuning-{name}-{width}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", REPORTS)
def test_names_cannot_steer_the_terminal(name: str, width: int) -> None:
    report, document = REPORTS[name]
    told = text_of(report, hostile(read_document(document)), width)
    assert all(c == "\n" or c.isprintable() for c in told)
    assert "\\x1b" in told
