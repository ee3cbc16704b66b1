"""`gnomon devices`: the machines that models can be measured on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.help import group
from gnomon.cli.main import write_answer
from gnomon.cli.values import RECORD, Cores, EnvironmentValue, Seconds, complete_device, complete_runtime

if TYPE_CHECKING:
    from gnomon.api.place import DeviceRow
    from gnomon.store.address import RecordAddress

_NOT_READY = 6
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")
_NAME = click.argument("name", metavar="NAME", shell_complete=complete_device)


@group(invoke_without_command=True, short_help="List, check and name the machines to measure on.")
@_JSON
@click.pass_context
def devices(ctx: click.Context, as_json: bool) -> None:
    """List, check and name the machines that models can be measured on. Without a subcommand: list.

    A device is this machine (local), or one that ssh, adb, sdb or labgrid reaches. The file of devices gives it a name
    and settings; docs/devices/devices.md describes it.
    """
    ctx.obj = {"json": as_json}
    if ctx.invoked_subcommand is None:
        _list(as_json)


@devices.command("list", short_help="List the devices and what they have.")
@_JSON
@click.pass_obj
def list_(above: dict[str, Any], as_json: bool) -> None:
    """List this machine and the devices of the file: whether each is reachable, what it is, and its runtimes."""
    _list(as_json or above["json"])


@devices.command(short_help="Check devices in detail.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_device)
@_JSON
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> int:
    """Check the devices of these names or addresses in detail, or all of the file.

    In addition to the list: what a command costs, the free space, whether files can be written, and whether there are
    energy counters. Exits with 6 if one of them is not ready.
    """
    from gnomon.api.place import list_devices

    rows = list_devices(*names, closely=True)
    _show(rows, as_json=as_json or ctx.obj["json"], named=True)
    return 0 if all(row.state == "ready" for row in rows) else _NOT_READY


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
    type=EnvironmentValue(),
    metavar="KEY=VALUE",
    help="Environment of every command there. May be repeated.",
)
@click.option("--ssh-option", "ssh_options", multiple=True, metavar="KEY=VALUE", help="For ssh -o. May be repeated.")
@click.option("--connect-timeout", "connect_timeout_s", type=Seconds(), help="Seconds to wait for it.  [default: 10]")
@click.option(
    "--runtime",
    "runtimes",
    multiple=True,
    shell_complete=complete_runtime,
    metavar="NAME",
    help="Use this runtime there. May be repeated.",
)
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Threads of a runtime there.")
@click.option("--pin", type=Cores(), metavar="CORES", help="Measure on these cores alone, such as 4-7 or 0,2.")
@click.option("--governor", metavar="NAME", help="Set this frequency governor while measuring.")
@click.option("--fetch", is_flag=True, help="Let pip fetch what the device lacks from the package index.")
@click.option("--target", metavar="TARGET", help="What gnomon tune compiles for it.  [default: native]")
@click.option("--linker", metavar="COMMAND", help="The linker for that target.")
@click.option("--no-check", is_flag=True, help="Add it without reaching it.")
@_JSON
@click.pass_obj
def add(
    above: dict[str, Any], /, name: str, address: str, no_keep: bool, no_check: bool, as_json: bool, **values: Any
) -> None:
    """Give the device at ADDRESS a NAME in the file of devices.

    ADDRESS is local, ssh://[user@]host[:port], adb://SERIAL, sdb://SERIAL or labgrid:PLACE.

    It is checked first, and not added if it cannot be used.
    """
    from gnomon.api.place import add_device
    from gnomon.devices.config import devices_path
    from gnomon.jobs.devices.document import DeviceAddedDocument

    table = {key: _plain(key, value) for key, value in values.items() if value}
    row = add_device(name, address, check=not no_check, **({**table, "keep": False} if no_keep else table))
    added = DeviceAddedDocument(
        format="gnomon-device-added", version=1, file=str(devices_path()), added=name, device=row
    )
    write_answer(added.document(), as_json=as_json or above["json"])


@devices.command(short_help="Take a device's name out of the file.")
@_NAME
@_JSON
@click.pass_obj
def remove(above: dict[str, Any], name: str, as_json: bool) -> None:
    """Take the device NAME out of the file of devices. The device itself is not touched: see clean."""
    from gnomon.api.place import remove_device
    from gnomon.jobs.devices.document import DeviceRemovedDocument

    path = str(remove_device(name))
    removed = DeviceRemovedDocument(format="gnomon-device-removed", version=1, file=path, removed=name)
    write_answer(removed.document(), as_json=as_json or above["json"])


@devices.command(short_help="Remove what gnomon keeps on a device.")
@_NAME
@_JSON
@click.pass_obj
def clean(above: dict[str, Any], name: str, as_json: bool) -> None:
    """Remove the cache of pushed files from the device of this name or address; it is sent again when needed."""
    from gnomon.api.place import clean_device
    from gnomon.cli.progress import Show

    with Show(quiet=False) as show:
        found = clean_device(name, on_message=show.tell)
    write_answer(found.document(), as_json=as_json or above["json"])


@devices.command(short_help="Check whether a device is the same board, and as fast as before.")
@_NAME
@RECORD
@_JSON
@click.pass_obj
def probe(above: dict[str, Any], name: str, record: RecordAddress | None, as_json: bool) -> None:
    """Measure a small kernel on the device NAME, and compare it with the time at its first probe.

    A device that passes leaves quarantine; one that fails enters it, and the exit code is 6. `gnomon suite
    run` does the same before it uses a device, once an hour.
    """
    from gnomon.api.place import probe_device
    from gnomon.cli.progress import Show

    with Show(quiet=False) as show:
        found = probe_device(name, record=record, on_message=show.tell)
    write_answer(found.document(), as_json=as_json or above["json"])


@devices.command(short_help="End the quarantine of a device.")
@_NAME
@_JSON
@click.pass_obj
def release(above: dict[str, Any], name: str, as_json: bool) -> None:
    """End the quarantine of the device NAME. If a probe was the reason, the next one makes a new baseline."""
    from gnomon.api.place import release_device

    write_answer(release_device(name).document(), as_json=as_json or above["json"])


def _plain(key: str, value: Any) -> Any:
    """An option's value as the file of devices would have it."""
    if key == "environment":
        return {name: text for part in value for name, text in part.items()}
    return list(value) if isinstance(value, tuple) else value


def _list(as_json: bool) -> None:
    from gnomon.api.place import list_devices

    _show(list_devices(), as_json=as_json, named=False)


def _show(rows: Sequence[DeviceRow], *, as_json: bool, named: bool) -> None:
    from gnomon.devices.config import devices_path
    from gnomon.jobs.devices.document import DevicesDocument

    path = devices_path()
    document = DevicesDocument(
        format="gnomon-devices",
        version=1,
        file=str(path),
        file_exists=path.exists(),
        named=named,
        devices=tuple(rows),
    )
    write_answer(document.document(), as_json=as_json)
