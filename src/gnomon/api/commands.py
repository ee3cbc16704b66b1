"""`gnomon commands` as a function: the declared commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gnomon.api.options import PathLike
from gnomon.options import option
from gnomon.values import file

if TYPE_CHECKING:
    from gnomon.jobs.commands.document import CommandsDocument


def list_commands(
    *,
    commands_file: Annotated[
        PathLike | None, option("--config", read=file, metavar="FILE", help="A TOML file with further commands.")
    ] = None,
) -> CommandsDocument:
    """List the programs that can be measured like runtimes: those that come with gnomon, and your own.

    Declare your own in $GNOMON_HOME/commands.toml, each as a table [commands.NAME].

    Raises GnomonError.
    """
    from gnomon.jobs.commands.job import listed_commands

    return listed_commands(None if commands_file is None else Path(commands_file))
