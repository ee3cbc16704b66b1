"""`gnomon overlay`: one configuration a layer that is good on several devices."""

from __future__ import annotations

import click

from gnomon.cli.declared import command_of
from gnomon.cli.help import Group
from gnomon.cli.options import ferules
from gnomon.errors import UsageError
from gnomon.options import CommandRow

_COLLECT = CommandRow(
    "gnomon.api.tune:overlay_collect",
    "Measure the configurations of some devices on another.",
    first="read the logs",
)
_ANALYZE = CommandRow(
    "gnomon.api.tune:overlay_analyze",
    "Choose one configuration a layer, and write what can be deployed.",
    first="read the logs",
)
_OF_RECORDS = "Leave it out: the records say it."


class _Overlay(Group):
    """The group; logs without a command are what Ferule's first version took."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and args[0].endswith((".json", ".log")):
            raise UsageError(
                "gnomon overlay takes collect or analyze before its logs",
                hint="gnomon overlay collect LOG.. --device tvm:///KEY measures them there, gnomon overlay analyze "
                "LOG.. chooses.",
            )
        return super().resolve_command(ctx, args)


overlay = _Overlay(
    "overlay",
    help="One configuration a layer for several devices. docs/jobs/tune.md describes it.",
    commands=[
        ferules(b="Give --best N.", l="Give --layer N.", m=_OF_RECORDS, t=_OF_RECORDS)(command_of("collect", _COLLECT)),
        ferules(l="Give --layer N.")(command_of("analyze", _ANALYZE)),
    ],
)
