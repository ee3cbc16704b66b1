"""The JSON documents of `gnomon space`, which are what its functions return.

Shares are of 1; three numbers in a list are a value and the ends of its 95 % interval.
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
    """A primitive, and what it is made of in words."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyPart:
    """A family of primitives: the default one, how many one-change variants and networks there are (in digits).

    Where slots choose from unlike primitives, `defaults` has the default of each, and `default` is the first one's.
    """

    primitives: tuple[PrimitivePart, ...]
    default: str
    swaps: int
    networks: str
    defaults: tuple[str, ...] = ()

    def swapped(self, primitives: Sequence[str]) -> list[int]:
        """The cell groups in which a network has another primitive than the default network."""
        defaults = self.defaults or (self.default,) * len(primitives)
        return [group for group, pair in enumerate(zip(primitives, defaults, strict=True)) if pair[0] != pair[1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedNetwork:
    """A network that could not be trained or measured, and why."""

    network: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPart:
    """A trained network: the share of images that it gets right, and the standard error of that."""

    id: str
    family: str
    accuracy: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPart:
    """A one-change variant with the accuracy that is believed of it, and its 95 % interval."""

    id: str
    primitives: tuple[str, ...]
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPart:
    """A family's one-change variants, the best first.

    `repeatability` is the Kendall's tau that is expected of two such rankings; `noise` the standard deviation of one
    training after another, null where no network was trained twice.
    """

    family: str
    method: str
    repeatability: float
    noise: float | None
    trainings: int
    networks: tuple[RankedPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyPart:
    """The accuracies by a method; `imported` counts rows by file, `cpu_seconds` is the processor time of training."""

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
    """A network that a toolchain made and a runtime ran: seconds of a call with the 95 % interval.

    `correct` is the share of images that it got right there, `quantised` that of its convolutions in 8 bits. `size` is
    what it needs in float32.
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
    """A quantised toolchain against its twin in float32: the median ratio of times, and the loss of accuracy."""

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
    """How far a family's mixed networks are off, relative, each predicted from all others of it."""

    networks: int
    mean: float
    median: float
    p90: float
    tau: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolchainPart:
    """All networks that a toolchain made, and how well others can be predicted from them, by family.

    `context` is what changes its times, by name: the device, the threads, the settings that are not as usual. `began_s`
    is when the first of them was measured.
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

    `seconds` are those of the wall by part of the work, this time; `pictures` are files that were drawn.
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
        """Where the profile is."""
        return self.profile, ""

    def family_of(self, primitives: Sequence[str]) -> str:
        """The family of all primitives of a network; empty for a network of several families."""
        for name, family in self.families.items():
            if set(primitives) <= {primitive.name for primitive in family.primitives}:
                return name
        return ""

    def is_single(self, primitives: Sequence[str]) -> bool:
        """Whether a network is a family's default, or differs from it in one cell group alone."""
        family = self.family_of(primitives)
        return bool(family) and len(self.families[family].swapped(primitives)) <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupErrorPart:
    """How far sums of a lookup table are off on networks that it was not made of, relative."""

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
    """Whether the published rule saw accuracies as measured or as believed, and how many were trained."""

    kind: Literal["measured", "believed"]
    trained: int
    networks: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SelectionDocument(FirstVersion):
    """The primitives that each cell group keeps: `gnomon space select`.

    `share_kept`, `stability` and `primitives` are the rule pareto's, `family`, `networks`, `counts` and `accuracies`
    those of the published rule; each is null where the other decided. `slots` are the names of the cell
    groups of a space in Python.
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
        """The profile and the rule, and what each group keeps."""
        kept = "; ".join(", ".join(names) for names in self.groups)
        return f"{self.profile} by {self.rule}", f"Kept: {kept}."


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPoint:
    """The prediction for a network: the share of images, and seconds."""

    accuracy: Three
    latency_s: Three


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """The measurement of a network; null where it failed, with the reason."""

    accuracy: Three | None
    latency_s: Three | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontNetwork:
    """A network of a front: whether it is exactly on the predicted one, and among the best as measured.

    `chance` is that it is on the true front, `meets` that it meets the bound. `size` is what it needs.
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
    """The hypervolume of the measured networks, predicted and measured."""

    predicted: float
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAccuracies:
    """Accuracies predicted against measured: shares of images, how many lay in the 95 % interval, and the rank."""

    mean_error: float
    inside: float
    tau: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLatencies(HeldAccuracies):
    """Latencies predicted against measured, relative; how many lay in the 95 % interval, and the rank."""

    worst_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFront:
    """A measured front: how many networks are best, and the share of all networks' hypervolume that they reach."""

    networks: int
    best: int
    hypervolume: FrontVolumes
    share: Three
    accuracy: HeldAccuracies
    latency: HeldLatencies


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SpaceFrontDocument(FirstVersion):
    """The best networks of a space, predicted and measured: `gnomon space front`.

    With `kept` they have the primitives alone that were selected; shares are of the full space in any case.
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
    """A primitive by its name; equal digests are equal blocks, whatever their numbers."""

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
    """A toolchain, the runtime that measures what it makes, and what is missing for it here."""

    name: str
    measured_by: str
    missing: tuple[Missing, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolchainsDocument(FirstVersion):
    """The toolchains: `gnomon space toolchains`."""

    format: Literal["gnomon-space-toolchains"] = "gnomon-space-toolchains"
    toolchains: tuple[KnownToolchain, ...]
