"""The JSON document of `gnomon commands`, which is what the function returns; docs/jobs/commands.md has each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnomon.report.answer import FirstVersion
from gnomon.report.plain import many


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPart:
    """A declared command: the `program` as it is `found` on this machine's PATH, "" where it is not.

    `origin` is the file that declares it. `format` is the version of the program whose output was read, and `ran` says
    that the declaration ran the real program then; else it was read from documents.
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
        """How many there are, and of how many the program is here."""
        here = sum(bool(command.found) for command in self.commands)
        return "commands", f"{many(len(self.commands), 'command')} declared, {here} with their program on this machine"
