"""Options that several commands have in common, as the Python API takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gnomon.api.options import MeasureOptions, Options
from gnomon.cli.declared import JSON, QUIET, Declared, long_name, options_of, parameter_of
from gnomon.cli.values import (
    percent,
    seconds,
)
from gnomon.errors import UsageError

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


def measuring_options(*, model: Decorator | None = None, several: bool = False) -> Decorator:
    """The model argument (or another in its place) and all options of measuring, in their order.

    A command that takes `several` devices has them as `devices`.
    """
    declared = list(options_of(Options))
    if several:
        declared = [
            replace(one, name="devices", kind=Sequence[str]) if one.name == "device" else one for one in declared
        ]
    return together(model or _MODEL, declared_options(*declared, JSON, QUIET))


def some_options(*names: str) -> Decorator:
    """Those of the options of measuring that have these names."""
    declared = [one for one in (*options_of(Options), JSON, QUIET) if long_name(one) in names or one.name in names]
    return declared_options(*declared)


_MODEL = click.argument("model", type=click.Path(path_type=Path))
bench_options = declared_options(*options_of(MeasureOptions), JSON, QUIET)
"""Of a command that measures many models of its own: all options but those about one model."""
models_shape_option = declared_options(next(one for one in options_of(Options) if one.name == "shapes"))
"""Of a command that reads models beside others of its arguments."""

package_options = together(
    click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Where the package goes.  [default: ./MODEL.gnomon]",
    ),
    click.option("--overwrite", is_flag=True, help="Replace a package that is there already."),
)


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


_PATH = click.Path(path_type=Path)
METHODS = ("balanced", "fair", "published")
KNOWN = (*METHODS, "imported")
"""Whose accuracies a profile may hold."""
TRAINING = (
    "data",
    "method",
    "epochs",
    "networks",
    "seeds",
    "workers",
    "cluster",
    "training_device",
    "download",
)
WORKERS = click.option(
    "--workers",
    type=click.IntRange(0, 1024),
    default=0,
    metavar="N",
    help="Processes that train side by side.  [default: as many as processors]",
)


place_options = together(
    WORKERS,
    click.option("--cluster", metavar="ADDRESS", help="Train on a Dask cluster: its scheduler, tcp://HOST:PORT."),
    click.option(
        "--train-on",
        "training_device",
        type=click.Choice(["cpu", "cuda"]),
        default="cpu",
        show_default=True,
        help="The device that trains.",
    ),
    click.option("--download", type=_PATH, metavar="DIR", help="Let torchvision fetch images into this folder."),
)
"""Where, and by how many, is trained."""

training_options = together(
    click.option(
        "--data",
        metavar="SOURCE",
        help="Images to train on: digits, mnist-5k, npz:FILE, folder:DIR, idx:DIR, torchvision:NAME, "
        "huggingface:DIR or dataset:FILE.py:FUNCTION.  [default: gnomon_cfg.data of the config]",
    ),
    click.option(
        "--accuracy",
        "method",
        type=click.Choice([*METHODS, "none"]),
        default="balanced",
        show_default=True,
        help="How accuracies are obtained; none: train nothing.",
    ),
    click.option("--epochs", type=click.IntRange(1), metavar="N", help="Epochs.  [default: as the config says]"),
    click.option(
        "--networks",
        type=click.IntRange(1),
        metavar="N",
        help="Networks of each family that 'balanced' trains.  [default: as many as one-change variants]",
    ),
    click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Trainings of each."),
    place_options,
)
"""How networks are trained."""


http_options = together(
    click.option("--dpu-url", metavar="URL", help="The server that measures what a toolchain compiles."),
    click.option("--dpu-json", is_flag=True, help="Ask it for intervals too, as gnomon serve reports them."),
    click.option("--dpu-token-file", type=_PATH, metavar="FILE", help="The token that the server wants."),
    click.option("--dpu-timeout", type=seconds, default=300.0, show_default=True, help="Seconds for one model there."),
)
"""How models are measured over HTTP."""


def chosen_toolchains(values: dict[str, Any]) -> tuple[str, ...]:
    """What is measured: the named toolchains, or runtimes in float32, or ONNX Runtime."""
    given, runtimes, none = values.pop("toolchains"), values["runtimes"], values.pop("no_latency")
    if none and given:
        raise click.UsageError("--no-latency and --toolchain contradict each other")
    if none:
        return ()
    return tuple(dict.fromkeys(given or runtimes or ("onnxruntime",)))


def settings_by_toolchain(pairs: tuple[tuple[str, str], ...]) -> dict[str, dict[str, str]]:
    """The settings of each toolchain, of pairs such as ("vitis.arch", "arch.json"). UsageError for any other."""
    made: dict[str, dict[str, str]] = {}
    for name, value in pairs:
        toolchain, dot, key = name.partition(".")
        if not dot or not key:
            raise click.UsageError(f"--set {name}=..: settings are TOOLCHAIN.KEY=VALUE")
        if key in made.setdefault(toolchain, {}):
            raise click.UsageError(f"--set gives {name} twice")
        made[toolchain][key] = value
    return made


def server_of(values: dict[str, Any]) -> Any:
    """The server of --dpu-url; None without one."""
    names = ("dpu_url", "dpu_token_file", "dpu_timeout", "dpu_json")
    url, token_file, timeout_s, as_json = (values.pop(name) for name in names)
    if url is None:
        if token_file is not None:
            raise click.UsageError("--dpu-token-file needs --dpu-url")
        return None
    from gnomon.devices.http import DpuServer

    try:
        token = None if token_file is None else token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise click.UsageError(f"{token_file} cannot be read: {error.strerror}") from error
    return DpuServer(url=url, token=token, timeout_s=timeout_s, accept_json=as_json)


_COMPARING = together(
    click.option(
        "--fail-slower",
        type=percent,
        metavar="3%",
        help="Exit with 1 where a configuration is certainly slower by more than this, or is missing; with 7 where "
        "nothing could be compared.",
    ),
    click.option(
        "--relevant",
        type=percent,
        default=0.01,
        metavar="1%",
        help="Differences within this count as the same.  [default: 1%]",
    ),
    click.option(
        "--alpha",
        type=click.FloatRange(1e-6, 0.5),
        default=0.01,
        show_default=True,
        help="The largest probability that any verdict is wrong, over all that are compared at once.",
    ),
)
sessions_option = click.option(
    "--sessions",
    type=percent,
    default=0.02,
    metavar="2%",
    help="How much runs of the same model are assumed to differ (standard deviation), where the results database has "
    "fewer than five earlier ones.  [default: 2%]",
)
changed_option = click.option(
    "--changed",
    multiple=True,
    type=click.Choice(["machine", "governor", "version", "threads", "shapes", "inputs", "precision", "options"]),
    help="What was changed on purpose and is compared. May be repeated.",
)


comparing_options = together(_COMPARING, sessions_option, changed_option)
