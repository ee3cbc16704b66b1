"""The document as text, for the terminal and for pages."""

from __future__ import annotations

from gnomon.report import units
from gnomon.report.page import Page

from .document import YoursDocument


def yours_report(document: YoursDocument, page: Page) -> None:
    """Write the report."""
    for row in document.configurations:
        page.line(f"{row.configuration} answers first after {units.value(row.wait_s, 's')}.")
