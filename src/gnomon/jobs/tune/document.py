"""The JSON documents of `gnomon tune` and `gnomon exec`, and the parts that those of overlays have too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gnomon.core.overlay.records import TunedDevice, TunedModel
from gnomon.core.sample import Failure
from gnomon.core.stats import Block, Comparison, summarise
from gnomon.measure.environment import Doubt
from gnomon.session.document import BlockColumns, block_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModelPart:
    """The network that was tuned, and the type that it computes in."""

    name: str
    sha256: str
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedDevicePart:
    """The device by its key, and what is compiled for it; `name` is how it was asked for."""

    key: str
    target: Mapping[str, Any]
    threads: int
    linker: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesPart:
    """Seconds of one call: the median with its 95 % interval (null: not known), percentiles, and all that was measured.

    `samples` and `processes` are how many; `blocks` has every sample by process.
    """

    median_s: float
    low_s: float | None
    high_s: float | None
    p90_s: float
    p99_s: float
    samples: int
    processes: int
    blocks: BlockColumns | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioPart:
    """A ratio of times with its 95 % interval (null: not bounded)."""

    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePart:
    """How a call failed."""

    stage: str
    kind: str
    transient: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCount:
    """Failures of one stage and kind, with the message of one of them."""

    stage: str
    kind: str
    count: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsPart:
    """How many trials were asked for, are there, failed, were there before, and how many layers matter."""

    asked: int
    measured: int
    failed: int
    before: int
    relevant: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedLayerPart:
    """A layer: how often it occurs, its share of the network, its times untuned and at best, and why trials ended."""

    name: str
    layer: str
    weight: int
    share: float | None
    untuned: TimesPart | None
    best: TimesPart | None
    speedup: float | None
    configuration: str | None
    trials: int
    failed: int
    stopped: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedNetworkPart:
    """The compiled network beside the untuned one, interleaved, with what its outputs were compared with."""

    untuned: TimesPart | None = None
    tuned: TimesPart | None = None
    ratio: RatioPart | None = None
    max_error: float | None = None
    compared_with: str | None = None
    scheduled: int = 0
    functions: int = 0
    failure: FailurePart | None = None
    untuned_failure: FailurePart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneDocument:
    """All that `gnomon tune` found. `beside` compares with other runtimes: docs/jobs/tune.md describes it.

    `doubts` are about the machine while the whole network was measured.
    """

    format: Literal["gnomon-tune"]
    version: Literal[1]
    model: TunedModelPart
    device: TunedDevicePart
    records: str
    library: str | None
    seconds: float
    stopped: str
    trials: TrialsPart
    layers: tuple[TunedLayerPart, ...]
    failures: tuple[FailureCount, ...]
    network: TunedNetworkPart
    beside: Mapping[str, Any] | None
    doubts: tuple[Doubt, ...] = ()
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedDocument:
    """What `gnomon tune` found on several devices, one after the other."""

    format: Literal["gnomon-tuned"]
    version: Literal[1]
    tuned: tuple[TuneDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A copy of a model that tuning kept."""

    name: str
    path: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """A record file: its device, and where its configurations were found. `problem`: why it cannot be read."""

    path: str
    device: str
    found_on: str
    model: str
    dtype: str
    layers: int
    trials: int
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFile:
    """A compiled network. `problem`: why its description cannot be read."""

    path: str
    bytes: int
    device: str
    model: str
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedFilesDocument:
    """What tuning has made in a folder: `gnomon tune list`."""

    format: Literal["gnomon-tuned-files"]
    version: Literal[1]
    folder: str
    models: tuple[ModelFile, ...]
    records: tuple[RecordFile, ...]
    libraries: tuple[LibraryFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLayerPart:
    """A layer that was timed by itself, and its share of the network."""

    name: str
    weight: int
    time: TimesPart | None
    share: float | None
    failure: FailurePart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecDocument:
    """All that `gnomon exec` found: a compiled network on a device, whole and layer by layer."""

    format: Literal["gnomon-exec"]
    version: Literal[1]
    model: TunedModelPart
    device: TunedDevicePart
    source: str
    built_for: Mapping[str, Any]
    network: TimesPart | None
    max_error: float | None
    compared_with: str | None
    layers: tuple[RunLayerPart, ...]
    layers_sum_s: float | None
    unaccounted_s: float | None
    failure: FailurePart | None
    doubts: tuple[Doubt, ...] = ()
    notes: tuple[str, ...]


def model_part(model: TunedModel) -> TunedModelPart:
    """A network."""
    return TunedModelPart(name=model.name, sha256=model.sha256, dtype=model.dtype)


def device_part(device: TunedDevice, name: str | None = None) -> TunedDevicePart:
    """A device."""
    return TunedDevicePart(
        key=device.key, target=device.target, threads=device.threads, linker=device.linker, name=name
    )


def times_part(blocks: Sequence[Block]) -> TimesPart:
    """What blocks of samples say; bounds that are unknown are null."""
    found = summarise(blocks)
    return TimesPart(
        median_s=found.median_s,
        low_s=found.low_s,
        high_s=found.high_s,
        p90_s=found.p90_s,
        p99_s=found.p99_s,
        samples=found.n,
        processes=found.processes,
        blocks=block_columns(blocks),
    )


def ratio_part(found: Comparison) -> RatioPart:
    """A comparison; bounds that are unknown are null."""
    return RatioPart(ratio=found.ratio, low=found.low, high=found.high)


def failure_part(failure: Failure | None) -> FailurePart | None:
    """A failure, without the end of what the process printed."""
    if failure is None:
        return None
    return FailurePart(stage=failure.stage, kind=failure.kind, transient=failure.transient, message=failure.message)


def failures_of(failures: Iterable[Failure | None]) -> tuple[FailureCount, ...]:
    """Failures summed up by stage and kind, with the message of one of each."""
    found = [failure for failure in failures if failure is not None]
    counts = Counter((failure.stage, failure.kind) for failure in found)
    first = {(failure.stage, failure.kind): failure.message for failure in reversed(found)}
    return tuple(
        FailureCount(stage=stage, kind=kind, count=count, message=first[stage, kind])
        for (stage, kind), count in counts.most_common()
    )
