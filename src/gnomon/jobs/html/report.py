"""What `gnomon report` and `gnomon publish` say on the terminal: where the pages are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.report.page import Page

if TYPE_CHECKING:
    from gnomon.jobs.html.site import Published


def published_report(found: Published, page: Page) -> None:
    """Where the site is, what is in it, and what is left out."""
    page.headline(f"{found.runs} runs in {found.histories} histories.")
    if found.damaged:
        page.item(f"Warning: the answers of {len(found.damaged)} runs are damaged and left out: {found.damaged[0]} ..")
    page.path("site", str(found.folder / "index.html"))


def written_report(out: Path, size_bytes: int, page: Page) -> None:
    """One line with the file and its size."""
    page.line(f"{out}: {size_bytes:,} bytes")
