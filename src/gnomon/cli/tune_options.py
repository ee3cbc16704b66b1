"""The options that the commands of tuning have in common."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from gnomon.cli.values import Seconds, ShapeValue

if TYPE_CHECKING:
    from gnomon.api_tuning import TuneOptions

_PATH = click.Path(path_type=Path)

_DEVICE = (
    click.option("--key", metavar="KEY", help="The device: the key of its server at the tracker."),
    click.option(
        "--tracker",
        metavar="HOST:PORT",
        help="The tracker of TVM's RPC servers.  [default: TVM_TRACKER_HOST and _PORT where they are set, else none: "
        "this machine is measured]",
    ),
    click.option(
        "--target",
        metavar="TARGET",
        help="What is compiled for: native, x86-64-v3, aarch64-cortex-a72, .., a JSON object or @FILE. Needed for a "
        "device of a tracker, unless a record says it.  [default: native here]",
    ),
    click.option(
        "--linker", metavar="COMMAND", help="What links for the target.  [default: what fits it and is installed]"
    ),
    click.option(
        "--threads",
        type=click.IntRange(0, 1024),
        default=0,
        metavar="N",
        help="Threads of a function there.  [default: as its server has, or all cores here]",
    ),
    click.option(
        "--wait", "wait_s", type=Seconds(), default=60.0, show_default=True, help="Seconds to wait for the device."
    ),
)
_CARE = (
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
        type=Seconds(),
        default=60.0,
        show_default=True,
        help="Seconds after which a call that does not return is ended.",
    ),
    click.option(
        "--build-timeout",
        "build_timeout_s",
        type=Seconds(),
        default=30.0,
        show_default=True,
        help="Seconds after which a build of one layer is ended.",
    ),
    click.option(
        "--seed", type=click.IntRange(0, 2**31 - 2), default=0, show_default=True, help="Seed of searches and orders."
    ),
)
_COMMON = (
    click.option(
        "--out", type=_PATH, metavar="DIR", help="Models, records and libraries.  [default: the user's own folder]"
    ),
    click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output."),
    click.option("--quiet", is_flag=True, help="No progress."),
)
_NAMES = (
    *("key", "tracker", "target", "linker", "threads", "wait_s"),
    *("processes", "repeat", "min_repeat_ms", "timeout_s", "build_timeout_s", "seed", "out"),
)


shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=ShapeValue(),
    metavar="NAME=1,3,224,224",
    help="Fix the shape of an input that the file leaves open. May be repeated.",
)


def device_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of which device is meant, how it is measured, and where files go."""
    for option in reversed((*_DEVICE, *_CARE, *_COMMON)):
        command = option(command)
    return command


def proof_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of measuring on devices that records describe."""
    for option in reversed((_DEVICE[1], *_CARE, *_COMMON)):
        command = option(command)
    return command


def tune_options(values: dict[str, Any]) -> TuneOptions:
    """Takes these options out of a command's values."""
    made = {name: values.pop(name) for name in _NAMES if name in values}
    if not made.get("tracker") and os.environ.get("TVM_TRACKER_HOST") and made.get("key") != "local":
        made["tracker"] = ""  # its host and port are in the environment
    return cast("TuneOptions", made)
