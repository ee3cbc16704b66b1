"""What an overlay's choice comes to: record sets, networks compiled for every device, and how they do there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gnomon.core.codec import check_fields
from gnomon.core.overlay.records import UNTUNED, TunedDevice, TuningRecords
from gnomon.core.overlay.trials import by_layer, traces_of
from gnomon.core.sample import Failure
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import resolve
from gnomon.errors import RecordError, UsageError, system_errors
from gnomon.formats.tuning.logs import FOLDER_FILES, replay_problem
from gnomon.formats.tuning.metaschedule import write_metaschedule_database
from gnomon.jobs.overlay.document import AnalyzeDocument, MeasuredChoice, WrittenPart
from gnomon.jobs.overlay.job import Analysis
from gnomon.jobs.tune.campaign import CallCampaign
from gnomon.jobs.tune.document import RatioPart, failure_part
from gnomon.jobs.tune.folder import TuneFolder, model_file, safe, tune_folder, tuner_versions
from gnomon.jobs.tune.networks import Choice, compile_network, error_of, measure_calls, ratio_of, times_of
from gnomon.jobs.tune.records import pooled_trials, write_records
from gnomon.jobs.tune.request import Care, DeviceWish, check_device, open_device
from gnomon.measure.campaign import Measured
from gnomon.measure.environment import Doubt, worst
from gnomon.measure.progress import Watch
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
) -> AnalyzeDocument:
    """Write, compile and measure; the document of the analysis with what that came to. Raises GnomonError."""
    check_fields(request.care)
    folder, document = tune_folder(request.out), analysis.document
    problems = [problem for one in analysis.records if (problem := replay_problem(one)) is not None]
    if problems:
        if request.prove:
            raise UsageError(f"the choice cannot be compiled: {problems[0]}", hint="Leave out --prove.")
        note = f"Nothing was written or compiled: {problems[0]}."
        return replace(document, notes=(*document.notes, note))
    wishes = _wishes(analysis, request) if request.prove else {}
    notes, path = list(document.notes), None
    if request.compile or request.prove:
        try:
            path = model_file(folder, document.model, request.model)
        except UsageError as error:
            if request.prove:
                raise
            notes.append(f"No network was compiled: {error.message}. {error.hint}")
    source = None if path is None else Source(path=path, dtype=document.model.dtype, shapes=request.shapes)
    if source is not None:
        source.check()
    for key, wish in wishes.items():
        check_device(wish, _devices(analysis)[key])
    written = _write(analysis, folder)
    if source is None:
        return replace(document, written=written, notes=tuple(notes))
    rows: list[MeasuredChoice] = []
    doubts: list[Doubt] = []
    libraries: dict[str, str] = {}
    with Workshop() as shop:
        network = Network(shop, source)
        for device in _devices(analysis).values():
            if request.prove:
                with open_device(shop, wishes[device.key], device, tell) as (_, bench):
                    rows += _proved(shop, bench, network, analysis, device, request, watch)
                    doubts += worst(bench.environments)
            library = folder.library(device, document.model, choice=_OVERLAY)
            choice = _choice(analysis, analysis.chosen())
            made = compile_network(network, device, choice, library, model=document.model, seed=request.care.seed)
            if isinstance(made, Failure):
                notes.append(f"The network could not be compiled for {device.key}: {made.message}")
            else:
                libraries[device.key] = str(library)
    written = replace(written, libraries=libraries)
    return replace(document, written=written, network=tuple(rows), doubts=tuple(doubts), notes=tuple(notes))


def _write(analysis: Analysis, folder: TuneFolder) -> WrittenPart:
    """The chosen configurations with their times: a record file and a database of MetaSchedule for each device."""
    paths: dict[str, str] = {}
    databases: dict[str, str] = {}
    chosen = analysis.chosen()
    for device in _devices(analysis).values():
        trials = []
        mine = by_layer([t for one in analysis.records if one.device.key == device.key for t in one.trials])
        for layer in analysis.described:
            trial = pooled_trials(mine.get(layer.layer, ())).get(chosen.get(layer.layer, UNTUNED))
            if trial is not None and trial.failure is None:
                trials.append(trial)
        first = analysis.records[0]
        records = replace(first, device=device, found_on=_OVERLAY, layers=analysis.described, trials=tuple(trials))
        path = folder.overlay(device, analysis.document.model)
        write_records(path, records)
        paths[device.key] = str(path)
        databases[device.key] = str(_database(path.with_suffix(".metaschedule"), records))
    return WrittenPart(records=paths, databases=databases, libraries={})


def _database(folder: Path, records: TuningRecords) -> Path:
    texts = write_metaschedule_database(records)
    with system_errors(RecordError, str(folder), hint="Give another --out."):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(FOLDER_FILES, texts, strict=True):
        save_text(text, folder / name)
    return folder


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
) -> list[MeasuredChoice]:
    """The whole network on a device under each choice, interleaved: a row each."""
    choices: dict[str, Mapping[str, str]] = {"untuned": {}, _OVERLAY: analysis.chosen()}
    choices |= {f"own:{host}": own for host in analysis.document.hosts if (own := analysis.own(host))}
    care, model = request.care, analysis.document.model
    network.layers(known.target)
    inputs, outputs = shop.folder / "in.npz", shop.folder / "out.npz"
    calls, rows = {}, {}
    for number, (name, choice) in enumerate(choices.items()):
        library = shop.folder / f"{safe(known.key)}-{number}.so"
        made = network.compile(known, _choice(analysis, choice), library, inputs=inputs, seed=care.seed)
        if isinstance(made, Failure):
            rows[name] = _network_row(known.key, name, {name: Measured(key=name, runs=(), failure=made)})
        else:
            calls[name] = library
    outputs.unlink(missing_ok=True)
    if isinstance(network.reference(inputs, outputs), Failure) and "untuned" in calls:
        # Without other software the untuned network's own outputs are what the others are compared with.
        keep = NetworkCall(library=calls["untuned"], inputs=inputs, keep=outputs)
        bench.call(keep, once(care.loop(model.dtype)))
    reference = outputs if outputs.exists() else None
    networks = {
        name: NetworkCall(library=library, inputs=inputs, reference=reference) for name, library in calls.items()
    }
    stage = f"networks on {known.key}"
    asked = {"configurations": {name: dict(choice) for name, choice in choices.items()}, **care.details()}
    with CallCampaign("overlay-proof", (known, model), tuner_versions(), asked, seed=care.seed) as campaign:
        times = measure_calls(bench, networks, care, dtype=model.dtype, stage=stage, watch=watch, campaign=campaign)
        campaign.finish(f"{len(calls)} choices of {model.name} on {known.key}", _OVERLAY)
    rows |= {name: _network_row(known.key, name, times) for name in times}
    return [rows[name] for name in choices]


def _network_row(device: str, choice: str, times: Mapping[str, Measured]) -> MeasuredChoice:
    """What was measured of a choice: its time, and that over the times of the device's own best and of the overlay,
    paired by process; None for itself and where one of the two has no time.
    """

    def over(other: str) -> RatioPart | None:
        return ratio_of(times[choice], times[other]) if other in times and other != choice else None

    return MeasuredChoice(
        device=device,
        choice=choice,
        time=times_of(times[choice]),
        to_own=over(f"own:{device}"),
        to_overlay=over(_OVERLAY),
        max_error=error_of(times[choice]),
        failure=failure_part(times[choice].failure),
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
    devices: dict[str, TunedDevice] = {}
    for one in analysis.records:
        devices.setdefault(one.device.key, one.device)
    return devices
