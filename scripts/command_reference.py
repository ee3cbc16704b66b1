"""Prints the help of every command in Markdown, from the installed command line; the site has it as a page."""

from __future__ import annotations

from collections.abc import Iterator

import click

from gnomon.cli.help import HELP_ALL
from gnomon.cli.main import cli

WIDTH = 100


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """The command and all of its subcommands, in the order of their help."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from commands(below, opened(below, name, context))


def opened(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    """A context in which a command writes its help."""
    names = cli.context_settings["help_option_names"]
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=names,
    )


def reference() -> str:
    """The help of every command, each under a heading."""
    parts = []
    root = opened(cli, "gnomon")
    root.meta[HELP_ALL] = True
    for command, context in commands(cli, root):
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        parts.append(f"### `{context.command_path}`\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(reference())
