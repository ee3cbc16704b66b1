"""Tuning records: what was measured of the configurations of a network's layers, on one device."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
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

    The target is no part of it, so that the same schedule is the same on any device. ValueError for a trace that JSON
    cannot say.
    """
    if trace is None:
        return UNTUNED
    text = json.dumps([layer, trace], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sound_times(times_s: tuple[float, ...]) -> bool:
    """Whether samples can be times at all: there are some, and all are finite and above 0."""
    return bool(times_s) and all(math.isfinite(t) and t > 0 for t in times_s)
