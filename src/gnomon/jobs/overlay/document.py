"""The JSON documents of `gnomon overlay collect` and `analyze`, which their Python functions return.

A regret is the relative loss compared with the fastest configuration of a device. M is the sum of the regrets over the
devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gnomon.core.overlay.records import TunedModel
from gnomon.errors import InfeasibleError
from gnomon.jobs.tune.document import FailureCount, FailureKind, FailurePart, RatioPart, TimesPart, TunedDevicePart
from gnomon.measure.environment import Caveat
from gnomon.report.answer import FirstVersion
from gnomon.report.conditions import ConditionsPart

ByDevice = Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedLayer:
    """A layer: the numbers of requested, measured and failed configurations, and the least time on this device.

    `host_best_here_s` is the time on this device of the configuration that is fastest on the log's device.
    """

    name: str
    layer: str
    configurations: int
    measured: int
    failed: int
    best_s: float | None
    host_best_here_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CollectDocument(FirstVersion):
    """The measurements of one log on one device by `gnomon overlay collect`; `host` is the log's device."""

    format: Literal["gnomon-overlay-collect"] = "gnomon-overlay-collect"
    model: TunedModel
    device: TunedDevicePart
    host: str
    records: str
    source: str
    layers: tuple[CollectedLayer, ...]
    failures: tuple[FailureCount, ...]
    seconds: float
    notes: tuple[str, ...]
    conditions: ConditionsPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CollectedDocument(FirstVersion):
    """The measurements of all `logs` on all devices by `gnomon overlay collect`, one document per log and device."""

    format: Literal["gnomon-overlay-collected"] = "gnomon-overlay-collected"
    logs: tuple[str, ...] = ()
    collected: tuple[CollectDocument, ...]

    def headline(self) -> tuple[str, str]:
        """The logs, and the files of the measurements."""
        return ", ".join(self.logs), ", ".join(part.records for part in self.collected)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The configuration of a layer with the second smallest M."""

    configuration: str
    M: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOption:
    """A configuration of a layer, the devices that found it, its M, and its loss on each device."""

    configuration: str
    host: str
    M: float | None
    regret: ByDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicePart(LayerOption):
    """A choice for a layer: its average loss, and its loss on the worst device."""

    mean_regret: float | None
    worst_regret: float | None
    worst_device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompletePart:
    """A configuration that was not timed on all devices."""

    configuration: str
    host: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTrialPart(FailureKind):
    """A configuration that failed on a device, and the failure."""

    configuration: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenLayer:
    """A layer and its choice. `times` are the choice's seconds by device, `theta` the least seconds there.

    `estimate` places the choice's time on a device between the worst (0) and the best (1) of the hosts' own best
    configurations; `confidence` is the share of resamplings in which the configuration is chosen again, with bounds on
    M; `close` are configurations that may be as good. `options` are the 12 configurations of least M, including the
    choice. `minimax` is the configuration that loses least on its worst device; null if it is the choice. `entity` is
    the configuration itself: AutoTVM's entity, Ansor's state, or null for MetaSchedule, whose traces are in the written
    files. `index` has AutoTVM's index by device once the lines are written.
    """

    name: str
    layer: str
    weight: int
    share: float
    M: float | None
    mean_regret: float | None
    host: str
    configuration: str
    times: ByDevice
    theta: ByDevice
    regret: ByDevice
    estimate: ByDevice
    worst_regret: float | None
    worst_device: str
    confidence: float | None
    M_low: float | None
    M_high: float | None
    runner_up: RunnerUp | None
    close: tuple[str, ...]
    configurations: int
    options: tuple[LayerOption, ...]
    incomplete: tuple[IncompletePart, ...]
    failed: tuple[FailedTrialPart, ...]
    minimax: ChoicePart | None
    entity: Any = None
    index: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecidedLayer:
    """A layer without a choice, and the reason."""

    name: str
    layer: str
    reason: str
    incomplete: tuple[IncompletePart, ...]
    failed: tuple[FailedTrialPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPart:
    """The network's loss: M, the average and the worst over devices, and the loss on each device."""

    M: float | None
    mean_regret: float | None
    worst_regret: float | None
    regret: ByDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalPart(LossPart):
    """The network's loss under the choice, and under the minimax choice; `layers` counts the decided layers.

    `decided_share` is the decided layers' share of the time; null if a layer was not timed on any device.
    """

    minimax: LossPart
    layers: int
    undecided: int = 0
    decided_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPart:
    """The loss of one device's own best when used on all devices; null if it was not measured on all."""

    M: float | None
    worst_regret: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioLayer:
    """A layer's best set of a few configurations, and the configuration for each device."""

    name: str
    configurations: tuple[str, ...]
    M: float | None
    proven: bool
    serves: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPart:
    """The devices that share a build, and the configuration of each layer in it, by the layer's name."""

    devices: tuple[str, ...]
    configurations: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioPart:
    """The best `size` configurations of each layer, and as many `builds`, each with one configuration per layer.

    `M_builds` is the M of the builds; `builds_proven` is True if it is proven that no other builds have a smaller M.
    """

    size: int
    layers: tuple[PortfolioLayer, ...]
    M: float | None
    builds: tuple[BuildPart, ...] = ()
    M_builds: float | None = None
    builds_proven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """The paths of the written files, by device.

    The files of `lines` have unchanged lines of AutoTVM's or Ansor's logs. `whole` has the lines or the database of all
    devices, `selection` the build of a portfolio for each device. `module` is the network of the databases, in the
    format of `tvm.ir.load_json`.
    """

    records: Mapping[str, str] = field(default_factory=dict)
    databases: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    whole: str = ""
    selection: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredChoice:
    """The whole network on a device under a choice: "overlay", "untuned", "own:<host>"; ratios are paired by process.

    `to_own` is the ratio to the time of the device's own best, `to_overlay` the ratio to the overlay's time.
    """

    device: str
    choice: str
    time: TimesPart | None
    to_own: RatioPart | None
    to_overlay: RatioPart | None
    max_error: float | None
    failure: FailurePart | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AnalyzeDocument(FirstVersion):
    """One configuration for each layer that is good on all devices: `gnomon overlay analyze`.

    `logs` are the files of the records. `doubts` are about the state of this machine during the measurement of the
    whole network.
    """

    format: Literal["gnomon-overlay-analyze"] = "gnomon-overlay-analyze"
    model: TunedModel
    devices: tuple[str, ...]
    hosts: tuple[str, ...]
    logs: tuple[str, ...] = ()
    replayable: bool
    layers: tuple[ChosenLayer, ...]
    undecided: tuple[UndecidedLayer, ...]
    total: TotalPart
    own: Mapping[str, OwnPart]
    portfolio: PortfolioPart | None
    notes: tuple[str, ...]
    written: WrittenPart
    network: tuple[MeasuredChoice, ...]
    doubts: tuple[Caveat, ...] = ()
    pictures: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 4 if no layer could be decided."""
        return 0 if self.layers else InfeasibleError.exit_code

    def headline(self) -> tuple[str, str]:
        """The network and the devices, and the network's average loss."""
        lost = "-" if self.total.mean_regret is None else f"{100 * self.total.mean_regret:.1f} %"
        return f"{self.model.name} on {', '.join(self.devices)}", f"Average loss of the network: {lost}."

    def close(self) -> dict[str, tuple[str, ...]]:
        """The configurations that may be as good as the choice, by the layer's digest."""
        return {layer.layer: layer.close for layer in self.layers if layer.close}
