"""`gnomon runtimes`: what is installed here."""

from __future__ import annotations

import click

from gnomon.cli.help import command
from gnomon.cli.main import write_json, write_report


@command(short_help="List the runtimes that are installed here, and how to add the others.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")
def runtimes(as_json: bool) -> None:
    """List the runtimes that gnomon knows, their versions and backends here, and how to install the missing ones."""
    from gnomon.api.devices import list_runtimes

    document = list_runtimes()
    if as_json:
        write_json(document)
    else:
        from gnomon.jobs.devices.report import runtimes_report

        write_report(runtimes_report, document)
