"""Tuning records: the measurements of the configurations of a network's layers, on one device.

The next layer to tune is the layer for which another round is expected to save the network the most time.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from gnomon.core.codec import Least0, Must
from gnomon.core.sample import Failure
from gnomon.core.stats import median
from gnomon.core.strict_json import is_json, is_line

Tuner = Literal["metaschedule", "autotvm", "ansor"]

MOST_LAYER_LETTERS = 1 << 16
_MOST_WHOLE = 1 << 53
_MOST_AXES = 32
_MOST_ARGUMENTS = 1 << 12
_DIGEST = re.compile(r"[0-9a-f]{64}|", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}", re.ASCII)


def _are_sizes(value: Sequence[Any]) -> bool:
    return len(value) <= _MOST_AXES and all(type(size) is int and 0 <= size < _MOST_WHOLE for size in value)


def one_line(most: int, *, empty: bool = False) -> Must:
    """The rule for a text of one line, at most `most` characters long; with `empty` it may be empty."""
    words = f"a single line of at most {most} characters"
    return Must(
        be=f"nothing or {words}" if empty else words, fits=lambda text: is_line(text, most) or (empty and not text)
    )


Line = Annotated[str, one_line(1000)]
Key = Annotated[str, one_line(200)]
KeyOrNone = Annotated[str, one_line(200, empty=True)]
LineOrNone = Annotated[str, one_line(1000, empty=True)]
LayerDigest = Annotated[str, one_line(MOST_LAYER_LETTERS)]
Digest = Annotated[str, Must(be="64 hexadecimal digits", fits=lambda value: _DIGEST.fullmatch(value) is not None)]
Base64 = Annotated[str, Must(be="base64", fits=lambda value: _BASE64.fullmatch(value) is not None)]
Values = Annotated[Mapping[str, Any], Must(be="JSON values", fits=is_json)]
Whole = Annotated[int, Must(be="a whole number from 0", fits=lambda value: 0 <= value <= _MOST_WHOLE)]
Count = Annotated[int, Must(be="a whole number from 1", fits=lambda value: 1 <= value <= _MOST_WHOLE)]
Argument = tuple[
    Annotated[str, one_line(64)],
    Annotated[tuple[int, ...], Must(be=f"at most {_MOST_AXES} sizes from 0", fits=_are_sizes)],
]
Arguments = Annotated[
    tuple[Argument, ...], Must(be="data types and shapes", fits=lambda value: len(value) <= _MOST_ARGUMENTS)
]

UNTUNED = "untuned"
"""The name used in place of a configuration for the layer as it comes from the compiler, without any schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningLayer:
    """A layer of a network as a tuner sees it: a workload, that is, one fused function.

    `layer` is the tuner's own digest of the workload, equal wherever the same function occurs. `weight` is the number
    of times that the network calls the function. `arguments` are the data type and shape of each argument, the outputs
    last. `flops` is the number of floating-point operations, if known. `workload` is the function itself as the tuner
    serialises it. It is empty for logs that do not contain it; the configurations in such logs cannot be replayed.
    """

    layer: LayerDigest
    name: Line
    weight: Count = 1
    arguments: Arguments = ()
    flops: Least0 | None = None
    workload: Base64 = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningTrial:
    """One measurement of one configuration of one layer.

    `trace` is the configuration as the tuner serialises it (None: `UNTUNED`). `times_s` are the samples in order, each
    the seconds of one call; empty if the trial failed. `cpu_s` are the CPU times of the same calls, if the device
    reports them and only one thread computes; empty otherwise. `error` is the largest difference of the outputs from
    the untuned layer's outputs, relative to the largest magnitude of the untuned outputs (None: not compared).
    `server` is the address of the server that measured the trial.
    """

    layer: str
    configuration: str
    trace: Any = None
    times_s: tuple[float, ...] = ()
    cpu_s: tuple[float, ...] = ()
    failure: Failure | None = None
    error: float | None = None
    server: str = ""
    at_s: float = 0.0

    @property
    def samples_s(self) -> tuple[float, ...]:
        """The samples to compare: CPU times if they are known, or else wall times."""
        return self.cpu_s or self.times_s

    @property
    def time_s(self) -> float | None:
        """The median of the samples to compare; None without samples."""
        return median(self.samples_s) if self.failure is None and self.samples_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedDevice:
    """A device of a tracker, and the settings for compiling for it.

    `key` is its name at the tracker ("local" without a tracker). `target` is the compiler's description of its
    processor. `linker` is the command that links for it (empty: the host's own linker), and `threads` is the number of
    threads that a function may use there (0: the number with which the device's server was started).
    """

    key: Key
    target: Values
    linker: LineOrNone = ""
    threads: Whole = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModel:
    """The model that the layers belong to: a short `name`, the digest of its file and the data type used for tuning."""

    name: Line
    sha256: Digest = ""
    dtype: Line = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRecords:
    """A record set: layers, and trials of their configurations on `device`.

    `found_on` is empty for a tuning log, whose configurations were found on `device`. For configurations that were
    found elsewhere and measured again on `device`, it is the key of the device where they were found. `versions` are
    the versions of the tuner's packages. `left_out` counts the lines of the file that were left out because they were
    not trials. Trials that were read from a file are held in `gnomon.core.overlay.trials.TrialColumns`.
    """

    device: TunedDevice
    model: TunedModel
    layers: tuple[TuningLayer, ...]
    trials: Sequence[TuningTrial]
    found_on: str = ""
    tuner: Tuner = "metaschedule"
    versions: Mapping[str, str] = field(default_factory=dict)
    left_out: int = field(default=0, compare=False)

    @property
    def host(self) -> str:
        """The key of the device on which the configurations were found."""
        return self.found_on or self.device.key


