"""A machine behind SSH, served through its Python, or through its shell where it has no Python at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gnomon.devices.base import Completed, Device, DeviceInfo
from gnomon.devices.ssh import SshDevice
from gnomon.devices.ssh_errors import NoPythonError
from gnomon.devices.ssh_plain import PlainSshDevice
from gnomon.devices.ssh_program import SshSettings
from gnomon.errors import DeviceError


class AnySshDevice:
    """A machine behind SSH; see `Device` for what the methods promise.

    Only a device that was reached and has no Python is served by its shell, which its `describe` tells; a Python that
    is too old, or not there under the name that was given, stays an error.
    """

    def __init__(self, config: SshSettings, *, on_wait: Callable[[str], None] | None = None) -> None:
        self._config, self._on_wait = config, on_wait
        self._device: Device | None = None

    def __enter__(self) -> Self:
        try:
            self._device = SshDevice(self._config, on_wait=self._on_wait).__enter__()
        except NoPythonError:
            self._device = PlainSshDevice(self._config, on_wait=self._on_wait).__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        device, self._device = self._device, None
        if device is not None:
            device.__exit__(*exception)

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout_s: float,
        on_line: Callable[[str], None] | None = None,
    ) -> Completed:
        """See `Device.run`."""
        return self._open.run(argv, env=env, stdin=stdin, timeout_s=timeout_s, on_line=on_line)

    def push(self, local: Path, name: str) -> str:
        """See `Device.push`."""
        return self._open.push(local, name)

    def pull(self, remote: str, local: Path) -> None:
        """See `Device.pull`."""
        self._open.pull(remote, local)

    def describe(self) -> DeviceInfo:
        """See `Device.describe`; `python` is empty where there is none."""
        return self._open.describe()

    @property
    def _open(self) -> Device:
        if self._device is None:
            raise DeviceError("the device is not open", hint="Use it in a with statement.")
        return self._device


if TYPE_CHECKING:

    def _conforms(device: AnySshDevice) -> Device:
        return device
