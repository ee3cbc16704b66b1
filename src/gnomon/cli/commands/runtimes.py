"""`gnomon runtimes`: what is installed here."""

from __future__ import annotations

import click

from gnomon.cli.help import command
from gnomon.cli.main import write_answer


@command(short_help="List the runtimes that are installed here, and how to add the others.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")
def runtimes(as_json: bool) -> None:
    """List the runtimes that gnomon knows, their versions and backends here, and how to install the missing ones."""
    from gnomon.api.place import list_runtimes

    write_answer(list_runtimes().document(), as_json=as_json)
