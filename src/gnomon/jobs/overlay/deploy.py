"""What an overlay's choice comes to: record sets, networks compiled for every device, and how they do there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnomon.core import codec
from gnomon.core.overlay.records import UNTUNED, TunedDevice, TuningRecords
from gnomon.core.overlay.trials import by_layer, traces_of
from gnomon.core.sample import Failure
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import resolve
from gnomon.errors import RecordError, UsageError
from gnomon.formats.tuning.logs import FOLDER_FILES, replay_problem
from gnomon.formats.tuning.metaschedule import write_metaschedule_database
from gnomon.jobs.overlay.job import Analysis
from gnomon.jobs.tune.document import failure_part
from gnomon.jobs.tune.folder import TuneFolder, model_file, safe, tune_folder, tuner_versions
from gnomon.jobs.tune.networks import CallTimes, Choice, compile_network, measure_calls, ratio_of
from gnomon.jobs.tune.recorded import RecordedCalls
from gnomon.jobs.tune.records import pooled_trials, write_records
from gnomon.jobs.tune.request import Care, DeviceWish, check_device, open_device
from gnomon.measure.environment import worst
from gnomon.measure.progress import Meter, Watch
from gnomon.system.files import save_text
from gnomon.tuning.bench import Bench, NetworkCall, once
from gnomon.tuning.networks import Network, Source
from gnomon.tuning.tvm import Workshop

_OVERLAY = "overlay"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployRequest:
    """Where the choice goes, and where it is proved.

    `compile` makes a library for each device. With `prove` the network is measured on every device under each choice:
    on that of `devices` which records call so, else on the one of that name. `model` is the network's own file, where
    no copy was kept; `shapes` are of inputs that it leaves open.
    """

    compile: bool = True
    prove: bool = False
    devices: tuple[DeviceConfig, ...] = ()
    model: Path | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    care: Care = field(default_factory=Care)
    out: Path | None = None


def deploy(
    analysis: Analysis,
    request: DeployRequest,
    *,
    watch: Watch | None = None,
    tell: Tell = lambda sentence: None,
) -> dict[str, Any]:
    """Write, compile and measure; the parts `written`, `network`, `doubts` and `notes` of the document.

    Raises GnomonError.
    """
    request.care.check()
    folder = tune_folder(request.out)
    problems = [problem for one in analysis.records if (problem := replay_problem(one)) is not None]
    if problems:
        if request.prove:
            raise UsageError(f"the choice cannot be compiled: {problems[0]}", hint="Leave out --prove.")
        written: dict[str, Any] = {"records": {}, "databases": {}, "libraries": {}}
        return {
            "written": written,
            "network": [],
            "doubts": [],
            "notes": [f"Nothing was written or compiled: {problems[0]}."],
        }
    wishes = _wishes(analysis, request) if request.prove else {}
    document: dict[str, Any] = {"written": {}, "network": [], "doubts": [], "notes": []}
    path = None
    if request.compile or request.prove:
        try:
            path = model_file(folder, analysis.model, request.model)
        except UsageError as error:
            if request.prove:
                raise
            document["notes"].append(f"No network was compiled: {error.message}. {error.hint}")
    source = None if path is None else Source(path=path, dtype=analysis.model.dtype, shapes=request.shapes)
    if source is not None:
        source.check()
    for key, wish in wishes.items():
        check_device(wish, _devices(analysis)[key])
    written = document["written"] = _write(analysis, folder)
    if source is None:
        return document
    with Workshop() as shop:
        network = Network(shop, source)
        for device in _devices(analysis).values():
            if request.prove:
                with open_device(shop, wishes[device.key], device, tell) as (_, bench):
                    document["network"] += _proved(shop, bench, network, analysis, device, request, watch)
                    document["doubts"] += codec.document({"doubts": worst(bench.environments)})["doubts"]
            library = _compiled(network, analysis, device, folder, request)
            if isinstance(library, Failure):
                document["notes"].append(f"The network could not be compiled for {device.key}: {library.message}")
            else:
                written["libraries"][device.key] = str(library)
    return document


def _write(analysis: Analysis, folder: TuneFolder) -> dict[str, Any]:
    """The chosen configurations with their times: a record file and a database of MetaSchedule for each device."""
    made: dict[str, Any] = {"records": {}, "databases": {}, "libraries": {}}
    chosen = analysis.chosen()
    for device in _devices(analysis).values():
        trials = []
        mine = by_layer([t for one in analysis.records if one.device.key == device.key for t in one.trials])
        for layer in analysis.described:
            pooled = pooled_trials(mine.get(layer.layer, ()))
            trial = pooled.get(chosen.get(layer.layer, UNTUNED))
            if trial is not None and trial.failure is None:
                trials.append(trial)
        first = analysis.records[0]
        records = replace(
            first, device=device, found_on=_OVERLAY, layers=tuple(analysis.described), trials=tuple(trials)
        )
        path = folder.overlay(device, analysis.model)
        write_records(path, records)
        made["records"][device.key] = str(path)
        made["databases"][device.key] = str(_database(path.with_suffix(".metaschedule"), records))
    return made


def _database(folder: Path, records: TuningRecords) -> Path:
    files = write_metaschedule_database(records)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{folder}: {error.strerror or error}", hint="Give another --out.") from error
    for name, text in zip(FOLDER_FILES, (files.workloads, files.records), strict=True):
        save_text(text, folder / name)
    return folder


def _compiled(
    network: Network, analysis: Analysis, device: TunedDevice, folder: TuneFolder, request: DeployRequest
) -> Path | Failure:
    library = folder.library(device, analysis.model, choice=_OVERLAY)
    made = compile_network(
        network, device, _choice(analysis, analysis.chosen()), library, model=analysis.model, seed=request.care.seed
    )
    return made if isinstance(made, Failure) else made.library


def _wishes(analysis: Analysis, request: DeployRequest) -> dict[str, DeviceWish]:
    """The devices of the records, by what they call them; UsageError for one that nobody knows, before any is used."""
    given = {wish.key: wish for wish in (DeviceWish(config=config) for config in request.devices)}
    made = {}
    for key, device in _devices(analysis).items():
        if key not in given:
            try:
                given[key] = DeviceWish(config=resolve(key))
            except UsageError as error:
                raise UsageError(
                    f"where the device {key!r} of these records is, is not known here",
                    hint="Give --device tvm://HOST:PORT/KEY or a name of the file of devices (gnomon devices add).",
                ) from error
        made[key] = replace(given[key], threads=device.threads)
    return made


def _proved(
    shop: Workshop,
    bench: Bench,
    network: Network,
    analysis: Analysis,
    known: TunedDevice,
    request: DeployRequest,
    watch: Watch | None,
) -> list[dict[str, Any]]:
    """The whole network on a device under each choice, interleaved: a row each."""
    choices: dict[str, Mapping[str, str]] = {"untuned": {}, _OVERLAY: analysis.chosen()}
    choices |= {f"own:{host}": own for host in analysis.document()["hosts"] if (own := analysis.own(host))}
    network.layers(known.target)
    inputs, outputs = shop.folder / "in.npz", shop.folder / "out.npz"
    calls, rows = {}, {}
    for number, (name, choice) in enumerate(choices.items()):
        library = shop.folder / f"{safe(known.key)}-{number}.so"
        made = network.compile(known, _choice(analysis, choice), library, inputs=inputs, seed=request.care.seed)
        if isinstance(made, Failure):
            rows[name] = _network_row(known.key, name, {name: CallTimes(failure=made)})
        else:
            calls[name] = library
    outputs.unlink(missing_ok=True)
    if isinstance(network.reference(inputs, outputs), Failure) and "untuned" in calls:
        # Without other software the untuned network's own outputs are what the others are compared with.
        keep = NetworkCall(library=calls["untuned"], inputs=inputs, keep=outputs)
        bench.call(keep, once(request.care.loop(analysis.model.dtype)))
    reference = outputs if outputs.exists() else None
    meter = Meter(f"networks on {known.key}", len(calls) * request.care.processes, watch)
    care = request.care
    asked = {
        "configurations": {name: dict(choice) for name, choice in choices.items()},
        "repeat": care.repeat,
        "min_repeat_ms": care.min_repeat_ms,
        "processes": care.processes,
    }
    with RecordedCalls("overlay-proof", (known, analysis.model), tuner_versions(), asked, seed=care.seed) as recorded:
        found = measure_calls(
            bench,
            {name: NetworkCall(library=library, inputs=inputs, reference=reference) for name, library in calls.items()},
            care.loop(analysis.model.dtype),
            processes=care.processes,
            seed=care.seed,
            meter=meter,
            record=recorded,
        )
        recorded.finish(f"{len(calls)} choices of {analysis.model.name} on {known.key}", _OVERLAY)
    rows |= {name: _network_row(known.key, name, found) for name in found}
    return [rows[name] for name in choices]


def _network_row(device: str, choice: str, found: Mapping[str, CallTimes]) -> dict[str, Any]:
    """What was measured of a choice: its time, and that over the times of the device's own best and of the overlay,
    paired by process; None for itself and where one of the two has no time.
    """
    mine = found[choice]
    ratios = {}
    for name, other in (("to_own", f"own:{device}"), ("to_overlay", _OVERLAY)):
        ratios[name] = ratio_of(mine, found[other]) if other in found and other != choice else None
    return codec.document(
        {
            "device": device,
            "choice": choice,
            "time": mine.summary(),
            **ratios,
            "max_error": mine.error,
            "failure": failure_part(mine.failure),
        }
    )


def _choice(analysis: Analysis, chosen: Mapping[str, str]) -> Choice:
    """The traces of configurations."""
    wanted = {(layer, name) for layer, name in chosen.items() if name != UNTUNED}
    traces = {name: trace for one in analysis.records for name, trace in traces_of(one.trials, wanted).items()}
    return [
        (layer, traces[layer.layer, chosen[layer.layer]])
        for layer in analysis.described
        if (layer.layer, chosen.get(layer.layer, UNTUNED)) in traces
    ]


def _devices(analysis: Analysis) -> dict[str, TunedDevice]:
    made: dict[str, TunedDevice] = {}
    for one in analysis.records:
        made.setdefault(one.device.key, one.device)
    return made
