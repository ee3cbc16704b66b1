"""Devices, and the runtimes of this machine: what `gnomon devices` and `gnomon runtimes` do, as functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnomon.devices import config
from gnomon.jobs.devices import job
from gnomon.jobs.devices.document import DeviceCleanedDocument, DeviceHealthDocument, RuntimesDocument
from gnomon.jobs.devices.document import DeviceRow as DeviceRow
from gnomon.store.address import RecordLike, record_address


def list_devices(*names: str, closely: bool = False) -> tuple[DeviceRow, ...]:
    """How devices are now: those named, or this machine and all of the file of devices.

    `closely` also finds the overhead of a command, free room and rights. A device that cannot be reached is a row with
    the reason. UsageError if a name is not known or the file is wrong.
    """
    return job.check_devices(names) if closely or names else job.list_devices()


def add_device(name: str, address: str, *, check: bool = True, **settings: Any) -> DeviceRow | None:
    """Name a device in the file of devices, with settings as its table has them (docs/devices/devices.md).

    It is looked at closely first, and the row of that is returned, unless not `check`. UsageError if it is invalid or
    is there already, DeviceError if it cannot be used; the file is then as it was.
    """
    return job.add_and_check(config.device_from(name, {"address": address, **settings}), check=check)


def remove_device(name: str) -> Path:
    """Take a device out of the file of devices, whose path is returned. UsageError if it is not there."""
    return config.remove_device(name)


def clean_device(name: str, *, on_message: Callable[[str], None] | None = None) -> DeviceCleanedDocument:
    """Remove what gnomon keeps on a device between commands; `on_message` hears who is waited for. GnomonError."""
    return job.clean_device(name, on_wait=on_message)


def probe_device(
    name: str, *, record: RecordLike | None = None, on_message: Callable[[str], None] | None = None
) -> DeviceHealthDocument:
    """See whether a device is the board that it was, and as fast: it ends its quarantine, or puts it there.

    DeviceError where it fails or is not as it was, another GnomonError where nothing there can run the probe.
    """
    return job.probe_device(name, record_address(record), tell=on_message)


def release_device(name: str) -> DeviceHealthDocument:
    """End the quarantine of a device. UsageError where it is in none."""
    return job.release_device(name)


def list_runtimes() -> RuntimesDocument:
    """The runtimes that gnomon knows, those that are installed first, as docs/commands.md describes them."""
    from gnomon.jobs.devices.runtimes import known_runtimes

    return known_runtimes()
