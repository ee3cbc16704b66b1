"""`gnomon devices`: the machines that models can be measured on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.help import group
from gnomon.cli.options import json_option
from gnomon.cli.output import answering
from gnomon.cli.values import RECORD, complete_device, complete_runtime, cores, environment, seconds

if TYPE_CHECKING:
    from gnomon.api.devices import DeviceRow
    from gnomon.jobs.devices.document import DevicesDocument
    from gnomon.store.address import RecordAddress

_NOT_READY = 6
_NAME = click.argument("name", metavar="NAME", shell_complete=complete_device)


@group(invoke_without_command=True, short_help="List, check and name the machines to measure on.")
@json_option
@click.pass_context
def devices(ctx: click.Context, as_json: bool) -> Any:
    """List, check and name the machines that models can be measured on. Without a subcommand: list.

    A device is this machine (local), or one that ssh, adb, sdb or labgrid reaches. The file of devices gives it a name
    and settings; docs/devices/devices.md describes it.
    """
    ctx.default_map = {name: {"as_json": as_json} for name in devices.commands}
    return None if ctx.invoked_subcommand else ctx.invoke(list_)


@devices.command("list", short_help="List the devices and what they have.")
@json_option
@answering
def list_() -> Any:
    """List this machine and the devices of the file: whether each is reachable, what it is, and its runtimes."""
    from gnomon.api.devices import list_devices

    return _listed(list_devices(), named=False)


@devices.command(short_help="Check devices in detail.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_device)
@json_option
@answering
def check(*, names: tuple[str, ...]) -> Any:
    """Check the devices of these names or addresses in detail, or all of the file.

    In addition to the list: what a command costs, the free space, whether files can be written, and whether there are
    energy counters. Exits with 6 if one of them is not ready.
    """
    from gnomon.api.devices import list_devices

    rows = list_devices(*names, closely=True)
    return _listed(rows, named=True), 0 if all(row.state == "ready" for row in rows) else _NOT_READY


@devices.command(short_help="Check a device, and give it a name.")
@click.argument("name", metavar="NAME")
@click.argument("address", metavar="ADDRESS")
@click.option("--python", metavar="PATH", help="Python on the device.  [default: the newest that is found]")
@click.option("--folder", metavar="PATH", help="Cache of pushed files there.  [default: ~/.cache/gnomon]")
@click.option("--no-keep", is_flag=True, help="Keep nothing on the device between commands.")
@click.option(
    "--env",
    "environment",
    multiple=True,
    type=environment,
    metavar="KEY=VALUE",
    help="Environment of every command there. May be repeated.",
)
@click.option("--ssh-option", "ssh_options", multiple=True, metavar="KEY=VALUE", help="For ssh -o. May be repeated.")
@click.option("--connect-timeout", "connect_timeout_s", type=seconds, help="Seconds to wait for it.  [default: 10]")
@click.option(
    "--runtime",
    "runtimes",
    multiple=True,
    shell_complete=complete_runtime,
    metavar="NAME",
    help="Use this runtime there. May be repeated.",
)
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Threads of a runtime there.")
@click.option("--pin", type=cores, metavar="CORES", help="Measure on these cores alone, such as 4-7 or 0,2.")
@click.option("--governor", metavar="NAME", help="Set this frequency governor while measuring.")
@click.option("--fetch", is_flag=True, help="Let pip fetch what the device lacks from the package index.")
@click.option("--target", metavar="TARGET", help="What gnomon tune compiles for it.  [default: native]")
@click.option("--linker", metavar="COMMAND", help="The linker for that target.")
@click.option("--no-check", is_flag=True, help="Add it without reaching it.")
@json_option
@answering
def add(*, name: str, address: str, no_keep: bool, no_check: bool, **values: Any) -> Any:
    """Give the device at ADDRESS a NAME in the file of devices.

    ADDRESS is local, ssh://[user@]host[:port], adb://SERIAL, sdb://SERIAL or labgrid:PLACE.

    It is checked first, and not added if it cannot be used.
    """
    from gnomon.api.devices import add_device
    from gnomon.devices.config import devices_path
    from gnomon.jobs.devices.document import DeviceAddedDocument

    table = {key: _plain(key, value) for key, value in values.items() if value}
    row = add_device(name, address, check=not no_check, **({**table, "keep": False} if no_keep else table))
    return DeviceAddedDocument(
        format="gnomon-device-added", version=1, file=str(devices_path()), added=name, device=row
    )


@devices.command(short_help="Take a device's name out of the file.")
@_NAME
@json_option
@answering
def remove(*, name: str) -> Any:
    """Take the device NAME out of the file of devices. The device itself is not touched: see clean."""
    from gnomon.api.devices import remove_device
    from gnomon.jobs.devices.document import DeviceRemovedDocument

    path = str(remove_device(name))
    return DeviceRemovedDocument(format="gnomon-device-removed", version=1, file=path, removed=name)


@devices.command(short_help="Remove what gnomon keeps on a device.")
@_NAME
@json_option
@answering
def clean(*, name: str) -> Any:
    """Remove the cache of pushed files from the device of this name or address; it is sent again when needed."""
    from gnomon.api.devices import clean_device
    from gnomon.cli.progress import Show

    with Show(quiet=False) as show:
        return clean_device(name, on_message=show.on_message)


@devices.command(short_help="Check whether a device is the same board, and as fast as before.")
@_NAME
@RECORD
@json_option
@answering
def probe(*, name: str, record: RecordAddress | None) -> Any:
    """Measure a small kernel on the device NAME, and compare it with the time at its first probe.

    A device that passes leaves quarantine; one that fails enters it, and the exit code is 6. `gnomon suite
    run` does the same before it uses a device, once an hour.
    """
    from gnomon.api.devices import probe_device
    from gnomon.cli.progress import Show

    with Show(quiet=False) as show:
        return probe_device(name, record=record, on_message=show.on_message)


@devices.command(short_help="End the quarantine of a device.")
@_NAME
@json_option
@answering
def release(*, name: str) -> Any:
    """End the quarantine of the device NAME. If a probe was the reason, the next one makes a new baseline."""
    from gnomon.api.devices import release_device

    return release_device(name)


def _plain(key: str, value: Any) -> Any:
    """An option's value as the file of devices would have it."""
    if key == "environment":
        return {name: text for part in value for name, text in part.items()}
    return list(value) if isinstance(value, tuple) else value


def _listed(rows: Sequence[DeviceRow], *, named: bool) -> DevicesDocument:
    from gnomon.devices.config import devices_path
    from gnomon.jobs.devices.document import DevicesDocument

    path = devices_path()
    return DevicesDocument(
        format="gnomon-devices",
        version=1,
        file=str(path),
        file_exists=path.exists(),
        named=named,
        devices=tuple(rows),
    )
