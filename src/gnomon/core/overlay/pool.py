"""The tuning records of several devices joined by layer and configuration, ready for `gnomon.core.overlay.choice`.

Which times of several record sets can be compared with each other: those that were taken side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gnomon.core.overlay.choice import LayerTimes
from gnomon.core.overlay.records import UNTUNED, TuningLayer, TuningRecords, TuningTrial, sound_times
from gnomon.core.sample import Failure
from gnomon.core.stats import median
from gnomon.errors import ProblemError, UsageError

Blocks = tuple[tuple[float, ...], ...]
"""Samples in seconds of one configuration on one device, a tuple a trial: samples of one trial are correlated."""

Samples = Mapping[tuple[int, int], Blocks]
"""The samples of a layer by (index of the configuration, index of the device)."""

_MOST_TOLD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrial:
    """A trial that gave no time: its configuration (maybe `UNTUNED`), the device, who found it, and how it failed."""

    layer: str
    name: str
    configuration: str
    device: str
    host: str
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pooled:
    """What several record sets say together of one model's layers.

    `layers` have all `devices` in the order in which they were met, and no untuned times; `samples` is, for each
    layer, what their times are the medians of. `untuned_s` are the medians of the untuned layers by (layer, device).
    `missing` names, by layer, the devices without any time of its configurations. `failures` are in order of the
    record sets; a configuration that failed in one trial has a time from its others, unless its outputs were wrong.
    """

    devices: tuple[str, ...]
    layers: tuple[LayerTimes, ...]
    samples: tuple[Samples, ...]
    untuned_s: Mapping[tuple[str, str], float]
    missing: Mapping[str, tuple[str, ...]]
    failures: tuple[FailedTrial, ...]


def pool(record_sets: Sequence[TuningRecords], names: Sequence[str] = ()) -> Pooled:
    """Join record sets by layer and configuration; a time is the median of all samples of all trials.

    `names` say in messages where each set is from; those of its devices and model unless given. Sets of the same
    device are pooled. A trial that two sets hold alike, to the last sample, is counted once. Samples that are not
    finite or not above 0 make their trial a failure of kind "lie".

    Raises UsageError without any set, and ProblemError with all contradictions: data types, tuners or models that
    differ, a device of two targets, a layer of two weights, trials of a layer that no set describes.
    """
    if not record_sets:
        raise UsageError("there are no tuning records to join", hint="Give at least one record set.")
    labels = [name or _label(r) for name, r in zip([*names, *[""] * len(record_sets)], record_sets, strict=False)]
    described = _described(record_sets)
    told = [*_contradictions(record_sets, labels), *_foreign(record_sets, labels, described)]
    if told:
        more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
        raise ProblemError(
            f"the tuning records do not belong together: {'; '.join(told[:_MOST_TOLD])}{more}",
            hint="Join records of one model, data type and tuner, and give each device a key of its own.",
        )
    devices = tuple(dict.fromkeys(records.device.key for records in record_sets))
    bins = {layer: _Bin() for layer in described}
    failures: list[FailedTrial] = []
    for records, trial in _trials_once(record_sets):
        bins[trial.layer].add(records, trial, described[trial.layer].name, failures)
    layers, samples = [], []
    untuned: dict[tuple[str, str], float] = {}
    for key, layer in described.items():
        times, blocks = bins[key].times(layer, devices)
        layers.append(times)
        samples.append(blocks)
        for device in devices:
            if (UNTUNED, device) in bins[key].samples:
                untuned[key, device] = _median_of(bins[key].samples[UNTUNED, device])
    missing = {t.layer: _without_times(t) for t in layers if _without_times(t)}
    return Pooled(
        devices=devices,
        layers=tuple(layers),
        samples=tuple(samples),
        untuned_s=untuned,
        missing=missing,
        failures=tuple(failures),
    )


@dataclass(slots=True)
class _Bin:
    """What was met of one layer: by configuration its hosts, its samples by device, and where its outputs were wrong.

    A dict with None as values is a set that keeps its order.
    """

    hosts: dict[str, dict[str, None]] = field(default_factory=dict)
    samples: dict[tuple[str, str], list[tuple[float, ...]]] = field(default_factory=dict)
    wrong: set[tuple[str, str]] = field(default_factory=set)

    def add(self, records: TuningRecords, trial: TuningTrial, name: str, failures: list[FailedTrial]) -> None:
        """Sort in one trial."""
        device = records.device.key
        if trial.configuration != UNTUNED:
            self.hosts.setdefault(trial.configuration, {})[records.host] = None
        failure = _failure_of(trial)
        if failure is None:
            self.samples.setdefault((trial.configuration, device), []).append(trial.times_s)
            return
        if failure.stage == "check" or (failure.kind == "crash" and not failure.transient):
            self.wrong.add((trial.configuration, device))
        failures.append(
            FailedTrial(
                layer=trial.layer,
                name=name,
                configuration=trial.configuration,
                device=device,
                host=records.host,
                failure=failure,
            )
        )

    def times(self, layer: TuningLayer, devices: tuple[str, ...]) -> tuple[LayerTimes, Samples]:
        """Medians and samples."""
        rows = {configuration: k for k, configuration in enumerate(self.hosts)}
        columns = {device: k for k, device in enumerate(devices)}
        medians_s = np.full((len(rows), len(devices)), np.nan)
        blocks: dict[tuple[int, int], Blocks] = {}
        for (configuration, device), trials in self.samples.items():
            if configuration != UNTUNED and (configuration, device) not in self.wrong:
                place = rows[configuration], columns[device]
                blocks[place] = tuple(trials)
                medians_s[place] = _median_of(trials)
        made = LayerTimes(
            name=layer.name,
            layer=layer.layer,
            weight=layer.weight,
            devices=devices,
            configurations=tuple(rows),
            hosts=tuple(tuple(hosts) for hosts in self.hosts.values()),
            times_s=medians_s,
        )
        return made, blocks


def _median_of(trials: Sequence[tuple[float, ...]]) -> float:
    return median([t for times_s in trials for t in times_s])


def _label(records: TuningRecords) -> str:
    device, model = records.device.key, records.model
    return f"{device if records.host == device else f'{device}_{records.host}'}.{model.name}.{model.dtype}"


def _failure_of(trial: TuningTrial) -> Failure | None:
    """Why a trial has no time; None where it has."""
    if trial.failure is not None:
        return trial.failure
    if sound_times(trial.times_s):
        return None
    said = ", ".join(f"{t:g}" for t in trial.times_s[:5]) or "no samples"
    return Failure(stage="run", kind="lie", transient=False, message=f"these cannot be times in seconds: {said}")


def _trials_once(record_sets: Sequence[TuningRecords]) -> Iterator[tuple[TuningRecords, TuningTrial]]:
    """All trials but those that an earlier record set of the device holds as well, to the last sample."""
    before: set[tuple[object, ...]] = set()
    for records in record_sets:
        here: set[tuple[object, ...]] = set()
        for trial in records.trials:
            message = trial.failure.message if trial.failure else ""
            key = (
                records.device.key,
                trial.layer,
                trial.configuration,
                trial.times_s,
                trial.at_s,
                trial.server,
                message,
            )
            here.add(key)
            if key not in before:
                yield records, trial
        before |= here


def _described(record_sets: Sequence[TuningRecords]) -> dict[str, TuningLayer]:
    """The first description of each layer."""
    found: dict[str, TuningLayer] = {}
    for records in record_sets:
        for layer in records.layers:
            found.setdefault(layer.layer, layer)
    return found


def _without_times(times: LayerTimes) -> tuple[str, ...]:
    timed = np.flatnonzero(~np.isnan(times.times_s).all(axis=0)).tolist()
    return tuple(device for k, device in enumerate(times.devices) if k not in timed)


def _contradictions(record_sets: Sequence[TuningRecords], labels: Sequence[str]) -> Iterator[str]:
    """How record sets contradict each other, a sentence each."""
    first = record_sets[0]
    by_key: dict[str, int] = {}
    layers: dict[str, tuple[TuningLayer, int]] = {}
    for k, records in enumerate(record_sets):
        for what, mine, theirs in (
            ("data type", records.model.dtype, first.model.dtype),
            ("tuner", records.tuner, first.tuner),
        ):
            if mine != theirs:
                yield f"the {what} of {labels[k]} is {mine}, that of {labels[0]} {theirs}"
        if not _same_model(records, first):
            yield f"{labels[k]} is of another model ({records.model.name}) than {labels[0]} ({first.model.name})"
        other = by_key.setdefault(records.device.key, k)
        told = record_sets[other].device
        for what in ("target", "threads"):
            if getattr(records.device, what) != getattr(told, what):
                values = (
                    f"{getattr(told, what)!r} in {labels[other]} and {getattr(records.device, what)!r} in {labels[k]}"
                )
                yield f"device {told.key} has the {what} {values}"
        for layer in records.layers:
            known, where = layers.setdefault(layer.layer, (layer, k))
            if (known.weight, known.arguments) != (layer.weight, layer.arguments):
                yield (
                    f"layer {layer.name} ({layer.layer}) has weight {known.weight} in {labels[where]} and"
                    f" {layer.weight} in {labels[k]}, or arguments of other types or shapes"
                )


def _same_model(a: TuningRecords, b: TuningRecords) -> bool:
    """Whether two sets can be of one model: equal files, else equal names and, of different files, equal layers."""
    if a.model.sha256 and a.model.sha256 == b.model.sha256:
        return True
    if a.model.name != b.model.name:
        return False
    files_differ = bool(a.model.sha256 and b.model.sha256)
    return not files_differ or {layer.layer for layer in a.layers} == {layer.layer for layer in b.layers}


def _foreign(
    record_sets: Sequence[TuningRecords], labels: Sequence[str], described: Mapping[str, TuningLayer]
) -> Iterator[str]:
    """Sets with trials of a layer that no set describes."""
    for label, records in zip(labels, record_sets, strict=True):
        unknown = dict.fromkeys(t.layer for t in records.trials if t.layer not in described)
        if unknown:
            yield f"{label} has trials of layers that are not described: {', '.join(list(unknown)[:5])}"


def side_by_side(given: tuple[TuningRecords, ...]) -> tuple[TuningRecords, ...]:
    """The record sets without times that are not to be compared with the others, and each trial once.

    What was collected on a device was measured side by side there; the times of the search before were taken one by
    one, and the best of them was partly lucky. These go where a configuration has the former. Layers that are untuned
    stand in the file of each host that was collected.
    """
    collected = {
        (one.device.key, trial.layer, trial.configuration)
        for one in given
        if one.found_on
        for trial in one.trials
        if trial.failure is None
    }
    seen: set[tuple[Any, ...]] = set()
    made = []
    for one in given:
        kept = []
        for trial in one.trials:
            key = (one.device.key, trial.layer, trial.configuration)
            own = (*key, trial.at_s, trial.times_s)
            again = trial.configuration == UNTUNED and own in seen
            searched = not one.found_on and trial.failure is None and key in collected
            if not again and not searched:
                kept.append(trial)
            seen.add(own)
        made.append(replace(one, trials=tuple(kept)))
    return tuple(made)
