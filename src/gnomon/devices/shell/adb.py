"""Android devices, through the program adb of Android's platform tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gnomon.devices.config import DeviceConfig
from gnomon.devices.shell.bridge import BridgeDevice, bridge_settings
from gnomon.devices.shell.bridge_link import Bridge

if TYPE_CHECKING:
    from gnomon.devices.base import Device

ADB = Bridge(
    name="adb",
    install="Install Android's platform tools (Debian, Ubuntu: apt install adb), and put adb on the PATH.",
    # Among the folders that adb's user may write to, programs can be started only in these.
    places=('"$TMPDIR"', "/data/local/tmp", "/tmp"),  # noqa: S108 - a folder of a random name is made in it
    cache='"${TMPDIR:-/data/local/tmp}"',
    states={
        "unauthorized": "Unlock the phone, and allow USB debugging for this computer in the dialog that it shows.",
        "authorizing": "Unlock the phone, and allow USB debugging for this computer in the dialog that it shows.",
        "offline": "Wait until it has started, or unplug it and plug it in again (or run adb reconnect offline).",
        "no permissions": "Give this user access with the udev rules of the package android-sdk-platform-tools-common.",
        "": "Start Android on it, then check: adb devices",
    },
)


def adb_device(config: DeviceConfig, on_wait: Callable[[str], None] | None) -> Device:
    """An Android device with the settings of a configuration; the host of its address is the serial number."""
    return BridgeDevice(bridge_settings(ADB, config), on_wait=on_wait)
