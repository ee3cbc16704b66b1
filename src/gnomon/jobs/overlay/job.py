"""The job of `gnomon overlay analyze`: one configuration per layer that is good on all devices, with its confidence."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.core.codec import fields_of
from gnomon.core.cost import Floats
from gnomon.core.overlay.builds import Build, Builds, best_builds
from gnomon.core.overlay.choice import (
    LayerChoice,
    LayerTimes,
    NetworkChoice,
    choose,
    least_worst,
    regrets_of,
    weigh_layers,
)
from gnomon.core.overlay.confidence import ChoiceConfidence, choice_confidence
from gnomon.core.overlay.pool import Pooled, described_layers, pool, side_by_side, without_times
from gnomon.core.overlay.portfolio import best_portfolio
from gnomon.core.overlay.records import TuningLayer, TuningRecords
from gnomon.core.overlay.trials import traces_of
from gnomon.devices.opening import is_place, resolve
from gnomon.errors import InfeasibleError, UsageError
from gnomon.formats.tuning.keys import NOTHING, DeviceHints
from gnomon.formats.tuning.logs import replay_problem
from gnomon.jobs.overlay.document import (
    AnalyzeDocument,
    BuildPart,
    ChoicePart,
    ChosenLayer,
    FailedTrialPart,
    IncompletePart,
    LayerOption,
    LossPart,
    OwnPart,
    PortfolioLayer,
    PortfolioPart,
    RunnerUp,
    TotalPart,
    UndecidedLayer,
    WrittenPart,
)
from gnomon.jobs.tune.document import FailureKind
from gnomon.jobs.tune.folder import chosen_layers, read_logs
from gnomon.jobs.tune.request import DeviceOptions
from gnomon.measure.progress import Meter, Watch
from gnomon.report.plain import many

_PORTFOLIO_S = 60.0
_FEW = 2  # up to this many times may be equal by chance
_COLLECT = "gnomon overlay collect"
_MOST_OPTIONS = 12


def named_devices(devices: Sequence[str], logs: Sequence[Path]) -> DeviceHints:
    """The devices that a user names for logs: keys, addresses, or "KEY=FILE" for one of the logs.

    A device's key is its name in records. UsageError for a file that is not one of the logs.
    """
    keys, of = [], dict[str, str]()
    for text in devices:
        key, sign, file = text.partition("=")
        if not sign:
            keys.append(DeviceOptions(config=resolve(text)).key if is_place(text) else text)
            continue
        meant = [str(log) for log in logs if log.absolute() == Path(file).absolute()]
        if not key or not meant:
            raise UsageError(
                f"{text!r} has no key" if not key else f"{file!r} is not one of the logs",
                hint="Give KEY=FILE with one of the files to analyze.",
            )
        if of.setdefault(meant[0], key) != key:
            raise UsageError(f"{file} has two devices: {of[meant[0]]!r} and {key!r}", hint="Name one device per log.")
    return DeviceHints(keys=tuple(dict.fromkeys(keys)), of=of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The choice, and the records behind it.

    `logs` are the files of `records`, in the same order. `described` are the layers; `network` has the choices for
    them, also in the same order. `builds` are the builds of a portfolio, if one was requested.
    """

    records: tuple[TuningRecords, ...]
    logs: tuple[Path, ...]
    described: tuple[TuningLayer, ...]
    network: NetworkChoice
    document: AnalyzeDocument
    builds: tuple[Build, ...]

    def chosen(self) -> dict[str, str]:
        """The chosen configuration of each decided layer, by the layer's digest; it may be the untuned code."""
        return {c.times.layer: c.configuration for c in self.network.layers if c.chosen is not None}

    def own(self, host: str) -> dict[str, str]:
        """The fastest configuration of each layer on a device: the untuned code or one that the device found."""
        best = ((choice.times, _own_best(choice.times, host)) for choice in self.network.layers)
        return {times.layer: times.configurations[row] for times, row in best if row is not None}


