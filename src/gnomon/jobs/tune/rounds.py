"""The rounds of tuning: ask for candidates, build them, measure each, write it down, tell the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gnomon.core.overlay.records import UNTUNED, LayerProgress, TuningLayer, TuningTrial, configuration_id, next_layer
from gnomon.core.sample import Failure
from gnomon.jobs.tune.records import RecordFile, best_trial, made_trial, pooled_trials
from gnomon.measure.progress import Meter
from gnomon.tuning.bench import Bench, Builders, Built, LayerCall, Loop, Order, Timed, discard, once
from gnomon.tuning.networks import Searches

_RELEVANT = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When tuning ends: after so many `trials` in all, after a layer saw `plateau` rounds that saved it less than 1 %
    (0: never), or after `budget_s` seconds (None: no limit).
    """

    trials: int
    plateau: int = 4
    budget_s: float | None = None


@dataclass(slots=True, kw_only=True)
class Tools:
    """What a round works with."""

    folder: Path
    bench: Bench
    builders: Builders
    searches: Searches
    file: RecordFile
    loop: Loop
    references: dict[str, Path] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


def measure_untuned(tools: Tools, layers: tuple[TuningLayer, ...], meter: Meter) -> None:
    """Build and measure each layer as it comes, and keep its outputs: what tuned code is compared with.

    Layers whose time is in the record are run again for their outputs, and not timed again.
    """
    orders = [Order(layer=layer, trace=None, library=tools.folder / f"untuned-{layer.layer}.so") for layer in layers]
    for layer, built in zip(layers, tools.builders.build(orders), strict=True):
        before = pooled_trials(tools.file.trials(layer.layer)).get(UNTUNED)
        known = before is not None and before.time_s is not None
        said: Timed | Failure
        if isinstance(built, Failure):
            said = built
        else:
            keep = tools.folder / f"outputs-{layer.layer}.npz"
            call = LayerCall(library=built.library, arguments=layer.arguments, outputs=built.outputs, keep=keep)
            # For its outputs first: a layer that is too slow to be timed is the one that needs tuning most.
            said = tools.bench.call(call, once(tools.loop))
            if isinstance(said, Failure):
                tools.failures.append(said)
            else:
                tools.references[layer.layer] = keep
                said = said if known else tools.bench.call(replace(call, keep=None), tools.loop)
        if before is None or (not known and isinstance(said, Timed)):
            tools.file.add([_trial(layer, None, said)])
        discard([built])
        meter.step()


def tune_layers(
    tools: Tools, layers: tuple[TuningLayer, ...], limits: Limits, meter: Meter
) -> dict[str, LayerProgress]:
    """Rounds until the limits say stop; how far each layer came, by its digest."""
    by_digest = {layer.layer: layer for layer in layers}
    progress = {layer.layer: _progress(tools, layer, limits) for layer in layers}
    began_s, left = time.monotonic(), limits.trials - spent(tools.file, layers)
    begun: set[str] = set()
    while left > 0 and (digest := next_layer(progress)) is not None:
        if limits.budget_s is not None and time.monotonic() - began_s >= limits.budget_s:
            _end(progress, "budget")
            break
        layer, one = by_digest[digest], progress[digest]
        if digest not in begun:
            begun.add(digest)
            if isinstance(said := tools.searches.begin(layer, _told(tools, layer)), Failure):
                tools.failures.append(said)
                one.ended = "failed"
                continue
        new = _round(tools, layer, left, meter.step)
        if not isinstance(new, int):
            one.ended = new
            continue
        left -= new
        best = best_trial(tools.file.trials(digest))
        one.best_s.append(best.time_s if best and best.time_s else one.now_s)
        if limits.plateau and one.on_plateau(limits.plateau, _RELEVANT):
            one.ended = "plateau"
        meter.expect(left)
    _end(progress, "trials")
    return progress


def _round(
    tools: Tools, layer: TuningLayer, most: int, step: Callable[[], None]
) -> int | Literal["exhausted", "failed"]:
    """One round of a layer: how many candidates were new, or why the search has no more."""
    traces = tools.searches.ask(layer.layer)
    if isinstance(traces, Failure):
        tools.failures.append(traces)
        return "failed"
    if not traces:
        return "exhausted"
    known = {t.configuration: t for t in pooled_trials(tools.file.trials(layer.layer)).values()}
    fresh: dict[str, Any] = {}
    for trace in traces:
        if (name := configuration_id(layer.layer, trace)) not in known and len(fresh) < most:
            fresh.setdefault(name, trace)
    orders = [Order(layer=layer, trace=trace, library=tools.folder / f"{name}.so") for name, trace in fresh.items()]
    for order, built in zip(orders, tools.builders.build(orders), strict=True):
        trial = _trial(layer, order.trace, _measured(tools, layer, built))
        tools.file.add([trial])
        known[trial.configuration] = trial
        discard([built])
        step()
    told = []
    for trace in traces:
        found = known.get(configuration_id(layer.layer, trace))
        told.append((trace, found.times_s if found is not None and found.failure is None else ()))
    if isinstance(lost := tools.searches.tell(layer.layer, told), Failure):
        tools.failures.append(lost)
        return "failed"
    return len(fresh)


def _measured(tools: Tools, layer: TuningLayer, built: Built | Failure) -> Timed | Failure:
    if isinstance(built, Failure):
        return built
    call = LayerCall(
        library=built.library,
        arguments=layer.arguments,
        outputs=built.outputs,
        reference=tools.references.get(layer.layer),
    )
    return tools.bench.call(call, tools.loop)


def _trial(layer: TuningLayer, trace: Any, said: Timed | Failure) -> TuningTrial:
    if isinstance(said, Failure):
        return made_trial(layer.layer, trace, failure=said)
    return made_trial(layer.layer, trace, times_s=said.times_s, error=said.error, server=said.server)


def _progress(tools: Tools, layer: TuningLayer, limits: Limits) -> LayerProgress:
    trials = tools.file.trials(layer.layer)
    untuned = pooled_trials(trials).get(UNTUNED)
    made = LayerProgress(weight=layer.weight, untuned_s=None if untuned is None else untuned.time_s)
    if layer.layer not in tools.references:
        made.ended = "failed"  # what its outputs should be is not known
    best = best_trial(trials)
    if best is not None and best.time_s is not None:
        made.best_s.append(best.time_s)
    return made


def _told(tools: Tools, layer: TuningLayer) -> list[tuple[Any, tuple[float, ...]]]:
    pooled = pooled_trials(tools.file.trials(layer.layer)).values()
    return [(t.trace, t.times_s if t.failure is None else ()) for t in pooled if t.trace is not None]


def spent(file: RecordFile, layers: Iterable[TuningLayer]) -> int:
    """How many candidates of layers are in the record, whatever became of them."""
    return sum(name != UNTUNED for layer in layers for name in pooled_trials(file.trials(layer.layer)))


def _end(progress: dict[str, LayerProgress], why: str) -> None:
    for one in progress.values():
        one.ended = one.ended or why
