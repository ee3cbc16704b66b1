"""The options that several functions share, with their names on the command line, and the requests made from them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, cast

from gnomon.errors import UsageError
from gnomon.options import Option, option, refuse_unknown
from gnomon.store.address import RecordLike, record_address
from gnomon.values import (
    MOST_SEED,
    SHORT_NAMES,
    WAIT_S,
    cores,
    dimension,
    environment,
    file,
    folder,
    input_files,
    quantity,
    runtime_options,
    seconds,
    shape,
    thread_counts,
)

if TYPE_CHECKING:
    from gnomon.devices.config import DeviceConfig
    from gnomon.runtimes.declared import Declaration
    from gnomon.session.request import MeasureRequest, ModelRequest

PathLike = str | os.PathLike[str]

Model = Annotated[PathLike, option(metavar="MODEL")]
Record = Annotated[
    RecordLike | None,
    option(
        read=record_address,
        metavar="FILE|URL",
        help="The results database: a file, or postgresql://USER@HOST/DATABASE.  [default: the user's own]",
    ),
]
Shapes = Annotated[
    Mapping[str, Sequence[int]],
    option(
        "--shape",
        repeat=True,
        read=shape,
        metavar="NAME=1,3,224,224",
        help="Fix the shape of an input. May be repeated.",
    ),
]
Space = Annotated[
    str | None,
    option("--space", complete="space", metavar="SPACE", help="The space, if the given file does not name it."),
]
Package = Annotated[
    PathLike | None,
    option(
        "--out",
        read=folder,
        metavar="DIR",
        unsaid=lambda given: package_path(given["model"]) if given["model"] and given.get("package", True) else None,
        help="The folder of the package.  [default: ./MODEL.gnomon]",
    ),
]
Overwrite = Annotated[bool, option(help="Replace existing files.")]
OldRecords = Annotated[
    bool,
    option("--no-profile", off=True, help="Measure nothing; decide from earlier runs of this model on this device."),
]

Runtimes = Annotated[
    Sequence[str],
    option("--runtime", repeat=True, complete="runtime", metavar="NAME", help="Only this runtime. May be repeated."),
]
Backends = Annotated[
    Sequence[str], option("--backend", repeat=True, metavar="NAME", help="Only this backend. May be repeated.")
]
SessionOptions = Annotated[
    Sequence[Mapping[str, str]],
    option(
        "--option",
        repeat=True,
        read=runtime_options,
        metavar="RUNTIME:KEY=VALUE",
        help="Also try a runtime's sessions with this option, or with several (,KEY=VALUE); the outputs are checked. "
        "RUNTIME:library=FILE always loads a library of operators, which is code. May be repeated.",
    ),
]


def limit(text: str) -> tuple[str, str]:
    """The name of a limit, and its value, still as text because the unit depends on the name."""
    name, sign, most = (part.strip() for part in text.rpartition("="))
    if not sign or not name:
        raise ValueError(f"{text!r} is not a limit: give NAME=4GB or NAME:CHOICE=4GB")
    quantity(most)
    return name, most


Under = Annotated[
    Mapping[str, float | str],
    option(
        "--under",
        repeat=True,
        read=limit,
        metavar="NAME[:CHOICE]=4GB",
        help="A limit, such as memory:gpu=4GB, switches=6 or operators:npu=20. May be repeated.",
    ),
]
Memory = Annotated[
    Mapping[str, float | str],
    option("--memory", repeat=True, read=limit, metavar="CHOICE=4GB", help="The same as --under memory:CHOICE=4GB."),
]


def limits_of(under: Mapping[str, float | str], memory: Mapping[str, float | str]) -> dict[str, float | str]:
    """All limits, by their names in `--under`."""
    return {**under, **{f"memory:{choice}": most for choice, most in memory.items()}}


Fetch = Annotated[
    bool,
    option(help="Let pip fetch packages that the device lacks from the package index.", default=False),
]
Pin = Annotated[
    Sequence[int],
    option(read=cores, metavar="CORES", help="Measure only on these cores of the device, such as 4-7 or 0,2."),
]

Fresh = Annotated[bool, option(help="Measure again instead of resuming an interrupted run.", default=False)]
Processes = Annotated[
    int | None,
    option(
        least=1,
        most=1000,
        metavar="N",
        help="Fresh processes that measure each configuration.  [default: 3, or up to 6 until the median is known "
        "within 2 %]",
    ),
]
Budget = Annotated[
    float,
    option(
        "--budget",
        read=seconds,
        default=60.0,
        help="Seconds after which a stage starts only its minimum number of processes.",
    ),
]


def device_option(more: str = "") -> Option:
    """The option --device; `more` is added to its help."""
    where = "local, a name in `gnomon devices`, ssh://[user@]host[:port], adb://SERIAL, sdb://SERIAL or labgrid:PLACE"
    help_text = f"The device: {where}.{more}  [default: local]"
    return option("--device", repeat=True, complete="device", metavar="NAME", help=help_text)


DeviceName = Annotated[str, device_option()]


Timeout = Annotated[
    float,
    option(
        "--timeout",
        read=seconds,
        default=60.0,
        help="Seconds without an answer after which a measured process is killed.",
    ),
]


class CommandOptions(TypedDict, total=False):
    """Options for measuring programs, and for reading their times."""

    commands: Annotated[
        Sequence[str],
        option(
            "--command",
            repeat=True,
            metavar="NAME|LINE",
            help="Also measure this command: one that `gnomon commands` lists, or a command line that contains "
            "{model}. May be repeated.",
        ),
    ]
    read: Annotated[
        Sequence[str],
        option(
            "--read",
            repeat=True,
            metavar="WHERE",
            help="Where the output of --command has the times: json:PATH, csv:COLUMN, or a regular expression with a "
            "group named ms, us, ns, s or fps.  [default: the wall time of its process]",
        ),
    ]
    commands_file: Annotated[
        PathLike | None,
        option("--config", read=file, metavar="FILE", help="A TOML file that declares commands."),
    ]


class CommonOptions(CommandOptions, total=False):
    """Options for measuring. Device settings that no option gives come from the file of devices."""

    runtimes: Runtimes
    backends: Backends
    threads: Annotated[
        int | Sequence[int] | Literal["all"] | None,
        option(
            "--threads",
            "-n",
            read=thread_counts,
            metavar="N[,N]",
            help="Threads of a runtime. place and profile try each of several numbers; `all` means 1, 2, 4 .. and all "
            "cores.  [default: the device's number, else 1; place, profile and pareto: 1 and all cores]",
        ),
    ]
    device: DeviceName
    fetch: Fetch
    pin: Pin
    governor: Annotated[
        str | None,
        option(metavar="NAME", help="Set this frequency governor while measuring; the previous one is restored."),
    ]
    wait_s: Annotated[
        float,
        option(
            "--reconnect-timeout",
            "--wait",
            read=seconds,
            default=WAIT_S,
            help="Seconds to wait for a device that disconnects.",
        ),
    ]
    precisions: Annotated[
        Sequence[str],
        option(
            "--precision",
            repeat=True,
            metavar="NAME",
            help="Also try bfloat16 or float16, or float32 for a float64 model. May be repeated.",
        ),
    ]
    environments: Annotated[
        Sequence[Mapping[str, str]],
        option(
            "--env",
            repeat=True,
            read=environment,
            metavar="KEY=VALUE[,KEY=VALUE]",
            help="Also try these environment variables; the outputs are checked. Repeat the option for other values.",
        ),
    ]
    options: SessionOptions
    timeout_s: Timeout
    seed: Annotated[
        int, option(least=0, most=MOST_SEED - 1, metavar="N", default=0, help="Seed for random inputs and orders.")
    ]
    record: Record
    fresh: Fresh


class MeasureOptions(CommonOptions, total=False):
    """Options for measuring many models. The commands do not offer `processes` or `budget_s`, the effort for each
    model.
    """

    processes: int | None
    budget_s: float


class ShapeOptions(TypedDict, total=False):
    """Options that fix the open shapes of a model, and its signature."""

    shapes: Shapes
    dims: Annotated[
        Mapping[str, int | Sequence[int]],
        option(
            "--dim",
            repeat=True,
            read=dimension,
            metavar="NAME=N[,N]",
            help="Fix a dimension that the file leaves open. place and profile answer for each of several sizes. "
            "May be repeated.",
        ),
    ]
    signature: Annotated[
        str,
        option(
            "--signature",
            metavar="NAME",
            help="Run this signature of a TFLite or Circle file.  [default: the file's first subgraph]",
        ),
    ]


class ModelOptions(CommonOptions, ShapeOptions, total=False):
    """Options for measuring one model: `CommonOptions`, shapes and inputs.

    Only `place` and `profile` take several values of `threads`, `dims` and `inputs`. Each number of threads is a
    separate configuration. Each size of a dimension, and each file of an input (in a list or a folder), has a separate
    answer in a `SweepDocument`.
    """

    inputs: Annotated[
        Mapping[str, PathLike | Sequence[PathLike]],
        option(
            "--input",
            repeat=True,
            read=input_files,
            metavar="NAME=FILE.npy",
            help="Feed this file, which also fixes the shape; other inputs are random. place and profile answer for "
            "each of several files (A.npy,B.npy, or a folder). May be repeated.",
        ),
    ]


class WhereOptions(ShapeOptions, total=False):
    """Options for loading a model on a device."""

    device: DeviceName
    runtimes: Runtimes
    backends: Backends
    options: SessionOptions
    fetch: Fetch
    timeout_s: Timeout


class Options(ModelOptions, total=False):
    """Options for measuring one model, and for the time that this may take.

    Only `place`, `profile` and `pareto` take `max_time_s`, which does not include the wait for the device.
    """

    processes: Processes
    budget_s: Budget
    max_time_s: Annotated[
        float | None,
        option(
            "--max-time",
            read=seconds,
            help="Start no measurement after this many seconds. The answer uses the results so far, and the same "
            "command resumes.",
        ),
    ]
    quick: Annotated[bool, option(help="Compare only whole models: no operator times or mixes.")]


def measure_request(options: MeasureOptions) -> MeasureRequest:
    """The request for these options. UsageError for an unknown option, or a number that is out of range."""
    from gnomon.session.request import MeasureRequest

    _check(options, MeasureOptions)
    return MeasureRequest(**_measuring(options))


def model_request(
    model: PathLike,
    options: Options,
    *,
    measure: bool = True,
    sweeps: bool = False,
    usual: bool = False,
    limited: bool = False,
    under: Mapping[str, float | str] = MappingProxyType({}),
) -> ModelRequest:
    """The request for a model with these options; `under` are limits of a placement, as `limits_of` returns them.

    `sweeps` is True if the job takes several numbers of threads, `limited` if it takes `max_time_s`. If no number of
    threads is given, a `usual` request tries one thread, all cores, and each runtime's own default; other requests use
    one thread.

    UsageError for an unknown option, or a number that is out of range.
    """
    from gnomon.session.request import ModelRequest

    _check(options, Options)
    if options.get("max_time_s") is not None and not limited:
        raise UsageError("only place, profile and pareto take max_time_s (--max-time)", hint="Leave it out.")
    if options.get("quick") and not sweeps:
        raise UsageError("only place and profile take --quick", hint="Leave out --quick.")
    (_, options), *more = parts_of(options)
    if more:
        raise UsageError(
            "only place and profile on one device take several sizes of a dimension or several files of an input",
            hint="Give one size of each dimension, and one file for each input.",
        )
    return ModelRequest(
        model=Path(model),
        shapes={name: tuple(shape) for name, shape in options.get("shapes", {}).items()},
        dims=cast("dict[str, int]", options["dims"]),
        signature=options.get("signature", ""),
        feeds=cast("dict[str, Path]", options["inputs"]),
        measure=measure,
        max_time_s=options.get("max_time_s"),
        quick=options.get("quick", False),
        under=dict(under),
        **_measuring(options, sweeps=sweeps, usual=usual),
    )


def _check(options: Mapping[str, object], record: type[Any]) -> None:
    """UsageError for an unknown option, or for a number that is not positive and finite."""
    refuse_unknown(options, record)
    for name in ("threads", "processes", "budget_s", "timeout_s", "wait_s", "max_time_s"):
        value = options.get(name)
        if isinstance(value, int | float) and not 0 < value < math.inf:
            raise UsageError(f"{name} cannot be {value}", hint="Give a finite number above 0.")


def _measuring(options: MeasureOptions, *, sweeps: bool = False, usual: bool = False) -> dict[str, Any]:
    """The fields of a `MeasureRequest` for these options, by name."""
    from gnomon.measure.effort import Effort
    from gnomon.runtimes.base import RunSettings

    threads = _threads_of(options.get("threads"), sweeps=sweeps)
    effort: dict[str, Any] = {name: options[name] for name in ("budget_s", "timeout_s") if name in options}
    processes = options.get("processes")
    if processes is not None:
        effort |= {"processes_least": processes, "processes_most": processes}
    device = _device_of(options)
    return {
        "device": device,
        "runtimes": tuple(SHORT_NAMES.get(n.lower(), n) for n in names_of(options.get("runtimes") or device.runtimes)),
        "settings": RunSettings(
            threads=threads[0] if threads else device.threads or 1,
            more_threads=threads[1:],
            every=options.get("threads") == "all",
            usual=usual and not threads and device.threads is None,
            by_itself="too" if usual else "",
            backends=names_of(options.get("backends", ())),
            precisions=names_of(options.get("precisions", ())),
            environments=tuple(dict(e) for e in options.get("environments", ())),
            commands=commands_of(options),
            **_sessions(options.get("options", ())),
        ),
        "effort": Effort(**effort),
        "seed": options.get("seed", 0),
        "record": record_address(options.get("record")),
        "fresh": options.get("fresh", False),
        "wait_s": options.get("wait_s", WAIT_S),
    }


def names_of(given: Sequence[str]) -> tuple[str, ...]:
    """The given names as a tuple; a single text is a single name."""
    return (given,) if isinstance(given, str) else tuple(given)


def commands_of(options: CommandOptions, *, model: bool = True) -> tuple[Declaration, ...]:
    """The declarations of the measured commands; `model` is False if they take no model. UsageError."""
    given, read, config = options.get("commands", ()), options.get("read", ()), options.get("commands_file")
    if not given:
        if read or config:
            raise UsageError("--read and --config need --command", hint="Also give --command NAME, or --command LINE.")
        return ()
    from gnomon.runtimes.declared import chosen_commands

    return chosen_commands(names_of(given), names_of(read), None if config is None else Path(config), model=model)


def _sessions(given: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The fields of a `RunSettings` for session options. UsageError for an invalid option or an unreadable file."""
    from gnomon.system.files import file_digest

    sets: list[tuple[str, Mapping[str, str]]] = []
    libraries: dict[str, dict[str, str]] = {}
    for requested in given:
        own: dict[str, dict[str, str]] = {}
        for name, value in requested.items():
            runtime, _, key = name.rpartition(":")
            is_option = bool(runtime and key) and isinstance(value, str)
            if not is_option or (key == "library" and not (Path(value).is_file() and os.access(value, os.R_OK))):
                raise UsageError(
                    f"the option {name!r} cannot be {value!r}", hint="Give RUNTIME:KEY=VALUE, or RUNTIME:library=FILE."
                )
            if key == "library":
                libraries.setdefault(runtime, {})[str(Path(value).absolute())] = file_digest(Path(value))
            else:
                own.setdefault(runtime, {})[key] = value
        sets += own.items()
    return {"options": tuple(sets), "libraries": libraries}