def analyze(
    logs: Sequence[Path],
    *,
    layers: Sequence[str] = (),
    portfolio: int = 0,
    resamples: int = 1000,
    seed: int = 0,
    names: DeviceHints = NOTHING,
    watch: Watch | None = None,
) -> Analysis:
    """Choose the configuration with the least M for each layer, without measuring anything. Raises GnomonError.

    `layers` are names or numbers (none: all). `portfolio` is the number of configurations that a layer may have (0: no
    portfolio). `resamples` and `seed` are for the confidence; `names` are the user's names for the logs' devices.
    """
    given = read_logs(logs, names)
    if not given:
        raise UsageError("there are no records to analyze", hint="Give the record files of several devices.")
    described = described_layers(given)
    wanted = {layer.layer for layer in chosen_layers(list(described.values()), layers)}
    # Sorted, so that the result does not depend on the order of the files.
    ordered = sorted(zip(given, logs, strict=True), key=lambda row: (row[0].device.key, row[0].found_on, str(row[1])))
    records = side_by_side(tuple(log for log, _ in ordered))
    pooled = pool(records, [str(path) for _, path in ordered])
    if portfolio > len(pooled.devices):
        raise UsageError(
            f"--portfolio {portfolio} is more than the number of devices, {len(pooled.devices)}",
            hint="Give --portfolio a smaller number, or leave it out.",
        )
    choices = [choose(times) for times in pooled.layers]
    others = [least_worst(choice) for choice in choices]
    network = weigh_layers(choices)
    meter = Meter("layers", len(choices), watch)
    rows: list[ChosenLayer] = []
    undecided: list[UndecidedLayer] = []
    for choice, other, samples, share in zip(choices, others, pooled.samples, network.shares, strict=True):
        if choice.times.layer in wanted and choice.chosen is None:
            undecided.append(_undecided(choice, pooled, records))
        elif choice.times.layer in wanted:
            sure = choice_confidence(choice, samples, resamples=resamples, seed=seed)
            # If each time is a single sample, resampling would make any choice look sure.
            has_spread = len(samples.samples_s) > len(samples)
            rows.append(_row(choice, other, share, pooled, sure, has_spread=has_spread))
        meter.step()
    if records[0].tuner != "metaschedule":
        chosen = {(row.layer, row.configuration) for row in rows}
        traces = {name: trace for log in records for name, trace in traces_of(log.trials, chosen).items()}
        rows = [replace(row, entity=traces[row.layer, row.configuration]) for row in rows]
    builds = best_builds(network, portfolio) if portfolio and rows else None
    document = AnalyzeDocument(
        model=records[0].model,
        devices=tuple(pooled.devices),
        hosts=tuple(sorted({log.host for log in records})),
        logs=tuple(str(path) for _, path in ordered),
        replayable=not _gone(records),
        layers=tuple(rows),
        undecided=tuple(undecided),
        total=TotalPart(
            **_network_losses(network),
            minimax=LossPart(**_network_losses(weigh_layers(others))),
            layers=sum(choice.chosen is not None for choice in choices),
            undecided=sum(choice.chosen is None for choice in choices),
            decided_share=_finite(network.decided),
        ),
        own=_own_totals(network),
        portfolio=_portfolio(network, portfolio, builds) if portfolio else None,
        notes=tuple(_notes(records, pooled)),
        written=WrittenPart(),
        network=(),
        pictures=(),
    )
    return Analysis(
        records=records,
        logs=tuple(path for _, path in ordered),
        described=tuple(described[choice.times.layer] for choice in choices),
        network=network,
        document=document,
        builds=builds.builds if builds else (),
    )


def _row(
    choice: LayerChoice,
    other: LayerChoice,
    share: float,
    pooled: Pooled,
    sure: ChoiceConfidence | None,
    *,
    has_spread: bool,
) -> ChosenLayer:
    times, spread = choice.times, sure if has_spread else None
    second = sure.runner_up if sure is not None else ""
    return ChosenLayer(
        **_losses(choice),
        name=times.name,
        layer=times.layer,
        weight=times.weight,
        share=share,
        times=_by_device(times.devices, np.asarray(times.times_s)[choice.chosen]),
        theta=_by_device(times.devices, choice.theta_s),
        estimate=_by_device(times.devices, choice.estimates),
        confidence=spread.share if spread else None,
        M_low=_finite(spread.low) if spread else None,
        M_high=_finite(spread.high) if spread else None,
        runner_up=RunnerUp(configuration=second, M=_finite(choice.metric[times.configurations.index(second)]))
        if second
        else None,
        close=tuple(sure.close) if sure else (),
        configurations=choice.complete,
        options=_options(choice),
        incomplete=_incomplete(choice),
        failed=_failed(times, pooled),
        minimax=None if other is choice else ChoicePart(**_losses(other)),
    )


