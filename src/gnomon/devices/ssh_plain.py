"""A machine behind SSH that has no Python, as a device: OpenSSH and the shell there do it all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gnomon.devices.shell_device import ShellDevice
from gnomon.devices.shell_visit import refusal, take_lease
from gnomon.devices.ssh_plain_link import PlainLink
from gnomon.devices.ssh_program import SshSettings
from gnomon.errors import DeviceError

if TYPE_CHECKING:
    from gnomon.devices.base import Device


class PlainSshDevice(ShellDevice):
    """A machine behind SSH without Python; see `ShellDevice`. `describe` has no Python."""

    def __init__(self, config: SshSettings, *, on_wait: Callable[[str], None] | None = None) -> None:
        super().__init__(on_wait=on_wait)
        self._config = config

    @property
    def _settings(self) -> SshSettings:
        return self._config

    def _reach(self) -> PlainLink:
        link = PlainLink(self._config)
        try:
            kind, _, rest = link.start().partition(" ")
            if kind == "lacks":
                raise DeviceError(
                    f"{self._config.destination} has no Python, and its shell lacks {', '.join(rest.split())}",
                    hint="Install these (coreutils, or busybox) or a Python there, and see that they are on its PATH.",
                )
            if kind != "base":
                raise refusal(self._config, rest, "the temporary folder")
            link.base = rest
            take_lease(self._config, lambda: link.ask("lease"), self._on_wait)
        except BaseException:
            link.close()
            raise
        return link


if TYPE_CHECKING:

    def _conforms(device: PlainSshDevice) -> Device:
        return device
