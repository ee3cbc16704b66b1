"""The JSON documents of `gnomon overlay collect` and `analyze`, which are what the functions return.

Regrets are shares: what is lost against the fastest configuration of a device. M is their sum over the devices.
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
        """The logs, and the files of what was measured."""
        return ", ".join(self.logs), ", ".join(part.records for part in self.collected)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The configuration of next least M."""

    configuration: str
    M: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOption:
    """A configuration of a layer, the devices that found it, its M, and what it loses on each device."""

    configuration: str
    host: str
    M: float | None
    regret: ByDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicePart(LayerOption):
    """A choice for a layer: what it loses on average, and on its worst device."""

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
    """A configuration that failed on a device, and how."""

    configuration: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenLayer:
    """A layer and its choice. `times` and `theta` are its seconds and the least there are, by device.

    `estimate` is where the choice lies on a device between its best and the others' (0 and 1); `confidence` how often
    it is chosen again from resampled times, with bounds of M; `close` are configurations that it is not sure against.
    `options` are the 12 of least M, the choice among them. `minimax` loses least on its worst device, where that is
    another configuration. `entity` is the configuration itself: AutoTVM's entity, Ansor's state; null of MetaSchedule,
    whose traces are in what is written. `index` is AutoTVM's, by device, known once lines were written.
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
    """A layer without a choice, and why."""

    name: str
    layer: str
    reason: str
    incomplete: tuple[IncompletePart, ...]
    failed: tuple[FailedTrialPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPart:
    """The network's loss: M, the average and the worst over devices, and the loss on each."""

    M: float | None
    mean_regret: float | None
    worst_regret: float | None
    regret: ByDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalPart(LossPart):
    """The network's loss under the choice, and under the minimax choice; `layers` counts those decided.

    `decided_share` is their share of the time, which is only known where every layer was timed on some device.
    """

    minimax: LossPart
    layers: int
    undecided: int = 0
    decided_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPart:
    """The loss of one device's own best when used on all devices; null where it was not measured on all."""

    M: float | None
    worst_regret: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioLayer:
    """The best few configurations of a layer, and which serves which device."""

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
    """The best `size` configurations of each layer, and as many `builds`, of one configuration a layer each.

    `M_builds` is what the builds lose, `builds_proven` whether no others lose less.
    """

    size: int
    layers: tuple[PortfolioLayer, ...]
    M: float | None
    builds: tuple[BuildPart, ...] = ()
    M_builds: float | None = None
    builds_proven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """The files that were written, by device: `lines` are of AutoTVM's or Ansor's logs, as they stood there.

    `whole` has the lines or the database of all devices, `selection` says which build of a portfolio each takes.
    `module` is the network that the databases apply to, as `tvm.ir.load_json` reads it.
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

    `to_own` is over the time of the device's own best, `to_overlay` over that of the overlay.
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
    """One configuration a layer that is good on all devices: `gnomon overlay analyze`.

    `doubts` are about this machine while the whole network was measured on it.
    """

    format: Literal["gnomon-overlay-analyze"] = "gnomon-overlay-analyze"
    model: TunedModel
    devices: tuple[str, ...]
    hosts: tuple[str, ...]
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
        """The exit code of the command: 4 where no layer could be decided."""
        return 0 if self.layers else InfeasibleError.exit_code

    def headline(self) -> tuple[str, str]:
        """The network and the devices, and what the network loses on average."""
        lost = "-" if self.total.mean_regret is None else f"{100 * self.total.mean_regret:.1f} %"
        return f"{self.model.name} on {', '.join(self.devices)}", f"It loses {lost} on average."

    def close(self) -> dict[str, tuple[str, ...]]:
        """The configurations, by the layer's digest, between which the choice is not sure."""
        return {layer.layer: layer.close for layer in self.layers if layer.close}
