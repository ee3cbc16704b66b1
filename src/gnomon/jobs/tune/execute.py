"""The job of `gnomon exec`: measure a compiled network, or a network compiled again from records, on any device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

from gnomon.core.codec import Must, check_fields, decode, fields_of
from gnomon.core.overlay.records import LineOrNone, TunedDevice, TunedModel, TuningLayer
from gnomon.core.sample import Failure
from gnomon.core.strict_json import Complaints, shown
from gnomon.errors import MeasurementError, UsageError
from gnomon.formats.tuning.logs import kind_problem
from gnomon.formats.tuning.records import MOST_LAYERS
from gnomon.jobs.runs.answers import keep_in
from gnomon.jobs.tune.campaign import CallCampaign
from gnomon.jobs.tune.document import ExecDocument, RunLayerPart, TimesPart, device_part, failure_part, tuned_conditions
from gnomon.jobs.tune.folder import (
    best_choice,
    companions,
    model_file,
    read_description,
    read_logs,
    replayable,
    tune_folder,
    tuner_versions,
)
from gnomon.jobs.tune.networks import compile_network, error_of, measure_calls, times_of
from gnomon.jobs.tune.request import TOLERANCES, DeviceOptions, TuneEffort, open_device
from gnomon.measure.campaign import Measured
from gnomon.measure.environment import worst
from gnomon.measure.progress import Watch
from gnomon.system.files import file_digest
from gnomon.tuning.bench import Bench, LayerCall, NetworkCall
from gnomon.tuning.networks import Network, Source
from gnomon.tuning.servers import Tell
from gnomon.tuning.tvm import TvmPool

_NETWORK = "the network"
"""The key of the whole network among its layers; no layer has this name, because layers' names are identifiers."""

