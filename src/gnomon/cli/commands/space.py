"""`gnomon space`: which primitives of a search space are worth searching on a device."""

from __future__ import annotations

import click

from gnomon.cli.declared import DeclaredGroup, gone
from gnomon.options import CommandRow

_ROWS = {
    "profile": CommandRow("profile_space", "Train and measure the networks of a search space."),
    "select": CommandRow("select_primitives", "Choose primitives from a profile, without measuring anything."),
    "front": CommandRow("find_front", "Find the best networks, train and measure them."),
    "show": CommandRow("show_space", "Show what a profile holds."),
    "import": CommandRow("import_networks", "Import accuracies and latencies into a profile."),
    "export": CommandRow("export_networks", "Write a profile's networks as csv.", html=False),
    "primitives": CommandRow("list_primitives", "List the known primitives, and what they are made of.", html=False),
    "toolchains": CommandRow("list_toolchains", "List the toolchains, and what is missing for them here.", html=False),
}
_GONE = {
    "--gpu": "Give --train-on cuda; CUDA_VISIBLE_DEVICES=N in the environment says which GPU that is.",
    "--arch-file": "Give --toolchain quark-xint8 --command vitis:url=URL,arch=FILE.",
}
"""Options of ssprofile's profiler, with what to give instead."""


class _Group(DeclaredGroup):
    """The commands, which refuse options that are gone."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        is_new = cmd_name not in self.commands
        command = super().get_command(ctx, cmd_name)
        for name, hint in _GONE.items() if is_new and cmd_name == "profile" else ():
            gone(name, hint=hint)(command)
        return command


space = _Group(
    "space",
    module="gnomon.api.space",
    rows=_ROWS,
    help="Which primitives of a search space are worth searching on a device. docs/jobs/space.md describes it.",
)
