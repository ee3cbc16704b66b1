"""`gnomon tune`, `tune list`, `exec` and `overlay` as functions: tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack, cast

from gnomon.api.options import Fetch, Model, PathLike, Shapes, names_of
from gnomon.errors import UsageError
from gnomon.measure.progress import TellOf, Watch, WatchOf
from gnomon.options import option, refuse_unknown
from gnomon.values import MOST_SEED, seconds

if TYPE_CHECKING:
    from gnomon.devices.config import DeviceConfig
    from gnomon.jobs.overlay.document import AnalyzeDocument, CollectedDocument
    from gnomon.jobs.tune.document import ExecDocument, TunedFilesDocument, TuneDocument
    from gnomon.jobs.tune.request import DeviceOptions, TuneEffort

_DEVICE = option(
    "--device",
    repeat=True,
    complete="device",
    metavar="NAME",
    help="The device: a name in the file of devices, ssh://[user@]host[:port], or tvm://HOST:PORT/KEY behind a "
    "tracker. exec takes one device.  [default: local]",
)
Logs = Annotated[Sequence[PathLike], option(metavar="LOG")]
Layers = Annotated[
    Sequence[str],
    option(
        "--layer",
        repeat=True,
        metavar="TEXT",
        help="Only this layer: its number from 0, or part of its name. May be repeated.",
    ),
]
Network = Annotated[
    PathLike | None, option("--model", metavar="FILE", help="The network's file, if tuning kept no copy.")
]
Again = Annotated[bool, option(help="Start over. Existing records are moved aside; deleting them is not enough.")]


class CareOptions(TypedDict, total=False):
    """Options for the effort of measurements, and for the folder of files."""

    fetch: Fetch
    processes: Annotated[
        int, option(least=1, most=1000, default=3, help="Fresh processes on the device for each comparison.")
    ]
    repeat: Annotated[int, option(least=1, most=10_000, default=3, help="Samples in each process.")]
    min_repeat_ms: Annotated[
        int, option(least=1, most=60_000, default=10, help="The minimum duration of a sample, in milliseconds.")
    ]
    timeout_s: Annotated[
        float, option("--timeout", read=seconds, default=60.0, help="Seconds after which an unfinished call is killed.")
    ]
    build_timeout_s: Annotated[
        float,
        option("--build-timeout", read=seconds, default=30.0, help="Processor seconds allowed for building a layer."),
    ]
    seed: Annotated[int, option(least=0, most=MOST_SEED - 1, default=0, help="Seed for searches and random orders.")]
    out: Annotated[
        PathLike | None,
        option(metavar="DIR", help="The folder of models, records and libraries.  [default: the user's own]"),
    ]


class TuneOptions(CareOptions, total=False):
    """Options for the device, the target and the effort.

    `device` is a name in the file of devices or an address: "local" (the default), "ssh://user@host", or
    "tvm://HOST:PORT/KEY" for a device behind a tracker.
    """

    device: Annotated[str, _DEVICE]
    target: Annotated[
        str | None,
        option(
            metavar="TARGET",
            help="The target to compile for: native, x86-64-v3, aarch64-cortex-a72, .., a JSON object or @FILE. "
            "Required for a device of a tracker, unless a record has the target.  [default: native]",
        ),
    ]
    linker: Annotated[
        str | None, option(metavar="COMMAND", help="The linker for the target.  [default: a suitable installed one]")
    ]
    threads: Annotated[
        int,
        option(
            least=0,
            most=1024,
            default=0,
            metavar="N",
            help="Threads of a function on the device.  [default: the number in the device's table, else all cores]",
        ),
    ]
    wait_s: Annotated[
        float,
        option("--reconnect-timeout", "--wait", read=seconds, default=60.0, help="Seconds to wait for the device."),
    ]


def tune(
    model: Model,
    *,
    devices: Annotated[Sequence[str], _DEVICE] = (),
    trials: Annotated[int, option(least=1, help="The total number of candidates to measure.")] = 512,
    strategy: Annotated[
        Literal["evolutionary", "replay-trace", "random"],
        option("--search", help="How to search for candidate schedules."),
    ] = "evolutionary",
    start: Annotated[
        bool,
        option(
            "--start/--no-start",
            help="Begin each layer with schedules made for it, and with the best ones of similar layers.  "
            "[default: start]",
        ),
    ] = True,
    per_round: Annotated[int, option(least=1, most=256, help="Candidates of a layer in each round.")] = 8,
    first_round: Annotated[
        int | None,
        option(
            least=1,
            most=256,
            metavar="N",
            help="Candidates in a layer's first round.  [default: as many as fit one round of each relevant layer]",
        ),
    ] = None,
    plateau: Annotated[
        int,
        option(
            least=0,
            metavar="ROUNDS",
            help="Stop tuning a layer that gained less than 1 % in this many rounds; 0: never.",
        ),
    ] = 4,
    budget_s: Annotated[
        float | None,
        option("--budget", read=seconds, help="End the command, including the proof, after about this time."),
    ] = None,
    layers: Layers = (),
    dtype: Annotated[Literal["float32", "float16"], option(help="The data type of the computation.")] = "float32",
    shapes: Shapes | None = None,
    fresh: Again = False,
    logs: Annotated[
        Sequence[PathLike],
        option(
            "--from",
            repeat=True,
            metavar="LOG",
            help="First try the best configurations of this record or MetaSchedule database. May be repeated.",
        ),
    ] = (),
    compare: Annotated[
        bool | None,
        option(
            "--compare/--no-compare",
            help="Also measure other runtimes, next to the tuned network.  [default: compare, except with --budget]",
        ),
    ] = None,
    on_progress: Watch | WatchOf | None = None,
    on_message: Callable[[str], None] | TellOf | None = None,
    **options: Unpack[TuneOptions],
) -> TuneDocument:
    """Tune the layers of MODEL (.onnx, .pt2, .tflite) on a device, compile it, and prove it there.

    The model is tuned for several devices one after the other. Each trial is written at once: after an interruption,
    the same command resumes.

    Raises GnomonError. With several `devices`, the result is a `TunedDocument`; `on_progress` then takes a device's
    name and returns its listener, and `on_message` is called with a name and a sentence.
    """
    from gnomon.jobs.tune import job
    from gnomon.jobs.tune.document import TunedDocument
    from gnomon.jobs.tune.request import TuneRequest, check_device

    refuse_unknown(options, TuneOptions)
    device_list = _device_options(devices, options)
    asked = TuneRequest(
        model=Path(model),
        device=device_list[0],
        effort=_care(options),
        out=_out(options),
        trials=trials,
        strategy=strategy,
        start=start,
        per_round=per_round,
        first_round=first_round,
        plateau=plateau,
        budget_s=budget_s,
        layers=names_of(layers),
        dtype=dtype,
        shapes=dict(shapes or {}),
        fresh=fresh,
        logs=tuple(map(Path, logs)),
        compare=compare,
    )
    for device in device_list[1:]:  # before hours of work on the first
        check_device(device)
    tuned = [
        job.tune(replace(asked, device=device), **to) for device, to in _reporting(device_list, on_progress, on_message)
    ]
    several = TunedDocument(tuned=tuple(tuned))
    return tuned[0] if len(tuned) == 1 else cast("TuneDocument", several)


def execute(
    source: Annotated[PathLike, option(metavar="FILE.so|FILE.json")],
    *,
    model: Network = None,
    shapes: Shapes | None = None,
    layers: Annotated[bool, option("--no-layers", off=True, help="Measure the whole network only.")] = True,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[TuneOptions],
) -> ExecDocument:
    """Measure a compiled network, or compile and measure the best configurations in a record file, and check the
    outputs.

    Raises GnomonError.
    """
    from gnomon.jobs.tune import execute as job

    refuse_unknown(options, TuneOptions)
    asked = job.ExecRequest(
        source=Path(source),
        device=_device_options((), options)[0],
        model=None if model is None else Path(model),
        shapes=dict(shapes or {}),
        layers=layers,
        effort=_care(options),
        out=_out(options),
    )
    return job.execute(asked, watch=on_progress, tell=_tell(on_message))


def tuned_files(
    out: Annotated[
        PathLike | None, option("--out", metavar="DIR", help="The folder of tuned files.  [default: the user's own]")
    ] = None,
) -> TunedFilesDocument:
    """List the files of tuning: models, records and compiled networks."""
    from gnomon.jobs.tune import folder

    return folder.view(None if out is None else Path(out))


def overlay_collect(
    logs: Logs,
    *,
    devices: Annotated[Sequence[str], _DEVICE] = (),
    best: Annotated[
        int | None, option(least=1, metavar="N", help="Only the N best configurations of each layer.  [default: all]")
    ] = None,
    layers: Layers = (),
    close: Annotated[
        bool | Mapping[str, Sequence[str]],
        option(
            help="Measure only the configurations between which the choice is undecided, in 4 times as many "
            "processes. Give all LOGs."
        ),
    ] = False,
    fresh: Again = False,
    on_progress: Watch | WatchOf | None = None,
    on_message: Callable[[str], None] | TellOf | None = None,
    **options: Unpack[TuneOptions],
) -> CollectedDocument:
    """Measure the configurations of LOGs on each --device.

    All configurations of a layer are measured side by side, in fresh processes and in random order.

    Raises GnomonError. `close` may also be the configurations of each layer, as `AnalyzeDocument.close` returns them.
    With several `devices`, `on_progress` and `on_message` are as in `tune`.
    """
    from gnomon.jobs.overlay import collect as job
    from gnomon.jobs.overlay.document import CollectedDocument

    refuse_unknown(options, TuneOptions)
    if close and (best is not None or fresh):
        raise UsageError("--close cannot be combined with --best or --fresh", hint="Leave out --best and --fresh.")
    paths, configurations = tuple(map(Path, logs)), None if isinstance(close, bool) else close
    if close is True:
        configurations = overlay_analyze(paths, layers=layers, write=False, seed=options.get("seed", 0)).close()
        layers = ()
    device_list = _device_options(devices, options) if configurations or not close else []

    def request(device: DeviceOptions) -> job.CollectRequest:
        return job.CollectRequest(
            logs=paths,
            device=device,
            best=best,
            close=configurations,
            layers=names_of(layers),
            effort=_care(options),
            out=_out(options),
            fresh=fresh,
        )

    for device in device_list[1:]:  # before hours of work on the first
        job.check_collect(request(device))
    reporting = _reporting(device_list, on_progress, on_message)
    collected = [document for device, to in reporting for document in job.collect(request(device), **to)]
    return CollectedDocument(logs=tuple(map(str, paths)), collected=tuple(collected))


def overlay_analyze(
    logs: Logs,
    *,
    layers: Layers = (),
    portfolio: Annotated[
        int | None, option(least=2, metavar="P", help="Also find the best set of P configurations per layer, exactly.")
    ] = None,
    plot: Annotated[
        PathLike | None, option(metavar="DIR", help="Draw layers and networks into this folder, as SVG and PNG.")
    ] = None,
    prove: Annotated[bool, option(help="Measure the whole network on every device with each choice.")] = False,
    write: Annotated[bool, option("--no-write", off=True, help="Only choose; write and compile nothing.")] = True,
    compile: Annotated[bool, option("--no-compile", off=True, help="Write records, compile nothing.")] = True,
    model: Network = None,
    shapes: Shapes | None = None,
    resamples: Annotated[
        int, option(least=1, most=1_000_000, metavar="N", help="Resamples for the confidence of a choice.")
    ] = 1000,
    log_devices: Annotated[
        Sequence[str],
        option(
            "--device",
            repeat=True,
            complete="device",
            metavar="NAME",
            help="A device of the logs. KEY: prefer this device if a file name is ambiguous. KEY=FILE: the file is "
            "from this device. An address or a name in the file of devices: --prove measures there. May be repeated.",
        ),
    ] = (),
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[CareOptions],
) -> AnalyzeDocument:
    """Choose for each layer the configuration with the least sum of relative regrets over the devices of LOGs (M).

    If a log does not name its device, the device follows from the file name, <device>_<tuned on>.<model>.., and from
    the content; --device decides if these are ambiguous. --prove measures on devices with these names, or on those that
    --device names. The exit code is 4 if no layer could be decided.

    Raises GnomonError.
    """
    from gnomon.devices.opening import is_place
    from gnomon.jobs.overlay import deploy, job

    refuse_unknown(options, CareOptions)
    if prove and not write:
        raise UsageError("--prove cannot be combined with --no-write", hint="Leave out --no-write.")
    paths, names = tuple(map(Path, logs)), names_of(log_devices)
    analysis = job.analyze(
        paths,
        layers=names_of(layers),
        portfolio=portfolio or 0,
        resamples=resamples,
        seed=options.get("seed", 0),
        names=job.named_devices(names, paths),
        watch=on_progress,
    )
    document = analysis.document
    if write and analysis.chosen():
        asked = deploy.DeployRequest(
            compile=compile,
            prove=prove,
            devices=tuple(_config(name, options) for name in names if is_place(name)),
            model=None if model is None else Path(model),
            shapes=dict(shapes or {}),
            effort=_care(options),
            out=_out(options),
        )
        document = deploy.deploy(analysis, asked, watch=on_progress, tell=_tell(on_message))
    if plot is not None:
        from gnomon.api.pictures import draw_overlay

        document = replace(document, pictures=tuple(draw_overlay(document, Path(plot), on_message)))
    return document


def _tell(on_message: Any) -> Callable[[str], None]:
    tell: Callable[[str], None] = on_message or (lambda sentence: None)
    return tell


def _reporting(
    device_list: Sequence[DeviceOptions], on_progress: Any, on_message: Any
) -> Iterator[tuple[DeviceOptions, dict[str, Any]]]:
    """Each device with the listeners of its job, which get the device's name if there are several devices."""
    for device in device_list:
        watch, tell, name = on_progress, on_message, device.config.name
        if len(device_list) > 1:
            watch, tell = on_progress and on_progress(name), on_message and partial(on_message, name)
        yield device, {"watch": watch, "tell": _tell(tell)}


def _device_options(devices: Sequence[str], options: TuneOptions) -> list[DeviceOptions]:
    """The devices, each once: `devices`, or the device of the options."""
    from gnomon.jobs.tune.request import DeviceOptions

    names = dict.fromkeys(names_of(devices)) or [options.get("device", "local")]
    how: dict[str, Any] = {key: options[key] for key in ("target", "linker", "threads", "wait_s") if key in options}
    return [DeviceOptions(config=_config(name, options), **how) for name in names]


def _config(name: str, options: CareOptions) -> DeviceConfig:
    from gnomon.devices.opening import resolve

    config = resolve(name)
    return replace(config, fetch=True) if options.get("fetch") else config


def _care(options: CareOptions) -> TuneEffort:
    from gnomon.jobs.tune.request import TuneEffort

    names = ("processes", "repeat", "min_repeat_ms", "timeout_s", "build_timeout_s", "seed")
    return TuneEffort(**{name: options[name] for name in names if name in options})  # type: ignore[literal-required]


def _out(options: CareOptions) -> Path | None:
    given = options.get("out")
    return None if given is None else Path(given)
