"""The report of `gnomon commands`."""

from __future__ import annotations

from gnomon.jobs.commands.document import CommandPart, CommandsDocument
from gnomon.report.page import Page, Table


def commands_report(document: CommandsDocument, page: Page) -> None:
    """Write a row for each command; the details show how each command is started and installed."""
    page.headline(f"{document.headline()[1]}.")
    table = Table(document.commands).text("command", lambda row: row.name)
    table.text("program here", lambda row: "yes" if row.found else "no")
    page.table(table.text("outputs", _checked).text("declaration", _basis))
    page.line("To measure a command next to the runtimes: gnomon place MODEL --command NAME", style="dim")
    with page.details("how each is started and installed"):
        for command in document.commands:
            page.item(f"{command.name} ({command.origin}): {command.line}", command.hint)


def _checked(command: CommandPart) -> str:
    return "checked" if command.checked else "not checked"


def _basis(command: CommandPart) -> str:
    """The origin of the declaration."""
    if not command.format:
        return "your own"
    return f"{command.format}, {'tried with the program' if command.ran else 'based on documents only'}"
