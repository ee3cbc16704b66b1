"""How to measure: the options that functions have in common, by the names of the command line, and their requests."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, TypedDict, cast

from gnomon.devices.address import LOCAL
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import resolve
from gnomon.errors import UsageError
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import Wish
from gnomon.session.request import WAIT_S, MeasureRequest, ModelRequest
from gnomon.store.address import RecordLike, record_address

PathLike = str | os.PathLike[str]


class MeasureOptions(TypedDict, total=False):
    """Where and with what to measure: the options of the command line, in the plural where they may be repeated.

    `processes` is how many fresh processes measure each candidate (default: 3, and up to 6 until it is known within
    2 %). After `budget_s` a stage starts none beyond the least number; a process that does not answer within
    `timeout_s` is killed. `record` is the results database (default: the user's own).
    `device` is an address or a name of the file of devices (default: this machine), whose settings there hold where
    an option is not given; `fetch` lets pip bring packages that it lacks, `pin` and `governor` hold while something is
    measured, and it may stay away for `wait_s` when it vanishes.
    """

    runtimes: Sequence[str]
    backends: Sequence[str]
    threads: int | Sequence[int] | None
    precisions: Sequence[str]
    environments: Sequence[Mapping[str, str]]
    processes: int | None
    budget_s: float
    timeout_s: float
    seed: int
    record: RecordLike | None
    fresh: bool
    device: str
    fetch: bool
    wait_s: float
    pin: Sequence[int]
    governor: str | None


class Options(MeasureOptions, total=False):
    """How to measure one model: `MeasureOptions`, its inputs, and the time for all.

    Each of several `threads` is a configuration of its own, for `place` and `profile` alone; without any these try one
    thread, all usable cores, and what each runtime takes by itself; `pareto` one thread and all usable cores. For place
    and profile several sizes of a dimension in `dims`, and several files of an input or a folder of them, give an
    answer each: a `Sweep`. After `max_time_s` of `place`, `profile` or `pareto` no new measurement begins, and the job
    ends with what it knows; the time that it waited for the device does not count.
    """

    shapes: Mapping[str, Sequence[int]]
    dims: Mapping[str, int | Sequence[int]]
    inputs: Mapping[str, PathLike | Sequence[PathLike]]
    max_time_s: float | None


def measure_request(options: MeasureOptions) -> MeasureRequest:
    """The request that the options mean. UsageError for an unknown option, or a number out of its range."""
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
) -> ModelRequest:
    """The request that the options mean for a model; `sweeps` says that the job takes several numbers of threads, and
    `limited` that it heeds `max_time_s`.

    Without a number of threads a `usual` one tries one, all cores, and each runtime's own default; others take one.

    UsageError for an unknown option, or a number out of its range.
    """
    _check(options, Options)
    if options.get("max_time_s") is not None and not limited:
        raise UsageError("max_time_s is for place, profile and pareto alone", hint="Leave it out here.")
    (_, options), *more = parts_of(options)
    if more:
        raise UsageError(
            "several sizes of a dimension, or files of an input, are for place and profile on one device alone",
            hint="Give one of each.",
        )
    return ModelRequest(
        model=Path(model),
        shapes={name: tuple(shape) for name, shape in options.get("shapes", {}).items()},
        dims=cast("dict[str, int]", options["dims"]),
        feeds=cast("dict[str, Path]", options["inputs"]),
        measure=measure,
        max_time_s=options.get("max_time_s"),
        **_measuring(options, sweeps=sweeps, usual=usual),
    )


def _check(options: Mapping[str, Any], known: type[Any]) -> None:
    """UsageError for an unknown option, and for a number of one that is not above 0 and finite."""
    unknown = sorted(options.keys() - known.__annotations__.keys())
    if unknown:
        raise UsageError(f"there is no option {unknown[0]!r}", hint=f"Options: {', '.join(known.__annotations__)}.")
    for name in ("threads", "processes", "budget_s", "timeout_s", "wait_s", "max_time_s"):
        value = options.get(name)
        if isinstance(value, int | float) and not 0 < value < math.inf:
            raise UsageError(f"{name} is {value}", hint="Give a finite number above 0.")


def _measuring(options: MeasureOptions, *, sweeps: bool = False, usual: bool = False) -> dict[str, Any]:
    """The fields of a `MeasureRequest`."""
    threads = _threads_of(options.get("threads"), sweeps=sweeps)
    effort: dict[str, Any] = {name: options[name] for name in ("budget_s", "timeout_s") if name in options}
    processes = options.get("processes")
    if processes is not None:
        effort |= {"processes_least": processes, "processes_most": processes}
    device = _device_of(options)
    return {
        "device": device,
        "runtimes": tuple(options.get("runtimes") or device.runtimes),
        "wish": Wish(
            threads=threads[0] if threads else device.threads or 1,
            more_threads=threads[1:],
            usual=usual and not threads and device.threads is None,
            backends=tuple(options.get("backends", ())),
            precisions=tuple(options.get("precisions", ())),
            environments=tuple(dict(e) for e in options.get("environments", ())),
        ),
        "effort": Effort(**effort),
        "seed": options.get("seed", 0),
        "record": record_address(options.get("record")),
        "fresh": options.get("fresh", False),
        "wait_s": options.get("wait_s", WAIT_S),
    }


def parts_of(options: Options) -> list[tuple[dict[str, str], Options]]:
    """The options of each combination of several sizes of dimensions and files of inputs, with what it is told by.

    Files of several inputs belong together in their order. UsageError where their numbers differ.
    """
    dims = {name: (size,) if isinstance(size, int) else (*size,) for name, size in options.get("dims", {}).items()}
    for name, sizes in dims.items():
        if not sizes or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in sizes):
            raise UsageError(f"the dimension {name!r} cannot be {sizes}", hint="Give whole numbers from 0 on.")
    files = {name: _files(name, given) for name, given in options.get("inputs", {}).items()}
    counts = {len(paths) for paths in files.values()} - {1}
    if len(counts) > 1:
        told = ", ".join(f"{name} {len(paths)}" for name, paths in files.items())
        raise UsageError(f"inputs have unlike numbers of files: {told}", hint="Give one of each, or as many of each.")
    made: list[tuple[dict[str, str], Options]] = []
    for sizes in product(*dims.values()):
        for number in range(max(counts, default=1)):
            one = dict(zip(dims, sizes, strict=True))
            fed = {name: paths[number % len(paths)] for name, paths in files.items()}
            values = {name: str(size) for name, size in one.items() if len(dims[name]) > 1}
            values |= {name: path.name for name, path in fed.items() if len(files[name]) > 1}
            made.append((values, {**options, "dims": one, "inputs": fed}))
    return made


def _files(name: str, given: PathLike | Sequence[PathLike]) -> list[Path]:
    """The files of an input; of a folder all that end in .npy, in the order of their names."""
    paths = map(Path, [given] if isinstance(given, str | os.PathLike) else given)
    found = [file for path in paths for file in (sorted(path.glob("*.npy")) if path.is_dir() else [path])]
    if not found:
        raise UsageError(f"--input {name}: no .npy file is given, or in that folder", hint="Give a .npy file.")
    return found


def _threads_of(given: int | Sequence[int] | None, *, sweeps: bool) -> tuple[int, ...]:
    """The numbers of threads, each once; none where none is given."""
    counts = () if given is None else (given,) if isinstance(given, int) else tuple(dict.fromkeys(given))
    wrong = next((n for n in counts if isinstance(n, bool) or not isinstance(n, int) or n < 1), None)
    if wrong is not None or (given is not None and not counts):
        raise UsageError(f"threads is {given!r}", hint="Give a whole number above 0, or several.")
    if len(counts) > 1 and not sweeps:
        raise UsageError(
            f"several numbers of threads ({', '.join(map(str, counts))}) are for place and profile alone",
            hint="Give one. `gnomon pareto` chooses among several with --option threads=1,2.",
        )
    return counts


def _device_of(options: MeasureOptions) -> DeviceConfig:
    """The device that is meant, with what the options say of it in place of what its table says."""
    device = resolve(options.get("device") or LOCAL)
    settings: dict[str, Any] = {
        "fetch": options.get("fetch"),
        "pin": tuple(options.get("pin") or ()),
        "governor": options.get("governor"),
    }
    return replace(device, **{name: value for name, value in settings.items() if value})


def package_path(model: PathLike) -> Path:
    """Where `place` writes the package of a model unless told otherwise: ./MODEL.gnomon."""
    return Path(f"{Path(model).absolute().stem}.gnomon")
