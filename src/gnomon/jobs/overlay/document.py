"""The JSON document of `gnomon overlay collect`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnomon.jobs.tune.document import FailureCount, TunedDevicePart, TunedModelPart


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedLayer:
    """A layer: how many of its configurations were meant, measured here and failed, and the least time here.

    `host_best_here_s` is what the fastest configuration of the device that the log is of takes here.
    """

    name: str
    layer: str
    configurations: int
    measured: int
    failed: int
    best_s: float | None
    host_best_here_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectDocument:
    """What `gnomon overlay collect` measured of one log on one device. `host` is the device that the log is of."""

    format: Literal["gnomon-overlay-collect"]
    version: Literal[1]
    model: TunedModelPart
    device: TunedDevicePart
    host: str
    records: str
    source: str
    layers: tuple[CollectedLayer, ...]
    failures: tuple[FailureCount, ...]
    seconds: float
    notes: tuple[str, ...]
