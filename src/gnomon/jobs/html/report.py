"""What `gnomon report` and `gnomon publish` say on the terminal: where the pages are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.report.page import Page
from gnomon.report.parts import listed

if TYPE_CHECKING:
    from gnomon.jobs.html.site import Published


def published_report(found: Published, page: Page) -> None:
    """Where the site is, what is in it, and what is left out."""
    histories = f"{found.histories} {'history' if found.histories == 1 else 'histories'}"
    page.headline(f"{found.runs} run{'' if found.runs == 1 else 's'} in {histories}.")
    if found.damaged:
        told = listed([*found.damaged[:3], *(["others"] if len(found.damaged) > 3 else [])])
        page.item(f"Warning: what {told} found is damaged and left out.")
    page.path("site", str(found.folder / "index.html"))


def written_report(out: Path, size_bytes: int, page: Page) -> None:
    """One line with the file and its size."""
    page.line(f"{out}: {size_bytes:,} bytes")
