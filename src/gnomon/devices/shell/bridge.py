"""A device that is reached by a program such as adb or sdb, and used through its shell."""

from __future__ import annotations

from gnomon.core.codec import fields_of
from gnomon.devices.config import DeviceConfig
from gnomon.devices.shell.bridge_link import Bridge, BridgeLink, BridgeSettings
from gnomon.devices.shell.device import ShellDevice, python_there, take_lease
from gnomon.devices.shell.link import ShellLink, ShellSettings
from gnomon.errors import DeviceError, UsageError


class BridgeDevice(ShellDevice[BridgeSettings]):
    """A device that adb or sdb reaches; see `ShellDevice`.

    Entering waits for the device's lease; `on_wait` is called once with its owner. A command's standard error arrives
    when the command ends. `describe` reports the device's Python, if there is one.
    """

    def _reach(self) -> BridgeLink:
        link = BridgeLink(self._config)
        try:
            link.start()
            self._config = link.settings
            take_lease(self._config, link.ask, self._on_wait)
            if self._config.python is not None:
                self._python = self._found_python(link)
        except BaseException:
            link.close()
            raise
        return link

    def _found_python(self, link: ShellLink) -> str:
        """The path of a Python 3.10 or newer on the device; "" if there is none. DeviceError if the named Python is
        unusable.
        """
        given = self._config.python
        path, _ = python_there(link, given)
        if given is not None and not path:
            raise DeviceError(
                f"there is no Python 3.10 or newer at {given} on {self._config.destination}",
                hint="Name another Python with `python` in the file of devices, or leave `python` out.",
            )
        return path


def bridge_settings(bridge: Bridge, config: DeviceConfig) -> BridgeSettings:
    """The settings for a device behind a bridge; the key or host of the configuration's address is the serial number.

    UsageError for options of ssh, which the bridge's program does not accept.
    """
    address = config.address
    if config.ssh_options:
        raise UsageError(f"{config.name} has ssh_options, but {address.kind} does not use ssh", hint="Leave them out.")
    host = f"[{address.host}]" if ":" in address.host else address.host
    serial = address.key or f"{host}{f':{address.port}' if address.port else ''}"
    return BridgeSettings(bridge=bridge, serial=serial, **fields_of(ShellSettings, config))
