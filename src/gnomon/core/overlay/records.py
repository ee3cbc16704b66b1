"""Tuning records: what was measured of the configurations of a network's layers, on one device.

Which layer is tuned next: the one where another round is expected to save the network the most time.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gnomon.core.sample import Failure
from gnomon.core.stats import median

Tuner = Literal["metaschedule", "autotvm", "ansor"]

UNTUNED = "untuned"
"""The configuration that is no configuration: the layer as it comes from the compiler, without any schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningLayer:
    """A layer of a network as a tuner sees it: a workload, that is one fused function.

    `layer` is the tuner's own digest of the workload, equal wherever the same function is met. `weight` is how often
    the network calls it. `arguments` are data type and shape of each, the outputs last. `flops` is the number of
    floating-point operations, if known. `workload` is the function itself as the tuner serialises it; empty in logs
    that do not hold it, whose configurations cannot be replayed.
    """

    layer: str
    name: str
    weight: int = 1
    arguments: tuple[tuple[str, tuple[int, ...]], ...] = ()
    flops: float | None = None
    workload: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTrial:
    """One measuring of one configuration of one layer.

    `trace` is the configuration as the tuner serialises it (None: `UNTUNED`). `times_s` are the samples, seconds of
    one call each, in order; empty where it failed. `error` is the largest difference of its outputs from the untuned
    layer's, relative to their largest magnitude (None: not compared). `server` is the address that measured it.
    """

    layer: str
    configuration: str
    trace: Any = None
    times_s: tuple[float, ...] = ()
    failure: Failure | None = None
    error: float | None = None
    server: str = ""
    at_s: float = 0.0

    @property
    def time_s(self) -> float | None:
        """The median of the samples; None where there is none."""
        return median(self.times_s) if self.failure is None and self.times_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedDevice:
    """A device of a tracker, and what is compiled for it.

    `key` is its name at the tracker ("local" without one). `target` is the compiler's description of its processor,
    `linker` the command that links for it (empty: the host's own), `threads` what a function may use there (0: what
    the device's server was started with).
    """

    key: str
    target: Mapping[str, Any]
    linker: str = ""
    threads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModel:
    """The model that layers are of: a short `name`, the digest of its file, the data type that it was tuned in."""

    name: str
    sha256: str = ""
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRecords:
    """A record set: layers, and trials of their configurations on `device`.

    `found_on` is the key of the device on which the configurations were found: that of `device` for a tuning log,
    another's where its configurations were measured again. `versions` are those of the tuner's packages.
    """

    device: TunedDevice
    model: TunedModel
    layers: tuple[TuningLayer, ...]
    trials: tuple[TuningTrial, ...]
    found_on: str = ""
    tuner: Tuner = "metaschedule"
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Where the configurations were found."""
        return self.found_on or self.device.key


def configuration_id(layer: str, trace: Any) -> str:
    """The identity of a configuration: 16 hexadecimal digits of its workload and trace, and of nothing else.

    The target is not part of it, so that the same schedule is the same on any device. ValueError for a trace that JSON
    cannot say.
    """
    if trace is None:
        return UNTUNED
    text = json.dumps([layer, trace], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sound_times(times_s: tuple[float, ...]) -> bool:
    """Whether samples can be times at all: there are some, and all are finite and above 0."""
    return bool(times_s) and all(math.isfinite(t) and t > 0 for t in times_s)


_FLOOR = 0.2
_RECENT = 2
_MATTERS = 0.99


@dataclass(slots=True, kw_only=True)
class LayerProgress:
    """How far a layer is: how often the network calls it, its untuned time if known, and the best time after each
    round, in seconds.
    """

    weight: int
    untuned_s: float | None = None
    best_s: list[float] = field(default_factory=list)
    ended: str = ""

    @property
    def now_s(self) -> float:
        """The best time that is known; 0 where there is none."""
        known = [t for t in (self.untuned_s, self.best_s[-1] if self.best_s else None) if t is not None]
        return min(known, default=0.0)

    def gain_s(self) -> float:
        """What the next round may save the network, in seconds.

        Hopefully: as much of the layer's time, relatively, as a round of the last two did on average, and no less than
        a share that falls with the rounds that were spent, so that no layer is given up for one bad round. A layer that
        was not tried yet may save all of its time, so that what takes long is tried first, and what takes next to
        nothing only when little else is left.
        """
        rounds = len(self.best_s)
        if rounds == 0:
            return self.weight * self.now_s
        history = [self.untuned_s or self.best_s[0], *self.best_s][-_RECENT - 1 :]
        past = max(0.0, 1.0 - self.best_s[-1] / history[0]) / (len(history) - 1) if history[0] > 0 else 0.0
        return self.weight * self.now_s * max(past, _FLOOR / (1 + rounds))

    def on_plateau(self, rounds: int, relevant: float) -> bool:
        """Whether the last so many rounds together saved less than a relevant share of the time."""
        if len(self.best_s) <= rounds:
            return False
        return self.best_s[-1] > (1 - relevant) * self.best_s[-1 - rounds]


def next_layer(layers: Mapping[str, LayerProgress]) -> str | None:
    """The layer to tune next; None where all have ended."""
    waiting = {name: one.gain_s() for name, one in layers.items() if not one.ended}
    return max(waiting, key=waiting.__getitem__, default=None)


def first_round(layers: Iterable[LayerProgress], *, trials: int, per_round: int) -> int:
    """How many trials each layer gets before any gets a second round: as many as let all that matter have one.

    Any schedule at all is several times as fast as none, so that breadth goes first where trials are few.
    """
    return max(1, min(per_round, trials // max(1, len(relevant(layers)))))


def relevant(layers: Iterable[LayerProgress]) -> list[LayerProgress]:
    """The fewest layers that take 99 % of the untuned network's time, and those too slow to be timed."""
    open_ = sorted(layers, key=lambda one: -one.weight * (one.untuned_s or 0.0))
    total = sum(one.weight * (one.untuned_s or 0.0) for one in open_)
    made, seen = [one for one in open_ if one.untuned_s is None], 0.0
    for one in open_:
        if one.untuned_s is not None and seen < _MATTERS * total:
            seen += one.weight * one.untuned_s
            made.append(one)
    return made


def shares(layers: Sequence[LayerProgress]) -> list[float | None]:
    """Each layer's share of the untuned network's time; None where one is unknown."""
    total = sum(one.weight * (one.untuned_s or 0.0) for one in layers)
    return [None if one.untuned_s is None or total <= 0 else one.weight * one.untuned_s / total for one in layers]
