"""Opens the device that the user names; packages above this one see only `Device`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gnomon.core.codec import fields_of
from gnomon.core.strict_json import shown_key
from gnomon.devices.address import LOCAL, TVM, is_address, parse_address
from gnomon.devices.config import DeviceConfig, load_devices
from gnomon.devices.lease import lease, lease_folder
from gnomon.devices.local import LocalDevice
from gnomon.errors import DeviceError, UsageError, did_you_mean
from gnomon.installing import package_line
from gnomon.plugins import loaded, named

if TYPE_CHECKING:
    from gnomon.devices.base import Device
    from gnomon.devices.shell.ssh_client import SshSettings

OnWait = Callable[[str], None]
"""Called once with a sentence (a `Waiting`) about the holder of a device that must be waited for; it may raise an
exception in order not to wait.

It may also be called with a sentence that warns that other accounts are not excluded.
"""

GROUP = "gnomon.devices"
"""The entry-point group for kinds of devices; the scheme of an address names a `Factory`."""


class Factory(Protocol):
    """Makes a device of one kind. Entering the device takes its lease, so that nobody else measures on it."""

    def __call__(self, config: DeviceConfig, on_wait: OnWait | None) -> AbstractContextManager[Device]:
        """The device that a configuration describes, not yet entered. UsageError if the configuration is invalid.

        A `Device` is itself a suitable context manager; another one may first acquire resources and then yield the
        device.
        """


def resolve(text: str, path: Path | None = None) -> DeviceConfig:
    """The device with an address, or with the name of a table in the file of devices (None: the user's own).

    An address yields a device with the address as its name and with default settings; "local" has the settings of the
    table [devices.local], if there is one. UsageError if the text does not mean a device or the file is invalid.
    """
    if is_address(text) and text != LOCAL:
        address = parse_address(text)
        if address.kind != TVM:
            _entry(address.kind)
        return DeviceConfig(name=str(address), address=address)
    devices = load_devices(path)
    if text in devices:
        return devices[text]
    if text == LOCAL:
        return DeviceConfig(name=LOCAL, address=parse_address(LOCAL))
    names = list(dict.fromkeys([LOCAL, *devices]))
    near = f"{did_you_mean(text, names)} ".lstrip()
    raise UsageError(
        f"there is no device named {shown_key(text)}",
        hint=f"{near}Devices: {', '.join(names)}. "
        "Or give an address, such as ssh://user@host. To name an address: gnomon devices add NAME ADDRESS",
    )


def is_place(text: str) -> bool:
    """Whether a string is an address or a name in the file of devices, and should be given to `resolve`."""
    return is_address(text) or text in load_devices()


@contextmanager
def opened(config: DeviceConfig, *, on_wait: OnWait | None = None) -> Iterator[Device]:
    """Hold a device and its lease for the duration of the block. DeviceError if it cannot be reached.

    A DeviceError from within the block is marked to show that the device had answered.
    """
    with load_factory(config.address.kind)(config, on_wait) as device:
        try:
            yield device
        except DeviceError as error:
            error.met = True
            raise


def load_factory(kind: str) -> Factory:
    """The factory for a kind of device; UsageError for a kind that is unknown or cannot be loaded."""
    if kind == TVM:
        raise UsageError(
            "a device behind a TVM tracker runs only compiled kernels: only tune, exec and overlay can use it",
            hint="Give the address of the machine itself, such as ssh://user@host.",
        )
    factory: Factory = loaded(_entry(kind), f"the kind of device {kind!r}")
    return factory


def _entry(kind: str) -> EntryPoint:
    entries = named(GROUP)
    if kind not in entries:
        kinds = f"The known kinds are: {', '.join(entries)}. For SSH, give ssh://user@host[:port]."
        raise UsageError(f"there is no kind of device {kind!r}", hint=package_line(kind) or kinds)
    return entries[kind]


@contextmanager
def local_device(config: DeviceConfig, on_wait: OnWait | None) -> Iterator[Device]:
    """This machine with the settings of a configuration; nobody else measures on it while the block lasts."""
    leases = lease_folder({**os.environ, **config.environment})
    with (
        lease(leases, LOCAL, on_wait=on_wait),
        LocalDevice(config.name, python=config.python, environment=config.environment) as device,
    ):
        yield device


def ssh_device(config: DeviceConfig, on_wait: OnWait | None) -> Device:
    """A machine reached by OpenSSH, with the settings of a configuration. The lease is taken on that machine.

    Only the machine's shell is needed; the `python` of its `DeviceInfo` is empty if the machine has no Python.
    """
    from gnomon.devices.shell.ssh import SshDevice

    return SshDevice(ssh_settings(config), on_wait=on_wait)


def ssh_settings(config: DeviceConfig) -> SshSettings:
    """The settings with which OpenSSH reaches the device of a configuration."""
    from gnomon.devices.shell.ssh_client import SshSettings

    return SshSettings(**fields_of(SshSettings, config.address), **fields_of(SshSettings, config))
