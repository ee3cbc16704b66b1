"""Boards that the program `yours` reaches as adb would: yours devices, yours -s NAME shell, push and pull."""

from __future__ import annotations

from collections.abc import Callable

from gnomon.devices.config import DeviceConfig
from gnomon.devices.shell.bridge import BridgeDevice, bridge_settings
from gnomon.devices.shell.bridge_link import Bridge

YOURS = Bridge(
    name="yours", install="", places=('"${TMPDIR:-/tmp}"',), cache='"${TMPDIR:-/tmp}"', states={"": "Start it."}
)
"""The specifics of the program: where a board has room, and the next steps for its states."""


def yours_device(config: DeviceConfig, on_wait: Callable[[str], None] | None) -> BridgeDevice:
    """The device that a table in the file of devices describes."""
    return BridgeDevice(bridge_settings(YOURS, config), on_wait=on_wait)
