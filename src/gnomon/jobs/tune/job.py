"""The job of `gnomon tune`: the layers of a network, each with schedules that are searched for on the device."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnomon.core.codec import fields_of
from gnomon.core.overlay.records import (
    UNTUNED,
    LayerProgress,
    TunedDevice,
    TuningLayer,
    TuningRecords,
    TuningTrial,
    relevant,
    shares,
)
from gnomon.core.stats import Block
from gnomon.installing import install_line
from gnomon.jobs.runs.answers import keep_in
from gnomon.jobs.tune.beside import beside
from gnomon.jobs.tune.campaign import TrialCampaign
from gnomon.jobs.tune.document import (
    BesidePart,
    TimesPart,
    TrialsPart,
    TunedLayerPart,
    TuneDocument,
    device_part,
    failures_of,
    times_part,
    tuned_conditions,
)
from gnomon.jobs.tune.folder import (
    best_choice,
    best_traces,
    chosen_layers,
    given_model,
    tune_folder,
)
from gnomon.jobs.tune.networks import Compiled, compile_network, compile_untuned, prove_network
from gnomon.jobs.tune.records import best_trial, check_record, pooled_trials
from gnomon.jobs.tune.request import Care, TuneRequest, check_wish, open_device
from gnomon.jobs.tune.rounds import Tools, measure_untuned, spent, tune_layers
from gnomon.measure.environment import worst
from gnomon.measure.progress import Meter, Watch
from gnomon.tuning.bench import Bench, Builders
from gnomon.tuning.networks import Network, Searches, SearchSettings, Source
from gnomon.tuning.servers import Tell
from gnomon.tuning.tvm import Workshop

_BUDGET = 1.5
"""The least budget that is advised, over what all but the trials took."""


def tune(request: TuneRequest, *, watch: Watch | None = None, tell: Tell = lambda sentence: None) -> TuneDocument:
    """Tune a network's layers on a device, compile the network with the best of each, and prove it there.

    What was measured is in the results database at once; the same request goes on where it was interrupted. Raises
    GnomonError.
    """
    request.check()
    check_wish(request.device)
    began_s = time.monotonic()
    model = given_model(request.model, request.dtype)
    folder = tune_folder(request.out)
    source = Source(path=request.model, dtype=request.dtype, shapes=request.shapes)
    source.check()
    elsewhere = best_traces(request.logs)
    meant = TunedDevice(key=request.device.key, target={})
    check_record(folder.record(meant, model))
    # A device that was tuned for before is waited for, whatever its server does at this moment.
    known = meant if folder.record(meant, model).exists() else None
    with Workshop() as shop, open_device(shop, request.device, known, tell=tell) as (device, bench):
        opened_s = time.monotonic() - began_s
        network = Network(shop, source)
        whole = network.layers(device.target)
        chosen = chosen_layers(whole, request.layers)
        layers = tuple(layer for layer in whole if layer in chosen)
        folder.keep_model(request.model, model.sha256)
        empty = TuningRecords(device=device, model=model, layers=(), trials=(), versions=dict(network.door.versions))
        with TrialCampaign(folder.record(device, model), empty, "tune", fresh=request.fresh) as campaign:
            before = spent(campaign, layers)
            if before:
                tell(f"{before} trials of these layers are in {campaign.path} already; --fresh begins without them")
            campaign.add_layers(layers)
            tools = _tools(shop, bench, network, request, campaign, elsewhere)
            time_left, untuned = None, None
            if request.budget_s is not None:
                compiling_s = time.monotonic()
                untuned = compile_untuned(network, device, folder.library(device, model))
                compiling_s = time.monotonic() - compiling_s
                time_left = _TimeLeft(
                    ends_s=began_s + request.budget_s,
                    compile_s=compiling_s,
                    process_s=opened_s,
                    care=request.care,
                )
            progress = _rounds(tools, layers, watch, time_left)
            # What was tuned another time is not given up because other layers were asked for this time.
            best = best_choice(replace(campaign.content(), layers=whole))
            compiled = compile_network(
                network,
                device,
                best,
                folder.library(device, model),
                model=model,
                seed=request.care.seed,
                untuned=untuned,
            )
            proof = prove_network(bench, compiled, request.care, model=model, watch=watch, campaign=campaign)
            parts = shares([progress[layer.layer] for layer in layers])
            document = TuneDocument(
                model=model,
                device=device_part(device, request.device.config.name),
                records=str(campaign.path),
                library=str(compiled.library) if isinstance(compiled, Compiled) else None,
                seconds=time.monotonic() - began_s,
                stopped=_stopped(progress),
                trials=_trials(campaign, layers, request, before, len(relevant(progress.values()))),
                layers=tuple(
                    _layer(layer, campaign.trials(layer.layer), share, progress[layer.layer].ended)
                    for layer, share in zip(layers, parts, strict=True)
                ),
                failures=failures_of(
                    [t.failure for layer in layers for t in campaign.trials(layer.layer)] + list(tools.failures)
                ),
                network=proof,
                beside=None,
                doubts=tuple(worst(bench.environments)),
                notes=(*_too_short(request, progress, time_left), *_notes(tools, layers)),
                conditions=tuned_conditions(device, model, campaign.began_s, network.inputs),
            )
            campaign.finish(f"{campaign.count} trials of {len(layers)} layers of {model.name}")
    if document.library and (request.budget_s is None if request.compare is None else request.compare):
        if proof.scheduled:
            compared, proof = beside(
                request, folder.record(device, model), device.threads, proof, watch=watch, tell=tell
            )
            document = replace(document, beside=compared, network=proof)
        elif request.compare:
            reason = "no layer runs tuned, as none came out faster so"
            document = replace(document, beside=BesidePart(failure=reason))
    keep_in(None, campaign.id, document.document(), tell)
    return document


def _tools(
    shop: Workshop,
    bench: Bench,
    network: Network,
    request: TuneRequest,
    campaign: TrialCampaign,
    elsewhere: Mapping[str, list[Any]],
) -> Tools:
    device = bench.device
    settings = SearchSettings(**fields_of(SearchSettings, request), target=device.target, seed=request.care.seed)
    return Tools(
        asked=request,
        folder=shop.folder,
        bench=bench,
        builders=Builders(shop, device, timeout_s=request.care.build_timeout_s),
        searches=Searches(shop, settings),
        campaign=campaign,
        loop=request.care.loop(request.dtype),
        elsewhere=elsewhere,
        lacking=lambda: network.lacking(device.target, {"kind": "llvm", **bench.here()}) if bench.is_here else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimeLeft:
    """When all has to be at its end, by the monotonic clock, and what is to be done once the trials are.

    `compile_s` is what compiling the network took, `process_s` what starting on the device did.
    """

    ends_s: float
    compile_s: float
    process_s: float
    care: Care

    def until_s(self, network_s: float) -> float:
        """When the trials have to end: before compiling and proving, for a network of so many seconds untuned."""
        calls_s = 2 * 2 * self.care.repeat * max(network_s, self.care.min_repeat_ms / 1e3)
        return self.ends_s - 1.5 * self.compile_s - self.care.processes * (self.process_s + calls_s)


def _rounds(
    tools: Tools,
    layers: tuple[TuningLayer, ...],
    watch: Watch | None,
    time_left: _TimeLeft | None,
) -> dict[str, LayerProgress]:
    """How far each layer came."""
    if time_left is not None:
        tools.until_s = time_left.until_s(0.0)
    measure_untuned(tools, layers, Meter("untuned layers", len(layers), watch))
    if time_left is not None:
        tools.until_s = time_left.until_s(_untuned_s(tools.campaign, layers))
    meter = Meter("trials", max(0, tools.asked.trials - spent(tools.campaign, layers)), watch)
    progress = tune_layers(tools, layers, meter)
    meter.finish()
    return progress


def _untuned_s(campaign: TrialCampaign, layers: tuple[TuningLayer, ...]) -> float:
    """What the untuned layers that were measured take in the network."""
    known = ((layer.weight, pooled_trials(campaign.trials(layer.layer)).get(UNTUNED)) for layer in layers)
    return sum(weight * (trial.time_s or 0.0) for weight, trial in known if trial is not None)


def _too_short(request: TuneRequest, progress: Mapping[str, LayerProgress], time_left: _TimeLeft | None) -> list[str]:
    """A sentence where the budget left no time for any trial."""
    if time_left is None or request.budget_s is None or any(one.best_s for one in progress.values()):
        return []
    before_s = time.monotonic() - (time_left.ends_s - request.budget_s)
    return [
        f"Of {request.budget_s:g} s nothing was left for trials: reading the network, its untuned layers, compiling "
        f"and the proof took {before_s:.0f} s. Give a --budget of {math.ceil(_BUDGET * before_s)} or more."
    ]


def _trials(
    campaign: TrialCampaign, layers: tuple[TuningLayer, ...], request: TuneRequest, before: int, matter: int
) -> TrialsPart:
    tried = [t for layer in layers for n, t in pooled_trials(campaign.trials(layer.layer)).items() if n != UNTUNED]
    return TrialsPart(
        asked=request.trials,
        measured=len(tried),
        failed=sum(1 for trial in tried if trial.failure is not None),
        before=before,
        relevant=matter,
    )


def _layer(layer: TuningLayer, trials: Sequence[TuningTrial], share: float | None, stopped: str) -> TunedLayerPart:
    pooled = pooled_trials(trials)
    best, untuned = best_trial(pooled.values()), pooled.get(UNTUNED)
    slow, fast = (None if trial is None else trial.time_s for trial in (untuned, best))
    return TunedLayerPart(
        **fields_of(TunedLayerPart, layer),
        share=share,
        untuned=_times(untuned),
        best=_times(best),
        speedup=slow / fast if slow and fast else None,
        configuration=None if best is None else best.configuration,
        trials=sum(name != UNTUNED for name in pooled),
        failed=sum(trial.failure is not None for trial in pooled.values()),
        stopped=stopped,
    )


def _times(trial: TuningTrial | None) -> TimesPart | None:
    if trial is None or trial.time_s is None:
        return None
    return times_part([Block(process=0, block=0, values_s=trial.samples_s)], "cpu" if trial.cpu_s else "wall")


def _stopped(progress: dict[str, LayerProgress]) -> str:
    """Why all ended, of several reasons the one that most can be done about."""
    ends = {one.ended for one in progress.values()}
    return next((why for why in ("budget", "trials", "plateau", "exhausted", "failed") if why in ends), "exhausted")


def _notes(tools: Tools, layers: tuple[TuningLayer, ...]) -> list[str]:
    made = []
    if not tools.searches.learns:
        made.append(
            "The search had no cost model that learns, because XGBoost is not installed. The same number of trials "
            f"finds faster kernels with it: {install_line('xgboost-cpu')}"
        )
    servers = {t.server for layer in layers for t in tools.campaign.trials(layer.layer) if t.server}
    hosts = {server.rpartition(":")[0] for server in servers}
    if len(hosts) > 1:
        made.append(
            f"The trials were measured on several machines that share a key ({', '.join(sorted(hosts))}): "
            "give each a key of its own."
        )
    return made