_Layers = Annotated[
    tuple[TuningLayer, ...], Must(be=f"at most {MOST_LAYERS} layers", fits=lambda value: len(value) <= MOST_LAYERS)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """A compiled network (.so), or records (.json or a database's folder), to measure on a device.

    Compiling from records needs the network's file, `model`, unless tuning kept a copy. With `layers` each layer is
    also measured separately.
    """

    source: Path
    device: DeviceOptions = field(default_factory=DeviceOptions)
    model: Path | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    layers: bool = True
    effort: TuneEffort = field(default_factory=TuneEffort)
    out: Path | None = None


def execute(request: ExecRequest, *, watch: Watch | None = None, tell: Tell = lambda sentence: None) -> ExecDocument:
    """Measure the requested network on a device, and compare its outputs with the reference outputs.

    Raises GnomonError; failures on the device are in the document.
    """
    check_fields(request.effort)
    if request.source.suffix != ".so":
        return _replayed(request, watch, tell)
    if not request.source.is_file():
        raise UsageError(f"there is no file {request.source}", hint="To list compiled networks: gnomon tune list")
    if request.shapes:
        raise UsageError(f"{request.source.name} is compiled for fixed shapes", hint="Leave out --shape.")
    described = _described(request.source)
    with TvmPool() as pool, open_device(pool, request.device, described.device, tell) as on:
        campaign, document = _measured(request, described, request.source, on, watch)
    keep_in(None, campaign, document.document(), tell)
    return document


def _replayed(request: ExecRequest, watch: Watch | None, tell: Tell) -> ExecDocument:
    """Compile the network with the best configuration of each layer for the requested device, and measure it there."""
    (records,) = read_logs([request.source])
    replayable([request.source], [records])
    folder = tune_folder(request.out)
    path = model_file(folder, records.model, request.model)
    recorded = records.device if request.device.key == records.device.key else None
    source = Source(path=path, dtype=records.model.dtype, shapes=request.shapes)
    source.check()
    with TvmPool() as pool, open_device(pool, request.device, recorded, tell) as (device, bench):
        network = Network(pool, source)
        network.layers(device.target)
        library = folder.library(device, records.model, choice="" if records.host == device.key else records.host)
        best, seed = best_choice(records), request.effort.seed
        built = compile_network(network, device, best, library, model=records.model, seed=seed)
        if isinstance(built, Failure):
            raise MeasurementError(
                f"{request.source} cannot be compiled for {device.key}: {built.message}",
                hint="The records may belong to another model or version of TVM. To tune again: gnomon tune MODEL",
            )
        campaign, document = _measured(request, _described(library), library, (device, bench), watch)
    document = replace(document, library=str(built.library))
    keep_in(None, campaign, document.document(), tell)
    return document


def _measured(
    request: ExecRequest, described: Description, library: Path, on: tuple[TunedDevice, Bench], watch: Watch | None
) -> tuple[str, ExecDocument]:
    """Measure the network and its layers; returns the id of the campaign, and the document."""
    model, (device, bench) = described.model, on
    beside = companions(library)
    reference = beside["outputs"] if beside["outputs"].is_file() else None
    calls: dict[str, NetworkCall | LayerCall] = {
        _NETWORK: NetworkCall(library=library, inputs=beside["inputs"], reference=reference)
    }
    layers = described.layers if request.layers and beside["layers"].is_file() else ()
    calls |= {
        layer.name: LayerCall(
            library=beside["layers"],
            function=layer.name,
            arguments=layer.arguments,
            outputs=(len(layer.arguments) - 1,),
        )
        for layer in layers
    }
    effort = request.effort
    asked = {
        "library": str(library.resolve()),
        "sha256": file_digest(library),
        "calls": sorted(calls),
        **effort.details(),
    }
    with CallCampaign("exec", (device, model), tuner_versions(), asked, seed=effort.seed) as campaign:
        times = measure_calls(bench, calls, effort, stage="calls", watch=watch, campaign=campaign)
        campaign.finish(f"{request.source.name} on {device.key}", str(request.source))
    whole = times[_NETWORK]
    network = times_of(whole)
    rows = [_layer(layer, times[layer.name], network) for layer in layers]
    parts = [row.weight * row.time.median_s for row in rows if row.time]
    total = sum(parts) if rows and len(parts) == len(rows) else None
    notes = []
    if layers:
        notes.append("Each layer is timed in a loop with warm caches, so the layers' times need not add up.")
    if reference is None:
        notes.append("There are no reference outputs next to the library, so its outputs were not checked.")
    return campaign.id, ExecDocument(
        model=model,
        device=device_part(device),
        source=str(request.source),
        built_for=described.device.target,
        network=network,
        max_error=error_of(whole),
        compared_with=None if reference is None else described.reference_by or "the untuned network",
        layers=tuple(sorted(rows, key=lambda row: -(row.share or 0.0))),
        layers_sum_s=total,
        unaccounted_s=network.median_s - total if total is not None and network else None,
        failure=failure_part(whole.failure),
        doubts=tuple(worst(bench.environments)),
        notes=tuple(notes),
        conditions=tuned_conditions(device, model, campaign.began_s),
    )


def _layer(layer: TuningLayer, measured: Measured, network: TimesPart | None) -> RunLayerPart:
    summary = times_of(measured)
    return RunLayerPart(
        **fields_of(RunLayerPart, layer),
        time=summary,
        share=layer.weight * summary.median_s / network.median_s if summary and network else None,
        failure=failure_part(measured.failure),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The description of a compiled network: its device, model and layers, and the origin of its reference outputs."""

    device: TunedDevice
    model: TunedModel
    layers: _Layers
    reference_by: LineOrNone | None = None


def _described(library: Path) -> Description:
    """The description of a compiled network. UsageError if it or the file of inputs is missing.

    The description may come from anywhere, so it is checked: ProblemError if it is damaged.
    """
    given, beside = read_description(library), companions(library)
    if not given:
        raise UsageError(
            f"the description of {library} is missing: {beside['description'].name}",
            hint=f"Copy it and the other files that begin with {library.stem} into the same folder.",
        )
    if not beside["inputs"].is_file():
        raise UsageError(f"the inputs of {library} are missing", hint=f"Copy {beside['inputs'].name} next to it.")
    complaints = Complaints(what=f"description beside {library}", hint="Compile it again.")
    names = [part.name for part in fields(Description)]
    description: Description | None = decode(Description, {n: given[n] for n in names if n in given}, complaints)
    if description is not None:
        if (problem := kind_problem(description.device.target)) is not None:
            complaints.tell("$.device.target", problem)
        if description.model.dtype not in TOLERANCES:
            complaints.tell("$.model.dtype", f"the data type {shown(description.model.dtype)} is unknown")
        if len({layer.name for layer in description.layers}) < len(description.layers):
            complaints.tell("$.layers", "two layers have the same name")
        if not all(layer.arguments for layer in description.layers):
            complaints.tell("$.layers", "a layer has no arguments: data types and shapes expected")
    complaints.raise_any()
    assert description is not None  # noqa: S101 - complaints were raised above
    return description
