"""Tizen devices, through the program sdb of Tizen Studio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gnomon.devices.config import DeviceConfig
from gnomon.devices.shell.bridge import BridgeDevice, bridge_settings
from gnomon.devices.shell.bridge_link import Bridge

if TYPE_CHECKING:
    from gnomon.devices.base import Device

SDB = Bridge(
    name="sdb",
    install="Install Tizen Studio's sdb, and put its folder (tizen-studio/tools) on the PATH.",
    places=('"$TMPDIR"', "/opt/usr/tmp", "/opt/usr", "/tmp"),  # noqa: S108 - a folder of a random name is made in it
    cache='"${XDG_CACHE_HOME:-$HOME/.cache}"',
    states={
        "offline": "Wait until it has started, or connect it again.",
        "": "Unlock it, and confirm on its screen that this computer may debug it.",
    },
    refuses="Its firmware must allow `sdb shell`; that of retail televisions does not.",
)


def sdb_device(config: DeviceConfig, on_wait: Callable[[str], None] | None) -> Device:
    """A Tizen device with the settings of a configuration; the host of its address is the serial number."""
    return BridgeDevice(bridge_settings(SDB, config), on_wait=on_wait)