def configuration_id(layer: str, trace: Any) -> str:
    """The identity of a configuration: 16 hexadecimal digits that depend only on its workload and trace.

    The target is not part of the identity, so that the same schedule has the same identity on any device. ValueError
    for a trace that JSON cannot hold.
    """
    return UNTUNED if trace is None else identity_of(layer, trace_text(trace))


def trace_text(trace: Any) -> str:
    """A trace as canonical JSON text. Raises ValueError as `configuration_id` does."""
    return _TRACES.encode(trace)


def identity_of(layer: str, text: str) -> str:
    """The identity of a configuration whose `trace_text` is known."""
    return hashlib.sha256(f"[{json.dumps(layer)},{text}]".encode()).hexdigest()[:16]


_TRACES = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def sound_times(times_s: tuple[float, ...]) -> bool:
    """Return True if samples can be times at all: there is at least one, and all are finite and above 0."""
    return bool(times_s) and all(math.isfinite(t) and t > 0 for t in times_s)


_FLOOR = 0.2
_RECENT = 2
_MATTERS = 0.99


@dataclass(slots=True, kw_only=True)
class LayerProgress:
    """The progress of a layer: the number of calls by the network, the untuned time if known, and the best time after
    each round, in seconds.
    """

    weight: int
    untuned_s: float | None = None
    best_s: list[float] = field(default_factory=list)
    ended: str = ""

    @property
    def now_s(self) -> float:
        """The best known time; 0 if none is known."""
        times = [t for t in (self.untuned_s, self.best_s[-1] if self.best_s else None) if t is not None]
        return min(times, default=0.0)

    def gain_s(self) -> float:
        """The seconds that the next round may save the network.

        The estimate is optimistic: it assumes that the next round saves as large a share of the layer's time as the
        last two rounds did on average. The assumed share is never below a minimum, which falls with the number of
        rounds, so no layer is given up after one bad round. A layer that has not been tried yet may save all of its
        time. So layers that take long are tried first, and layers that take almost no time are tried only when little
        else is left.
        """
        rounds = len(self.best_s)
        if rounds == 0:
            return self.weight * self.now_s
        history = [self.untuned_s or self.best_s[0], *self.best_s][-_RECENT - 1 :]
        past = max(0.0, 1.0 - self.best_s[-1] / history[0]) / (len(history) - 1) if history[0] > 0 else 0.0
        return self.weight * self.now_s * max(past, _FLOOR / (1 + rounds))

    def on_plateau(self, rounds: int, relevant: float) -> bool:
        """Return True if the last `rounds` rounds together saved less than the share `relevant` of the time."""
        if len(self.best_s) <= rounds:
            return False
        return self.best_s[-1] > (1 - relevant) * self.best_s[-1 - rounds]


def next_layer(layers: Mapping[str, LayerProgress]) -> str | None:
    """The layer to tune next; None if all have ended.

    As long as layers that matter (see `relevant`) have not been tried, the one that takes the most time comes next.
    After that, the next layer is the one for which another round may save the most.
    """
    matter = {id(layer) for layer in relevant(layers.values()) if layer.untuned_s is not None}
    waiting = {name: layer.gain_s() for name, layer in layers.items() if not layer.ended}
    untried = [name for name in waiting if not layers[name].best_s and id(layers[name]) in matter]
    return max(untried or waiting, key=waiting.__getitem__, default=None)


def first_round(layers: Iterable[LayerProgress], *, trials: int, per_round: int) -> int:
    """The number of trials for each layer in the first round, chosen so that every layer that matters gets a round.

    Any schedule at all is several times as fast as none, so breadth comes first if there are few trials.
    """
    return max(1, min(per_round, trials // max(1, len(relevant(layers)))))


def relevant(layers: Iterable[LayerProgress]) -> list[LayerProgress]:
    """The fewest layers that together take 99 % of the untuned network's time, and those of unknown untuned time."""
    open_ = sorted(layers, key=lambda layer: -layer.weight * (layer.untuned_s or 0.0))
    total = sum(layer.weight * (layer.untuned_s or 0.0) for layer in open_)
    chosen, seen = [layer for layer in open_ if layer.untuned_s is None], 0.0
    for layer in open_:
        if layer.untuned_s is not None and seen < _MATTERS * total:
            seen += layer.weight * layer.untuned_s
            chosen.append(layer)
    return chosen


def shares(layers: Sequence[LayerProgress]) -> list[float | None]:
    """Each layer's share of the untuned network's time; None if it is unknown."""
    total = sum(row.weight * (row.untuned_s or 0.0) for row in layers)
    return [None if row.untuned_s is None or total <= 0 else row.weight * row.untuned_s / total for row in layers]
