"""The job of `gnomon overlay analyze`: one configuration a layer that is good on all devices, and how sure that is."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.core.overlay.choice import (
    LayerChoice,
    LayerTimes,
    NetworkChoice,
    choose,
    least_worst,
    regrets_of,
    weigh_layers,
)
from gnomon.core.overlay.confidence import choice_confidence
from gnomon.core.overlay.pool import FailedTrial, Pooled, pool, side_by_side
from gnomon.core.overlay.portfolio import best_portfolio
from gnomon.core.overlay.records import UNTUNED, TunedModel, TuningLayer, TuningRecords
from gnomon.core.overlay.samples import SampleTable
from gnomon.devices.opening import is_place, resolve
from gnomon.errors import InfeasibleError, UsageError
from gnomon.formats.tuning.keys import NOTHING, Told
from gnomon.formats.tuning.logs import replay_problem
from gnomon.jobs.tune.folder import chosen_layers, read_logs
from gnomon.jobs.tune.request import DeviceWish
from gnomon.measure.progress import Meter, Watch
from gnomon.report.answer import Answer

_PORTFOLIO_S = 60.0
_FEW = 2  # times that may be equal by chance
_COLLECT = "gnomon overlay collect"
_MOST_OPTIONS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeRequest:
    """Records of several devices to choose from.

    `layers` are names or numbers (none: all). `portfolio` is how many configurations a layer may have (0: no
    portfolio). `resamples` and `seed` are of the confidence.
    """

    logs: tuple[Path, ...]
    layers: tuple[str, ...] = ()
    portfolio: int = 0
    resamples: int = 1000
    seed: int = 0
    told: Told = NOTHING


def told_of(devices: Sequence[str], logs: Sequence[Path]) -> Told:
    """What a user says of logs: keys of devices, "KEY=FILE" for one of the logs, or where a device is.

    The key of a place is what records call it. UsageError for a file that is not one of the logs.
    """
    keys, of = [], dict[str, str]()
    for text in devices:
        key, sign, file = text.partition("=")
        if not sign:
            keys.append(DeviceWish(config=resolve(text)).key if is_place(text) else text)
            continue
        meant = [str(log) for log in logs if log.absolute() == Path(file).absolute()]
        if not key or not meant:
            raise UsageError(
                f"{text!r} names no device of a log" if not key else f"{file!r} is not one of the logs",
                hint="Give KEY=FILE with one of the files to analyze.",
            )
        if of.setdefault(meant[0], key) != key:
            raise UsageError(f"{file} is said to be of {of[meant[0]]!r} and of {key!r}", hint="Name one device.")
    return Told(keys=tuple(dict.fromkeys(keys)), of=of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis(Answer):
    """What was chosen, and what it was chosen from.

    `described` are the layers in order; `network` has their choices in the same order, as `times` have what each was
    chosen from. `told` is what `document` tells.
    """

    records: tuple[TuningRecords, ...]
    model: TunedModel
    described: tuple[TuningLayer, ...]
    times: tuple[LayerTimes, ...]
    network: NetworkChoice
    told: dict[str, Any]

    __repr__ = Answer.__repr__

    def document(self) -> dict[str, Any]:
        """What `gnomon overlay analyze --json` prints; nothing is written, measured and drawn yet."""
        return self.told

    def chosen(self) -> dict[str, str]:
        """The configuration of each layer that has one, by the layer's digest; the untuned ones among them."""
        return {choice.layer: choice.configuration for choice in self.network.layers if choice.chosen is not None}

    def own(self, host: str) -> dict[str, str]:
        """The configuration of each layer that is fastest on a device among those that were found on it, and none."""
        made = {}
        for times in self.times:
            if host in times.devices:
                column = times.times_s[:, times.devices.index(host)]
                rows = [i for i, hosts in enumerate(times.hosts) if (host in hosts or not hosts) and column[i] > 0]
                if rows:
                    made[times.layer] = times.configurations[min(rows, key=lambda i: column[i])]
        return made

    def close(self) -> dict[str, list[str]]:
        """The configurations, by the layer's digest, between which the choice is not sure."""
        return {row["layer"]: row["close"] for row in self.told["layers"] if row["close"]}


