"""The job of `gnomon tune`: the layers of a network, each with schedules that are searched for on the device."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnomon.core.brief import brief
from gnomon.core.overlay.records import (
    UNTUNED,
    LayerProgress,
    TunedDevice,
    TuningLayer,
    TuningRecords,
    TuningTrial,
    shares,
)
from gnomon.core.sample import Failure
from gnomon.core.stats import Block
from gnomon.errors import UsageError
from gnomon.jobs.tune.folder import best_choice, given_model, tune_folder
from gnomon.jobs.tune.networks import Compiled, compile_network, prove_network, summary_of
from gnomon.jobs.tune.recorded import Recorded
from gnomon.jobs.tune.records import RecordFile, best_trial, pooled_trials
from gnomon.jobs.tune.request import TuneRequest, open_device
from gnomon.jobs.tune.rounds import Limits, Tools, measure_untuned, spent, tune_layers
from gnomon.measure.progress import Meter, Watch
from gnomon.tuning.bench import Bench, Builders
from gnomon.tuning.networks import Network, Searches, SearchSettings, Source
from gnomon.tuning.tvm import Workshop

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What tuning came to. `records` is the file of all trials, `library` the compiled network (None: it failed)."""

    records: Path
    library: Path | None
    told: dict[str, Any]

    __repr__ = brief

    def document(self) -> dict[str, Any]:
        """What `gnomon tune --json` prints."""
        return self.told


def tune(request: TuneRequest, *, watch: Watch | None = None, tell: Tell = lambda sentence: None) -> Tuned:
    """Tune a network's layers on a device, compile the network with the best of each, and prove it there.

    What was measured is in the record file at once; the same request goes on where it was interrupted. Raises
    GnomonError.
    """
    request.check()
    began_s = time.monotonic()
    model = given_model(request.model, request.dtype)
    folder = tune_folder(request.out)
    with Workshop() as shop, open_device(shop, request.device, tell=tell) as (device, bench):
        network = Network(shop, Source(path=request.model, dtype=request.dtype, shapes=request.shapes))
        whole = network.layers(device.target)
        layers = _chosen(whole, request.layers)
        folder.keep_model(request.model, model.sha256)
        empty = TuningRecords(device=device, model=model, layers=(), trials=(), versions=dict(network.door.versions))
        with (
            RecordFile(folder.record(device, model), empty, fresh=request.fresh) as file,
            Recorded(file, seed=request.care.seed, fresh=request.fresh) as recorded,
        ):
            before = spent(file, layers)
            if before:
                tell(f"{before} trials of these layers are in {file.path} already")
            file.add_layers(layers)
            tools = _tools(shop, bench, device, request, file)
            progress = _rounds(tools, layers, request, watch, began_s)
            # What was tuned another time is not given up because other layers were asked for this time.
            best = best_choice(replace(file.content(), layers=whole))
            compiled = compile_network(
                network, device, best, folder.library(device, model), model=model, seed=request.care.seed
            )
            proof = prove_network(network, bench, compiled, request.care, model=model, watch=watch)
            document = {
                "model": {"name": model.name, "sha256": model.sha256, "dtype": model.dtype},
                "device": {**device_document(device), "name": request.device.config.name},
                "records": str(file.path),
                "library": str(compiled.library) if isinstance(compiled, Compiled) else None,
                "seconds": time.monotonic() - began_s,
                "stopped": _stopped(progress),
                "trials": _trials(file, layers, request, before),
                "layers": _layers(file, layers, progress),
                "failures": failures_of(
                    [t.failure for layer in layers for t in file.trials(layer.layer)] + list(tools.failures)
                ),
                "network": proof,
                "notes": _notes(file, layers),
            }
            recorded.finish(f"{file.count} trials of {len(layers)} layers of {model.name}")
    made = compiled.library if isinstance(compiled, Compiled) else None
    return Tuned(records=folder.record(device, model), library=made, told=document)


def _tools(shop: Workshop, bench: Bench, device: TunedDevice, request: TuneRequest, file: RecordFile) -> Tools:
    settings = SearchSettings(
        target=device.target,
        strategy=request.strategy,
        trials=request.trials,
        per_round=request.per_round,
        seed=request.care.seed,
    )
    return Tools(
        folder=shop.folder,
        bench=bench,
        builders=Builders(shop, device, timeout_s=request.care.build_timeout_s),
        searches=Searches(shop, settings),
        file=file,
        loop=request.care.loop(request.dtype),
    )


