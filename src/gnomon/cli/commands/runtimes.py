"""`gnomon runtimes`: what is installed here."""

from __future__ import annotations

from typing import Any

import click

from gnomon.cli.help import command
from gnomon.cli.main import answering


@command(short_help="List the runtimes that are installed here, and how to add the others.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")
@answering
def runtimes() -> Any:
    """List the runtimes that gnomon knows, their versions and backends here, and how to install the missing ones."""
    from gnomon.api import devices as api

    return api.list_runtimes()
