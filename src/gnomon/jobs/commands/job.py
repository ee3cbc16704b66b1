"""Listing the declared commands."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from gnomon.jobs.commands.document import CommandPart, CommandsDocument
from gnomon.runtimes.declared import declarations


def listed_commands(config: Path | None) -> CommandsDocument:
    """Those that ship, the user's own, and those of a file. UsageError with all that is wrong with one."""
    return CommandsDocument(
        commands=tuple(
            CommandPart(
                name=command.name,
                program=command.program,
                found=shutil.which(command.program) or "",
                origin=str(origin),
                line=shlex.join(command.run),
                read=command.read,
                formats=command.formats,
                format=command.format,
                ran=command.ran,
                checked=bool(command.outputs),
                hint=command.hint,
            )
            for command, origin in declarations(config).values()
        )
    )
