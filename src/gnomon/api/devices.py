"""`gnomon devices` and `gnomon runtimes` as functions: the devices, and the runtimes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

from gnomon.api.options import Fetch, Pin, Record, Runtimes
from gnomon.devices import config
from gnomon.jobs.devices import job
from gnomon.jobs.devices.document import (
    DeviceAddedDocument,
    DeviceCleanedDocument,
    DeviceHealthDocument,
    DeviceRemovedDocument,
    DeviceRow,
    DevicesDocument,
    RuntimesDocument,
)
from gnomon.options import option
from gnomon.store.address import record_address
from gnomon.values import environment, seconds, span

if TYPE_CHECKING:
    from gnomon.api.compare import RunOptions
    from gnomon.jobs.compare.document import CompareDocument
    from gnomon.measure.progress import Watch

Name = Annotated[str, option(metavar="NAME", complete="device")]


class DeviceSettings(TypedDict, total=False):
    """The settings in a device's table in the file of devices (docs/devices/devices.md)."""

    python: Annotated[str, option(metavar="PATH", help="Python on the device.  [default: the newest one]")]
    folder: Annotated[str, option(metavar="PATH", help="Cache of pushed files.  [default: ~/.cache/gnomon]")]
    keep: Annotated[
        bool, option("--no-keep", off=True, default=True, help="Keep nothing on the device between commands.")
    ]
    environment: Annotated[
        Mapping[str, str],
        option(
            "--env",
            repeat=True,
            read=environment,
            metavar="KEY=VALUE",
            help="Environment variable of every command on the device. May be repeated.",
        ),
    ]
    ssh_options: Annotated[
        Sequence[str], option("--ssh-option", repeat=True, metavar="KEY=VALUE", help="For ssh -o. May be repeated.")
    ]
    connect_timeout_s: Annotated[
        float, option("--connect-timeout", read=seconds, help="Seconds to wait for a connection.  [default: 10]")
    ]
    runtimes: Runtimes
    threads: Annotated[int, option(least=1, most=1024, metavar="N", help="Threads of a runtime on the device.")]
    pin: Pin
    governor: Annotated[str, option(metavar="NAME", help="Set this frequency governor while measuring.")]
    fetch: Fetch
    target: Annotated[str, option(metavar="TARGET", help="The target of gnomon tune.  [default: native]")]
    linker: Annotated[str, option(metavar="COMMAND", help="The linker for the target.")]


def list_devices() -> DevicesDocument:
    """List this machine and the devices in the file of devices: their hardware and runtimes, and whether they are
    reachable.

    Raises UsageError for an invalid file. An unreachable device has a row with the reason.
    """
    return _listed(job.list_devices(), named=False)


def check_devices(*names: Name) -> DevicesDocument:
    """Check devices, given by name or address, in detail; without NAME, check all devices in the file of devices.

    In addition to what the list shows, this shows the time that a command takes, the free space, whether files can be
    written, and the energy counters. Exits with 6 if a device is not ready.

    Raises UsageError for an unknown name or an invalid file.
    """
    return _listed(job.check_devices(names), named=True)


def _listed(rows: Sequence[DeviceRow], *, named: bool) -> DevicesDocument:
    path = config.devices_path()
    return DevicesDocument(
        file=str(path),
        file_exists=path.exists(),
        named=named,
        devices=tuple(rows),
    )


def add_device(
    name: Annotated[str, option(metavar="NAME")],
    address: Annotated[str, option(metavar="ADDRESS")],
    *,
    check: Annotated[bool, option("--no-check", off=True, help="Add the device without connecting to it.")] = True,
    **settings: Unpack[DeviceSettings],
) -> DeviceAddedDocument:
    """Give the device at ADDRESS a NAME in the file of devices.

    ADDRESS is local, ssh://[user@]host[:port], adb://SERIAL, sdb://SERIAL or labgrid:PLACE.

    The device is checked first, and is not added if it cannot be used.

    Raises UsageError for an invalid or taken name or address, DeviceError if the device cannot be used. After an error,
    the file is unchanged.
    """
    table: dict[str, object] = {key: list(v) if isinstance(v, tuple) else v for key, v in settings.items()}
    row = job.add_and_check(config.device_from(name, {"address": address, **table}), check=check)
    path = str(config.devices_path())
    return DeviceAddedDocument(file=path, added=name, device=row)


def remove_device(name: Name) -> DeviceRemovedDocument:
    """Remove the device NAME from the file of devices. The device itself is left unchanged; see gnomon devices clean.

    Raises UsageError if the file has no such device.
    """
    path = str(config.remove_device(name))
    return DeviceRemovedDocument(file=path, removed=name)


def clean_device(name: Name, *, on_message: Callable[[str], None] | None = None) -> DeviceCleanedDocument:
    """Remove the cache of pushed files from a device, given by its name or address. Files are pushed again when needed.

    Raises GnomonError. `on_message` gets a sentence about the process that holds the device.
    """
    return job.clean_device(name, on_wait=on_message)


def probe_device(
    name: Name, *, record: Record = None, on_message: Callable[[str], None] | None = None
) -> DeviceHealthDocument:
    """Measure a small kernel on the device NAME, and compare its time with the time in the device's first probe.

    A device that passes leaves quarantine. A device that fails enters quarantine, and the exit code is 6. `gnomon suite
    run` also probes a device before using it, at most once an hour.

    Raises DeviceError if the device fails or has changed, another GnomonError if nothing on it can run the probe.
    """
    return job.probe_device(name, record_address(record), tell=on_message)


def noise_of_device(
    device: Annotated[str, option(metavar="NAME", complete="device")] = "local",
    *,
    for_s: Annotated[
        float, option("--for", read=span, metavar="1min", default=60.0, help="How long to measure.  [default: 1min]")
    ] = 60.0,
    runtimes: Runtimes = (),
    record: Record = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
) -> CompareDocument:
    """Report the slow-downs that comparisons can detect on the device NAME, or on this machine.

    A model of two convolutions is compared with itself in ONNX Runtime, or in the runtime that --runtime names.
    (`gnomon compare MODEL --self-test` does the same with your own model.) Exits with 0 if comparisons of five minutes
    detect a slow-down of 3 %, otherwise with 10.

    Raises GnomonError.
    """
    from gnomon.api.compare import compare
    from gnomon.models.units import write_net
    from gnomon.spaces.unit import Trace
    from gnomon.system.process import guarded_folder

    trace = Trace(((1, 64, 56, 56),))
    with guarded_folder("gnomon-noise-") as folder:
        model = write_net(trace.net(trace.input().conv(64, 3).conv(64, 3)), folder / "convolutions.onnx")
        how: RunOptions = {"device": device, "runtimes": runtimes or ("onnxruntime",), "record": record}
        return compare(model, self_test=for_s, on_progress=on_progress, on_message=on_message, **how)


def release_device(name: Name) -> DeviceHealthDocument:
    """End the quarantine of the device NAME. If a failed probe was the reason, the next probe makes a new baseline.

    Raises UsageError if the device is not in quarantine.
    """
    return job.release_device(name)


def list_runtimes() -> RuntimesDocument:
    """List all runtimes: their versions and backends on this machine, and how to install the missing ones.

    Raises UsageError if a runtime that a package adds cannot be loaded.
    """
    from gnomon.jobs.devices.runtimes import known_runtimes

    return known_runtimes()