def _losses(choice: LayerChoice) -> dict[str, Any]:
    """The fields of a `ChoicePart`."""
    return {
        "configuration": choice.configuration,
        "host": ", ".join(choice.hosts),
        "M": _finite(choice.value),
        "mean_regret": _finite(choice.mean),
        "regret": _by_device(choice.times.devices, choice.regrets),
        "worst_regret": _finite(choice.worst),
        "worst_device": choice.times.devices[int(np.argmax(choice.regrets))],
    }


def _network_losses(network: NetworkChoice) -> dict[str, Any]:
    """The fields of a `LossPart`: M, the mean and largest regret, and each device's regret over the sum of layers."""
    worst = [_finite(choice.worst) for choice in network.layers if choice.chosen is not None]
    return {
        "M": _finite(network.value),
        "mean_regret": _finite(network.mean),
        "worst_regret": max((value for value in worst if value is not None), default=None),
        "regret": _by_device(network.layers[0].times.devices, network.regrets),
    }


def _options(choice: LayerChoice) -> tuple[LayerOption, ...]:
    """The configurations with the least M, including the chosen one, with their losses on each device."""
    times = choice.times
    regrets = regrets_of(np.asarray(times.times_s), choice.theta_s)
    ranked = np.flatnonzero(np.isfinite(choice.metric))
    best = ranked[np.argsort(choice.metric[ranked], kind="stable")][:_MOST_OPTIONS].tolist()
    return tuple(
        LayerOption(
            configuration=times.configurations[row],
            host=", ".join(times.hosts[row]),
            M=_finite(choice.metric[row]),
            regret=_by_device(times.devices, regrets[row]),
        )
        for row in (best if choice.chosen in best else [*best[:-1], choice.chosen])
    )


def _incomplete(choice: LayerChoice) -> tuple[IncompletePart, ...]:
    times, table = choice.times, np.asarray(choice.times.times_s)
    return tuple(
        IncompletePart(
            configuration=times.configurations[row],
            host=", ".join(times.hosts[row]),
            missing=tuple(device for device, t in zip(times.devices, table[row], strict=True) if not t > 0),
        )
        for row in np.flatnonzero(np.isnan(choice.metric)).tolist()
    )


def _failed(times: LayerTimes, pooled: Pooled) -> tuple[FailedTrialPart, ...]:
    return tuple(
        FailedTrialPart(**fields_of(FailedTrialPart, trial), **fields_of(FailureKind, trial.failure))
        for trial in pooled.failures
        if trial.layer == times.layer
    )


def _undecided(choice: LayerChoice, pooled: Pooled, records: Sequence[TuningRecords]) -> UndecidedLayer:
    why = f"no configuration was timed on {', '.join(without_times(choice.times)) or 'all devices'}"
    incomplete, model, advice = _incomplete(choice), records[0].model, f"{_COLLECT} measures the missing times"
    pairs = (f"{d}_{p.host.split(', ')[0]}" for p in incomplete for d in p.missing if d not in p.host.split(", "))
    if _gone(records):
        log = f"{next(pairs, 'DEVICE_HOST')}.{model.name}.{model.dtype}.json"
        advice = f"time it there with the TVM that wrote the logs, as {log}"
    return UndecidedLayer(
        **fields_of(UndecidedLayer, choice.times),
        reason=f"{why}: {advice}; the layer stays untuned",
        incomplete=incomplete,
        failed=_failed(choice.times, pooled),
    )


def _own_best(times: LayerTimes, host: str) -> int | None:
    """The row of a device's fastest configuration: the untuned code or one that it found; None if none of these ran."""
    if host not in times.devices:
        return None
    column = np.asarray(times.times_s)[:, times.devices.index(host)]
    rows = [row for row, hosts in enumerate(times.hosts) if (host in hosts or not hosts) and column[row] > 0]
    return min(rows, key=lambda row: column[row], default=None)


def _own_totals(network: NetworkChoice) -> dict[str, OwnPart]:
    """For each host, the loss if its own best configurations were used on all devices."""
    totals: dict[str, OwnPart] = {}
    for host in dict.fromkeys(host for choice in network.layers for hosts in choice.times.hosts for host in hosts):
        value, worst, timed = 0.0, 0.0, 0.0
        for choice, share in zip(network.layers, network.shares, strict=True):
            best = _own_best(choice.times, host)
            if choice.chosen is None or best is None:
                continue
            regrets = regrets_of(choice.times.times_s[best], choice.theta_s)
            if np.isfinite(regrets).all():
                timed += share
                value += share * float(regrets.sum())
                worst = max(worst, float(regrets.max()))
        if timed > 0:
            is_whole = timed >= sum(network.shares) - 1e-9
            totals[host] = OwnPart(M=value if is_whole else None, worst_regret=worst if is_whole else None)
    return totals


