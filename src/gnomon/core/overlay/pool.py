"""The tuning records of several devices, joined by layer and configuration, as input for `gnomon.core.overlay.choice`.

Times of several record sets can be compared with each other only if they were taken side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.core.codec import fields_of
from gnomon.core.cost import Floats
from gnomon.core.overlay.choice import LayerTimes
from gnomon.core.overlay.records import UNTUNED, TuningLayer, TuningRecords
from gnomon.core.overlay.samples import Places, SampleTable, gathered
from gnomon.core.overlay.trials import Name, TrialColumns, columns_of
from gnomon.core.sample import Failure
from gnomon.errors import ProblemError

_MOST_TOLD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrial:
    """A trial that gave no time: its layer, its configuration (possibly `UNTUNED`), the device and the failure."""

    layer: str
    configuration: str
    device: str
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pooled:
    """Several record sets of one model's layers, joined.

    Each of the `layers` has all `devices`, in the order of their first appearance. A layer's configurations are in the
    order of their identities, so that the order of files and lines decides nothing. `UNTUNED`, without hosts, comes
    last if it has a time, because leaving a layer untuned is a choice, too. `samples` has, for each layer, the samples
    whose medians are the times. `failures` are in the order of the record sets. A configuration that failed in one
    trial has a time from its other trials, unless it gave wrong outputs or crashed for good.
    """

    devices: tuple[str, ...]
    layers: tuple[LayerTimes, ...]
    samples: tuple[SampleTable, ...]
    failures: tuple[FailedTrial, ...]


def pool(record_sets: Sequence[TuningRecords], labels: Sequence[str]) -> Pooled:
    """Join one or more record sets by layer and configuration; a time is the median of all samples of all trials.

    `labels` name the origin of each set in messages. Sets of the same device are pooled. A trial that two sets share,
    down to the last sample, is counted once. All times of a layer on a device come from one clock. Samples that are not
    finite or not above 0 make their trial a failure of kind "lie".

    Raises ProblemError with all contradictions: data types, tuners or models that differ, a device with two targets, a
    layer with two weights, and trials of a layer that no set describes.
    """
    described = described_layers(record_sets)
    problems = [*_contradictions(record_sets, labels), *_foreign(record_sets, labels, described)]
    if problems:
        more = f"; and {len(problems) - _MOST_TOLD} more" if len(problems) > _MOST_TOLD else ""
        raise ProblemError(
            f"the tuning records do not belong together: {'; '.join(problems[:_MOST_TOLD])}{more}",
            hint="Join records of one model, data type and tuner, and give each device its own key.",
        )
    devices = tuple(dict.fromkeys(records.device.key for records in record_sets))
    bins = _Bins(tuple(described.values()), devices)
    sets = list(zip(record_sets, _of_one_clock(record_sets), strict=True))
    for (records, columns), mask in zip(sets, _once(sets), strict=True):
        bins.add(records, columns, mask)
    layers, samples = bins.joined()
    return Pooled(devices=devices, layers=layers, samples=samples, failures=tuple(bins.failures))


_UNTUNED_ROW = -1
_Indices = NDArray[np.int32]


class _Bins:
    """The trials so far: the configurations of each layer, one row each, with their hosts; and for each timed trial its
    layer, row and device, and the position of its samples.
    """

    def __init__(self, layers: tuple[TuningLayer, ...], devices: tuple[str, ...]) -> None:
        self.layers, self.devices = layers, devices
        self.rows: list[list[str]] = [[] for _ in layers]
        self.hosts: list[list[tuple[str, ...]]] = [[] for _ in layers]
        self.wrong: set[tuple[int, int, int]] = set()
        self.failures: list[FailedTrial] = []
        self.trials: list[tuple[_Indices, _Indices, _Indices, Places, _Indices]] = []
        self.samples_s: list[Floats] = []
        self.numbers = {layer.layer: k for k, layer in enumerate(layers)}
        self.places: dict[Name, tuple[int, int]] = {}
        self.known_hosts: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, records: TuningRecords, columns: TrialColumns, mask: NDArray[np.bool_]) -> None:
        """Add the trials of a record set that the mask selects."""
        device = self.devices.index(records.device.key)
        layer_of, row_of = np.zeros((2, len(columns.names)), dtype=np.int32)
        met, host = _as_met(columns, mask), records.host
        if met:
            layer_of[met], row_of[met] = np.array([self._place(columns.names[index], host) for index in met]).T
        sound = columns.sound()
        for k in np.flatnonzero(mask & ~sound).tolist():
            index = columns.which[k]
            self._failed(records, columns, k, (int(layer_of[index]), int(row_of[index]), device))
        timed = np.flatnonzero(mask & sound)
        counts = columns.counts()[timed]
        which = columns.which[timed]
        starts = columns.ends[timed] - counts + sum(map(len, self.samples_s))
        column = np.full(len(timed), device, dtype=np.int32)
        self.trials.append((layer_of[which], row_of[which], column, starts, counts.astype(np.int32)))
        self.samples_s.append(columns.samples_s)

    def joined(self) -> tuple[tuple[LayerTimes, ...], tuple[SampleTable, ...]]:
        """The medians and samples of each layer."""
        layer, row, device, starts, counts = (np.concatenate(part) for part in zip(*self.trials, strict=True))
        self.trials.clear()
        samples_s, width = np.concatenate(self.samples_s), len(self.devices)
        met = [np.argsort(np.array(names, dtype=np.str_)) for names in self.rows]  # in the order of identities
        places = [np.append(np.argsort(rows), len(rows)) for rows in met]
        begins = np.cumsum([0, *map(len, places)])
        row = np.concatenate([*places, [0]])[begins[layer + (row == _UNTUNED_ROW)] + row]
        rows = max(map(len, places), default=1)
        key = (layer.astype(np.int64) * rows + row) * width + device
        order = np.argsort(key, kind="stable")  # a stable sort keeps the order of the trials of a cell
        bounds = np.searchsorted(layer[order], np.arange(len(self.layers) + 1))
        wrong: list[list[int]] = [[] for _ in self.layers]
        for number, k, column in self.wrong:
            wrong[number].append(int(places[number][k]) * width + column)
        layers, tables = [], []
        for number, described in enumerate(self.layers):
            here = order[bounds[number] : bounds[number + 1]]
            cells = row[here].astype(np.int64) * width + device[here]
            good = ~np.isin(cells, wrong[number])
            here = here[good]
            table = gathered(width, cells[good], starts[here], counts[here], samples_s)
            tables.append(table)
            times_s = table.medians(len(places[number]))
            untuned = not np.isnan(times_s[-1]).all()
            layers.append(
                LayerTimes(
                    **fields_of(LayerTimes, described),
                    devices=self.devices,
                    configurations=(*(self.rows[number][k] for k in met[number]), *[UNTUNED] * untuned),
                    hosts=(*(self.hosts[number][k] for k in met[number]), *[()] * untuned),
                    times_s=times_s if untuned else times_s[:-1],
                )
            )
        return tuple(layers), tuple(tables)

    def _place(self, name: Name, host: str) -> tuple[int, int]:
        """The layer and the row of a configuration that was found on a host."""
        place = self.places.get(name)
        if place is None:
            number = self.numbers[name[0]]
            place = self.places[name] = (number, _UNTUNED_ROW if name[1] == UNTUNED else len(self.rows[number]))
            if name[1] != UNTUNED:
                self.rows[number].append(name[1])
                self.hosts[number].append(())
        number, row = place
        if row != _UNTUNED_ROW and host not in (hosts := self.hosts[number][row]):
            more = (*hosts, host)
            self.hosts[number][row] = self.known_hosts.setdefault(more, more)
        return place

    def _failed(self, records: TuningRecords, columns: TrialColumns, k: int, place: tuple[int, int, int]) -> None:
        """Add a trial without times."""
        layer, configuration = columns.names[columns.which[k]]
        failure = columns.failures.get(k) or _lie(columns.samples_of(k).tolist())
        if failure.stage == "check" or (failure.kind == "crash" and not failure.transient):
            self.wrong.add(place)
        device = records.device.key
        self.failures.append(FailedTrial(layer=layer, configuration=configuration, device=device, failure=failure))


def _lie(times_s: Sequence[float]) -> Failure:
    """The failure of a trial whose samples cannot be times."""
    said = ", ".join(f"{t:g}" for t in times_s[:5]) or "no samples"
    return Failure(stage="run", kind="lie", transient=False, message=f"these cannot be times in seconds: {said}")


def _as_met(columns: TrialColumns, mask: NDArray[np.bool_]) -> list[int]:
    """The configurations of the trials that a mask selects, in the order of their first trials."""
    indices, first = np.unique(columns.which[mask], return_index=True)
    ordered: list[int] = indices[np.argsort(first)].tolist()
    return ordered


Set = tuple[TuningRecords, TrialColumns]


def _of_one_clock(record_sets: Sequence[TuningRecords]) -> list[TrialColumns]:
    """The trials of each set, with one clock for each layer on a device: CPU time if all trials of the layer there have
    it, or else wall time.

    The two clocks cannot be compared: on a busy machine the same code takes less CPU time than wall time.
    """
    columns = [columns_of(records.trials) for records in record_sets]
    by_wall: dict[str, set[str]] = {}
    for records, mine in zip(record_sets, columns, strict=True):
        by_wall.setdefault(records.device.key, set()).update(mine.without_cpu())
    return [mine.by_wall(by_wall[records.device.key]) for records, mine in zip(record_sets, columns, strict=True)]


def _once(sets: Sequence[Set]) -> list[NDArray[np.bool_]]:
    """Masks of the trials that are in no earlier set of the same device; equal trials agree down to the last sample."""
    masks = [np.ones(len(columns), dtype=np.bool_) for _, columns in sets]
    by_device: dict[str, list[int]] = {}
    for k, (records, _) in enumerate(sets):
        by_device.setdefault(records.device.key, []).append(k)
    for mine in by_device.values():
        met: set[Name] = set()
        several: set[Name] = set()
        for k in mine:
            several.update(met.intersection(sets[k][1].names))
            met.update(sets[k][1].names)
        before: set[tuple[object, ...]] = set()
        for k in mine if several else ():
            columns = sets[k][1]
            again = np.array([name in several for name in columns.names], dtype=np.bool_)
            here = {place: _identity(columns, place) for place in np.flatnonzero(again[columns.which]).tolist()}
            masks[k][[place for place, trial in here.items() if trial in before]] = False
            before.update(here.values())
    return masks


def _identity(columns: TrialColumns, k: int) -> tuple[object, ...]:
    """A key that no two different trials of a device share."""
    failure = columns.failures.get(k)
    return (
        columns.names[columns.which[k]],
        columns.samples_of(k).tobytes(),
        float(columns.at_s[k]),
        columns.servers[columns.server[k]],
        failure.message if failure else "",
    )


def described_layers(record_sets: Iterable[TuningRecords]) -> dict[str, TuningLayer]:
    """The first description of each layer, by digest."""
    layers: dict[str, TuningLayer] = {}
    for records in record_sets:
        for layer in records.layers:
            layers.setdefault(layer.layer, layer)
    return layers


def without_times(times: LayerTimes) -> tuple[str, ...]:
    """The devices that have no time for any configuration except `UNTUNED`."""
    hosted = [bool(hosts) for hosts in times.hosts]
    timed = np.flatnonzero(~np.isnan(times.times_s[hosted]).all(axis=0)).tolist()
    return tuple(device for k, device in enumerate(times.devices) if k not in timed)


def _contradictions(record_sets: Sequence[TuningRecords], labels: Sequence[str]) -> Iterator[str]:
    """The contradictions between record sets, one sentence each."""
    first = record_sets[0]
    by_key: dict[str, int] = {}
    layers: dict[str, tuple[TuningLayer, int]] = {}
    for k, records in enumerate(record_sets):
        if (mine := records.model.dtype) != first.model.dtype:
            yield f"the data type of {labels[k]} is {mine}, but that of {labels[0]} is {first.model.dtype}"
        if records.tuner != first.tuner:
            yield f"the tuner of {labels[k]} is {records.tuner}, but that of {labels[0]} is {first.tuner}"
        if not _same_model(records, first):
            yield f"{labels[k]} is for another model ({records.model.name}) than {labels[0]} ({first.model.name})"
        other = by_key.setdefault(records.device.key, k)
        device = record_sets[other].device
        for what in ("target", "threads"):
            mine, theirs = getattr(records.device, what), getattr(device, what)
            if mine != theirs:
                yield f"device {device.key} has the {what} {theirs!r} in {labels[other]} and {mine!r} in {labels[k]}"
        for layer in records.layers:
            before, where = layers.setdefault(layer.layer, (layer, k))
            if (before.weight, before.arguments) != (layer.weight, layer.arguments):
                yield (
                    f"layer {layer.name} ({layer.layer}) has another weight, or arguments of other types or shapes, in"
                    f" {labels[k]} (weight {layer.weight}) than in {labels[where]} (weight {before.weight})"
                )


def _same_model(a: TuningRecords, b: TuningRecords) -> bool:
    """Return True if two sets can belong to one model.

    They can if their files are equal, or if their names are equal and, where both files are known but differ, their
    layers are equal as well.
    """
    if a.model.sha256 and a.model.sha256 == b.model.sha256:
        return True
    if a.model.name != b.model.name:
        return False
    files_differ = bool(a.model.sha256 and b.model.sha256)
    return not files_differ or {layer.layer for layer in a.layers} == {layer.layer for layer in b.layers}


def _foreign(
    record_sets: Sequence[TuningRecords], labels: Sequence[str], described: Mapping[str, TuningLayer]
) -> Iterator[str]:
    """One sentence for each set that has trials of a layer that no set describes."""
    for label, records in zip(labels, record_sets, strict=True):
        columns = columns_of(records.trials)
        strange = {layer for layer, _ in columns.names if layer not in described}
        met = _as_met(columns, np.ones(len(columns), dtype=np.bool_)) if strange else []
        unknown = dict.fromkeys(columns.names[k][0] for k in met if columns.names[k][0] in strange)
        if unknown:
            yield f"{label} has trials of layers that are not described: {', '.join(list(unknown)[:5])}"


def side_by_side(given: tuple[TuningRecords, ...]) -> tuple[TuningRecords, ...]:
    """The record sets, without those times that must not be compared with the others.

    Times that were collected on a device were measured side by side there. In the search before that, times were taken
    one by one, and the best of them were partly luck. These times are removed for each configuration that also has
    collected times on the device.
    """
    sets = [(records, columns_of(records.trials)) for records in given]
    collected: set[tuple[str, Name]] = set()
    for records, columns in sets:
        if records.found_on:
            collected |= {(records.device.key, columns.names[index]) for index in _as_met(columns, columns.sound())}
    kept = []
    for records, columns in sets:
        both = np.array([(records.device.key, name) in collected for name in columns.names], dtype=np.bool_)
        searched = both[columns.which] & (not records.found_on)
        searched[list(columns.failures)] = False
        kept.append(replace(records, trials=columns.kept(~searched)) if searched.any() else records)
    return tuple(kept)
