"""The JSON document that `gnomon commands` returns; docs/jobs/commands.md describes each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnomon.report.answer import FirstVersion
from gnomon.report.plain import many


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPart:
    """A declared command. `found` is the path of its `program` on this machine, "" if it is not on the PATH.

    `origin` is the file that declares it. `format` is the version of the program for which the declaration was written.
    If the declaration `ran`, it was tried with the real program; otherwise it is based only on documents.
    """

    name: str
    program: str
    found: str
    origin: str
    line: str
    read: str
    formats: tuple[str, ...]
    format: str
    ran: bool
    checked: bool
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommandsDocument(FirstVersion):
    """All declared commands, by name."""

    format: Literal["gnomon-commands"] = "gnomon-commands"
    commands: tuple[CommandPart, ...]

    main = "commands"

    def headline(self) -> tuple[str, str]:
        """The number of commands, and the number whose program is on this machine."""
        here = sum(bool(command.found) for command in self.commands)
        return "commands", f"{many(len(self.commands), 'command')} declared, {here} with their program on this machine"
