"""`gnomon schema`: the JSON Schemas of the documents that commands print with --json."""

from __future__ import annotations

import click

from gnomon.cli.help import command
from gnomon.cli.output import write_json, write_lines


@command(short_help="Print the JSON Schema of a job's document, or the names of all.")
@click.argument("name", required=False, metavar="[NAME]")
def schema(name: str | None) -> None:
    """Print the JSON Schema (draft 2020-12) of the document NAME, such as place; without NAME, print all names.

    A document is the output of a command with --json. Schemas are generated from the records with which gnomon writes
    and reads documents.
    """
    from gnomon.api import document as api

    if name is None:
        write_lines(api.document_names())
    else:
        write_json(api.document_schema(name))
