"""Deploying an overlay's choice: record sets, networks compiled for every device, and their measured times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gnomon.core.codec import check_fields
from gnomon.core.overlay.records import UNTUNED, TunedDevice
from gnomon.core.overlay.trials import traces_of
from gnomon.core.sample import Failure
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import resolve
from gnomon.errors import UsageError
from gnomon.formats.tuning.logs import replay_problem
from gnomon.jobs.overlay.carry import OVERLAY, carry, devices_of, save_selection
from gnomon.jobs.overlay.document import AnalyzeDocument, MeasuredChoice
from gnomon.jobs.overlay.job import Analysis
from gnomon.jobs.tune.campaign import CallCampaign
from gnomon.jobs.tune.document import RatioPart, failure_part
from gnomon.jobs.tune.folder import TuneFolder, model_file, safe, tune_folder, tuner_versions
from gnomon.jobs.tune.networks import Choice, Compiled, compile_network, error_of, measure_calls, ratio_of, times_of
from gnomon.jobs.tune.request import DeviceOptions, TuneEffort, check_device, open_device
from gnomon.measure.campaign import Measured
from gnomon.measure.environment import Caveat, worst
from gnomon.measure.progress import Watch
from gnomon.system.files import save_text
from gnomon.tuning.bench import Bench, NetworkCall, once
from gnomon.tuning.networks import Network, Source
from gnomon.tuning.servers import Tell
from gnomon.tuning.tvm import TvmPool

_README = Path(__file__).with_name("README.txt")
"""Instructions for using libraries and databases without gnomon; a copy is written next to the libraries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployRequest:
    """How to deploy the choice, and on which devices to prove it.

    `compile` makes a library for each device. With `prove` the network is measured on every device under each choice.
    A key in the records refers to one of `devices`, or else to a device in the file of devices. `model` is the
    network's file, which is needed if no copy was kept; `shapes` are the input shapes that the file leaves open.
    """

    compile: bool = True
    prove: bool = False
    devices: tuple[DeviceConfig, ...] = ()
    model: Path | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    effort: TuneEffort = field(default_factory=TuneEffort)
    out: Path | None = None


def deploy(
    analysis: Analysis, request: DeployRequest, *, watch: Watch | None = None, tell: Tell = lambda sentence: None
) -> AnalyzeDocument:
    """Write, compile and measure the choice; returns the analysis's document with the results. Raises GnomonError."""
    check_fields(request.effort)
    folder, document, seed = tune_folder(request.out), analysis.document, request.effort.seed
    gone = next(filter(None, map(replay_problem, analysis.records)), "")
    if gone and request.prove:
        raise UsageError(f"the choice cannot be compiled: {gone}", hint="Leave out --prove.")
    options = _device_options(analysis, request) if request.prove else {}
    source = f"No network was compiled: {gone}." if gone else _source(analysis, request, folder)
    for key, own in options.items():
        check_device(own, devices_of(analysis)[key])
    carried = carry(analysis, folder)
    rows: list[MeasuredChoice] = []
    doubts: list[Caveat] = []
    notes: list[str] = []
    compiled: dict[str, Compiled] = {}
    of_builds: dict[str, str] = {}
    module = ""
    if isinstance(source, Source):
        with TvmPool() as pool:
            network = Network(pool, source)
            for device in devices_of(analysis).values():
                if request.prove:
                    with open_device(pool, options[device.key], device, tell) as (_, bench):
                        rows += _proved(pool, bench, network, analysis, device, request, watch)
                        doubts += worst(bench.environments)
                if not request.compile:
                    continue
                library = folder.library(device, document.model, choice=OVERLAY)
                choice = _choice(analysis, analysis.chosen())
                built = compile_network(network, device, choice, library, model=document.model, seed=seed)
                if isinstance(built, Failure):
                    notes.append(f"The network could not be compiled for {device.key}: {built.message}")
                else:
                    compiled[device.key] = built
            of_builds = _compiled_builds(network, analysis, folder, compiled, seed, notes)
            module = str(folder.module(document.model))
            if (failed := network.save_module(Path(module))) is not None:
                notes.append(f"The network could not be written in TVM's JSON format: {failed.message}")
                module = ""
    elif source:
        notes.append(source)
    if compiled:
        save_text(_README.read_text(encoding="utf-8"), folder.libraries / _README.name)
    return replace(
        document,
        layers=tuple(replace(layer, index=carried.indices.get(layer.layer, {})) for layer in document.layers),
        written=replace(
            carried.written,
            libraries={key: str(build.library) for key, build in compiled.items()},
            module=module,
            selection=save_selection(analysis, folder, carried.builds, of_builds) if analysis.builds else "",
        ),
        network=tuple(rows),
        doubts=tuple(doubts),
        notes=(*notes, *document.notes),
    )


def _source(analysis: Analysis, request: DeployRequest, folder: TuneFolder) -> Source | str:
    """The network to compile, or the reason for not compiling ("": not requested).

    UsageError if the network is missing and a proof was requested.
    """
    if not (request.compile or request.prove):
        return ""
    model = analysis.document.model
    try:
        path = model_file(folder, model, request.model)
    except UsageError as error:
        if request.prove:
            raise
        return f"No network was compiled: {error.message}. {error.hint}"
    source = Source(path=path, dtype=model.dtype, shapes=request.shapes)
    source.check()
    return source


