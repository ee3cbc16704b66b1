"""The job of `gnomon exec`: a compiled network, or records compiled again, on any device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.core.strict_json import shown
from gnomon.core.tuning_record import TunedDevice, TunedModel
from gnomon.errors import MeasurementError, UsageError
from gnomon.formats.tuning_records import as_argument
from gnomon.jobs.compiled import compile_network
from gnomon.jobs.tune import device_document
from gnomon.jobs.tune_folder import companions, read_description, tune_folder
from gnomon.jobs.tune_logs import best_of, model_file, read_logs, replayable
from gnomon.jobs.tune_networks import CallTimes, failure_document, measure_calls
from gnomon.jobs.tune_request import TOLERANCES, Care, DeviceWish, open_device
from gnomon.measure.progress import Meter, Watch
from gnomon.tuning.bench import Bench, LayerCall, NetworkCall
from gnomon.tuning.door import Workshop
from gnomon.tuning.networks import Network, Source

_NETWORK = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """A compiled network (.so) or records (.json, a database's folder) to be measured on a device.

    `model` is the network's own file, where records are compiled and no copy was kept. `layers` measures each layer
    apart, too.
    """

    source: Path
    device: DeviceWish = field(default_factory=DeviceWish)
    model: Path | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    layers: bool = True
    care: Care = field(default_factory=Care)
    out: Path | None = None


def execute(request: ExecRequest, *, watch: Watch | None = None) -> dict[str, Any]:
    """Measure a compiled network on a device and compare its outputs; the document that `gnomon exec --json` prints.

    Raises GnomonError; what fails on the device is in the document.
    """
    if request.source.suffix == ".so":
        if not request.source.is_file():
            raise UsageError(f"there is no {request.source}", hint="gnomon view lists what is compiled here.")
        told = _told(request.source)
        with Workshop() as shop:
            device, bench = open_device(shop, request.device, _device(told))
            return _measured(request, told, request.source, (device, bench), watch)
    return _replayed(request, watch)


def _replayed(request: ExecRequest, watch: Watch | None) -> dict[str, Any]:
    """Compile the best configuration of each layer for the device that is meant."""
    (records,) = read_logs([request.source])
    replayable([request.source], [records])
    folder = tune_folder(request.out)
    path = model_file(folder, records.model, request.model)
    with Workshop() as shop:
        known = None if request.device.key not in (None, records.device.key) else records.device
        device, bench = open_device(shop, request.device, known)
        network = Network(shop, Source(path=path, dtype=records.model.dtype, shapes=request.shapes))
        network.layers(device.target)
        best = [(layer, found[0].trace) for layer in records.layers if (found := best_of(records, layer, 1))]
        host = "" if records.host == device.key else records.host
        library = folder.library(device, records.model, choice=host)
        made = compile_network(network, device, best, library, model=records.model, seed=request.care.seed)
        if isinstance(made, Failure):
            raise MeasurementError(
                f"{request.source} cannot be compiled for {device.key}: {made.message}",
                hint="Records of another model or another version of TVM do not fit; tune again with gnomon tune.",
            )
        document = _measured(request, _told(library), library, (device, bench), watch)
        return {**document, "source": str(request.source), "library": str(made.library)}


def _told(library: Path) -> Mapping[str, Any]:
    told = read_description(library)
    if not told:
        raise UsageError(
            f"nothing beside {library} says what goes into it",
            hint=f"Copy {companions(library)['description'].name} and its neighbours along with it.",
        )
    return told


def _measured(
    request: ExecRequest,
    told: Mapping[str, Any],
    library: Path,
    on: tuple[TunedDevice, Bench],
    watch: Watch | None,
) -> dict[str, Any]:
    model, (device, bench) = _model(told), on
    beside = companions(library)
    reference = beside["outputs"] if beside["outputs"].is_file() else None
    calls: dict[str, NetworkCall | LayerCall] = {
        _NETWORK: NetworkCall(library=library, inputs=beside["inputs"], reference=reference)
    }
    layers = _layers(told) if request.layers and beside["layers"].is_file() else []
    calls |= {
        one["name"]: LayerCall(
            library=beside["layers"],
            function=one["name"],
            arguments=one["arguments"],
            outputs=(len(one["arguments"]) - 1,),
        )
        for one in layers
    }
    meter = Meter("calls", len(calls) * request.care.processes, watch)
    loop, care = request.care.loop(model.dtype), request.care
    found = measure_calls(bench, calls, loop, processes=care.processes, seed=care.seed, meter=meter)
    return _document(request, told, device, found, layers, reference)


def _document(
    request: ExecRequest,
    told: Mapping[str, Any],
    device: TunedDevice,
    found: Mapping[str, CallTimes],
    layers: Sequence[Mapping[str, Any]],
    reference: Path | None,
) -> dict[str, Any]:
    whole = found[_NETWORK]
    network = whole.summary()
    rows, total = [], 0.0
    for one in layers:
        times = found[one["name"]]
        summary = times.summary()
        spent = one["weight"] * summary["median_s"] if summary else None
        total += spent or 0.0
        rows.append(
            {
                "name": one["name"],
                "weight": one["weight"],
                "time": summary,
                "share": spent / network["median_s"] if spent and network else None,
                "failure": None if times.failure is None else failure_document(times.failure),
            }
        )
    complete = bool(rows) and all(row["time"] for row in rows)
    return {
        "model": dict(told["model"]),
        "device": device_document(device),
        "source": str(request.source),
        "built_for": dict(_device(told).target),
        "network": network,
        "max_error": whole.error,
        "compared_with": None if reference is None else told.get("reference_by") or "the untuned network",
        "layers": sorted(rows, key=lambda row: -(row["share"] or 0.0)),
        "layers_sum_s": total if complete else None,
        "unaccounted_s": network["median_s"] - total if complete and network else None,
        "failure": None if whole.failure is None else failure_document(whole.failure),
        "notes": _notes(rows, reference),
    }


def _notes(rows: Sequence[Mapping[str, Any]], reference: Path | None) -> list[str]:
    made = []
    if rows:
        made.append("Layers are timed one by one, over and over: with warm caches, so that they need not add up.")
    if reference is None:
        made.append("There are no reference outputs beside the library: what it computes was not checked.")
    return made


def _device(told: Mapping[str, Any]) -> TunedDevice:
    try:
        device = told["device"]
        return TunedDevice(key=str(device["key"]), target=dict(device["target"]), linker=str(device["linker"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(error) from error


def _model(told: Mapping[str, Any]) -> TunedModel:
    try:
        model = told["model"]
        made = TunedModel(name=str(model["name"]), sha256=str(model["sha256"]), dtype=str(model["dtype"]))
    except (KeyError, TypeError) as error:
        raise _damaged(error) from error
    if made.dtype not in TOLERANCES:
        raise _damaged(ValueError(f"the data type {shown(made.dtype)} is unknown"))
    return made


def _layers(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    made = []
    try:
        for one in told["layers"]:
            arguments = tuple(as_argument(item) for item in one["arguments"])
            if None in arguments or not arguments:
                raise ValueError("arguments that are none")
            made.append({"name": str(one["name"]), "weight": int(one["weight"]), "arguments": arguments})
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(error) from error
    return made


def _damaged(error: Exception) -> UsageError:
    return UsageError(f"the description of the compiled network is damaged: {error}", hint="Compile it again.")