def analyze(request: AnalyzeRequest, *, watch: Watch | None = None) -> Analysis:
    """Choose for each layer the configuration of least M, without measuring anything. Raises GnomonError."""
    given = tuple(read_logs(request.logs, request.told))
    if not given:
        raise UsageError("there are no records to analyze", hint="Give the files of several devices.")
    records = side_by_side(given)
    pooled = pool(records, [str(path) for path in request.logs])
    described = {layer.layer: layer for one in records for layer in one.layers}
    wanted = {layer.layer for layer in chosen_layers(list(described.values()), request.layers)}
    layers, samples = [], []
    for times, own in zip(pooled.layers, pooled.samples, strict=True):
        whole, more = _with_untuned(times, own, pooled)
        layers.append(whole)
        samples.append(more)
    choices = [choose(times) for times in layers]
    others = [least_worst(times, choice) for times, choice in zip(layers, choices, strict=True)]
    network, minimax = weigh_layers(choices), weigh_layers(others)
    meter = Meter("layers", len(layers), watch)
    rows = []
    for times, choice, other, share, own in zip(layers, choices, others, network.shares, samples, strict=True):
        if choice.chosen is not None and times.layer in wanted:
            row = _row(times, choice, share, own, pooled, request)
            rows.append({**row, "minimax": None if other is choice else _minimax(other)})
        meter.step()
    decided = [choice for choice in choices if choice.chosen is not None]
    document = {
        "format": "gnomon-overlay-analyze",
        "version": 1,
        "model": {"name": records[0].model.name, "sha256": records[0].model.sha256, "dtype": records[0].model.dtype},
        "devices": list(pooled.devices),
        "hosts": sorted({one.host for one in records}),
        "replayable": not _gone(records),
        "layers": rows,
        "undecided": [row for row in _undecided(layers, choices, pooled, records) if row["layer"] in wanted],
        "total": {**_total(network), "minimax": _total(minimax), "layers": len(decided)},
        "own": _own_totals(layers, network),
        "portfolio": _portfolio(layers, choices, network.shares, request) if request.portfolio else None,
        "notes": _notes(records, pooled),
        "written": {"records": {}, "databases": {}, "libraries": {}},
        "network": [],
        "doubts": [],
        "pictures": [],
    }
    return Analysis(
        records=records,
        model=records[0].model,
        described=tuple(described[times.layer] for times in layers),
        times=tuple(layers),
        network=network,
        told=document,
    )


def _with_untuned(times: LayerTimes, samples: SampleTable, pooled: Pooled) -> tuple[LayerTimes, SampleTable]:
    """No configuration at all is one more choice: for small layers often the best there is."""
    row = [pooled.untuned_s.get((times.layer, device), math.nan) for device in times.devices]
    if all(math.isnan(t) for t in row):
        return times, samples
    found = {k: pooled.untuned.get((times.layer, device)) for k, device in enumerate(times.devices)}
    more = samples.with_row(len(times.configurations), {k: blocks for k, blocks in found.items() if blocks})
    whole = replace(
        times,
        configurations=(*times.configurations, UNTUNED),
        hosts=(*times.hosts, ()),
        times_s=np.vstack([times.times_s, np.asarray([row])]),
    )
    return whole, more


def _row(
    times: LayerTimes,
    choice: LayerChoice,
    share: float,
    samples: SampleTable,
    pooled: Pooled,
    request: AnalyzeRequest,
) -> dict[str, Any]:
    sure = choice_confidence(times, choice, samples, resamples=request.resamples, seed=request.seed)
    chosen, devices = choice.chosen, times.devices
    # A single sample has no spread: resampled it would be sure of anything.
    spread = sure if len(samples.samples_s) > len(samples) else None
    own = np.asarray(times.times_s)[chosen].tolist()
    metric = dict(zip(times.configurations, choice.metric.tolist(), strict=True))
    second = sure.runner_up if sure is not None else ""
    regrets = choice.regrets.tolist()
    return {
        "name": times.name,
        "layer": times.layer,
        "weight": times.weight,
        "share": share,
        "M": _number(choice.value),
        "mean_regret": _number(choice.mean),
        "host": ", ".join(choice.hosts),
        "configuration": choice.configuration,
        "times": _by_device(devices, own),
        "theta": _by_device(devices, choice.theta_s.tolist()),
        "regret": _by_device(devices, regrets),
        "estimate": _by_device(devices, choice.estimates.tolist()),
        "worst_regret": _number(choice.worst),
        "worst_device": devices[int(np.argmax(regrets))],
        "confidence": spread.share if spread else None,
        "M_low": _number(spread.low) if spread else None,
        "M_high": _number(spread.high) if spread else None,
        "runner_up": {"configuration": second, "M": _number(metric[second])} if second else None,
        "close": list(sure.close) if sure else [],
        "configurations": choice.complete,
        "options": _options(times, choice),
        "incomplete": _incomplete(times, choice),
        "failed": [_failed(one) for one in pooled.failures if one.layer == times.layer],
    }