def _rounds(
    tools: Tools, layers: tuple[TuningLayer, ...], request: TuneRequest, watch: Watch | None, began_s: float
) -> dict[str, LayerProgress]:
    measure_untuned(tools, layers, Meter("untuned layers", len(layers), watch))
    left_s = None if request.budget_s is None else max(0.0, request.budget_s - (time.monotonic() - began_s))
    limits = Limits(trials=request.trials, plateau=request.plateau, budget_s=left_s)
    meter = Meter("trials", max(0, request.trials - spent(tools.file, layers)), watch)
    progress = tune_layers(tools, layers, limits, meter)
    meter.finish()
    return progress


def _chosen(layers: tuple[TuningLayer, ...], names: tuple[str, ...]) -> tuple[TuningLayer, ...]:
    known = ", ".join(layer.name for layer in layers[:20])
    for name in names:
        if not any(name in layer.name for layer in layers):
            raise UsageError(f"no layer's name holds {name!r}", hint=f"The layers are: {known}.")
    return tuple(layer for layer in layers if not names or any(name in layer.name for name in names))


def _trials(file: RecordFile, layers: tuple[TuningLayer, ...], request: TuneRequest, before: int) -> dict[str, int]:
    tried = [t for layer in layers for n, t in pooled_trials(file.trials(layer.layer)).items() if n != UNTUNED]
    return {
        "asked": request.trials,
        "measured": len(tried),
        "failed": sum(1 for trial in tried if trial.failure is not None),
        "before": before,
    }


def _layers(
    file: RecordFile, layers: tuple[TuningLayer, ...], progress: dict[str, LayerProgress]
) -> list[dict[str, Any]]:
    made = []
    parts = shares([progress[layer.layer] for layer in layers])
    for layer, share in zip(layers, parts, strict=True):
        pooled = pooled_trials(file.trials(layer.layer))
        best, untuned = best_trial(pooled.values()), pooled.get(UNTUNED)
        slow, fast = (None if t is None else t.time_s for t in (untuned, best))
        made.append(
            {
                "name": layer.name,
                "layer": layer.layer,
                "weight": layer.weight,
                "share": share,
                "untuned": _summary(untuned),
                "best": _summary(best),
                "speedup": slow / fast if slow and fast else None,
                "configuration": None if best is None else best.configuration,
                "trials": sum(1 for name in pooled if name != UNTUNED),
                "failed": sum(1 for trial in pooled.values() if trial.failure is not None),
                "stopped": progress[layer.layer].ended,
            }
        )
    return made


def _summary(trial: TuningTrial | None) -> dict[str, Any] | None:
    if trial is None or trial.time_s is None:
        return None
    return summary_of([Block(process=0, block=0, values_s=trial.times_s)])


def failures_of(failures: Iterable[Failure | None]) -> list[dict[str, Any]]:
    """Failures summed up by stage and kind, with the message of one of each."""
    found = [failure for failure in failures if failure is not None]
    counts = Counter((failure.stage, failure.kind) for failure in found)
    first = {(failure.stage, failure.kind): failure.message for failure in reversed(found)}
    return [
        {"stage": stage, "kind": kind, "count": count, "message": first[stage, kind]}
        for (stage, kind), count in counts.most_common()
    ]


def device_document(device: TunedDevice) -> dict[str, Any]:
    """A device as documents have it."""
    return {
        "key": device.key,
        "target": dict(device.target),
        "threads": device.threads,
        "linker": device.linker,
    }


def _stopped(progress: dict[str, LayerProgress]) -> str:
    """Why all ended, of several reasons the one that most can be done about."""
    ends = {one.ended for one in progress.values()}
    return next((why for why in ("budget", "trials", "plateau", "exhausted", "failed") if why in ends), "exhausted")


def _notes(file: RecordFile, layers: tuple[TuningLayer, ...]) -> list[str]:
    made = []
    servers = {t.server for layer in layers for t in file.trials(layer.layer) if t.server}
    hosts = {server.rpartition(":")[0] for server in servers}
    if len(hosts) > 1:
        made.append(
            f"The trials were measured on several machines that share a key ({', '.join(sorted(hosts))}): "
            "give each a key of its own."
        )
    return made
