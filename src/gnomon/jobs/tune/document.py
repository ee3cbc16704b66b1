"""The documents of `gnomon tune` and `gnomon exec`, which their Python functions return, and parts for overlays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gnomon.core.codec import fields_of
from gnomon.core.overlay.records import TunedDevice, TunedModel
from gnomon.core.sample import Failure
from gnomon.core.stats import Block, Comparison, summarise
from gnomon.errors import NOTHING_COMPARED
from gnomon.measure.effort import Clock
from gnomon.measure.environment import Caveat
from gnomon.report import units
from gnomon.report.answer import FirstVersion
from gnomon.report.conditions import ConditionsPart, FedInput
from gnomon.session.document import BlockColumns, block_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedDevicePart(TunedDevice):
    """The key of a device, and the settings of compilation; `name` is the user's name for the device."""

    name: str | None = None


Inputs = Iterable[tuple[str, str, Sequence[int]]]
"""The name, data type and shape of each input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesPart:
    """The seconds of one call: the median with its 95 % interval (null: unknown), percentiles, and all samples.

    `samples` and `processes` are counts; `blocks` has every sample by process (null: not in this part). `clock` is
    "cpu" for CPU times; documents of older versions lack it.
    """

    median_s: float
    low_s: float | None
    high_s: float | None
    p90_s: float | None = None
    p99_s: float | None = None
    samples: int
    processes: int
    blocks: BlockColumns | None = None
    clock: Clock = "wall"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioPart:
    """A ratio of times with its 95 % interval (null: not bounded)."""

    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureKind:
    """The stage and the kind of a failure."""

    stage: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePart(FailureKind):
    """The failure of a call; a `transient` failure may not happen again."""

    transient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCount(FailureKind):
    """Failures of one stage and kind, with the message of one of them."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsPart:
    """The numbers of requested, measured, failed and earlier trials, and of the layers that take 99 % of the time."""

    asked: int
    measured: int
    failed: int
    before: int
    relevant: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPart:
    """A layer: the number of calls by the network, and its share of the network's time (null: unknown)."""

    name: str
    weight: int
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedLayerPart(LayerPart):
    """A layer that was tuned: its digest, its untuned and best times, and the reason why its trials ended."""

    layer: str
    untuned: TimesPart | None
    best: TimesPart | None
    speedup: float | None
    configuration: str | None
    trials: int
    failed: int
    stopped: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedNetworkPart:
    """The tuned and the untuned network, measured interleaved, and the software that computed the reference outputs."""

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
class OverFastest(RatioPart):
    """A runtime's time over the fastest runtime's time, and the verdict."""

    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePart:
    """A runtime that computes the network, or TVM with the tuned code; `over_fastest` is null for the fastest."""

    label: str
    tuned: bool
    time: TimesPart
    over_fastest: OverFastest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FasterOperator:
    """An operator that the tuned network computes faster than every other runtime, and the others' best time."""

    operator: str
    type: str
    tuned_s: float
    other_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BesidePart:
    """The tuned network and other runtimes: `columns`, the fastest first, or the `failure` of the comparison."""

    clock: str | None = None
    columns: tuple[RuntimePart, ...] = ()
    wins: tuple[FasterOperator, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TuneDocument(FirstVersion):
    """The result of `gnomon tune`, described in docs/jobs/tune.md. `beside` compares it with other runtimes.

    `records` is the file of all trials, `library` the compiled network (null: compiling failed). `doubts` are about the
    state of the machine during the measurement of the whole network.
    """

    format: Literal["gnomon-tune"] = "gnomon-tune"
    model: TunedModel
    device: TunedDevicePart
    records: str
    library: str | None
    seconds: float
    stopped: str
    trials: TrialsPart
    layers: tuple[TunedLayerPart, ...]
    failures: tuple[FailureCount, ...]
    network: TunedNetworkPart
    beside: BesidePart | None
    doubts: tuple[Caveat, ...] = ()
    notes: tuple[str, ...]
    conditions: ConditionsPart | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 7 if the network could not be measured."""
        return 0 if self.network.failure is None else NOTHING_COMPARED

    def headline(self) -> tuple[str, str]:
        """The network and its device, its tuned and untuned times, and the compiled network."""
        of, tuned, untuned = f"{self.model.name} on {self.device.key}", self.network.tuned, self.network.untuned
        if tuned is None:
            return of, "The tuned network failed."
        beside = f", {units.time(untuned.median_s)} untuned" if untuned else ""
        return of, f"{units.time(tuned.median_s)} tuned{beside}: {self.library}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TunedDocument(FirstVersion):
    """The result of `gnomon tune` on several devices, one after the other."""

    format: Literal["gnomon-tuned"] = "gnomon-tuned"
    tuned: tuple[TuneDocument, ...]

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 7 if the network could not be measured on some device."""
        return max(document.exit_code for document in self.tuned)

    def headline(self) -> tuple[str, str]:
        """The number of devices, and the files of their trials."""
        return f"{len(self.tuned)} devices", ", ".join(document.records for document in self.tuned)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A copy of a model that tuning kept."""

    name: str
    path: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """A record file: the device of its times and the device that found its configurations.

    `problem` is the reason why the file cannot be read.
    """

    path: str
    device: str = "unknown"
    found_on: str = "unknown"
    model: str = "unknown"
    dtype: str = "unknown"
    layers: int = 0
    trials: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFile:
    """A compiled network. `problem` is the reason why its description cannot be read."""

    path: str
    bytes: int
    device: str = "unknown"
    model: str = "unknown"
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TunedFilesDocument(FirstVersion):
    """The files of tuning in a folder: `gnomon tune list`."""

    format: Literal["gnomon-tuned-files"] = "gnomon-tuned-files"
    folder: str
    models: tuple[ModelFile, ...]
    records: tuple[RecordFile, ...]
    libraries: tuple[LibraryFile, ...]

    main = "records"

    def headline(self) -> tuple[str, str]:
        """The folder, and how many files of each kind it holds."""
        return self.folder, f"{len(self.records)} record files, {len(self.libraries)} compiled networks."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLayerPart(LayerPart):
    """A layer that was timed separately."""

    time: TimesPart | None
    failure: FailurePart | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExecDocument(FirstVersion):
    """The result of `gnomon exec`: a compiled network on a device, whole and layer by layer.

    `library` is the compiled network if `source` has records.
    """

    format: Literal["gnomon-exec"] = "gnomon-exec"
    model: TunedModel
    device: TunedDevicePart
    source: str
    library: str | None = None
    built_for: Mapping[str, Any]
    network: TimesPart | None
    max_error: float | None
    compared_with: str | None
    layers: tuple[RunLayerPart, ...]
    layers_sum_s: float | None
    unaccounted_s: float | None
    failure: FailurePart | None
    doubts: tuple[Caveat, ...] = ()
    notes: tuple[str, ...]
    conditions: ConditionsPart | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 7 if the network could not be measured."""
        return 0 if self.failure is None else NOTHING_COMPARED

    def headline(self) -> tuple[str, str]:
        """The network and its device, and the median time of a call."""
        if self.network is None:
            return f"{self.model.name} on {self.device.key}", "The network failed."
        return f"{self.model.name} on {self.device.key}", f"{units.time(self.network.median_s)} a call."


def device_part(device: TunedDevice, name: str | None = None) -> TunedDevicePart:
    """The part of the document for a device."""
    return TunedDevicePart(**fields_of(TunedDevicePart, device), name=name)


def tuned_conditions(device: TunedDevice, model: TunedModel, at_s: float, inputs: Inputs = ()) -> ConditionsPart:
    """The conditions of calls that began at `at_s` on a device; a network's inputs are random."""
    fed = (FedInput(name=name, shape=tuple(shape), dtype=dtype, fed="", sha256=None) for name, dtype, shape in inputs)
    return ConditionsPart(
        threads=(device.threads,) if device.threads else (),
        precisions=(model.dtype,),
        inputs=tuple(fed),
        machine=str(device.target.get("mcpu") or device.target.get("kind") or ""),
        date=units.day(at_s),
    )


def times_part(blocks: Sequence[Block], clock: Clock = "wall") -> TimesPart:
    """The statistics of blocks of samples by a clock; unknown bounds are null."""
    summary = summarise(blocks)
    facts = fields_of(TimesPart, summary)
    return TimesPart(**facts, samples=summary.n, blocks=block_columns(blocks), clock=clock)


def ratio_part(ratio: Comparison) -> RatioPart:
    """The part of the document for a comparison; unknown bounds are null."""
    return RatioPart(**fields_of(RatioPart, ratio))


def failure_part(failure: Failure | None) -> FailurePart | None:
    """The part of the document for a failure, without the process's output."""
    return None if failure is None else FailurePart(**fields_of(FailurePart, failure))


def failures_of(failures: Iterable[Failure | None]) -> tuple[FailureCount, ...]:
    """The numbers of failures by stage and kind, each with the message of one failure."""
    rows = [failure for failure in failures if failure is not None]
    counts = Counter((failure.stage, failure.kind) for failure in rows)
    first = {(failure.stage, failure.kind): failure.message for failure in reversed(rows)}
    return tuple(
        FailureCount(stage=stage, kind=kind, count=count, message=first[stage, kind])
        for (stage, kind), count in counts.most_common()
    )
