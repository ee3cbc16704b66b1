"""The JSON document of `gnomon compare`, which is what its function returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

from gnomon.core.decision import POWER, Gate
from gnomon.errors import GATE_FAILED, NOTHING_COMPARED, UNDECIDED
from gnomon.report import units
from gnomon.report.answer import Answer
from gnomon.report.conditions import ConditionsPart
from gnomon.report.plain import listed

Undecided = Literal["fail", "warn"]
NO_MODEL = "no-model"
"""The name in place of the model where commands are compared that take none."""
ORDER = ("slower", "undecided", "pass", "faster", "open")
"""Kinds of verdicts in the order in which they are reported."""


def kind_of(row: VerdictPart) -> str:
    """The kind of a verdict: that of the gate, or whether there is a difference."""
    return row.gate or (row.verdict if row.verdict in ("slower", "faster") else "open")


def word(row: VerdictPart) -> str:
    """A verdict as people read it: that of the gate, or how large a difference there can be at most."""
    if (kind := kind_of(row)) != "open":
        return kind
    if row.low is None or row.high is None or units.vague(row.low, row.high):
        return "undecided"
    return f"no difference above {units.percent(max(row.high, 1 / row.low) - 1).lstrip('+')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SidePart:
    """A side: how it was named, which run it is, and what it measured where, under which conditions if known.

    `python` is the Python that measured it, where runtimes of two are compared.
    """

    name: str
    campaign: str
    model: str
    model_sha256: str
    device: str
    versions: Mapping[str, str]
    started_at_s: float | None
    clock: str
    conditions: ConditionsPart | None = None
    python: str | None = None


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
    `verdict` is "faster", "slower", "same" (within the relevance threshold) or "unknown"; `gate` is what `fail_slower`
    makes of the interval, null without it. `sees` is the slow-down that would have been found in 95 of 100 such
    measurements. `moved` is the standard error that the machine's own drift adds, `differs` what else is known to
    differ between the sides, which widened the interval. `sessions` is what runs are taken to differ by; null in older
    documents.
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
    moved: float
    differs: tuple[str, ...]
    sessions: SessionsPart | None = None
    gate: Gate | None = None
    sees: float | None = None


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
class SelfTestPart:
    """The power of comparisons on a machine, from a configuration that was measured beside itself.

    `scatter` is the relative standard deviation of the ratio of one turn, which takes `turn_s`. `sees_in_60_s` and
    `sees_in_300_s` are the slow-downs that comparisons of that length (but of six turns at least) find in 95 of 100
    cases. The limit is found so surely in `needed_s`; null: never. Of so many `windows` of at most `budget_s` that were
    drawn from the turns, the limit was `found` in so many with it planted, and in so many without (`wrong`).
    """

    label: str
    scatter: float
    turn_s: float
    sees_in_60_s: float | None
    sees_in_300_s: float | None
    needed_s: float | None
    budget_s: float
    windows: int
    found: int
    wrong: int

    @property
    def decides(self) -> bool:
        """Whether a comparison can tell within the budget whether something is slower by the limit."""
        return self.needed_s is not None and self.needed_s <= self.budget_s and self.found >= POWER * self.windows


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompareDocument(Answer):
    """All that `gnomon compare` found: the sides, and each later one against the first.

    `fail_slower` is the share by which nothing may have become slower; null: no gate. What is `undecided` fails such a
    gate, or is warned of. `self_test` is what a model beside itself shows; null where two are compared. `again` is the
    command that then compares with another model, "" where none is known.
    """

    format: Literal["gnomon-compare"] = "gnomon-compare"
    version: Literal[1] = 1
    alpha: float
    relevant: float
    sides: tuple[SidePart, ...]
    pairs: tuple[PairPart, ...]
    fail_slower: float | None = None
    undecided: Undecided = "fail"
    self_test: tuple[SelfTestPart, ...] | None = None
    again: str = ""

    main = "pairs"
    brief: ClassVar[Mapping[str, str]] = {
        "configuration": "label",
        "before_us": "before_s",
        "after_us": "after_s",
        "ratio": "ratio",
        "ratio_low": "low",
        "ratio_high": "high",
        "verdict": "verdict",
        "gate": "gate",
    }

    def main_rows(self) -> list[dict[str, Any]]:
        """The verdicts of all pairs."""
        return [row for pair in self.document()["pairs"] for row in pair["configurations"]]

    def headline(self) -> tuple[str, str]:
        """How many runs are compared, and the answer in one sentence."""
        return f"{len(self.sides)} runs compared", self._answer()

    def _answer(self) -> str:
        unlike = [reason for pair in self.pairs for reason in pair.unlike]
        rows = [row for pair in self.pairs for row in pair.configurations]
        if unlike and not rows:
            return f"These runs cannot be compared: {unlike[0]}."
        lost = self.missing()
        missing = f" Not measured after: {listed(lost)}." if lost else ""
        if not rows:
            return f"Nothing to compare: no configuration was measured on both sides.{missing}"
        parts = []
        for kind in ORDER:
            group = [row for row in rows if kind_of(row) == kind]
            if group and kind in ("slower", "faster"):
                most = max(group, key=lambda row: abs(row.ratio - 1))
                by = f"{most.label} {units.percent(most.ratio - 1)}"
                parts.append(f"{len(group)} {kind} ({by}{' and others' if len(group) > 1 else ''})")
            elif group:
                widest = max(group, key=lambda row: (row.high or math.inf) / (row.low or 0.1))
                parts.append(f"{len(group)} {'with ' if kind == 'open' else ''}{word(widest)}")
        if self.self_test is not None:
            can = "can" if self.exit_code == 0 else "cannot"
            limit = units.percent(self.fail_slower).lstrip("+")
            return f"A slow-down of {limit} {can} be decided here. Beside itself: {', '.join(parts)}."
        return f"Of {len(rows)} configuration{'' if len(rows) == 1 else 's'}: {', '.join(parts)}.{missing}"

    @property
    def exit_code(self) -> int:
        """That of the gate, where `fail_slower` makes one; of a self-test whether such a gate would decide."""
        if self.self_test is not None:
            wrong = [row for pair in self.pairs for row in pair.configurations if row.gate == "slower"]
            decides = self.self_test and all(part.decides for part in self.self_test)
            return 0 if decides and not wrong else UNDECIDED
        nothing = not all(pair.configurations for pair in self.pairs)
        return gate_code(self.fail_slower, self.pairs, self.undecided, nothing=nothing)

    def to_markdown(self) -> str:
        """The comparison for a pull request, as --markdown writes it."""
        return str(import_module("gnomon.jobs.compare.report").markdown(self))

    def write(self, files: Mapping[str, Path | None]) -> None:
        """Write the comparison in other forms: "junit", "action_benchmark" or "bencher" -> file.

        RecordError where a file cannot be written.
        """
        import_module("gnomon.jobs.compare.exchange").write(self, files)

    def missing(self) -> tuple[str, ...]:
        """The configurations that were measured before and should have been after, and were not."""
        return tuple(dict.fromkeys(label for pair in self.pairs for label in pair.lost))


def gate_code(
    fail_slower: float | None, pairs: Sequence[PairPart], undecided: Undecided, *, nothing: bool, lost: bool = False
) -> int:
    """The exit code of a gate over pairs: whether something fails or was `lost`, or `nothing` could be compared."""
    if fail_slower is None:
        return 0
    gates = {row.gate for pair in pairs for row in pair.configurations}
    if lost or "slower" in gates or any(pair.lost for pair in pairs):
        return GATE_FAILED
    if nothing:
        return NOTHING_COMPARED
    return UNDECIDED if "undecided" in gates and undecided == "fail" else 0
