"""Option values with a form of their own: NAME=1,3,224,224, 10min, KEY=VALUE,KEY=VALUE; and records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon import values
from gnomon.cli.complete import complete_device, complete_run, complete_runtime, complete_space  # noqa: F401
from gnomon.cli.declared import Value

shape = Value("NAME=1,3,224,224", values.shape)
seconds = Value("SECONDS", values.seconds)
span = Value("10min", values.span)
environment = Value("KEY=VALUE[,KEY=VALUE]", values.environment)


class RecordValue(click.Path):
    """A results database: a file, or a database of a PostgreSQL server."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A path, or what `gnomon.store.address` makes of an address. RecordError for one with a password."""
        from gnomon.store.address import PostgresAddress, record_address

        if isinstance(address := record_address(value), PostgresAddress):
            return address
        return super().convert(value, param, ctx)


RECORD = click.option(
    "--record",
    type=RecordValue(),
    metavar="FILE|URL",
    help="The results database: a file, or postgresql://USER@HOST/DATABASE.  [default: the user's own]",
)
