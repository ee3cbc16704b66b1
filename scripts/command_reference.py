"""Writes the options of every command into docs/commands.md, from the live command line.

The text between the markers is replaced; all else in the file is kept. With --check nothing is written, and the exit
status is 1 if the file is not what it should be.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from gnomon.cli.main import cli

TARGET = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
BEGIN = "<!-- begin: written by scripts/command_reference.py -->"
END = "<!-- end -->"
WIDTH = 100


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """The command and all below it, in the order of their help."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                below = click.Context(
                    found, info_name=name, parent=context, terminal_width=WIDTH, max_content_width=WIDTH
                )
                yield from commands(found, below)


def reference() -> str:
    """The help of every command, in Markdown."""
    names = cli.context_settings["help_option_names"]
    root = click.Context(
        cli, info_name="gnomon", terminal_width=WIDTH, max_content_width=WIDTH, help_option_names=names
    )
    parts = []
    for command, context in commands(cli, root):
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        parts.append(f"### `{context.command_path}`\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def renewed(text: str) -> str:
    """The document with the reference of now between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{TARGET} lacks the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{reference()}\n{END}{after}"


def main() -> int:
    """Write the document, or check it."""
    text = TARGET.read_text(encoding="utf-8")
    wanted = renewed(text)
    if "--check" in sys.argv[1:]:
        if text != wanted:
            print(f"{TARGET} is not up to date: run python {Path(__file__).name}", file=sys.stderr)
        return int(text != wanted)
    TARGET.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
