"""`gnomon report`: one page in HTML of runs, and the option --html of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnomon.cli.complete import complete_run
from gnomon.cli.help import command
from gnomon.cli.options import record_option, sessions_options
from gnomon.cli.output import report_page

if TYPE_CHECKING:
    from gnomon.store.address import RecordAddress

_PATH = click.Path(dir_okay=False, path_type=Path)


@command(short_help="Write one page in HTML that shows runs, and compares them.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_run)
@click.option(
    "--out",
    "-o",
    type=_PATH,
    metavar="FILE",
    default=Path("report.html"),
    help="The page; an existing one is replaced.  [default: report.html]",
)
@sessions_options
@record_option
def report(
    runs: tuple[str, ...], out: Path, sessions: float, changed: tuple[str, ...], record: RecordAddress | None
) -> None:
    """Write one HTML page that shows each RUN and, of several, what changed since the first.

    A RUN is named as for gnomon compare. The page needs no network and no other file, and holds the documents of the
    runs: gnomon compare and gnomon report take it in place of a run.
    """
    from gnomon.api.html import write_report as write_page

    size_bytes = write_page(*runs, out=out, record=record, changed=changed, sessions=sessions)
    report_page().line(f"{out}: {size_bytes:,} bytes")
