"""gnomon from Python: the commands of the command line as functions, with the same options and the records as answers.

::

    import gnomon

    found = gnomon.place("model.onnx", threads=1)
    print(found.verdict.reason, found.package)

Errors are those of `gnomon.errors`. Nothing is printed: `on_progress` is called with progress, and
`on_message` with sentences.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from gnomon.errors import ProblemError, RecordError, UsageError
from gnomon.store.address import RecordAddress, RecordLike, record_address
from gnomon.store.base import ARGUMENTS

if TYPE_CHECKING:
    from gnomon.core.front.front import Front
    from gnomon.core.graph import By
    from gnomon.devices.config import DeviceConfig
    from gnomon.jobs.devices.document import DeviceCleanedDocument, DeviceHealthDocument, RuntimesDocument
    from gnomon.jobs.devices.document import DeviceRow as DeviceRow
    from gnomon.jobs.pareto.oplist import OplistReport
    from gnomon.jobs.pareto.records import Pareto, ParetoRequest
    from gnomon.jobs.place.fleet import Fleet, TellOf, WatchOf
    from gnomon.jobs.place.job import Placement, Profile
    from gnomon.jobs.place.sweep import Sweep
    from gnomon.jobs.runs.document import BroughtDocument, CampaignRow, RunDocument
    from gnomon.jobs.solve.document import FrontDocument, SolveDocument
    from gnomon.jobs.stab.job import Scheduled
    from gnomon.measure.progress import Watch
    from gnomon.session.request import Request


PathLike = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """How to measure: the options of the command line by their names, in the plural where they may be repeated.

    Each of several `threads` is a configuration of its own, for `place` and `profile` alone; without any these try one
    thread, all usable cores, and what each runtime takes by itself; `pareto` one thread and all usable cores. For place
    and profile several sizes of a dimension in `dims`, and several files of an input or a folder of them, give an
    answer each: a `Sweep`.
    `processes` is how many fresh processes measure each candidate (default: 3, and up to 6 until it is known within
    2 %). After `budget_s` a stage starts none beyond the least number; a process that does not answer within
    `timeout_s` is killed. After `max_time_s` of `place`, `profile` or `pareto` nothing more is begun, and the job ends
    with what it knows; what it waited for the device is not counted. `record` is the database of runs (default: the
    user's own).
    `device` is an address or a name of the file of devices (default: this machine), whose settings there hold where
    an option is not given; `fetch` lets pip bring packages that it lacks, `pin` and `governor` hold while something is
    measured, and it may stay away for `wait_s` when it vanishes.
    """

    runtimes: Sequence[str]
    backends: Sequence[str]
    threads: int | Sequence[int] | None
    shapes: Mapping[str, Sequence[int]]
    dims: Mapping[str, int | Sequence[int]]
    inputs: Mapping[str, PathLike | Sequence[PathLike]]
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
    max_time_s: float | None
    pin: Sequence[int]
    governor: str | None


def request_of(
    model: PathLike, options: Options, *, sweeps: bool = False, usual: bool = False, limited: bool = False
) -> Request:
    """The request that the options mean; `sweeps` says that the job takes several numbers of threads, and
    `limited` that it heeds `max_time_s`.

    Without a number of threads a `usual` one tries one, all cores, and each runtime's own default; others take one.

    UsageError for an option that there is not, or a number out of its range.
    """
    from gnomon.measure.effort import Effort
    from gnomon.runtimes.base import Wish
    from gnomon.session.request import WAIT_S, Request

    unknown = sorted(options.keys() - Options.__annotations__.keys())
    if unknown:
        known = ", ".join(Options.__annotations__)
        raise UsageError(f"there is no option {unknown[0]!r}", hint=f"Options: {known}.")
    for name in ("threads", "processes", "budget_s", "timeout_s", "wait_s", "max_time_s"):
        value = options.get(name)
        if isinstance(value, int | float) and not 0 < value < math.inf:
            raise UsageError(f"{name} is {value}", hint="Give a finite number above 0.")
    if options.get("max_time_s") is not None and not limited:
        raise UsageError("max_time_s is for place, profile and pareto alone", hint="Leave it out here.")
    (_, options), *more = parts_of(options)
    if more:
        raise UsageError(
            "several sizes of a dimension, or files of an input, are for place and profile on one device alone",
            hint="Give one of each.",
        )
    threads = _threads_of(options.get("threads"), sweeps=sweeps)
    effort: dict[str, Any] = {name: options[name] for name in ("budget_s", "timeout_s") if name in options}
    processes = options.get("processes")
    if processes is not None:
        effort |= {"processes_least": processes, "processes_most": processes}
    record = options.get("record")
    device = _device_of(options)
    return Request(
        model=Path(model),
        device=device,
        runtimes=tuple(options.get("runtimes") or device.runtimes),
        wish=Wish(
            threads=threads[0] if threads else device.threads or 1,
            more_threads=threads[1:],
            usual=usual and not threads and device.threads is None,
            backends=tuple(options.get("backends", ())),
            precisions=tuple(options.get("precisions", ())),
            environments=tuple(dict(e) for e in options.get("environments", ())),
        ),
        shapes={name: tuple(shape) for name, shape in options.get("shapes", {}).items()},
        dims=cast("dict[str, int]", options["dims"]),
        feeds=cast("dict[str, Path]", options["inputs"]),
        effort=Effort(**effort),
        seed=options.get("seed", 0),
        record=_record(record),
        fresh=options.get("fresh", False),
        wait_s=options.get("wait_s", WAIT_S),
        max_time_s=options.get("max_time_s"),
    )


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


def _device_of(options: Options) -> DeviceConfig:
    """The device that is meant, with what the options say of it in place of what its table says."""
    from gnomon.devices.address import LOCAL
    from gnomon.devices.opening import resolve

    device = resolve(options.get("device") or LOCAL)
    said: dict[str, Any] = {}
    if options.get("fetch"):
        said["fetch"] = True
    if options.get("pin"):
        said["pin"] = tuple(options["pin"])
    if options.get("governor"):
        said["governor"] = options["governor"]
    return replace(device, **said)


def package_path(model: PathLike) -> Path:
    """Where `place` writes the package of a model unless told otherwise: ./MODEL.gnomon."""
    return Path(f"{Path(model).absolute().stem}.gnomon")


def place(
    model: PathLike,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    package: bool = True,
    measure: bool = True,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> Placement:
    """Find the fastest way to run a model on a device, prove it, and write it as a package to `out`.

    Without `package` the package is proved all the same, and not kept. Without `measure` it decides again from what the
    record holds, and nothing is proven that was not before. Several sizes of a dimension, or several files of an input,
    give a `Sweep`, with a package each in `out`-NAMEvalue. Raises GnomonError; what was measured until then is kept,
    and the same call goes on from there.
    """
    from gnomon.jobs.place.job import place as place_job
    from gnomon.jobs.runs.answers import keep
    from gnomon.system.process import guarded_folder

    destination = package_path(model) if out is None else Path(out)
    if len(parts := parts_of(options)) > 1:

        def part(values: Mapping[str, str], own: Options) -> Any:
            where = destination.with_name(f"{destination.name}-{_part_name(values)}")
            again = overwrite or own.get("fresh") or not (package and measure and where.exists())
            before = None if again else placed_before(model, ARGUMENTS.get(), where, record=own.get("record"))
            how: dict[str, Any] = {"out": where if package else None, "overwrite": overwrite, "package": package}
            how |= {"measure": measure, "on_progress": on_progress, "on_message": on_message}
            return before or place(model, **how, **own)

        return cast("Placement", _sweep(model, parts, part, on_message))
    request = replace(request_of(model, options, sweeps=True, usual=True, limited=True), measure=measure)
    with ExitStack() as stack:
        if not package:
            if out is not None:
                raise UsageError("there is no folder for a package that is not kept", hint="Give either of the two.")
            destination = stack.enter_context(guarded_folder("gnomon-package-")) / destination.name
        found = place_job(request, destination, overwrite=overwrite, watch=on_progress, tell=on_message)
    found = found if package else replace(found, package=None)
    keep(found.document(), on_message)
    return found


def _part_name(values: Mapping[str, str]) -> str:
    """What tells the package of a part apart: "seq16"."""
    return re.sub(r"[^\w.-]+", "_", "-".join(f"{name}{value.removesuffix('.npy')}" for name, value in values.items()))


def _sweep(
    model: PathLike,
    parts: Sequence[tuple[Mapping[str, str], Options]],
    ask: Callable[[Mapping[str, str], Options], Any],
    on_message: Callable[[str], None] | None,
) -> Sweep:
    """The answers to several requests, each a run of its own. UsageError before any begins where shapes do not fit."""
    from gnomon.jobs.place.sweep import sweep
    from gnomon.models.load import load
    from gnomon.session.model import shapes_of

    read = load(Path(model))
    for _, own in parts:
        shapes_of(request_of(model, own, sweeps=True, limited=True), read)
    return sweep(Path(model), [(values, partial(ask, values, own)) for values, own in parts], on_message)


def place_on(
    model: PathLike,
    devices: Sequence[str],
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    measure: bool = True,
    on_progress: WatchOf | None = None,
    on_message: TellOf | None = None,
    **options: Unpack[Options],
) -> Fleet:
    """Place a model on several devices side by side.

    Packages go to `out`/NAME. A device that fails is in the answer with its error; raises GnomonError if all fail.
    """
    from gnomon.jobs.place.fleet import place_on as place_fleet
    from gnomon.session.request import timed

    made = (
        request_of(model, {**options, "device": name}, sweeps=True, usual=True, limited=True)
        for name in dict.fromkeys(devices)
    )
    requests = {request.device.name: timed(replace(request, measure=measure)) for request in made}
    destination = package_path(model) if out is None else Path(out)
    return place_fleet(requests, destination, overwrite=overwrite, watch=on_progress, tell=on_message)


class ParetoOptions(Options, total=False):
    """What `pareto` is asked: how to measure, and the options of `gnomon pareto` by their names.

    `source` is a dump of pareto_profiler in place of a model; `codes` are the backends of its digits, that of 0 first.
    `tunings` are options of the runtime with the values
    that the search may choose. The point to deploy is a number of the front (`pick`), or the fastest one whose
    objectives stay `under` so many seconds, bytes or joules. Several names of a `search` are compared. `dumpfile` gets
    everything that was measured. `counters` name the energy counters to add up, where energy is an objective.
    """

    source: PathLike | None
    codes: Sequence[str]
    objectives: Sequence[str]
    counters: Sequence[str]
    by: By
    tunings: Mapping[str, Sequence[str]]
    search: str | Sequence[str]
    iterations: int | None
    pick: int | None
    under: Mapping[str, float]
    dumpfile: PathLike | None


_PARETO_ALONE = ParetoOptions.__annotations__.keys() - Options.__annotations__.keys()
_OF_DUMPS = (_PARETO_ALONE | {"seed"}) - {"by", "tunings"}


def pareto(
    model: PathLike | None = None,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    measure: bool = True,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[ParetoOptions],
) -> Pareto:
    """Find the front of several objectives over assignments, prove it, and deploy the point that is picked.

    Needs a model or a `source`. Raises GnomonError; what was measured until then is kept, and the same call goes on.
    """
    from gnomon.jobs.pareto.job import pareto as pareto_job
    from gnomon.jobs.runs.answers import keep

    asked = pareto_request(model, options, out=out, overwrite=overwrite, measure=measure)
    found = pareto_job(asked, watch=on_progress, tell=on_message)
    document = found.document()
    if document["campaign"]:
        keep(document, on_message)
    return found


def objectives() -> Mapping[str, str]:
    """The objectives of `pareto`, each with its unit. UsageError where one that a package adds cannot be loaded."""
    from gnomon.session.objectives import goal_of

    return {name: goal_of(name).unit for name in objective_names()}


def objective_names() -> tuple[str, ...]:
    """The names of the objectives of `pareto`, those of packages last."""
    from gnomon.session.objectives import goal_names

    return goal_names()


def objective_unit(name: str) -> str | None:
    """The unit of an objective; None where there is none of that name. UsageError where it cannot be loaded."""
    from gnomon.session.objectives import goal_of

    return goal_of(name).unit if name in objective_names() else None


def oplist(
    model: PathLike, *, by: By = "type", backends: Sequence[str] = ("cpu", "acl_cl"), out: PathLike | None = None
) -> OplistReport:
    """What the digits of integer codes of a model belong to; `out` gets it as ONE's pareto_profiler reads it.

    The backend of digit 0 comes first. Raises GnomonError.
    """
    from gnomon.jobs.pareto.oplist import oplist as oplist_job

    return oplist_job(Path(model), by=by, backends=backends, out=None if out is None else Path(out))


def stab(
    nnpackage: PathLike,
    *,
    traces: PathLike = "traces",
    out: PathLike | None = None,
    measure: bool = True,
    compat: bool = False,
    overwrite: bool = False,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    step: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> Scheduled:
    """Choose onert's backend for each operator of an nnpackage, and write the nnpackage with it to `out`.

    Without `measure` it decides from the files in `traces` alone. `compat` writes what ONE's stab would decide. `step`
    hears of each step. Raises GnomonError.
    """
    from gnomon.jobs.stab.job import StabRequest, package_name
    from gnomon.jobs.stab.job import stab as stab_job

    request = StabRequest(
        measuring=request_of(nnpackage, options),
        traces=Path(traces),
        out=Path("nnpkg_sched") / package_name(Path(nnpackage)) if out is None else Path(out),
        profile=measure,
        compat=compat,
        overwrite=overwrite,
    )
    return stab_job(request, watch=on_progress, tell=on_message, step=step)


def pareto_request(
    model: PathLike | None,
    options: ParetoOptions,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    measure: bool = True,
) -> ParetoRequest:
    """The request that the options mean, as `request_of`. UsageError also for options that say nothing of a dump."""
    from gnomon.jobs.pareto.records import ParetoRequest
    from gnomon.jobs.pareto.search import Plan
    from gnomon.session.objectives import LATENCY, MEMORY

    strange = sorted(options.keys() - _OF_DUMPS) if model is None else []
    if strange:
        raise UsageError(f"{strange[0]} says nothing of a dump", hint="Leave it out, or give a model.")
    how = cast(Options, {name: value for name, value in options.items() if name not in _PARETO_ALONE})
    request = None if model is None else replace(request_of(model, how, limited=True), measure=measure)
    source, dumpfile = options.get("source"), options.get("dumpfile")
    counted = how.get("threads") or "threads" in options.get("tunings", {}) or dumpfile is not None
    names = options.get("search") or "hlps"
    plan, *others = [
        Plan(name=name, seed=options.get("seed", 0), iterations=options.get("iterations"))
        for name in ([names] if isinstance(names, str) else names)
    ]
    return ParetoRequest(
        request=request,
        source=None if source is None else Path(source),
        backends=tuple(options.get("codes", ())),
        objectives=tuple(options.get("objectives") or (LATENCY, MEMORY)),
        counters=tuple(options.get("counters", ())),
        by=options.get("by", "type"),
        options={name: tuple(values) for name, values in options.get("tunings", {}).items()},
        all_cores=not counted and request is not None and request.device.threads is None,
        plan=plan,
        others=tuple(others),
        pick=options.get("pick"),
        under=dict(options.get("under", {})),
        out=Path(out) if out is not None else None if model is None else package_path(model),
        overwrite=overwrite,
        dumpfile=None if dumpfile is None else Path(dumpfile),
    )


def profile(
    model: PathLike,
    *,
    inside: bool = False,
    for_s: float | None = None,
    every_s: float | None = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> Profile:
    """Measure a model whole on every runtime and backend that takes it, end to end and per operator.

    With `inside`, kernels of several operators are cut out and measured in parts, within `budget_s`: prices derived.
    With `for_s` one process of each configuration is then called for so many seconds, with `every_s` as well once in
    so many. Several sizes of a dimension, or several files of an input, give a `Sweep`. Raises GnomonError; what was
    measured until then is kept, and the same call goes on from there.
    """
    from gnomon.jobs.place.job import profile as profile_job
    from gnomon.jobs.place.sustained import Sustain
    from gnomon.jobs.runs.answers import keep

    if every_s is not None and for_s is None:
        raise UsageError("a pace needs a time to keep it for", hint="Give --for 10min as well; for_s from Python.")
    if len(parts := parts_of(options)) > 1:
        how: dict[str, Any] = {"inside": inside, "for_s": for_s, "every_s": every_s}
        how |= {"on_progress": on_progress, "on_message": on_message}
        return cast("Profile", _sweep(model, parts, lambda values, own: profile(model, **how, **own), on_message))
    asked = None if for_s is None else Sustain(for_s=for_s, every_s=every_s)
    request = request_of(model, options, sweeps=True, usual=True, limited=True)
    found = profile_job(request, inside=inside, asked=asked, watch=on_progress, tell=on_message)
    keep(found.document(), on_message)
    return found


def solve(
    problem: str | bytes | Path | Mapping[str, Any],
    weights: Mapping[str, float] | None = None,
    *,
    method: str = "auto",
    time_limit_s: float | None = 60.0,
) -> SolveDocument:
    """Find an assignment of least cost for a problem: its JSON text, a file of it (a Path), or its values.

    The format is that of docs/formats/problem-json.md. Raises ProblemError for a malformed problem and InfeasibleError
    where no assignment is allowed.
    """
    from gnomon.jobs.solve.job import solve_problem

    return solve_problem(_problem_text(problem), weights, method=method, time_limit_s=time_limit_s)


def front(
    problem: str | bytes | Path | Mapping[str, Any],
    *,
    epsilon: float = 0.0,
    time_limit_s: float | None = 60.0,
    on_progress: Callable[[Front], None] | None = None,
) -> FrontDocument:
    """Find the Pareto front of a problem, given as to `solve`; `on_progress` gets each front on the way.

    A point may be at most the share `epsilon` more expensive than one that is not in the front. Raises ProblemError for
    a malformed problem and InfeasibleError where no assignment is allowed.
    """
    from gnomon.jobs.solve.job import front_problem

    return front_problem(_problem_text(problem), epsilon=epsilon, time_limit_s=time_limit_s, watch=on_progress)


def _problem_text(problem: str | bytes | Path | Mapping[str, Any]) -> str | bytes:
    if isinstance(problem, Path):
        try:
            return problem.read_bytes()
        except OSError as error:
            raise ProblemError(
                f"the problem {problem} cannot be read: {error.strerror or error}", hint="Give a JSON file."
            ) from error
    if isinstance(problem, Mapping):
        try:
            return json.dumps(problem, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ProblemError(f"the problem holds a value that JSON has not: {error}", hint="Use null.") from error
    return problem


def runs(*, record: RecordLike | None = None, limit: int | None = None) -> tuple[CampaignRow, ...]:
    """The campaigns in the record of runs, the newest first, at most `limit`. RecordError where it is not there."""
    from gnomon.jobs.runs.job import list_campaigns, open_record

    with open_record(_record(record)) as store:
        return tuple(islice(list_campaigns(store), limit))


def show_run(
    campaign: str = "last", *, record: RecordLike | None = None, clock: Literal["wall", "cpu"] = "wall"
) -> RunDocument:
    """The campaign whose id begins so ("last": the newest), with its candidates summed up by a clock. RecordError."""
    from gnomon.jobs.runs.job import find_campaign, open_record, show_campaign

    with open_record(_record(record)) as store:
        return show_campaign(store, find_campaign(store, campaign), clock=clock)


def answer_of_run(campaign: str = "last", *, record: RecordLike | None = None) -> dict[str, Any] | None:
    """The document that the campaign's job answered with, as its command prints it with --json; None if it has none.

    RecordError where the record or the campaign is not there.
    """
    from gnomon.jobs.runs.answers import answer_of
    from gnomon.jobs.runs.job import find_campaign, open_record

    with open_record(_record(record)) as store:
        return answer_of(store, find_campaign(store, campaign))


def placed_before(
    model: PathLike, words: Sequence[str], package: PathLike, *, record: RecordLike | None = None
) -> dict[str, Any] | None:
    """The answer to the same words of a command line, given in this folder about the same model, that wrote `package`;
    None without one.
    """
    from gnomon.jobs.runs.answers import asked_before
    from gnomon.models.load import load

    digest = load(Path(model)).graph.digest
    return asked_before(_record(record), "place", words, Path.cwd(), digest, package=Path(package))


def export_run(
    campaign: str = "last", *, record: RecordLike | None = None, form: Literal["jsonl", "csv"] = "jsonl"
) -> Iterator[str]:
    """The lines of all that the record holds of a campaign: a JSON object each, or as csv a sample each.

    RecordError where the record or the campaign is not there.
    """
    from gnomon.jobs.runs.job import export_csv, find_campaign, open_record
    from gnomon.store.lines import write_lines

    with open_record(_record(record)) as store:
        yield from (export_csv if form == "csv" else write_lines)(store, [find_campaign(store, campaign)])


def export_run_files(campaign: str = "last", *, out: PathLike, record: RecordLike | None = None) -> tuple[Path, ...]:
    """Write the files of a campaign's job into the folder `out`, as they were when it ended; returns their paths.

    RecordError where the job wrote none, or one is gone or was changed since.
    """
    from gnomon.jobs.runs.job import export_files, find_campaign, open_record

    with open_record(_record(record)) as store:
        return tuple(export_files(store, find_campaign(store, campaign), Path(out)))


def export_run_as(
    form: Literal["parquet", "perfetto", "model-explorer", "netron"],
    campaign: str = "last",
    *,
    out: PathLike,
    model: PathLike | None = None,
    record: RecordLike | None = None,
) -> tuple[Path, ...]:
    """Write a campaign for another tool to `out`, which is a folder for Model Explorer and else a file; the paths.

    All but Parquet are made of the job's answer. `model` is where its file is now, for Netron. GnomonError.
    """
    from gnomon.jobs.runs.answers import answer_of
    from gnomon.jobs.runs.job import (
        export_netron,
        export_node_data,
        export_parquet,
        export_trace,
        find_campaign,
        open_record,
    )

    path = Path(out)
    with open_record(_record(record)) as store:
        found = find_campaign(store, campaign)
        if form == "parquet":
            export_parquet(store, [found], path)
            return (path,)
        document = answer_of(store, found)
    if document is None:
        raise no_answer()
    if form == "model-explorer":
        return tuple(export_node_data(document, path))
    if form == "netron":
        export_netron(document, None if model is None else Path(model), path)
    else:
        export_trace(document, path)
    return (path,)


def no_answer() -> RecordError:
    """The error for a campaign that no answer is kept of."""
    return RecordError(
        "no answer is kept of this run", hint="The same command answers again; --format jsonl has its runs."
    )


def import_runs(*files: RecordLike, record: RecordLike | None = None) -> BroughtDocument:
    """Add what the record (None: the user's own) lacks of files: records, or JSON lines of `export_run`.

    Each comes whole or not at all, and nothing twice. How its campaigns were asked for stays behind: that was another
    machine's. RecordError or ProblemError, with the place, for one that is damaged; those before it stay.
    """
    from gnomon.jobs.runs.joining import import_runs as bring

    return bring([record_address(file) for file in files], _record(record))


def merge_runs(*files: RecordLike, out: RecordLike) -> BroughtDocument:
    """Write a new record of all that several such files hold. RecordError if `out` is there already."""
    from gnomon.jobs.runs.joining import merge_runs as merge

    return merge([record_address(file) for file in files], record_address(out))


def command_of_run(campaign: str = "last", *, record: RecordLike | None = None) -> tuple[tuple[str, ...], Path]:
    """The words of the command that goes on with an interrupted campaign, and the folder to give it in.

    RecordError for one that is finished or running, or that was asked from Python.
    """
    from gnomon.jobs.runs.job import command_of, find_campaign, open_record

    with open_record(_record(record)) as store:
        return command_of(store, find_campaign(store, campaign))


def _record(record: RecordLike | None) -> RecordAddress | None:
    return None if record is None else record_address(record)


def list_devices(*names: str, closely: bool = False) -> tuple[DeviceRow, ...]:
    """How devices are now: those named, or this machine and all of the file of devices.

    `closely` also finds the overhead of a command, free room and rights. A device that cannot be reached is a row with
    the reason. UsageError if a name is not known or the file is wrong.
    """
    from gnomon.jobs.devices.job import check_devices
    from gnomon.jobs.devices.job import list_devices as listed

    return check_devices(names) if closely or names else listed()


def add_device(name: str, address: str, *, check: bool = True, **settings: Any) -> DeviceRow | None:
    """Name a device in the file of devices, with settings as its table has them (docs/devices/devices.md).

    It is looked at closely first, and the row of that is returned, unless not `check`. UsageError if it is invalid or
    is there already, DeviceError if it cannot be used; the file is then as it was.
    """
    from gnomon.devices.config import device_from
    from gnomon.jobs.devices.job import add_and_check

    return add_and_check(device_from(name, {"address": address, **settings}), check=check)


def remove_device(name: str) -> Path:
    """Take a device out of the file of devices, whose path is returned. UsageError if it is not there."""
    from gnomon.devices.config import remove_device as remove

    return remove(name)


def clean_device(name: str, *, on_message: Callable[[str], None] | None = None) -> DeviceCleanedDocument:
    """Remove what gnomon keeps on a device between commands; `on_message` hears who is waited for. GnomonError."""
    from gnomon.jobs.devices.job import clean_device as clean

    return clean(name, on_wait=on_message)


def probe_device(
    name: str, *, record: RecordLike | None = None, on_message: Callable[[str], None] | None = None
) -> DeviceHealthDocument:
    """See whether a device is the board that it was, and as fast: it ends its quarantine, or puts it there.

    DeviceError where it fails or is not as it was, another GnomonError where nothing there can run the probe.
    """
    from gnomon.jobs.devices.job import probe_device as probed

    return probed(name, _record(record), tell=on_message)


def release_device(name: str) -> DeviceHealthDocument:
    """End the quarantine of a device. UsageError where it is in none."""
    from gnomon.jobs.devices.job import release_device as released

    return released(name)


def list_runtimes() -> RuntimesDocument:
    """The runtimes that gnomon knows, those that are installed first, as docs/commands.md describes them."""
    from gnomon.jobs.devices.runtimes import known_runtimes

    return known_runtimes()
