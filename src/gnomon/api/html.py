"""Pages in HTML from Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.jobs.html.blocks import Grid
    from gnomon.store.address import RecordLike


def write_report(
    *runs: str | PathLike[str],
    out: str | PathLike[str] = "report.html",
    record: RecordLike | None = None,
    changed: Iterable[str] = (),
    sessions: float = 0.02,
) -> int:
    """Write one self-contained page in HTML that shows runs; returns how many bytes it has.

    Each is named as for `compare`; of several, later ones are compared with the first, where `changed` and `sessions`
    mean what they mean there. The page holds the documents of the runs: `compare` and this function read it. Raises
    GnomonError.
    """
    from gnomon.jobs.html.job import write_report as write
    from gnomon.store.address import record_address

    names = [str(one) for one in runs]
    found = record_address(record)
    return write(names, Path(out), record=found, changed=tuple(changed), sessions=sessions)


def write_page(document: Mapping[str, object], out: Path) -> int:
    """Write the page of a document that a job answered with; returns how many bytes it has. Raises GnomonError."""
    from gnomon.jobs.html.job import write_page as write

    return write(document, out)


def html_page(document: Mapping[str, object], name: str) -> str:
    """The page of one document as text: what `to_html` of a result gives."""
    from gnomon.jobs.html.page import page

    return page([document], [name])


def first_table(document: Mapping[str, object], most: int) -> Grid | None:
    """The first table of a document's report, of so many rows, for a notebook; None where it has none."""
    from gnomon.jobs.html.views import first_table as table

    return table(document, most)
