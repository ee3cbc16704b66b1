"""`gnomon publish`: a site of all that a record holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnomon.cli.help import command
from gnomon.cli.main import write_report
from gnomon.cli.values import RecordValue

if TYPE_CHECKING:
    from gnomon.store.address import RecordAddress


@command(short_help="Write a site of all that a record holds: models, devices, histories.")
@click.argument("record", metavar="[RECORD]", required=False, type=RecordValue())
@click.option(
    "--out",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    required=True,
    help="Where the site goes; an earlier site is replaced.",
)
def publish(record: RecordAddress | None, out: Path) -> None:
    """Write a folder of pages: models by devices, the history of each model on each device, a page a run.

    RECORD is a file or postgresql://USER@HOST/DATABASE; without one it is the user's own. The pages need no server, no
    network and no script.
    """
    from gnomon.api.html import publish as publish_site
    from gnomon.jobs.html.report import published_report

    found = publish_site(record, out=out)
    write_report(published_report, found)