def parts_of(options: Options) -> list[tuple[dict[str, str], Options]]:
    """For each combination of dimension sizes and input files: the values that differ, and the options.

    The files of several inputs are matched in order. UsageError if inputs have different numbers of files.
    """
    dims = {name: (size,) if isinstance(size, int) else (*size,) for name, size in options.get("dims", {}).items()}
    for name, sizes in dims.items():
        if not sizes or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in sizes):
            raise UsageError(f"the dimension {name!r} cannot be {sizes}", hint="Give whole numbers of at least 0.")
    files = {name: _files(name, given) for name, given in options.get("inputs", {}).items()}
    counts = {len(paths) for paths in files.values()} - {1}
    if len(counts) > 1:
        lengths = ", ".join(f"{name} {len(paths)}" for name, paths in files.items())
        raise UsageError(
            f"the inputs have different numbers of files: {lengths}",
            hint="Give each input one file, or all inputs the same number of files.",
        )
    parts: list[tuple[dict[str, str], Options]] = []
    for sizes in product(*dims.values()):
        for number in range(max(counts, default=1)):
            chosen = dict(zip(dims, sizes, strict=True))
            fed = {name: paths[number % len(paths)] for name, paths in files.items()}
            values = {name: str(size) for name, size in chosen.items() if len(dims[name]) > 1}
            values |= {name: path.name for name, path in fed.items() if len(files[name]) > 1}
            parts.append((values, {**options, "dims": chosen, "inputs": fed}))
    return parts


