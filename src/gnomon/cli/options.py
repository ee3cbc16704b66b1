"""Options that several commands have in common, as the Python API takes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from gnomon.cli.values import (
    RECORD,
    complete_device,
    complete_runtime,
    cores,
    dimension,
    environment,
    input_files,
    percent,
    seconds,
    shape,
    thread_counts,
)
from gnomon.errors import UsageError

if TYPE_CHECKING:
    from gnomon.api.tune import TuneOptions

Decorator = Callable[[Any], Any]

_ONE_MODEL = frozenset({"model", "--shape", "--dim", "--input", "--processes", "--budget", "--max-time"})
"""What is said of one model, and has no part where many are measured."""


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


def _one_device(context: click.Context, _: click.Parameter, names: tuple[str, ...]) -> str:
    """The only device that is given, as the callback of an option. UsageError for several."""
    if len(dict.fromkeys(names)) > 1:
        raise click.UsageError("this command takes one --device; `gnomon place` takes several", context)
    return names[0] if names else "local"


def _option(name: str, *more: str, **settings: Any) -> tuple[str, Decorator]:
    return name, click.option(name, *more, **settings)


def _device_option(name: str, **settings: Any) -> Decorator:
    return click.option(
        "--device",
        name,
        multiple=True,
        metavar="NAME",
        shell_complete=complete_device,
        help="Where it runs: local, a name of the file of devices, ssh://[user@]host[:port], adb://SERIAL, "
        "sdb://SERIAL or labgrid:PLACE.  [default: local]",
        **settings,
    )


_OPTIONS: tuple[tuple[str, Decorator], ...] = (
    ("model", click.argument("model", type=click.Path(path_type=Path))),
    _option(
        "--runtime",
        "runtimes",
        multiple=True,
        shell_complete=complete_runtime,
        metavar="NAME",
        help="Only this runtime. May be repeated.",
    ),
    _option("--backend", "backends", multiple=True, metavar="NAME", help="Only this backend. May be repeated."),
    _option(
        "--threads",
        "-n",
        type=thread_counts,
        metavar="N[,N]",
        help="Threads of a runtime; place and profile try each of several.  [default: what the device's table says, "
        "else 1; place and profile: 1, all cores, and what each runtime takes by itself; pareto: 1 and all cores]",
    ),
    ("--device", _device_option("device", callback=_one_device)),
    _option(
        "--fetch",
        is_flag=True,
        help="Let pip fetch what the device lacks from the package index, for its Python and processor.",
    ),
    _option(
        "--pin",
        type=cores,
        metavar="CORES",
        help="Measure on these cores of the device alone, such as 4-7 or 0,2.",
    ),
    _option(
        "--governor",
        metavar="NAME",
        help="Set this frequency governor while measuring; the previous one is restored.",
    ),
    _option(
        "--reconnect-timeout",
        "--wait",
        "wait_s",
        type=seconds,
        default=600.0,
        show_default=True,
        help="Seconds to wait for a device that disconnects.",
    ),
    _option(
        "--shape",
        "shapes",
        multiple=True,
        type=shape,
        callback=by_name,
        metavar="NAME=1,3,224,224",
        help="Fix the shape of an input that the file leaves open. May be repeated.",
    ),
    _option(
        "--dim",
        "dims",
        multiple=True,
        type=dimension,
        callback=by_name,
        metavar="NAME=N[,N]",
        help="Fix a dimension that the file leaves open, by its name there. place and profile answer for each of "
        "several sizes. May be repeated.",
    ),
    _option(
        "--input",
        "inputs",
        multiple=True,
        type=input_files,
        callback=by_name,
        metavar="NAME=FILE.npy",
        help="Feed an input from a file, which gives its shape too; others get random numbers. place and profile "
        "answer for each of several files (A.npy,B.npy, or a folder). May be repeated.",
    ),
    _option(
        "--precision",
        "precisions",
        multiple=True,
        metavar="NAME",
        help="Try this precision too: bfloat16, float16; float32 of a float64 model. May be repeated.",
    ),
    _option(
        "--env",
        "environments",
        multiple=True,
        type=environment,
        metavar="KEY=VALUE[,KEY=VALUE]",
        help="Try this environment beside the clean one; its outputs are checked. Repeat it for another variant.",
    ),
    _option(
        "--processes",
        type=click.IntRange(1, 1000),
        metavar="N",
        help="Fresh processes that measure each configuration.  [default: 3, and up to 6 until known within 2 %]",
    ),
    _option(
        "--budget",
        "budget_s",
        type=seconds,
        default=60.0,
        show_default=True,
        help="Seconds after which a stage starts no processes beyond the least number.",
    ),
    _option(
        "--max-time",
        "max_time_s",
        type=seconds,
        help="Seconds after which no new measurement begins: the job ends with what it has, and the same command "
        "resumes it.",
    ),
    _option(
        "--timeout",
        "timeout_s",
        type=seconds,
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
    ("record", RECORD),
    _option("--fresh", is_flag=True, help="Measure again instead of resuming an interrupted run."),
    ("--json", json_option),
    _option("--quiet", is_flag=True, help="No progress."),
)


def measuring_options(*, model: Decorator | None = None, several: bool = False) -> Decorator:
    """The model argument (or another in its place) and all options of measuring, in their order.

    A command that takes `several` devices has them as `devices`.
    """
    others = {"model": model, "--device": _device_option("devices") if several else None}
    return together(*(others.get(name) or option for name, option in _OPTIONS))


def some_options(*names: str) -> Decorator:
    """Those of the options of measuring that have these names."""
    return together(*(option for name, option in _OPTIONS if name in names))


models_shape_option = click.option(
    "--shape",
    "shapes",
    type=shape,
    multiple=True,
    callback=by_name,
    metavar="NAME=1,3,224,224",
    help="Fix the shape of a model's input.",
)
"""Of a command that reads models beside others of its arguments."""

bench_options = together(*(option for name, option in _OPTIONS if name not in _ONE_MODEL))
"""Of a command that measures many models of its own: all options but those about one model."""

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
        "--out", type=_PATH, metavar="DIR", help="Models, records and libraries.  [default: the user's own folder]"
    ),
    json_option,
    click.option("--quiet", is_flag=True, help="No progress."),
)
_NAMES = (
    *("target", "linker", "threads", "wait_s", "fetch"),
    *("processes", "repeat", "min_repeat_ms", "timeout_s", "build_timeout_s", "seed", "out"),
)


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
