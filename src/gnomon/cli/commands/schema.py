"""`gnomon schema`: the JSON Schema of what other commands print with --json."""

from __future__ import annotations

import click

from gnomon.cli.help import command
from gnomon.cli.output import write_json, write_lines


@command(short_help="Print the JSON Schema of a job's document, or the names of all.")
@click.argument("name", required=False, metavar="[NAME]")
def schema(name: str | None) -> None:
    """Print the JSON Schema (draft 2020-12) of the document NAME, such as place; without NAME the names of all.

    A document is what a command prints with --json. Its schema is made from the records that gnomon itself makes and
    reads it with.
    """
    from gnomon.api import document as api

    if name is None:
        write_lines(api.document_names())
    else:
        write_json(api.document_schema(name))
