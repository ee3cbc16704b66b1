"""The JSON document of `gnomon compare`, from which its report and its other forms are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gnomon.core import codec
from gnomon.session.document import ConditionsPart


@dataclass(frozen=True, slots=True, kw_only=True)
class SidePart:
    """A side: how it was named, which run it is, and what it measured where, under which conditions if known."""

    name: str
    campaign: str
    model: str
    model_sha256: str
    device: str
    versions: Mapping[str, str]
    started_at_s: float | None
    clock: str
    conditions: ConditionsPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsPart:
    """What runs of the same are taken to differ by beyond the scatter of their processes, and how that is known.

    `spread` is a standard deviation, relative. It is known by earlier `runs` of the model ("model"), by those of other
    models on that machine ("machine"), or it is "assumed", where `needed` is how many earlier runs would be enough.
    Sides that were measured by "turns" are of one session, so that it is nothing.
    """

    known_by: Literal["model", "machine", "assumed", "turns"]
    spread: float
    runs: int
    needed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictPart:
    """One configuration, or one kernel of it, on a side against the first side.

    `ratio` is its time over that of the first side, with an interval of the confidence that all verdicts have together.
    `verdict` is "faster", "slower", "same" (within the relevance threshold) or "unknown"; where that is unknown, `more`
    is how many fresh processes a side would take to tell. `moved` is the standard error that the machine's own drift
    adds, `differs` what else is known to differ between the sides, which widened the interval. `sessions` is what runs
    are taken to differ by; null in a document of before that was told.
    """

    label: str
    before_s: float
    after_s: float
    ratio: float
    low: float | None
    high: float | None
    p: float
    verdict: Literal["faster", "slower", "same", "unknown"]
    processes: tuple[int, int]
    more: int | None
    moved: float
    differs: tuple[str, ...]
    sessions: SessionsPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorsPart:
    """Kernels of one configuration by the runtime's own profile: those that changed, in order of execution."""

    label: str
    compared: int
    changed: tuple[VerdictPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPart:
    """A side against the first one: what cannot be compared, what only one of them has, and the verdicts.

    `lost` are those measured only before that should have been after: all but plans, which differ from run to run; none
    of sides that cannot be compared.
    """

    side: int
    clock: str
    unlike: tuple[str, ...]
    changed: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    configurations: tuple[VerdictPart, ...]
    operators: tuple[OperatorsPart, ...]
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareDocument:
    """All that `gnomon compare` found: the sides, and each later one against the first."""

    format: Literal["gnomon-compare"]
    version: Literal[1]
    alpha: float
    relevant: float
    sides: tuple[SidePart, ...]
    pairs: tuple[PairPart, ...]


def compare_document(
    *, alpha: float, relevant: float, sides: tuple[SidePart, ...], pairs: tuple[PairPart, ...]
) -> dict[str, Any]:
    """All that `compare` found, in JSON values."""
    return codec.document(
        CompareDocument(
            format="gnomon-compare",
            version=1,
            alpha=alpha,
            relevant=relevant,
            sides=sides,
            pairs=pairs,
        )
    )
