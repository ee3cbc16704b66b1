"""The list of the declared commands."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from gnomon.core.codec import fields_of
from gnomon.jobs.commands.document import CommandPart, CommandsDocument
from gnomon.runtimes.declared import declarations


def listed_commands(config: Path | None) -> CommandsDocument:
    """The shipped commands, the user's own, and those in a file. UsageError with all errors in an invalid file."""
    return CommandsDocument(
        commands=tuple(
            CommandPart(
                **fields_of(CommandPart, command),
                found=shutil.which(command.program) or "",
                origin=str(origin),
                line=shlex.join(command.run),
                checked=bool(command.outputs),
            )
            for command, origin in declarations(config).values()
        )
    )
