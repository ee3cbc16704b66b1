"""`gnomon devices`: the machines that models can be measured on."""

from __future__ import annotations

from gnomon.cli.declared import DeclaredGroup
from gnomon.options import CommandRow

devices = DeclaredGroup(
    module="gnomon.api.devices",
    default="list",
    help="List, check and name the machines that models can be measured on. Without a subcommand: list.\n\nA device is "
    "this machine (local), or one that ssh, adb, sdb or labgrid reaches. The file of devices gives it a name and "
    "settings; docs/devices/devices.md describes it.",
    rows={
        "list": CommandRow("list_devices", "List the devices and what they have.", html=False),
        "check": CommandRow("check_devices", "Check devices in detail.", html=False),
        "add": CommandRow("add_device", "Check a device, and give it a name.", html=False),
        "remove": CommandRow("remove_device", "Take a device's name out of the file.", html=False),
        "clean": CommandRow("clean_device", "Remove what gnomon keeps on a device.", html=False),
        "probe": CommandRow(
            "probe_device", "Check whether a device is the same board, and as fast as before.", html=False
        ),
        "release": CommandRow("release_device", "End the quarantine of a device.", html=False),
    },
)
