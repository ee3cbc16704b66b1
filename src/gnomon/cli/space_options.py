"""The options of `gnomon space profile`, and what they mean together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gnomon.cli.values import Seconds

_PATH = click.Path(path_type=Path)
METHODS = ("balanced", "fair", "halving", "published")
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


_PLACES = (
    WORKERS,
    click.option("--cluster", metavar="ADDRESS", help="Train on a Dask cluster: its scheduler, tcp://HOST:PORT."),
    click.option(
        "--train-on",
        "training_device",
        type=click.Choice(["cpu", "cuda"]),
        default="cpu",
        show_default=True,
        help="What trains.",
    ),
    click.option("--download", type=_PATH, metavar="DIR", help="Let torchvision fetch images into this folder."),
)
"""Where, and by how many, is trained."""


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where, and by how many, is trained."""
    for option in reversed(_PLACES):
        command = option(command)
    return command


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of training."""
    options = (
        click.option(
            "--data",
            metavar="SOURCE",
            help="Images to train on: digits, mnist-5k, npz:FILE, folder:DIR, idx:DIR or torchvision:NAME.  "
            "[default: gnomon_cfg.data of the config]",
        ),
        click.option(
            "--accuracy",
            "method",
            type=click.Choice([*METHODS, "none"]),
            default="balanced",
            show_default=True,
            help="How accuracies are got; none trains nothing.",
        ),
        click.option("--epochs", type=click.IntRange(1), metavar="N", help="Epochs.  [default: as the config says]"),
        click.option(
            "--networks",
            type=click.IntRange(1),
            metavar="N",
            help="Networks of each family that 'balanced' trains.  [default: as many as single swaps]",
        ),
        click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Trainings of each."),
        *_PLACES,
    )
    for option in reversed(options):
        command = option(command)
    return command


def http_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of measuring over HTTP."""
    options = (
        click.option("--dpu-url", metavar="URL", help="The server that measures what a toolchain compiles."),
        click.option("--dpu-json", is_flag=True, help="Ask it for intervals too, as gnomon serve tells them."),
        click.option("--dpu-token-file", type=_PATH, metavar="FILE", help="The token that the server wants."),
        click.option(
            "--dpu-timeout", type=Seconds(), default=300.0, show_default=True, help="Seconds for one model there."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


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
    from gnomon.devices.dpu_http import DpuServer

    try:
        token = None if token_file is None else token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise click.UsageError(f"{token_file} cannot be read: {error.strerror}") from error
    return DpuServer(url=url, token=token, timeout_s=timeout_s, accept_json=as_json)
