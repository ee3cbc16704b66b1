"""`gnomon report`: one HTML page about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnomon.api.html import write_report
from gnomon.cli.declared import declared_by
from gnomon.cli.help import command
from gnomon.cli.options import declared_options
from gnomon.cli.output import report_page


@command(short_help="Write one HTML page that shows and compares runs.")
@declared_options(*declared_by(write_report))
def report(runs: tuple[str, ...], out: Path, **how: Any) -> None:
    """Write one HTML page that shows each RUN and, with several RUNs, the changes since the first.

    A RUN is named as in gnomon compare. The page needs no network and no other file. It embeds the documents of the
    runs, so that gnomon compare and gnomon report accept it as a RUN.
    """
    size_bytes = write_report(*runs, out=out, **how)
    report_page().line(f"{out}: {size_bytes:,} bytes")