def _options(times: LayerTimes, choice: LayerChoice) -> list[dict[str, Any]]:
    """The configurations of least M, the chosen one among them, with what each loses on each device."""
    regrets = regrets_of(np.asarray(times.times_s), choice.theta_s)
    known = np.flatnonzero(np.isfinite(choice.metric))
    best = known[np.argsort(choice.metric[known], kind="stable")][:_MOST_OPTIONS].tolist()
    kept = best if choice.chosen in best else [*best[:-1], choice.chosen]
    return [
        {
            "configuration": times.configurations[k],
            "host": ", ".join(times.hosts[k]),
            "M": _number(choice.metric[k]),
            "regret": _by_device(times.devices, regrets[k].tolist()),
        }
        for k in kept
    ]


def _minimax(other: LayerChoice) -> dict[str, Any]:
    """The configuration that loses least on its worst device, where that is not the choice."""
    return {
        "configuration": other.configuration,
        "host": ", ".join(other.hosts),
        "M": _number(other.value),
        "mean_regret": _number(other.mean),
        "regret": _by_device(other.devices, other.regrets.tolist()),
        "worst_regret": _number(other.worst),
        "worst_device": other.devices[int(np.argmax(other.regrets))],
    }


def _total(network: NetworkChoice) -> dict[str, Any]:
    """What the network loses: by M, the largest regret of a layer, and that of each device's sum."""
    worst = [_number(one.worst) for one in network.layers if one.chosen is not None]
    return {
        "M": _number(network.value),
        "mean_regret": _number(network.mean),
        "worst_regret": max((one for one in worst if one is not None), default=None),
        "regret": _by_device(network.layers[0].devices, network.regrets.tolist()),
    }


def _incomplete(times: LayerTimes, choice: LayerChoice) -> list[dict[str, Any]]:
    table = np.asarray(times.times_s)
    made = []
    for place in np.flatnonzero(np.isnan(choice.metric)).tolist():
        missing = [device for device, t in zip(times.devices, table[place], strict=True) if not t > 0]
        hosts = ", ".join(times.hosts[place])
        made.append({"configuration": times.configurations[place], "host": hosts, "missing": missing})
    return made


def _failed(one: FailedTrial) -> dict[str, Any]:
    return {
        "configuration": one.configuration,
        "device": one.device,
        "stage": one.failure.stage,
        "kind": one.failure.kind,
        "message": one.failure.message,
    }


def _undecided(
    layers: Sequence[LayerTimes], choices: Sequence[LayerChoice], pooled: Pooled, records: Sequence[TuningRecords]
) -> list[dict[str, Any]]:
    made = []
    advice = "what is missing can no longer be measured" if _gone(records) else f"{_COLLECT} measures what is missing"
    for times, choice in zip(layers, choices, strict=True):
        if choice.chosen is None:
            missing = pooled.missing.get(choice.layer, ())
            why = f"nothing of it was timed on {', '.join(missing)}" if missing else "no configuration was timed on all"
            made.append(
                {
                    "name": choice.name,
                    "layer": choice.layer,
                    "reason": f"{why}: {advice}; it stays untuned",
                    "incomplete": _incomplete(times, choice),
                    "failed": [_failed(one) for one in pooled.failures if one.layer == times.layer],
                }
            )
    return made


