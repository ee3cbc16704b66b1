"""`gnomon overlay`: one configuration a layer that is good on several devices."""

from __future__ import annotations

from gnomon.cli.declared import command_of
from gnomon.cli.help import Group
from gnomon.cli.options import ferules
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

overlay = Group(
    "overlay",
    help="One configuration a layer for several devices. docs/jobs/tune.md describes it.",
    commands=[
        ferules(b="Give --best N.", l="Give --layer N.", m=_OF_RECORDS, t=_OF_RECORDS)(command_of("collect", _COLLECT)),
        ferules(l="Give --layer N.")(command_of("analyze", _ANALYZE)),
    ],
)