def _portfolio(network: NetworkChoice, size: int, builds: Builds | None) -> PortfolioPart:
    until_s = time.monotonic() + _PORTFOLIO_S
    rows, total = [], 0.0
    for choice, share in zip(network.layers, network.shares, strict=True):
        times = choice.times
        regrets = np.maximum(regrets_of(np.asarray(times.times_s), choice.theta_s), 0.0)
        try:
            best = best_portfolio(regrets, size, devices=times.devices, out_of_time=lambda: time.monotonic() > until_s)
        except InfeasibleError:
            continue
        names = times.configurations
        total += share * best.value
        rows.append(
            PortfolioLayer(
                name=times.name,
                configurations=tuple(names[row] for row in best.chosen),
                M=_finite(best.value),
                proven=best.proven,
                serves={device: names[row] for device, row in zip(times.devices, best.serves, strict=True)},
            )
        )
    part = PortfolioPart(size=size, layers=tuple(rows), M=_finite(total))
    if builds is None:
        return part
    layers = {choice.times.layer: choice.times.name for choice in network.layers}
    parts = [
        BuildPart(
            devices=build.devices,
            configurations={layers[layer]: chosen for layer, chosen in build.configurations.items()},
        )
        for build in builds.builds
    ]
    return replace(part, builds=tuple(parts), M_builds=_finite(builds.value), builds_proven=builds.proven)


def _notes(records: Sequence[TuningRecords], pooled: Pooled) -> Iterator[str]:
    for log in records:
        if log.left_out:
            yield f"Skipped {many(log.left_out, 'line')} in a log of {log.device.key}: cut off, or not a trial."
    if len(pooled.devices) < 2:
        yield "All records belong to one device, so the choice is the fastest configuration there."
    for a, b in _copies(pooled):
        yield f"The times of {a} and {b} are identical to the last digit: is one of the logs a copy?"
    measured = {log.device.key for log in records if log.found_on == log.device.key}
    searched = [log.device.key for log in records if not log.found_on and log.device.key not in measured]
    if searched and len(pooled.devices) > 1 and not _gone(records):
        yield (
            f"The times of the configurations that {', '.join(dict.fromkeys(searched))} found come from the search and "
            f"were not interleaved with the others. To measure them again: {_COLLECT} LOG, with the device's own log."
        )
    advice = "the TVM that wrote the logs can do it" if _gone(records) else f"{_COLLECT} measures them"
    for host in sorted({log.host for log in records}):
        timed = np.sum([_timed(times, host) for times in pooled.layers], axis=0)
        absent = [device for device, count in zip(pooled.devices, timed, strict=True) if not count]
        if absent:
            yield f"The configurations that {host} found were not measured on {', '.join(absent)}: {advice}."


def _timed(times: LayerTimes, host: str) -> Floats:
    """For each device, the number of a layer's configurations that `host` found and that were timed there."""
    mask = [host in hosts for hosts in times.hosts]
    counts: Floats = np.isfinite(times.times_s[mask]).sum(axis=0)
    return counts


def _copies(pooled: Pooled) -> Iterator[tuple[str, str]]:
    """Pairs of devices with identical times, at least three each."""
    table = np.concatenate([np.asarray(times.times_s) for times in pooled.layers])
    for i, k in itertools.combinations(range(len(pooled.devices)), 2):
        both = table[~np.isnan(table[:, [i, k]]).all(axis=1)]
        if len(both) > _FEW and np.array_equal(both[:, i], both[:, k]):
            yield pooled.devices[i], pooled.devices[k]


def _gone(records: Sequence[TuningRecords]) -> bool:
    """Return True if today's TVM can measure none of these records."""
    return all(replay_problem(log) is not None for log in records)


def _finite(value: float) -> float | None:
    """A value for a document: None if it is not finite."""
    return float(value) if math.isfinite(value) else None


def _by_device(devices: Sequence[str], values: Floats) -> dict[str, float | None]:
    return {device: _finite(value) for device, value in zip(devices, values, strict=True)}
