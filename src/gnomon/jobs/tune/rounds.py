"""The rounds of tuning: ask for candidates, build them, measure each, write it down, tell the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gnomon.core.overlay.records import (
    UNTUNED,
    LayerProgress,
    TuningLayer,
    TuningTrial,
    configuration_id,
    first_round,
    next_layer,
)
from gnomon.core.sample import Failure
from gnomon.errors import DeviceError, MeasurementError
from gnomon.jobs.tune.campaign import TrialCampaign
from gnomon.jobs.tune.records import best_trial, measured_trial, pooled_trials
from gnomon.jobs.tune.request import TuneRequest
from gnomon.measure.progress import Meter
from gnomon.tuning.bench import Bench, Builders, Loop, Timed, discard, once
from gnomon.tuning.networks import Searches

_RELEVANT = 0.01
_CRASHES = 3


@dataclass(slots=True, kw_only=True)
class Tools:
    """What a round works with, and what was `asked`; all ends where the monotonic clock is at `until_s`, too.

    `lacking` tells the instructions of the target that the device has not, if known. `elsewhere` are configurations
    that other logs have of layers, by digest, the best first: they are tried before the search proposes any.
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
        """Whether the time is up."""
        return self.until_s is not None and time.monotonic() >= self.until_s


def measure_untuned(tools: Tools, layers: tuple[TuningLayer, ...], meter: Meter) -> None:
    """Build and measure each layer as it comes, and keep its outputs: what tuned code is compared with.

    Layers whose time is known are run again for their outputs, and not timed again. MeasurementError where the
    first layers all end their process: then all will.
    """
    if tools.over:
        return
    crashed = 0
    for layer, call in zip(layers, tools.builders.build([(layer, None) for layer in layers]), strict=True):
        if tools.over:
            discard(call)
            continue
        before = pooled_trials(tools.campaign.trials(layer.layer)).get(UNTUNED)
        known = before is not None and before.time_s is not None
        said: Timed | Failure
        if isinstance(call, Failure):
            said = call
        else:
            keep = tools.folder / f"outputs-{layer.layer}.npz"
            # For its outputs first: a layer that is too slow to be timed is the one that needs tuning most.
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
                said = said if known else tools.bench.call(call, tools.loop)
        if before is None or (not known and isinstance(said, Timed)):
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
    told = f", which lacks its instructions {', '.join(lacking[:8])}{', ..' if lacking[8:] else ''}" if lacking else ""
    return MeasurementError(
        f"the first {count} layers, compiled for {cpu}, ended their process on {device.key}{told}",
        hint="Give a --target that the device has: native, generic, or such as x86-64-v3 or aarch64-cortex-a72.",
    )


def tune_layers(tools: Tools, layers: tuple[TuningLayer, ...], meter: Meter) -> dict[str, LayerProgress]:
    """Rounds until trials, time or layers are at their end; how far each layer came, by its digest."""
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
        layer, one = by_digest[digest], progress[digest]
        if digest not in begun:
            begun.add(digest)
            if traces := () if one.best_s else tools.elsewhere.get(digest, ())[: min(first, left)]:
                left -= _measure(tools, layer, traces, meter.step)
                _add_round(tools, one, tools.campaign.trials(digest))
            if isinstance(said := tools.searches.begin(layer, _told(tools, layer)), Failure):
                tools.failures.append(said)
                one.ended = "failed"
                continue
            if traces:
                continue  # which may be all that this layer needs
        size = asked.per_round if one.best_s else first
        new = _round(tools, layer, min(size, left), meter.step)
        if not isinstance(new, int):
            one.ended = new
            continue
        left -= new
        _add_round(tools, one, tools.campaign.trials(digest))
        meter.expect(left)
    for one in progress.values():
        one.ended = one.ended or ("budget" if tools.over else "trials")
    return progress


def _add_round(tools: Tools, one: LayerProgress, trials: Sequence[TuningTrial]) -> None:
    """What is best after these trials of a layer, and whether it has come to its plateau."""
    best = best_trial(trials)
    one.best_s.append(best.time_s if best and best.time_s else one.now_s)
    if tools.asked.plateau and one.on_plateau(tools.asked.plateau, _RELEVANT):
        one.ended = "plateau"


def _round(
    tools: Tools, layer: TuningLayer, most: int, step: Callable[[], None]
) -> int | Literal["exhausted", "failed"]:
    """One round of a layer: how many candidates were new, or why the search has no more.

    Where the time is up in its midst the search gets no results any more: nobody will ask it.
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
    known = pooled_trials(tools.campaign.trials(layer.layer))
    told = [(trace, known[configuration_id(layer.layer, trace)].samples_s) for trace in traces]
    if isinstance(lost := tools.searches.tell(layer.layer, told), Failure):
        tools.failures.append(lost)
        return "failed"
    return count


def _measure(tools: Tools, layer: TuningLayer, traces: Sequence[Any], step: Callable[[], None]) -> int:
    """Build and measure the configurations that the campaign lacks, until the time is up; how many there were.

    What is the best so far is measured once more with them.
    """
    known = pooled_trials(tools.campaign.trials(layer.layer))
    fresh: dict[str, Any] = {}
    for trace in traces:
        if (name := configuration_id(layer.layer, trace)) not in known:
            fresh.setdefault(name, trace)
    waiting = list(fresh.items())
    if fresh and (best := best_trial(known.values())):
        # Beside what is new: neither a lucky moment nor a busy one is what it is known by for good.
        waiting.append((best.configuration, best.trace))
    count, reference, size = 0, tools.references.get(layer.layer), tools.builders.count
    while waiting and not tools.over:
        batch, waiting = waiting[:size], waiting[size:]
        built = tools.builders.build([(layer, trace) for _, trace in batch])
        for (name, trace), call in zip(batch, built, strict=True):
            said = (
                call if isinstance(call, Failure) else tools.bench.call(replace(call, reference=reference), tools.loop)
            )
            tools.campaign.add(measured_trial(layer, trace, said))
            discard(call)
            if name in fresh:
                count += 1
                step()
    return count


def _progress(tools: Tools, layer: TuningLayer) -> LayerProgress:
    untuned = pooled_trials(tools.campaign.trials(layer.layer)).get(UNTUNED)
    made = LayerProgress(weight=layer.weight, untuned_s=None if untuned is None else untuned.time_s)
    if layer.layer not in tools.references:
        # What its outputs should be is not known: it failed, or the time was up before it was run.
        made.ended = "failed" if untuned is not None else "budget"
    return made


def _look_back(tools: Tools, layer: TuningLayer, one: LayerProgress, first: int) -> None:
    """The rounds of an earlier call, as the campaign tells them: a layer on its plateau then is on it now."""
    size = tools.asked.per_round
    pooled = pooled_trials(tools.campaign.trials(layer.layer)).values()
    tried = [trial for trial in pooled if trial.trace is not None]
    for end in [first, *range(first + size, len(tried) + size, size)] if tried else []:
        if not one.ended:
            _add_round(tools, one, tried[:end])


def _told(tools: Tools, layer: TuningLayer) -> list[tuple[Any, tuple[float, ...]]]:
    pooled = pooled_trials(tools.campaign.trials(layer.layer)).values()
    return [(t.trace, t.samples_s) for t in pooled if t.trace is not None]


def spent(campaign: TrialCampaign, layers: Iterable[TuningLayer]) -> int:
    """How many candidates of layers the campaign has, whatever became of them."""
    return sum(name != UNTUNED for layer in layers for name in pooled_trials(campaign.trials(layer.layer)))
