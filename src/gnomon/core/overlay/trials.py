"""Many trials in columns: a few bytes a number and a trace once a configuration, where objects take thousands."""

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
"""A configuration by layer and identity; all untuned ones of a layer are one."""
Trace = tuple[str, ...]
"""A configuration as JSON, in parts: many share the first part, which is stored once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TrialColumns(Sequence[TuningTrial]):
    """Trials in order; each is made when it is asked for.

    `names` are the configurations and `traces` what each of them is ("null" without any); `which` is the
    index of each trial's. The samples of trial k are `samples_s[ends[k - 1]:ends[k]]`, `failures` why there are none,
    by k. Where they are CPU times, `wall_s` has those of the wall's clock, elsewhere NaN; it is empty where no trial
    has CPU times. `errors` are NaN where outputs were not compared. `servers` has addresses, `server` each trial's
    index there. `lines` has the line of each trial in its file, from 1; 0 where it is of none.
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
        """How many there are."""
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
        """All trials; those of a configuration share its trace."""
        traces: dict[int, Any] = {}
        for place, index in enumerate(self.which.tolist()):
            if index not in traces:
                traces[index] = json.loads("".join(self.traces[index]))
            yield self._trial(place, traces[index])

    def __eq__(self, other: object) -> bool:
        """Whether another sequence has the same trials."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """How many there are."""
        return f"<{len(self)} trials of {len(self.names)} configurations>"

    def samples_of(self, place: int) -> Floats:
        """The samples of a trial, seconds."""
        return self.samples_s[self._span(place)]

    def _span(self, place: int) -> slice:
        return slice(self.ends[place - 1] if place else 0, self.ends[place])

    def counts(self) -> NDArray[np.int64]:
        """How many samples each trial has."""
        sizes: NDArray[np.int64] = np.diff(self.ends, prepend=0)
        return sizes

    def sound(self) -> NDArray[np.bool_]:
        """Which trials have times: no failure, and all samples finite and above 0."""
        with np.errstate(invalid="ignore"):
            bad = ~(np.isfinite(self.samples_s) & (self.samples_s > 0))
        wrong = np.diff(np.concatenate([[0], np.cumsum(bad)])[np.concatenate([[0], self.ends])]) > 0
        mask: NDArray[np.bool_] = (self.counts() > 0) & ~wrong
        mask[list(self.failures)] = False
        return mask

    def without_cpu(self) -> set[str]:
        """The layers of which a trial has times of the wall's clock alone."""
        by_wall = np.isnan(self.wall_s) if len(self.wall_s) else np.ones(len(self.samples_s), dtype=np.bool_)
        alone = self.sound()
        alone[alone] = by_wall[self.ends[alone] - 1]
        return {self.names[index][0] for index in np.unique(self.which[alone]).tolist()}

    def by_wall(self, layers: Collection[str]) -> TrialColumns:
        """The same, all trials of these layers by the wall's clock."""
        if not len(self.wall_s):
            return self
        mine = np.array([layer in layers for layer, _ in self.names], dtype=np.bool_)
        changed = np.repeat(mine[self.which], self.counts()) & ~np.isnan(self.wall_s)
        samples_s = np.where(changed, self.wall_s, self.samples_s)
        return replace(self, samples_s=samples_s, wall_s=np.where(changed, math.nan, self.wall_s))

    def kept(self, mask: NDArray[np.bool_]) -> TrialColumns:
        """The trials of a mask (trials,)."""
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
    """Trials as they come, put into columns. `wall_s` may be shorter than `samples_s`."""

    def __init__(self) -> None:
        self.indices: dict[Name, int] = {}
        self.servers, self.failures = {"": 0}, dict[int, Failure]()
        self.traces: list[Trace] = []
        self.which, self.server, self.lines, self.ends = array("i"), array("i"), array("i"), array("q")
        self.samples_s, self.wall_s, self.errors, self.at_s = array("d"), array("d"), array("d"), array("d")

    def __len__(self) -> int:
        """How many there are."""
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
        """Add one; of a configuration that is known the trace is that of before. `cpu_s` has as many as `times_s`."""
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
        """The trials that were added so far, in columns."""
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
    """Trials in columns; those that are stay as they are."""
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
    """The traces of those configurations that are among the wanted ones."""
    columns = columns_of(trials)
    pairs = zip(columns.names, columns.traces, strict=True)
    return {name: json.loads("".join(trace)) for name, trace in pairs if name in wanted}
