"""Devices, and the runtimes of this machine: what `gnomon devices` and `gnomon runtimes` do, as functions."""

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
    """The settings of a device, as its table in the file of devices has them (docs/devices/devices.md)."""

    python: Annotated[str, option(metavar="PATH", help="Python on the device.  [default: the newest that is found]")]
    folder: Annotated[str, option(metavar="PATH", help="Cache of pushed files there.  [default: ~/.cache/gnomon]")]
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
            help="Environment of every command there. May be repeated.",
        ),
    ]
    ssh_options: Annotated[
        Sequence[str], option("--ssh-option", repeat=True, metavar="KEY=VALUE", help="For ssh -o. May be repeated.")
    ]
    connect_timeout_s: Annotated[
        float, option("--connect-timeout", read=seconds, help="Seconds to wait for it.  [default: 10]")
    ]
    runtimes: Runtimes
    threads: Annotated[int, option(least=1, most=1024, metavar="N", help="Threads of a runtime there.")]
    pin: Pin
    governor: Annotated[str, option(metavar="NAME", help="Set this frequency governor while measuring.")]
    fetch: Fetch
    target: Annotated[str, option(metavar="TARGET", help="What gnomon tune compiles for it.  [default: native]")]
    linker: Annotated[str, option(metavar="COMMAND", help="The linker for that target.")]


def list_devices() -> DevicesDocument:
    """List this machine and the devices of the file: whether each is reachable, what it is, and its runtimes.

    Raises UsageError where the file is wrong. A device that cannot be reached is a row with the reason.
    """
    return _listed(job.list_devices(), named=False)


def check_devices(*names: Name) -> DevicesDocument:
    """Check the devices of these names or addresses in detail, or all of the file.

    In addition to the list: what a command costs, the free space, whether files can be written, and whether there are
    energy counters. Exits with 6 if one of them is not ready.

    Raises UsageError where a name is not known, or the file is wrong.
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
    check: Annotated[bool, option("--no-check", off=True, help="Add it without reaching it.")] = True,
    **settings: Unpack[DeviceSettings],
) -> DeviceAddedDocument:
    """Give the device at ADDRESS a NAME in the file of devices.

    ADDRESS is local, ssh://[user@]host[:port], adb://SERIAL, sdb://SERIAL or labgrid:PLACE.

    It is checked first, and not added if it cannot be used.

    Raises UsageError where it is invalid or is there already, DeviceError where it cannot be used; the file is then as
    it was.
    """
    table: dict[str, object] = {key: list(v) if isinstance(v, tuple) else v for key, v in settings.items()}
    row = job.add_and_check(config.device_from(name, {"address": address, **table}), check=check)
    path = str(config.devices_path())
    return DeviceAddedDocument(file=path, added=name, device=row)


def remove_device(name: Name) -> DeviceRemovedDocument:
    """Take the device NAME out of the file of devices. The device itself is not touched: see clean.

    Raises UsageError where it is not there.
    """
    path = str(config.remove_device(name))
    return DeviceRemovedDocument(file=path, removed=name)


def clean_device(name: Name, *, on_message: Callable[[str], None] | None = None) -> DeviceCleanedDocument:
    """Remove the cache of pushed files from the device of this name or address; it is sent again when needed.

    Raises GnomonError; `on_message` hears which process holds the device.
    """
    return job.clean_device(name, on_wait=on_message)


def probe_device(
    name: Name, *, record: Record = None, on_message: Callable[[str], None] | None = None
) -> DeviceHealthDocument:
    """Measure a small kernel on the device NAME, and compare it with the time at its first probe.

    A device that passes leaves quarantine; one that fails enters it, and the exit code is 6. `gnomon suite
    run` does the same before it uses a device, once an hour.

    Raises DeviceError where it fails or is not as it was, another GnomonError where nothing there can run the probe.
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
    """Say which slow-downs comparisons find on the device NAME, or on this machine.

    Two convolutions are measured beside themselves, by turns, as `gnomon compare MODEL --self-test` measures a model of
    your own: in ONNX Runtime, unless --runtime names another. Exits with 0 where comparisons of five minutes find a
    slow-down of 3 %, else with 10.

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
    """End the quarantine of the device NAME. If a probe was the reason, the next one makes a new baseline.

    Raises UsageError where it is in none.
    """
    return job.release_device(name)


def list_runtimes() -> RuntimesDocument:
    """List the runtimes that gnomon knows, their versions and backends here, and how to install the missing ones.

    Raises UsageError for one that a package adds and that cannot be loaded.
    """
    from gnomon.jobs.devices.runtimes import known_runtimes

    return known_runtimes()
