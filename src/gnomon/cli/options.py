"""Options that several commands have in common, as the Python API takes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from gnomon.cli.complete import complete_device
from gnomon.cli.declared import Declared, parameter_of
from gnomon.cli.values import seconds, shape
from gnomon.errors import UsageError

if TYPE_CHECKING:
    from gnomon.api.tune import TuneOptions

Decorator = Callable[[Any], Any]


def _can_be_written(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Refuse before hours of measuring what could not be written after them."""
    if path is not None and not os.access(path.parent, os.W_OK | os.X_OK):
        raise click.BadParameter(f"{path.parent} is not a folder that can be written to", context, parameter)
    return path


html_option = click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_can_be_written,
    metavar="FILE",
    help="Write the whole report as one self-contained HTML page.",
)
"""Of jobs whose document `write_answer` of `gnomon.cli.main` then writes as a page too."""


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in their order."""

    def decorated(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")


def by_name(context: click.Context, parameter: click.Parameter, pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """The values by name, as the callback of an option. UsageError where it gives a name twice."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise click.UsageError(f"{parameter.opts[0]} gives {name!r} twice", context)
        values[name] = value
    return values


def declared_options(*declared: Declared) -> Decorator:
    """Options that are declared where they are taken, as one decorator."""

    def decorated(command: Any) -> Any:
        command.__click_params__ = getattr(command, "__click_params__", [])
        command.__click_params__ += [parameter_of(one) for one in reversed(declared)]
        return command

    return decorated


def gone(*names: str, hint: str) -> Decorator:
    """Options that another tool or an earlier gnomon has under these names, answered by what to give instead."""

    def refuse(context: click.Context, option: click.Parameter, value: object) -> None:
        if value is not None:
            raise UsageError(f"there is no option {' or '.join(names)} of {context.command_path}", hint=hint)

    return click.option(*names, hidden=True, expose_value=False, is_eager=True, callback=refuse)


_FERULES = (
    (("-k", "--rpc_key"), "Give --device tvm://HOST:PORT/KEY; tvm:///KEY takes the tracker of the environment."),
    (
        ("-r", "--rpc_tracker_host", "-p", "--rpc_tracker_port"),
        "The tracker stands in --device tvm://HOST:PORT/KEY, or in TVM_TRACKER_HOST and TVM_TRACKER_PORT.",
    ),
    (("-T",), "Give --target, which takes TVM's old strings too, such as 'llvm -mcpu=cortex-a72'."),
    (("-H", "--target_host"), "Leave it out: --target is all that is compiled for."),
)


def ferules(**others: str) -> Decorator:
    """The options of Ferule's commands, answered by what to give instead; `others` are letters with their hints."""
    rows = [*_FERULES, *(((f"-{letter}",), hint) for letter, hint in others.items())]
    return together(*(gone(*names, hint=hint) for names, hint in reversed(rows)))


_DEVICES = click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_device,
    help="Where it runs: a name of the file of devices, ssh://[user@]host[:port], or tvm://HOST:PORT/KEY behind a "
    "tracker. exec takes one.  [default: local]",
)
_LOGS_DEVICES = click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_device,
    help="A device of the logs. A KEY: one to prefer where names can be split in several ways. KEY=FILE: that file is "
    "of this device. An address or a name of the file of devices: where --prove finds it. May be repeated.",
)
_FETCH = click.option("--fetch", is_flag=True, help="Let pip fetch TVM from the package index for a device without it.")
_DEVICE = together(
    click.option(
        "--target",
        metavar="TARGET",
        help="What is compiled for: native, x86-64-v3, aarch64-cortex-a72, .., a JSON object or @FILE. Needed for a "
        "device of a tracker, unless a record says it.  [default: native]",
    ),
    click.option(
        "--linker", metavar="COMMAND", help="The linker for the target.  [default: what fits it and is installed]"
    ),
    click.option(
        "--threads",
        type=click.IntRange(0, 1024),
        default=0,
        metavar="N",
        help="Threads of a function there.  [default: what the device's table says, else all cores]",
    ),
    click.option(
        "--reconnect-timeout",
        "--wait",
        "wait_s",
        type=seconds,
        default=60.0,
        show_default=True,
        help="Seconds to wait for the device.",
    ),
)
_CARE = together(
    click.option(
        "--processes",
        type=click.IntRange(1, 1000),
        default=3,
        show_default=True,
        help="Fresh processes on the device, wherever things are compared.",
    ),
    click.option("--repeat", type=click.IntRange(1, 10_000), default=3, show_default=True, help="Samples in each."),
    click.option(
        "--min-repeat-ms",
        type=click.IntRange(1, 60_000),
        default=10,
        show_default=True,
        help="Milliseconds that a sample takes at least.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=seconds,
        default=60.0,
        show_default=True,
        help="Seconds after which a call that does not return is ended.",
    ),
    click.option(
        "--build-timeout",
        "build_timeout_s",
        type=seconds,
        default=30.0,
        show_default=True,
        help="Seconds after which a build of one layer is ended.",
    ),
    click.option(
        "--seed", type=click.IntRange(0, 2**31 - 2), default=0, show_default=True, help="Seed of searches and orders."
    ),
)
_COMMON = together(
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Models, records and libraries.  [default: the user's own folder]",
    ),
    json_option,
    click.option("--quiet", is_flag=True, help="No progress."),
)
_NAMES = (
    *("target", "linker", "threads", "wait_s", "fetch"),
    *("processes", "repeat", "min_repeat_ms", "timeout_s", "build_timeout_s", "seed", "out"),
)


shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=shape,
    callback=by_name,
    metavar="NAME=1,3,224,224",
    help="Fix the shape of an input that the file leaves open. May be repeated.",
)


device_options = together(_DEVICES, _DEVICE, _FETCH, _CARE, _COMMON)
"""Which device is meant, how it is measured, and where files go."""

proof_options = together(_LOGS_DEVICES, _FETCH, _CARE, _COMMON)
"""How is measured on devices that records describe."""


def only_device(values: dict[str, Any]) -> str:
    """Takes the one device out of a command's values; UsageError for several."""
    given: tuple[str, ...] = tuple(dict.fromkeys(values.pop("devices"))) or ("local",)
    if len(given) > 1:
        raise click.UsageError("this command takes one --device")
    return given[0]


def tune_options(values: dict[str, Any]) -> TuneOptions:
    """Takes these options out of a command's values."""
    return cast("TuneOptions", {name: values.pop(name) for name in _NAMES if name in values})
