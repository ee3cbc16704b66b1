"""`gnomon runtimes`: what is installed here."""

from __future__ import annotations

from typing import Any

from gnomon.cli.help import command
from gnomon.cli.main import answering
from gnomon.cli.options import json_option


@command(short_help="List the runtimes that are installed here, and how to add the others.")
@json_option
@answering
def runtimes() -> Any:
    """List the runtimes that gnomon knows, their versions and backends here, and how to install the missing ones."""
    from gnomon.api import devices as api

    return api.list_runtimes()