def _files(name: str, given: PathLike | Sequence[PathLike]) -> list[Path]:
    """The files of an input; a folder stands for its .npy files, in the order of their names."""
    paths = map(Path, [given] if isinstance(given, str | os.PathLike) else given)
    npy_files = [file for path in paths for file in (sorted(path.glob("*.npy")) if path.is_dir() else [path])]
    if not npy_files:
        raise UsageError(f"--input {name}: there is no .npy file", hint="Give .npy files, or a folder with .npy files.")
    return npy_files


def _threads_of(given: int | Sequence[int] | Literal["all"] | None, *, sweeps: bool) -> tuple[int, ...]:
    """The numbers of threads, each once; empty if none is given, and (1,) for "all", which depends on the device."""
    if given == "all" and sweeps:
        return (1,)
    several = () if given is None else (given,) if isinstance(given, int) else given
    counts: tuple[Any, ...] = tuple(dict.fromkeys(several))
    wrong = next((n for n in counts if isinstance(n, bool) or not isinstance(n, int) or n < 1), None)
    if wrong is not None or (given is not None and not counts):
        raise UsageError(f"threads cannot be {given!r}", hint="Give one or several whole numbers above 0.")
    if len(counts) > 1 and not sweeps:
        raise UsageError(
            f"only place and profile take several numbers of threads ({', '.join(map(str, counts))})",
            hint="Give one number. `gnomon pareto` chooses among several with --tuning threads=1,2.",
        )
    return counts


def _device_of(options: MeasureOptions) -> DeviceConfig:
    """The device that the options name; settings in the options replace those in the device's table."""
    from gnomon.devices.address import LOCAL
    from gnomon.devices.opening import resolve

    device = resolve(options.get("device") or LOCAL)
    return replace(
        device,
        fetch=options.get("fetch") or device.fetch,
        pin=tuple(options.get("pin") or device.pin),
        governor=options.get("governor") or device.governor,
    )


def package_path(model: PathLike) -> Path:
    """The default folder of a model's package: ./MODEL.gnomon."""
    return Path(f"{Path(model).absolute().stem}.gnomon")


def skipped(sentences: Iterable[str], on_message: Callable[[str], None] | None) -> None:
    """Report what was left out."""
    if on_message is not None:
        for sentence in sentences:
            on_message(f"skipped: {sentence}")
