"""The JSON document of `gnomon compare`, which is what its function returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnomon.errors import RecordError
from gnomon.report.answer import Answer
from gnomon.report.plain import json_text
from gnomon.session.document import ConditionsPart
from gnomon.system.files import write_whole


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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompareDocument(Answer):
    """All that `gnomon compare` found: the sides, and each later one against the first."""

    format: Literal["gnomon-compare"]
    version: Literal[1]
    alpha: float
    relevant: float
    sides: tuple[SidePart, ...]
    pairs: tuple[PairPart, ...]

    main = "pairs"

    def headline(self) -> tuple[str, str]:
        """How many configurations are slower, faster, the same or unknown, or why nothing is compared."""
        from gnomon.jobs.compare.report import headline

        return f"{len(self.sides)} runs compared", headline(self)

    def write(self, files: Mapping[str, Path | None], *, fail_slower: float | None = None) -> None:
        """Write the comparison in other forms: "junit", "markdown", "action_benchmark" or "bencher" -> file.

        A configuration that is slower by more than `fail_slower`, or is `missing`, is a failure in JUnit's where that
        is given. RecordError where a file cannot be written.
        """
        from gnomon.jobs.compare import exchange
        from gnomon.jobs.compare.report import markdown

        made = {
            "junit": lambda: exchange.junit(self, fail_slower),
            "markdown": lambda: markdown(self),
            "action_benchmark": lambda: json_text(exchange.action_benchmark(self)),
            "bencher": lambda: json_text(exchange.bencher(self)),
        }
        for name, path in files.items():
            if path is not None:
                try:
                    write_whole(made[name]().encode(), path)
                except OSError as error:
                    raise RecordError(
                        f"{path} cannot be written: {error.strerror}", hint="Name another file."
                    ) from error

    def missing(self) -> tuple[str, ...]:
        """The configurations that were measured before and should have been after, and were not."""
        return tuple(dict.fromkeys(label for pair in self.pairs for label in pair.lost))

    def nothing(self) -> bool:
        """Whether there is a later side of which nothing could be compared."""
        return not all(pair.configurations for pair in self.pairs)

    def slowest(self) -> VerdictPart | None:
        """The configuration that surely became slower by the most; None where none did."""
        slower = [row for pair in self.pairs for row in pair.configurations if row.verdict == "slower"]
        return max(slower, key=lambda row: row.ratio, default=None)
