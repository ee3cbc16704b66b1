"""What `gnomon report` says on the terminal: where the page is."""

from __future__ import annotations

from pathlib import Path

from gnomon.report.page import Page


def written_report(out: Path, size_bytes: int, page: Page) -> None:
    """One line with the file and its size."""
    page.line(f"{out}: {size_bytes:,} bytes")
