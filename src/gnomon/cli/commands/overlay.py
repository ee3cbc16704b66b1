"""`gnomon overlay`: for each layer, one configuration that is good on several devices."""

from __future__ import annotations

import click

from gnomon.cli.declared import command_of
from gnomon.cli.help import Group
from gnomon.cli.options import FERULES
from gnomon.errors import UsageError
from gnomon.options import CommandRow

_OF_RECORDS = "Leave it out: the logs contain it."
_COLLECT = CommandRow(
    "gnomon.api.tune:overlay_collect",
    "Measure the configurations of some devices on another device.",
    first="read the logs",
    gone={**FERULES, "-b": "Give --best N.", "-l": "Give --layer N.", "-m": _OF_RECORDS, "-t": _OF_RECORDS},
)
_ANALYZE = CommandRow(
    "gnomon.api.tune:overlay_analyze",
    "Choose one configuration per layer, and write files to deploy.",
    first="read the logs",
    gone={**FERULES, "-l": "Give --layer N."},
)


class _Overlay(Group):
    """The group of commands. Given logs without a command, as in Ferule's first version, it explains the commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and args[0].endswith((".json", ".log")):
            raise UsageError(
                "gnomon overlay needs the command collect or analyze before the logs",
                hint="To measure logs on a device: gnomon overlay collect LOG.. --device tvm:///KEY. To choose "
                "configurations: gnomon overlay analyze LOG..",
            )
        return super().resolve_command(ctx, args)


overlay = _Overlay(
    "overlay",
    help="One configuration per layer for several devices (docs/jobs/tune.md).",
    commands=[command_of("collect", _COLLECT), command_of("analyze", _ANALYZE)],
)
