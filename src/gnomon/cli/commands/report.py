"""`gnomon report`: one page in HTML of runs, and the option --html of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnomon.api.html import write_report
from gnomon.cli.declared import declared_by
from gnomon.cli.help import command
from gnomon.cli.options import declared_options
from gnomon.cli.output import report_page


@command(short_help="Write one page in HTML that shows runs, and compares them.")
@declared_options(*declared_by(write_report))
def report(runs: tuple[str, ...], out: Path, **how: Any) -> None:
    """Write one HTML page that shows each RUN and, of several, what changed since the first.

    A RUN is named as for gnomon compare. The page needs no network and no other file, and holds the documents of the
    runs: gnomon compare and gnomon report take it in place of a run.
    """
    size_bytes = write_report(*runs, out=out, **how)
    report_page().line(f"{out}: {size_bytes:,} bytes")
