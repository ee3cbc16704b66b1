"""`gnomon devices`: the machines that models can be measured on."""

from __future__ import annotations

from gnomon.cli.declared import DeclaredGroup
from gnomon.options import CommandRow


def _row(function: str, short_help: str) -> CommandRow:
    return CommandRow(f"gnomon.api.devices:{function}", short_help, html=False)


devices = DeclaredGroup(
    default="list",
    help="List, check and name the machines that models can be measured on. Without a subcommand: list.\n\nA device is "
    "this machine (local), or one that ssh, adb, sdb or labgrid reaches. The file of devices gives it a name and "
    "settings; docs/devices/devices.md describes it.",
    rows={
        "list": _row("list_devices", "List the devices and what they have."),
        "check": _row("check_devices", "Check devices in detail."),
        "add": _row("add_device", "Check a device, and give it a name."),
        "remove": _row("remove_device", "Take a device's name out of the file."),
        "clean": _row("clean_device", "Remove what gnomon keeps on a device."),
        "probe": _row("probe_device", "Check whether a device is the same board, and as fast as before."),
        "release": _row("release_device", "End the quarantine of a device."),
    },
)
