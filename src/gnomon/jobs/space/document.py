"""The JSON documents of `gnomon space`, which its Python functions return.

Shares are fractions of 1; three numbers in a list are a value and the ends of its 95 % interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from gnomon.core.codec import Must
from gnomon.installing import Missing
from gnomon.report.answer import FirstVersion
from gnomon.spaces.cells.space import CostedNetwork
from gnomon.spaces.selection.pareto import Kept
from gnomon.spaces.unit import NetSize

Three = tuple[float, float, float]
"""A value and the ends of its 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimitivePart:
    """A primitive, and a description of its layers."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyPart:
    """A family of primitives: its default, and the numbers of one-change variants and of networks (as a digit string).

    If slots choose from different primitives, `defaults` has the default of each slot, and `default` is the first of
    them.
    """

    primitives: tuple[PrimitivePart, ...]
    default: str
    swaps: int
    networks: str
    defaults: tuple[str, ...] = ()

    def swapped(self, primitives: Sequence[str]) -> list[int]:
        """The cell groups in which a network's primitive differs from the default network's."""
        defaults = self.defaults or (self.default,) * len(primitives)
        return [group for group, pair in enumerate(zip(primitives, defaults, strict=True)) if pair[0] != pair[1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedNetwork:
    """A network that could not be trained or measured, and the reason."""

    network: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPart:
    """A trained network: the share of images that it classifies correctly, and the standard error of this share."""

    id: str
    family: str
    accuracy: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPart:
    """A one-change variant with its estimated accuracy and the 95 % interval."""

    id: str
    primitives: tuple[str, ...]
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPart:
    """A family's one-change variants, the best first.

    `repeatability` is the expected Kendall's tau between two such rankings; `noise` the standard deviation between
    trainings of the same network, null if no network was trained twice.
    """

    family: str
    method: str
    repeatability: float
    noise: float | None
    trainings: int
    networks: tuple[RankedPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyPart:
    """The accuracies by a method; `imported` counts imported rows by file, `cpu_seconds` is training's CPU time."""

    method: str
    trainings: int
    failed: tuple[FailedNetwork, ...]
    images: int
    noise: float | None
    cpu_seconds: float
    imported: Mapping[str, int]
    without_error: int
    trained: tuple[TrainedPart, ...]
    rankings: tuple[RankingPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNetwork:
    """A network that a toolchain made and a runtime ran: the seconds of a call with the 95 % interval.

    `correct` is the share of images that the measured model classified correctly, `quantised` the share of its
    convolutions in 8 bits. `size` has the network's parameters, operations and memory in float32.
    """

    id: str
    primitives: tuple[str, ...]
    latency_s: float | None
    low_s: float | None
    high_s: float | None
    correct: float | None
    quantised: float | None
    reason: str
    size: NetSize = field(default_factory=NetSize)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPart:
    """A quantised toolchain compared with its twin in float32: the median ratio of times, and the loss of accuracy."""

    toolchain: str
    twin: str
    networks: int
    ratio: float
    low: float
    high: float
    faster: int
    drop: float | None
    worst_drop: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutPart:
    """The relative errors for a family's mixed networks, each predicted from the family's other networks."""

    networks: int
    mean: float
    median: float
    p90: float
    tau: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolchainPart:
    """All networks that a toolchain made, and the errors of predictions from them, by family.

    `context` has everything that affects the times, by name: the device, the threads, and settings other than the
    defaults. `began_s` is the time at which the first network was measured.
    """

    toolchain: str
    clock: str
    context: Mapping[str, str] = field(default_factory=dict)
    networks: tuple[MeasuredNetwork, ...]
    failed: tuple[FailedNetwork, ...]
    imported: Mapping[str, int]
    compared: ComparedPart | None
    least_quantised: float | None
    held_out: Mapping[str, HeldOutPart]
    began_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SpaceDocument(FirstVersion):
    """The contents of a profile: `gnomon space profile`, `show` and `import`.

    `seconds` are the wall-clock seconds of this call by part of the work; `pictures` are the files that were drawn.
    """

    format: Literal["gnomon-space"] = "gnomon-space"
    profile: str
    numbering: str
    data: str
    groups: int
    families: Mapping[str, FamilyPart]
    accuracy: AccuracyPart | None
    latency: tuple[ToolchainPart, ...]
    seconds: Mapping[str, float]
    notes: tuple[str, ...]
    pictures: tuple[str, ...]

    def headline(self) -> tuple[str, str]:
        """The path of the profile."""
        return self.profile, ""

    def family_of(self, primitives: Sequence[str]) -> str:
        """The family to which all primitives of a network belong; empty if they belong to several families."""
        for name, family in self.families.items():
            if set(primitives) <= {primitive.name for primitive in family.primitives}:
                return name
        return ""

    def is_single(self, primitives: Sequence[str]) -> bool:
        """Return True if a network is a family's default, or differs from it in only one cell group."""
        family = self.family_of(primitives)
        return bool(family) and len(self.families[family].swapped(primitives)) <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupErrorPart:
    """The relative errors of a lookup table's sums for networks that it was not fitted to."""

    networks: int
    mean: float
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupPart:
    """The model behind the lookup table, the reason for it, and the errors of each model that could be tested."""

    model: str
    why: str
    held_out: Mapping[str, LookupErrorPart]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleAccuracies:
    """The kind of accuracies that the published rule used, measured or estimated, and how many were trained."""

    kind: Literal["measured", "believed"]
    trained: int
    networks: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SelectionDocument(FirstVersion):
    """The primitives that each cell group keeps: `gnomon space select`.

    `share_kept`, `stability` and `primitives` belong to the rule "pareto"; `family`, `networks`, `counts` and
    `accuracies` belong to the published rule. The fields of the rule that was not used are null. `slots` are the names
    of the cell groups of a space in Python.
    """

    format: Literal["gnomon-space-select"] = "gnomon-space-select"
    profile: str
    rule: str
    method: str
    toolchain: str
    imported: Mapping[str, Mapping[str, int]]
    images_known: bool
    proofs: tuple[str, ...]
    numbering: str
    family: str | None = None
    groups: Annotated[
        tuple[tuple[str, ...], ...],
        Must(be="the primitives of each cell group", fits=lambda groups: bool(groups) and all(groups)),
    ]
    meanings: Mapping[str, str]
    unlike_aw_nas: tuple[str, ...]
    networks_before: str
    networks_after: str
    output: str
    lookup: str | None
    lookup_model: LookupPart | None
    latency_file: bool
    share_kept: Three | None = None
    stability: float | None = None
    primitives: tuple[tuple[Kept, ...], ...] | None = None
    networks: tuple[CostedNetwork, ...] | None = None
    counts: Mapping[str, int] | None = None
    accuracies: RuleAccuracies | None = None
    slots: tuple[str, ...] = ()

    def headline(self) -> tuple[str, str]:
        """The profile and the rule, and the primitives that each group keeps."""
        kept = "; ".join(", ".join(names) for names in self.groups)
        return f"{self.profile} by {self.rule}", f"Kept: {kept}."


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPoint:
    """The prediction for a network: the share of images classified correctly, and the seconds of a call."""

    accuracy: Three
    latency_s: Three


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """The measured accuracy and latency of a network, null if they failed, and why the latency failed."""

    accuracy: Three | None
    latency_s: Three | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontNetwork:
    """A network of a front: whether it is on the predicted front, and whether it is among the best measured networks.

    `chance` is the probability that it is on the true front, `meets` the probability that it meets the latency bound.
    `size` has its parameters, operations and memory.
    """

    id: str
    primitives: tuple[str, ...]
    on_front: bool
    round: int
    chance: float
    meets: float
    predicted: PredictedPoint
    measured: MeasuredPoint | None
    best: bool
    size: NetSize = field(default_factory=NetSize)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontVolumes:
    """The hypervolume of the measured networks, from their predictions and from their measurements."""

    predicted: float
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAccuracies:
    """Predicted and measured accuracies compared: errors, the share within the 95 % interval, and rank correlation."""

    mean_error: float
    inside: float
    tau: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLatencies(HeldAccuracies):
    """Predicted and measured latencies compared: relative errors, the share within the 95 % interval, and ranks."""

    worst_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFront:
    """A measured front: the number of best networks, and the share of all networks' hypervolume that they reach."""

    networks: int
    best: int
    hypervolume: FrontVolumes
    share: Three
    accuracy: HeldAccuracies
    latency: HeldLatencies


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SpaceFrontDocument(FirstVersion):
    """The best networks of a space, predicted and measured: `gnomon space front`.

    With `kept` the networks have only selected primitives; shares always refer to the full space.
    """

    format: Literal["gnomon-space-front"] = "gnomon-space-front"
    profile: str
    method: str
    toolchain: str
    latency_bound_s: float | None
    measure: bool
    proofs: bool
    space: str
    on_front: int
    rounds: int
    share: Three
    latency_model: LookupErrorPart | None
    networks: tuple[FrontNetwork, ...]
    measured: HeldFront | None
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SpaceExportDocument(FirstVersion):
    """A csv of networks: `gnomon space export`."""

    format: Literal["gnomon-space-export"] = "gnomon-space-export"
    file: str
    rows: int
    accuracies: int
    latencies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPrimitive:
    """A primitive; primitives with equal digests are the same block, even if their names differ."""

    name: str
    family: str
    meaning: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PrimitivesDocument(FirstVersion):
    """The primitives of a numbering: `gnomon space primitives`."""

    format: Literal["gnomon-space-primitives"] = "gnomon-space-primitives"
    numbering: str
    primitives: tuple[KnownPrimitive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownToolchain:
    """A toolchain, the runtime that measures its models, and those of its requirements that are missing here."""

    name: str
    measured_by: str
    missing: tuple[Missing, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolchainsDocument(FirstVersion):
    """The toolchains: `gnomon space toolchains`."""

    format: Literal["gnomon-space-toolchains"] = "gnomon-space-toolchains"
    toolchains: tuple[KnownToolchain, ...]
