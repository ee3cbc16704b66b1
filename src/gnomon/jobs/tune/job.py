"""The job of `gnomon tune`: search for the fastest schedules of a network's layers on a device.

Each round asks the search for candidates, builds, measures and records them, and reports the times to the search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gnomon.core.codec import fields_of
from gnomon.core.overlay.records import (
    UNTUNED,
    LayerProgress,
    TunedDevice,
    TuningLayer,
    TuningRecords,
    TuningTrial,
    configuration_id,
    first_round,
    next_layer,
    relevant,
    shares,
)
from gnomon.core.sample import Failure
from gnomon.core.stats import Block
from gnomon.errors import DeviceError, MeasurementError
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
from gnomon.jobs.tune.folder import best_choice, best_traces, chosen_layers, given_model, tune_folder
from gnomon.jobs.tune.networks import Compiled, compile_network, compile_untuned, prove_network
from gnomon.jobs.tune.records import best_trial, check_record, measured_trial, pooled_trials
from gnomon.jobs.tune.request import TuneEffort, TuneRequest, check_options, open_device
from gnomon.measure.environment import worst
from gnomon.measure.progress import Meter, Watch
from gnomon.report.plain import many
from gnomon.tuning.bench import Bench, Builders, Loop, Timed, discard, once
from gnomon.tuning.networks import Network, Searches, SearchSettings, Source
from gnomon.tuning.servers import Tell
from gnomon.tuning.tvm import TvmPool

_RELEVANT = 0.01
_CRASHES = 3


@dataclass(slots=True, kw_only=True)
class Tools:
    """What a round uses, including the request (`asked`). Rounds end when the monotonic clock reaches `until_s`.

    `lacking` returns the target's instructions that the device lacks, if they are known. `elsewhere` has configurations
    from other logs, by the layer's digest, the best first; they are tried before those of the search.
    """

    asked: TuneRequest
    folder: Path
    bench: Bench
    builders: Builders
    searches: Searches
    campaign: TrialCampaign
    loop: Loop
    lacking: Callable[[], Sequence[str]] = tuple
    elsewhere: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    references: dict[str, Path] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    until_s: float | None = None

    @property
    def over(self) -> bool:
        """Return True if the time is up."""
        return self.until_s is not None and time.monotonic() >= self.until_s


def measure_untuned(tools: Tools, layers: tuple[TuningLayer, ...], meter: Meter) -> None:
    """Build and measure each untuned layer, and keep its outputs as the reference for tuned code.

    Layers with a known time are run again for their outputs, but not timed again. MeasurementError if the first layers
    all crash, because the others would then crash too.
    """
    if tools.over:
        return
    crashed = 0
    for layer, call in zip(layers, tools.builders.build([(layer, None) for layer in layers]), strict=True):
        if tools.over:
            discard(call)
            continue
        before = pooled_trials(tools.campaign.trials(layer.layer)).get(UNTUNED)
        timed = before is not None and before.time_s is not None
        said: Timed | Failure
        if isinstance(call, Failure):
            said = call
        else:
            keep = tools.folder / f"outputs-{layer.layer}.npz"
            # The outputs come first: a layer that is too slow to be timed needs tuning most, and tuning needs outputs.
            try:
                said = tools.bench.call(replace(call, keep=keep), once(tools.loop))
            except DeviceError as error:
                if crashed and not tools.references:
                    raise _all_crash(tools, crashed) from error
                raise
            if isinstance(said, Failure):
                tools.failures.append(said)
            else:
                tools.references[layer.layer] = keep
                said = said if timed else tools.bench.call(call, tools.loop)
        if before is None or (not timed and isinstance(said, Timed)):
            tools.campaign.add(measured_trial(layer, None, said))
        discard(call)
        crashed += isinstance(said, Failure) and said.kind == "crash"
        if not tools.references and crashed >= min(_CRASHES, len(layers)):
            raise _all_crash(tools, crashed)
        meter.step()


def _all_crash(tools: Tools, count: int) -> MeasurementError:
    device = tools.bench.device
    cpu = device.target.get("mcpu") or device.target.get("kind")
    lacking = tools.lacking()
    text = f", which lacks the instructions {', '.join(lacking[:8])}{', ..' if lacking[8:] else ''}" if lacking else ""
    return MeasurementError(
        f"the first {many(count, 'layer')}, compiled for {cpu}, crashed on {device.key}{text}",
        hint="Give a --target that the device supports: native, generic, x86-64-v3, aarch64-cortex-a72, ..",
    )


def tune_layers(tools: Tools, layers: tuple[TuningLayer, ...], meter: Meter) -> dict[str, LayerProgress]:
    """Run rounds until trials, time or layers are exhausted; returns the progress of each layer by its digest."""
    by_digest = {layer.layer: layer for layer in layers}
    progress = {layer.layer: _progress(tools, layer) for layer in layers}
    asked = tools.asked
    first = asked.first_round or first_round(progress.values(), trials=asked.trials, per_round=asked.per_round)
    for layer in layers:
        _look_back(tools, layer, progress[layer.layer], first)
    left = asked.trials - spent(tools.campaign, layers)
    begun: set[str] = set()
    while left > 0 and (digest := next_layer(progress)) is not None:
        if tools.over:
            break
        layer, state = by_digest[digest], progress[digest]
        if digest not in begun:
            begun.add(digest)
            if traces := () if state.best_s else tools.elsewhere.get(digest, ())[: min(first, left)]:
                left -= _measure(tools, layer, traces, meter.step)
                _add_round(tools, state, tools.campaign.trials(digest))
            if isinstance(said := tools.searches.begin(layer, _results(tools, layer)), Failure):
                tools.failures.append(said)
                state.ended = "failed"
                continue
            if traces:
                continue  # these traces may be enough for this layer
        size = asked.per_round if state.best_s else first
        new = _round(tools, layer, min(size, left), meter.step)
        if not isinstance(new, int):
            state.ended = new
            continue
        left -= new
        _add_round(tools, state, tools.campaign.trials(digest))
        meter.expect(left)
    for state in progress.values():
        state.ended = state.ended or ("budget" if tools.over else "trials")
    return progress


def _add_round(tools: Tools, state: LayerProgress, trials: Sequence[TuningTrial]) -> None:
    """Record the best time after these trials of a layer, and end the layer if it has reached a plateau."""
    best = best_trial(trials)
    state.best_s.append(best.time_s if best and best.time_s else state.now_s)
    if tools.asked.plateau and state.on_plateau(tools.asked.plateau, _RELEVANT):
        state.ended = "plateau"


def _round(
    tools: Tools, layer: TuningLayer, most: int, step: Callable[[], None]
) -> int | Literal["exhausted", "failed"]:
    """Run one round of a layer; returns the number of new candidates, or the reason why the search is over.

    If the time runs out during the round, the results are not reported to the search, because it is not used again.
    """
    traces = tools.searches.ask(layer.layer, most)
    if isinstance(traces, Failure):
        tools.failures.append(traces)
        return "failed"
    if not traces:
        return "exhausted"
    count = _measure(tools, layer, traces, step)
    if tools.over:
        return count
    pooled = pooled_trials(tools.campaign.trials(layer.layer))
    results = [(trace, pooled[configuration_id(layer.layer, trace)].samples_s) for trace in traces]
    if isinstance(lost := tools.searches.tell(layer.layer, results), Failure):
        tools.failures.append(lost)
        return "failed"
    return count


def _measure(tools: Tools, layer: TuningLayer, traces: Sequence[Any], step: Callable[[], None]) -> int:
    """Build and measure the configurations that the campaign lacks, until the time is up; returns their number.

    The best configuration so far is measured once more together with them.
    """
    pooled = pooled_trials(tools.campaign.trials(layer.layer))
    fresh: dict[str, Any] = {}
    for trace in traces:
        if (name := configuration_id(layer.layer, trace)) not in pooled:
            fresh.setdefault(name, trace)
    waiting = list(fresh.items())
    if fresh and (best := best_trial(pooled.values())):
        # The best is measured again with the new ones, so that one lucky or busy moment does not settle its time for
        # good.
        waiting.append((best.configuration, best.trace))
    count, reference, bench = 0, tools.references.get(layer.layer), tools.bench
    size = tools.builders.count
    while waiting and not tools.over:
        batch, waiting = waiting[:size], waiting[size:]
        built = tools.builders.build([(layer, trace) for _, trace in batch])
        for (name, trace), call in zip(batch, built, strict=True):
            said = call if isinstance(call, Failure) else bench.call(replace(call, reference=reference), tools.loop)
            tools.campaign.add(measured_trial(layer, trace, said))
            discard(call)
            if name in fresh:
                count += 1
                step()
    return count


def _progress(tools: Tools, layer: TuningLayer) -> LayerProgress:
    untuned = pooled_trials(tools.campaign.trials(layer.layer)).get(UNTUNED)
    state = LayerProgress(weight=layer.weight, untuned_s=None if untuned is None else untuned.time_s)
    if layer.layer not in tools.references:
        # If there are no reference outputs, the untuned layer failed or the time ran out before it could run.
        state.ended = "failed" if untuned is not None else "budget"
    return state


def _look_back(tools: Tools, layer: TuningLayer, state: LayerProgress, first: int) -> None:
    """Repeat the plateau test for the rounds of earlier calls, so that a layer that reached its plateau stays ended."""
    size = tools.asked.per_round
    pooled = pooled_trials(tools.campaign.trials(layer.layer)).values()
    tried = [trial for trial in pooled if trial.trace is not None]
    for end in [first, *range(first + size, len(tried) + size, size)] if tried else []:
        if not state.ended:
            _add_round(tools, state, tried[:end])


def _results(tools: Tools, layer: TuningLayer) -> list[tuple[Any, tuple[float, ...]]]:
    pooled = pooled_trials(tools.campaign.trials(layer.layer)).values()
    return [(t.trace, t.samples_s) for t in pooled if t.trace is not None]


def spent(campaign: TrialCampaign, layers: Iterable[TuningLayer]) -> int:
    """The number of candidates that the campaign has for these layers, including failed ones."""
    return sum(name != UNTUNED for layer in layers for name in pooled_trials(campaign.trials(layer.layer)))


_BUDGET = 1.5
"""The least budget to recommend, as a multiple of the time that everything except the trials takes."""


def tune(request: TuneRequest, *, watch: Watch | None = None, tell: Tell = lambda sentence: None) -> TuneDocument:
    """Tune a network's layers on a device, compile the network with the best configurations, and prove it there.

    Measurements are stored in the results database at once, so repeating the request continues an interrupted call.
    Raises GnomonError.
    """
    request.check()
    check_options(request.device)
    began_s = time.monotonic()
    model = given_model(request.model, request.dtype)
    folder = tune_folder(request.out)
    source = Source(path=request.model, dtype=request.dtype, shapes=request.shapes)
    source.check()
    elsewhere = best_traces(request.logs)
    meant = TunedDevice(key=request.device.key, target={})
    check_record(folder.record(meant, model))
    # If gnomon has tuned for this device before, it waits for the device's server.
    recorded = meant if folder.record(meant, model).exists() else None
    with TvmPool() as pool, open_device(pool, request.device, recorded, tell=tell) as (device, bench):
        opened_s = time.monotonic() - began_s
        network = Network(pool, source)
        whole = network.layers(device.target)
        chosen = chosen_layers(whole, request.layers)
        layers = tuple(layer for layer in whole if layer in chosen)
        folder.keep_model(request.model, model.sha256)
        empty = TuningRecords(device=device, model=model, layers=(), trials=(), versions=dict(network.worker.versions))
        with TrialCampaign(folder.record(device, model), empty, "tune", fresh=request.fresh) as campaign:
            before = spent(campaign, layers)
            if before:
                tell(
                    f"continuing with {many(before, 'earlier trial')} of these layers in {campaign.path}; to start "
                    "again without them: --fresh"
                )
            campaign.add_layers(layers)
            tools = _tools(pool, bench, network, request, campaign, elsewhere)
            time_left, untuned = None, None
            if request.budget_s is not None:
                compiling_s = time.monotonic()
                untuned = compile_untuned(network, device, folder.library(device, model))
                compiling_s = time.monotonic() - compiling_s
                time_left = _TimeLeft(
                    ends_s=began_s + request.budget_s, compile_s=compiling_s, process_s=opened_s, effort=request.effort
                )
            progress = _rounds(tools, layers, watch, time_left)
            # Layers that were tuned earlier stay tuned, even if only other layers are requested now.
            best = best_choice(replace(campaign.content(), layers=whole))
            compiled = compile_network(
                network,
                device,
                best,
                folder.library(device, model),
                model=model,
                seed=request.effort.seed,
                untuned=untuned,
            )
            proof = prove_network(bench, compiled, request.effort, watch=watch, campaign=campaign)
            parts = shares([progress[layer.layer] for layer in layers])
            failures = [trial.failure for layer in layers for trial in campaign.trials(layer.layer)]
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
                failures=failures_of([*failures, *tools.failures]),
                network=proof,
                beside=None,
                doubts=tuple(worst(bench.environments)),
                notes=(*_too_short(request, progress, time_left), *_notes(tools, layers)),
                conditions=tuned_conditions(device, model, campaign.began_s, network.inputs),
            )
            campaign.finish(f"{campaign.count} trials of {len(layers)} layers of {model.name}")
    if document.library and (request.budget_s is None if request.compare is None else request.compare):
        if proof.scheduled:
            compared, proof = beside(request, campaign.path, device.threads, proof, watch=watch, tell=tell)
            document = replace(document, beside=compared, network=proof)
        elif request.compare:
            reason = "no layer became faster, so the network contains no tuned code"
            document = replace(document, beside=BesidePart(failure=reason))
    keep_in(None, campaign.id, document.document(), tell)
    return document


def _tools(
    pool: TvmPool,
    bench: Bench,
    network: Network,
    request: TuneRequest,
    campaign: TrialCampaign,
    elsewhere: Mapping[str, list[Any]],
) -> Tools:
    device = bench.device
    settings = SearchSettings(**fields_of(SearchSettings, request), target=device.target, seed=request.effort.seed)
    return Tools(
        asked=request,
        folder=pool.folder,
        bench=bench,
        builders=Builders(pool, device, timeout_s=request.effort.build_timeout_s),
        searches=Searches(pool, settings),
        campaign=campaign,
        loop=request.effort.loop(request.dtype),
        elsewhere=elsewhere,
        lacking=lambda: network.lacking(device.target, {"kind": "llvm", **bench.here()}) if bench.is_here else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimeLeft:
    """The deadline by the monotonic clock, and the times that are needed after the trials.

    `compile_s` is the time for compiling the network, and `process_s` is that for starting a process on the device.
    """

    ends_s: float
    compile_s: float
    process_s: float
    effort: TuneEffort

    def until_s(self, network_s: float) -> float:
        """The time by which the trials must end to leave time for compiling and proving.

        `network_s` is the time of the untuned network.
        """
        calls_s = 2 * 2 * self.effort.repeat * max(network_s, self.effort.min_repeat_ms / 1e3)
        return self.ends_s - 1.5 * self.compile_s - self.effort.processes * (self.process_s + calls_s)


def _rounds(
    tools: Tools, layers: tuple[TuningLayer, ...], watch: Watch | None, time_left: _TimeLeft | None
) -> dict[str, LayerProgress]:
    """Measure the untuned layers and run the rounds; returns the progress of each layer."""
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
    """The seconds that the measured untuned layers take in the network."""
    pairs = ((layer.weight, pooled_trials(campaign.trials(layer.layer)).get(UNTUNED)) for layer in layers)
    return sum(weight * (trial.time_s or 0.0) for weight, trial in pairs if trial is not None)


def _too_short(request: TuneRequest, progress: Mapping[str, LayerProgress], time_left: _TimeLeft | None) -> list[str]:
    """A note if the budget left no time for any trial; otherwise nothing."""
    if time_left is None or request.budget_s is None or any(state.best_s for state in progress.values()):
        return []
    before_s = time.monotonic() - (time_left.ends_s - request.budget_s)
    return [
        f"The budget of {request.budget_s:g} s left no time for trials: reading the network, timing the untuned "
        f"layers, compiling and proving took {before_s:.0f} s. Give --budget {math.ceil(_BUDGET * before_s)} or more."
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
    """The reason why the trials ended; if layers differ, the reason that the user can do most about."""
    ends = {state.ended for state in progress.values()}
    return next((why for why in ("budget", "trials", "plateau", "exhausted", "failed") if why in ends), "exhausted")


def _notes(tools: Tools, layers: tuple[TuningLayer, ...]) -> list[str]:
    notes = []
    if not tools.searches.learns:
        notes.append(
            "The search had no learning cost model, because XGBoost is not installed. With XGBoost, the same number of "
            f"trials finds faster kernels: {install_line('xgboost-cpu')}"
        )
    servers = {t.server for layer in layers for t in tools.campaign.trials(layer.layer) if t.server}
    hosts = {server.rpartition(":")[0] for server in servers}
    if len(hosts) > 1:
        notes.append(
            f"The trials were measured on several machines with the same key ({', '.join(sorted(hosts))}): "
            "give each machine its own key."
        )
    return notes