def _own_totals(layers: Sequence[LayerTimes], network: NetworkChoice) -> dict[str, Any]:
    """What it costs to use each host's own best everywhere instead."""
    made: dict[str, Any] = {}
    for host in dict.fromkeys(h for times in layers for hosts in times.hosts for h in hosts):
        value, worst, known = 0.0, 0.0, 0.0
        for times, choice, share in zip(layers, network.layers, network.shares, strict=True):
            if host not in times.devices:
                continue
            column = np.asarray(times.times_s)[:, times.devices.index(host)]
            own = np.array([host in hosts or not hosts for hosts in times.hosts], dtype=np.bool_) & (column > 0)
            if choice.chosen is None or not own.any():
                continue
            best = int(np.argmin(np.where(own, column, np.inf)))
            regrets = regrets_of(times.times_s[best], choice.theta_s)
            if np.isfinite(regrets).all():
                known += share
                value += share * float(regrets.sum())
                worst = max(worst, float(regrets.max()))
        if known > 0:
            whole = known >= sum(network.shares) - 1e-9
            made[host] = {"M": value if whole else None, "worst_regret": worst if whole else None}
    return made


def _portfolio(
    layers: Sequence[LayerTimes], choices: Sequence[LayerChoice], shares: Sequence[float], request: AnalyzeRequest
) -> dict[str, Any]:
    until_s = time.monotonic() + _PORTFOLIO_S
    rows, total = [], 0.0
    for times, choice, share in zip(layers, choices, shares, strict=True):
        regrets = regrets_of(np.asarray(times.times_s), choice.theta_s)
        try:
            found = best_portfolio(
                np.maximum(regrets, 0.0),
                request.portfolio,
                devices=times.devices,
                out_of_time=lambda: time.monotonic() > until_s,
            )
        except InfeasibleError:
            continue
        names = times.configurations
        total += share * found.value
        rows.append(
            {
                "name": times.name,
                "configurations": [names[i] for i in found.chosen],
                "M": _number(found.value),
                "proven": found.proven,
                "serves": {device: names[i] for device, i in zip(times.devices, found.serves, strict=True)},
            }
        )
    return {"size": request.portfolio, "layers": rows, "M": _number(total)}


def _notes(records: Sequence[TuningRecords], pooled: Pooled) -> list[str]:
    made = []
    if len(pooled.devices) < 2:
        made.append("All records are of one device: the choice is simply its fastest.")
    made += [f"The times of {a} and {b} are the same to the last digit: is one log a copy?" for a, b in _copies(pooled)]
    pairs = {(one.host, one.device.key) for one in records}
    measured = {(one.found_on, one.device.key) for one in records}
    searched = [
        one.device.key for one in records if not one.found_on and (one.device.key, one.device.key) not in measured
    ]
    if searched and len(pooled.devices) > 1 and not _gone(records):
        keys = ", ".join(dict.fromkeys(searched))
        made.append(
            f"What {keys} found itself has the times of the search, which were not taken beside the others': "
            f"{_COLLECT} of the device's own log on itself measures them again."
        )
    for host in sorted({one.host for one in records}):
        absent = [device for device in pooled.devices if (host, device) not in pairs]
        if absent:
            told = "its tuner is gone from today's TVM" if _gone(records) else f"{_COLLECT} does that"
            made.append(f"What {host} found was not measured on {', '.join(absent)}: {told}.")
    return made


def _copies(pooled: Pooled) -> Iterator[tuple[str, str]]:
    """Devices whose times are all the same, of at least three."""
    table = np.concatenate([np.asarray(times.times_s) for times in pooled.layers])
    for i, k in itertools.combinations(range(len(pooled.devices)), 2):
        both = table[~np.isnan(table[:, [i, k]]).all(axis=1)]
        if len(both) > _FEW and np.array_equal(both[:, i], both[:, k]):
            yield pooled.devices[i], pooled.devices[k]


def _gone(records: Sequence[TuningRecords]) -> bool:
    """Whether nothing of these can be measured any more, so that nobody should be sent to do it."""
    return all(replay_problem(one) is not None for one in records)


def _by_device(devices: Sequence[str], values: Sequence[float]) -> dict[str, float | None]:
    return {device: _number(value) for device, value in zip(devices, values, strict=True)}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
