"""Completions that a shell offers for the values of options."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from gnomon.errors import GnomonError

_MOST_RUNS = 50


def complete_device(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names in the file of devices that begin with the text; none if the file cannot be read."""
    from gnomon.devices.config import load_devices

    try:
        return [name for name in ("local", *load_devices()) if name.startswith(incomplete)]
    except GnomonError:
        return []


def complete_runtime(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of runtimes that begin with the text, installed or not."""
    from gnomon.plugins import named

    return [name for name in named("gnomon.runtimes") if name.startswith(incomplete)]


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of the newest runs that begin with the text, with descriptions; none if the database cannot be read."""
    from gnomon.api.runs import runs

    try:
        ids = [row.campaign for row in runs(record=ctx.params.get("record"), limit=_MOST_RUNS).campaigns]
    except GnomonError:
        return []
    recent = [(run.id[:8], f"{run.kind} of {run.context.model_name}") for run in ids]
    return [
        CompletionItem(name, help=what)
        for name, what in [("last", "the newest"), *recent]
        if name.startswith(incomplete)
    ]


def complete_space(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of search spaces that begin with the text; files if there are none."""
    from gnomon.spaces.loading import known_spaces

    spaces = [CompletionItem(name) for name in known_spaces() if name.startswith(incomplete)]
    return spaces or [CompletionItem(incomplete, type="file")]