def _compiled_builds(
    network: Network,
    analysis: Analysis,
    folder: TuneFolder,
    compiled: Mapping[str, Compiled],
    seed: int,
    notes: list[str],
) -> dict[str, str]:
    """Compile the builds of a portfolio; returns the library for each device.

    Devices with the same build and target share a library. Failures of compilation are added to `notes`.
    """
    libraries: dict[str, str] = {}
    for number, build in enumerate(analysis.builds, 1):
        alike: dict[str, str] = {}
        for key in build.devices:
            device = devices_of(analysis)[key]
            compiled_for = json.dumps([device.target, device.linker], sort_keys=True)
            if key in compiled and compiled_for not in alike:
                library = folder.library(device, analysis.document.model, choice=f"build-{number}")
                choice = _choice(analysis, build.configurations)
                model, untuned = analysis.document.model, compiled[key].untuned
                built = compile_network(network, device, choice, library, model=model, seed=seed, untuned=untuned)
                if isinstance(built, Failure):
                    notes.append(f"Build {number} could not be compiled for {key}: {built.message}")
                else:
                    alike[compiled_for] = str(library)
            if compiled_for in alike:
                libraries[key] = alike[compiled_for]
    return libraries


def _device_options(analysis: Analysis, request: DeployRequest) -> dict[str, DeviceOptions]:
    """The options of the records' devices, by key. UsageError for an unknown device."""
    given = {options.key: options for options in (DeviceOptions(config=config) for config in request.devices)}
    options = {}
    for key, device in devices_of(analysis).items():
        if key not in given:
            try:
                given[key] = DeviceOptions(config=resolve(key))
            except UsageError as error:
                raise UsageError(
                    f"the address of the device {key!r} in these records is unknown",
                    hint="Give --device tvm://HOST:PORT/KEY, or name an address: gnomon devices add NAME ADDRESS",
                ) from error
        options[key] = replace(given[key], threads=device.threads)
    return options


def _proved(
    pool: TvmPool,
    bench: Bench,
    network: Network,
    analysis: Analysis,
    device: TunedDevice,
    request: DeployRequest,
    watch: Watch | None,
) -> list[MeasuredChoice]:
    """Measure the whole network on a device under all choices, interleaved; returns a row for each choice."""
    choices: dict[str, Mapping[str, str]] = {"untuned": {}, OVERLAY: analysis.chosen()}
    choices |= {f"own:{host}": own for host in analysis.document.hosts if (own := analysis.own(host))}
    effort, model = request.effort, analysis.document.model
    network.layers(device.target)
    inputs, outputs = pool.folder / "in.npz", pool.folder / "out.npz"
    calls, rows = {}, {}
    for number, (name, choice) in enumerate(choices.items()):
        library = pool.folder / f"{safe(device.key)}-{number}.so"
        built = network.compile(device, _choice(analysis, choice), library, inputs=inputs, seed=effort.seed)
        if isinstance(built, Failure):
            rows[name] = _network_row(device.key, name, {name: Measured(key=name, runs=(), failure=built)})
        else:
            calls[name] = library
    outputs.unlink(missing_ok=True)
    if isinstance(network.reference(inputs, outputs), Failure) and "untuned" in calls:
        # If no other software computed outputs, the untuned network's outputs are the reference.
        keep = NetworkCall(library=calls["untuned"], inputs=inputs, keep=outputs)
        bench.call(keep, once(effort.loop(model.dtype)))
    reference = outputs if outputs.exists() else None
    networks = {name: NetworkCall(library=path, inputs=inputs, reference=reference) for name, path in calls.items()}
    stage = f"networks on {device.key}"
    asked = {"configurations": {name: dict(choice) for name, choice in choices.items()}, **effort.details()}
    with CallCampaign("overlay-proof", (device, model), tuner_versions(), asked, seed=effort.seed) as campaign:
        times = measure_calls(bench, networks, effort, stage=stage, watch=watch, campaign=campaign)
        campaign.finish(f"{len(calls)} choices of {model.name} on {device.key}", OVERLAY)
    rows |= {name: _network_row(device.key, name, times) for name in times}
    return [rows[name] for name in choices]


def _network_row(device: str, choice: str, times: Mapping[str, Measured]) -> MeasuredChoice:
    """A measured choice: its time, and its ratios to the device's own best and to the overlay, paired by process.

    The ratio of a choice to itself, or to a choice without a time, is None.
    """

    def over(other: str) -> RatioPart | None:
        return ratio_of(times[choice], times[other]) if other in times and other != choice else None

    return MeasuredChoice(
        device=device,
        choice=choice,
        time=times_of(times[choice]),
        to_own=over(f"own:{device}"),
        to_overlay=over(OVERLAY),
        max_error=error_of(times[choice]),
        failure=failure_part(times[choice].failure),
    )


def _choice(analysis: Analysis, chosen: Mapping[str, str]) -> Choice:
    """The layers with the traces of their chosen configurations; layers that stay untuned are left out."""
    wanted = {(layer, name) for layer, name in chosen.items() if name != UNTUNED}
    traces = {name: trace for log in analysis.records for name, trace in traces_of(log.trials, wanted).items()}
    return [
        (layer, traces[layer.layer, chosen[layer.layer]])
        for layer in analysis.described
        if (layer.layer, chosen.get(layer.layer, UNTUNED)) in traces
    ]
