"""A group of commands whose modules are imported when they are needed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Finds its commands by "module:attribute". Their modules import the jobs inside the functions only."""

    def __init__(self, *args: Any, places: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order in which they were given, which is that of their use."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in self._places:
            return None
        module, attribute = self._places[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the names that come near an unknown one."""
        if args and not args[0].startswith("-") and args[0] not in self._places:
            near = difflib.get_close_matches(args[0], self._places, n=1)
            told = f"Did you mean {near[0]!r}? " if near else ""
            raise click.UsageError(f"no command is named {args[0]!r}. {told}Commands: {', '.join(self._places)}.", ctx)
        return super().resolve_command(ctx, args)
