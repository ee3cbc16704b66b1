"""The options of commands that measure, as the Python API takes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from gnomon.cli.values import Cores, EnvironmentValue, InputValue, Seconds, ShapeValue, Threads, complete_device

if TYPE_CHECKING:
    from gnomon.api import Options

_NAMED = {"--shape": "shapes", "--input": "inputs"}

Decorator = Callable[[Any], Any]

_ONE_MODEL = frozenset({"model", "--shape", "--input", "--processes", "--budget", "--max-time"})
"""What is said of one model, and has no part where many are measured."""


def _option(name: str, *more: str, **settings: Any) -> tuple[str, Decorator]:
    return name, click.option(name, *more, **settings)


_OPTIONS: tuple[tuple[str, Decorator], ...] = (
    ("model", click.argument("model", type=click.Path(path_type=Path))),
    _option("--runtime", "runtimes", multiple=True, metavar="NAME", help="Only this runtime. May be repeated."),
    _option("--backend", "backends", multiple=True, metavar="NAME", help="Only this backend. May be repeated."),
    _option(
        "--threads",
        "-n",
        type=Threads(),
        metavar="N[,N]",
        help="Threads of a runtime; place and profile try each of several.  [default: what the device's table says, "
        "else 1]",
    ),
    _option(
        "--device",
        "devices",
        multiple=True,
        metavar="NAME",
        shell_complete=complete_device,
        help="Where it runs: a name of the file of devices or ssh://[user@]host[:port]. place takes several, side by "
        "side.  [default: local]",
    ),
    _option(
        "--fetch",
        is_flag=True,
        help="Let pip fetch what the device lacks from the package index, for its Python and processor.",
    ),
    _option(
        "--pin",
        type=Cores(),
        metavar="CORES",
        help="Measure on these cores of the device alone, such as 4-7 or 0,2.",
    ),
    _option(
        "--governor",
        metavar="NAME",
        help="Set this frequency governor while measuring; what it was before is put back.",
    ),
    _option(
        "--wait",
        "wait_s",
        type=Seconds(),
        default=600.0,
        show_default=True,
        help="Seconds to wait for a device that vanishes.",
    ),
    _option(
        "--shape",
        "shapes",
        multiple=True,
        type=ShapeValue(),
        metavar="NAME=1,3,224,224",
        help="Fix the shape of an input that the file leaves open. May be repeated.",
    ),
    _option(
        "--input",
        "inputs",
        multiple=True,
        type=InputValue(),
        metavar="NAME=FILE.npy",
        help="Feed an input from a file; others get random numbers. May be repeated.",
    ),
    _option(
        "--precision",
        "precisions",
        multiple=True,
        metavar="NAME",
        help="Try this precision too (bfloat16, float16), where the processor has it. May be repeated.",
    ),
    _option(
        "--env",
        "environments",
        multiple=True,
        type=EnvironmentValue(),
        metavar="KEY=VALUE[,KEY=VALUE]",
        help="Try this environment beside the clean one; its outputs are checked. Repeat it for another variant.",
    ),
    _option(
        "--processes",
        type=click.IntRange(1, 1000),
        metavar="N",
        help="Fresh processes that measure each candidate.  [default: 3, and up to 6 until known within 2 %]",
    ),
    _option(
        "--budget",
        "budget_s",
        type=Seconds(),
        default=60.0,
        show_default=True,
        help="Seconds after which a stage starts no processes beyond the least number.",
    ),
    _option(
        "--max-time",
        "max_time_s",
        type=Seconds(),
        help="Seconds after which nothing more is begun: the job ends with what it knows, and goes on from there when "
        "it is started again.",
    ),
    _option(
        "--timeout",
        "timeout_s",
        type=Seconds(),
        default=60.0,
        show_default=True,
        help="Seconds without an answer after which a measured process is killed.",
    ),
    _option(
        "--seed",
        type=click.IntRange(0, 2**31 - 2),
        metavar="N",
        default=0,
        show_default=True,
        help="Seed of random inputs and orders.",
    ),
    _option(
        "--record",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The record of runs.  [default: the user's own]",
    ),
    _option("--fresh", is_flag=True, help="Measure anew where an interrupted run could go on."),
    _option("--json", "as_json", is_flag=True, help="One JSON document on the standard output."),
    _option("--quiet", is_flag=True, help="No progress."),
)


def measuring_options(command: Callable[..., Any], *, model: Decorator | None = None) -> Callable[..., Any]:
    """Give a command the model argument (or another in its place) and all options of measuring, in their order."""
    for name, option in reversed(_OPTIONS):
        command = (model if model is not None and name == "model" else option)(command)
    return command


def bench_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that measures many models of its own all options but those about one model."""
    for name, option in reversed(_OPTIONS):
        if name not in _ONE_MODEL:
            command = option(command)
    return command


def options_of(values: dict[str, Any], device: str | None = None) -> Options:
    """The options as `gnomon.api` takes them, for one device: that one, or the only one that is given.

    UsageError where an input is given twice, or several devices are given and none is named.
    """
    made = {**values, **{name: unique(option, values[name]) for option, name in _NAMED.items() if name in values}}
    given = tuple(dict.fromkeys(made.pop("devices")))
    if device is None and len(given) > 1:
        raise click.UsageError("this command takes one --device; `gnomon place` takes several")
    return cast("Options", {**made, "device": device or (given[0] if given else "local")})


def unique(option: str, pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """The values by name. UsageError for an option that gives a name twice."""
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise click.UsageError(f"{option} gives {name!r} twice")
        made[name] = value
    return made
