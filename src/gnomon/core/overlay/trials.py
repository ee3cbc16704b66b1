"""Many trials in columns: a few bytes per number, and each trace stored once. An object per trial would take thousands
of bytes."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats
from gnomon.core.overlay.records import TuningTrial
from gnomon.core.sample import Failure

Name = tuple[str, str]
"""A configuration by layer and identity; all untuned trials of a layer have the same name."""
Trace = tuple[str, ...]
"""A configuration as JSON, in parts: many configurations share the first part, which is stored once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TrialColumns(Sequence[TuningTrial]):
    """Trials in order; each trial is created on access.

    `names` are the names of the configurations, and `traces` are their traces ("null" without one); `which` is the
    index of each trial's configuration. The samples of trial k are `samples_s[ends[k - 1]:ends[k]]`; `failures` maps k
    to the failure of trial k. For samples that are CPU times, `wall_s` has the wall times of the same calls; for other
    samples it has NaN. It is empty if no trial has CPU times. `errors` are NaN if outputs were not compared. `servers`
    has addresses, and `server` has each trial's index in `servers`. `lines` has the line of each trial in its file,
    counted from 1; 0 if the trial does not come from a file.
    """

    names: tuple[Name, ...]
    traces: tuple[Trace, ...]
    which: NDArray[np.int32]
    ends: NDArray[np.int64]
    samples_s: Floats
    wall_s: Floats
    errors: Floats
    at_s: Floats
    servers: tuple[str, ...]
    server: NDArray[np.int32]
    lines: NDArray[np.int32]
    failures: Mapping[int, Failure]

    def __len__(self) -> int:
        """The number of trials."""
        return len(self.which)

    @overload
    def __getitem__(self, place: int) -> TuningTrial: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[TuningTrial, ...]: ...

    def __getitem__(self, place: int | slice) -> TuningTrial | tuple[TuningTrial, ...]:
        """One trial, or several."""
        if isinstance(place, slice):
            return tuple(self[k] for k in range(*place.indices(len(self))))
        place = range(len(self))[place]
        index = int(self.which[place])
        return self._trial(place, json.loads("".join(self.traces[index])))

    def __iter__(self) -> Iterator[TuningTrial]:
        """All trials; trials of the same configuration share its trace."""
        traces: dict[int, Any] = {}
        for place, index in enumerate(self.which.tolist()):
            if index not in traces:
                traces[index] = json.loads("".join(self.traces[index]))
            yield self._trial(place, traces[index])

    def __eq__(self, other: object) -> bool:
        """Return True if another sequence has the same trials."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """A short text with the numbers of trials and configurations."""
        return f"<{len(self)} trials of {len(self.names)} configurations>"

    def samples_of(self, place: int) -> Floats:
        """The samples of a trial, in seconds."""
        return self.samples_s[self._span(place)]

    def _span(self, place: int) -> slice:
        return slice(self.ends[place - 1] if place else 0, self.ends[place])

    def counts(self) -> NDArray[np.int64]:
        """The number of samples of each trial."""
        sizes: NDArray[np.int64] = np.diff(self.ends, prepend=0)
        return sizes

    def sound(self) -> NDArray[np.bool_]:
        """A mask of the trials that have times: no failure, at least one sample, and all samples finite and above 0."""
        with np.errstate(invalid="ignore"):
            bad = ~(np.isfinite(self.samples_s) & (self.samples_s > 0))
        wrong = np.diff(np.concatenate([[0], np.cumsum(bad)])[np.concatenate([[0], self.ends])]) > 0
        mask: NDArray[np.bool_] = (self.counts() > 0) & ~wrong
        mask[list(self.failures)] = False
        return mask

    def without_cpu(self) -> set[str]:
        """The layers with a trial that has only wall times."""
        by_wall = np.isnan(self.wall_s) if len(self.wall_s) else np.ones(len(self.samples_s), dtype=np.bool_)
        alone = self.sound()
        alone[alone] = by_wall[self.ends[alone] - 1]
        return {self.names[index][0] for index in np.unique(self.which[alone]).tolist()}

    def by_wall(self, layers: Collection[str]) -> TrialColumns:
        """The same trials, with wall times for all trials of these layers."""
        if not len(self.wall_s):
            return self
        mine = np.array([layer in layers for layer, _ in self.names], dtype=np.bool_)
        changed = np.repeat(mine[self.which], self.counts()) & ~np.isnan(self.wall_s)
        samples_s = np.where(changed, self.wall_s, self.samples_s)
        return replace(self, samples_s=samples_s, wall_s=np.where(changed, math.nan, self.wall_s))

    def kept(self, mask: NDArray[np.bool_]) -> TrialColumns:
        """The trials that a mask (trials,) selects."""
        counts = self.counts()
        places, samples = np.cumsum(mask) - 1, np.repeat(mask, counts)
        return replace(
            self,
            which=self.which[mask],
            ends=np.cumsum(counts[mask]),
            samples_s=self.samples_s[samples],
            wall_s=self.wall_s[samples] if len(self.wall_s) else self.wall_s,
            errors=self.errors[mask],
            at_s=self.at_s[mask],
            server=self.server[mask],
            lines=self.lines[mask],
            failures={int(places[k]): failure for k, failure in self.failures.items() if mask[k]},
        )

    def _trial(self, place: int, trace: Any) -> TuningTrial:
        layer, configuration = self.names[self.which[place]]
        error = float(self.errors[place])
        samples_s = tuple(self.samples_of(place).tolist())
        wall_s = tuple(self.wall_s[self._span(place)].tolist())
        by_cpu = bool(wall_s) and not math.isnan(wall_s[0])
        return TuningTrial(
            layer=layer,
            configuration=configuration,
            trace=trace,
            times_s=wall_s if by_cpu else samples_s,
            cpu_s=samples_s if by_cpu else (),
            failure=self.failures.get(place),
            error=None if math.isnan(error) else error,
            server=self.servers[self.server[place]],
            at_s=float(self.at_s[place]),
        )


class TrialBuilder:
    """A builder that puts trials into columns one by one. `wall_s` may be shorter than `samples_s`."""

    def __init__(self) -> None:
        self.indices: dict[Name, int] = {}
        self.servers, self.failures = {"": 0}, dict[int, Failure]()
        self.traces: list[Trace] = []
        self.which, self.server, self.lines, self.ends = array("i"), array("i"), array("i"), array("q")
        self.samples_s, self.wall_s, self.errors, self.at_s = array("d"), array("d"), array("d"), array("d")

    def __len__(self) -> int:
        """The number of trials."""
        return len(self.which)

    def add(
        self,
        name: Name,
        trace: Trace,
        times_s: Sequence[float],
        failure: Failure | None = None,
        *,
        cpu_s: Sequence[float] = (),
        at_s: float = 0.0,
        error: float | None = None,
        server: str = "",
        line: int = 0,
    ) -> None:
        """Add a trial; a configuration that is already known keeps its first trace.

        `cpu_s` is empty or has as many values as `times_s`.
        """
        if (index := self.indices.get(name)) is None:
            index = self.indices[name] = len(self.traces)
            self.traces.append(trace)
        if failure is not None:
            self.failures[len(self.which)] = failure
        self.errors.append(math.nan if error is None else error)
        self.server.append(self.servers.setdefault(server, len(self.servers)))
        self.which.append(index)
        if cpu_s:
            self.wall_s.extend([math.nan] * (len(self.samples_s) - len(self.wall_s)))
            self.wall_s.extend(times_s)
        self.samples_s.extend(cpu_s or times_s)
        self.ends.append(len(self.samples_s))
        self.at_s.append(at_s)
        self.lines.append(line)

    def columns(self) -> TrialColumns:
        """The trials that have been added so far, in columns."""
        wall_s = np.full(len(self.samples_s) if self.wall_s else 0, math.nan)
        wall_s[: len(self.wall_s)] = self.wall_s
        return TrialColumns(
            names=tuple(self.indices),
            traces=tuple(self.traces),
            which=np.array(self.which, dtype=np.int32),
            ends=np.array(self.ends, dtype=np.int64),
            samples_s=np.array(self.samples_s, dtype=np.float64),
            wall_s=wall_s,
            errors=np.array(self.errors, dtype=np.float64),
            at_s=np.array(self.at_s, dtype=np.float64),
            servers=tuple(self.servers),
            server=np.array(self.server, dtype=np.int32),
            lines=np.array(self.lines, dtype=np.int32),
            failures=self.failures,
        )


def columns_of(trials: Sequence[TuningTrial]) -> TrialColumns:
    """The trials in columns; trials that are already in columns are returned unchanged."""
    if isinstance(trials, TrialColumns):
        return trials
    builder = TrialBuilder()
    for trial in trials:
        builder.add(
            (trial.layer, trial.configuration),
            (json.dumps(trial.trace),),
            trial.times_s,
            trial.failure,
            cpu_s=trial.cpu_s,
            at_s=trial.at_s,
            error=trial.error,
            server=trial.server,
        )
    return builder.columns()


def by_layer(trials: Sequence[TuningTrial]) -> dict[str, list[TuningTrial]]:
    """The trials of each layer, in order."""
    layers: dict[str, list[TuningTrial]] = {}
    for trial in trials:
        layers.setdefault(trial.layer, []).append(trial)
    return layers


def traces_of(trials: Sequence[TuningTrial], wanted: Collection[Name]) -> dict[Name, Any]:
    """The traces of the wanted configurations that the trials have."""
    columns = columns_of(trials)
    pairs = zip(columns.names, columns.traces, strict=True)
    return {name: json.loads("".join(trace)) for name, trace in pairs if name in wanted}
