"""The JSON document that `gnomon compare` returns."""

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
from gnomon.report.plain import listed, many

Undecided = Literal["fail", "warn"]
NO_MODEL = "no-model"
"""The name that replaces the model if the compared commands take none."""
ORDER = ("slower", "undecided", "pass", "faster", "open")
"""The kinds of verdicts, in the order of the report."""


def kind_of(row: VerdictPart) -> str:
    """The kind of a verdict: the gate's verdict, or whether there is a difference."""
    return row.gate or (row.verdict if row.verdict in ("slower", "faster") else "open")


def word(row: VerdictPart) -> str:
    """A verdict in words: the gate's verdict, or the largest possible difference."""
    if (kind := kind_of(row)) != "open":
        return kind
    if row.low is None or row.high is None or units.vague(row.low, row.high):
        return "undecided"
    return f"no difference above {units.percent(max(row.high, 1 / row.low) - 1).lstrip('+')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SidePart:
    """A side: its name, its run, its model and device, and the conditions if they are known.

    `python` is the Python that measured it, if the runtimes of two Pythons are compared.
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
    """The assumed difference between runs of the same thing beyond the scatter of their processes, and its source.

    `spread` is a relative standard deviation. It is known from earlier `runs` of the model ("model"), from those of
    other models on the machine ("machine"), or it is "assumed"; `needed` is then the number of further runs that would
    be enough to estimate it. Sides that were measured by "turns" belong to one session, so that the difference is 0.
    """

    known_by: Literal["model", "machine", "assumed", "turns"]
    spread: float
    runs: int
    needed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictPart:
    """One configuration, or one kernel of it, on a side compared with the first side.

    `ratio` is its time divided by that of the first side, with an interval whose confidence applies to all verdicts
    together. `verdict` is "faster", "slower", "same" (within the relevance threshold) or "unknown". `gate` is the
    verdict of `fail_slower` on the interval, null without a gate. `sees` is the slow-down that would be found in 95 of
    100 such measurements. `moved` is the standard error due to drift of the machine. `differs` lists other known
    differences between the sides, which widened the interval. `sessions` is the assumed difference between runs; null
    in older documents.
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
    """The kernels of one configuration that changed according to the runtime's own profile, in order of execution."""

    label: str
    compared: int
    changed: tuple[VerdictPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPart:
    """A side compared with the first one: what cannot be compared, what only one of the two has, and the verdicts.

    `lost` are configurations that were measured only before but should also have been measured after: all except plans,
    because these differ from run to run. Sides that cannot be compared have none.
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
    """The power of comparisons on a machine, from a configuration that was compared with itself.

    `scatter` is the relative standard deviation of the ratio in one turn, which takes `turn_s`. `sees_in_60_s` and
    `sees_in_300_s` are the slow-downs that comparisons of that length (but at least six turns) find in 95 of 100 cases.
    `needed_s` is the time in which a slow-down by the limit is found with that probability; null: never. `windows` is
    the number of comparisons of at most `budget_s` that were drawn from the turns. A slow-down by the limit was
    reported in `found` of them when it was planted, and in `wrong` of them when it was not.
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
        """Whether a comparison within the budget can decide whether something is slower by the limit."""
        return self.needed_s is not None and self.needed_s <= self.budget_s and self.found >= POWER * self.windows


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompareDocument(Answer):
    """The answer of `gnomon compare`: the sides, and the comparison of each later one with the first.

    `fail_slower` is the slow-down, as a share, that fails the gate; null: no gate. `undecided` tells whether undecided
    verdicts fail the gate or only cause a warning. `self_test` is the result of comparing a model with itself; null if
    two models are compared. `again` is the command that then compares the model with another one, "" if it is not
    known.
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
        """The number of compared runs, and the answer in one sentence."""
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
                text = word(widest)
                parts.append(f"{len(group)} {'with ' if text.startswith('no ') else ''}{text}")
        if self.self_test is not None:
            can = "can" if self.exit_code == 0 else "cannot"
            limit = units.percent(self.fail_slower).lstrip("+")
            return f"A slow-down of {limit} {can} be detected here. Compared with itself: {', '.join(parts)}."
        return f"Of {many(len(rows), 'configuration')}: {', '.join(parts)}.{missing}"

    @property
    def exit_code(self) -> int:
        """The gate's exit code if there is one (`fail_slower`); for a self-test, whether such a gate would decide."""
        if self.self_test is not None:
            wrong = [row for pair in self.pairs for row in pair.configurations if row.gate == "slower"]
            decides = self.self_test and all(part.decides for part in self.self_test)
            return 0 if decides and not wrong else UNDECIDED
        nothing = not all(pair.configurations for pair in self.pairs)
        return gate_code(self.fail_slower, self.pairs, self.undecided, nothing=nothing)

    def to_markdown(self) -> str:
        """The comparison in Markdown for a pull request, as written by --markdown."""
        return str(import_module("gnomon.jobs.compare.report").markdown(self))

    def write(self, files: Mapping[str, Path | None]) -> None:
        """Write the comparison in other formats; `files` maps "junit", "action_benchmark" or "bencher" to a file.

        RecordError if a file cannot be written.
        """
        import_module("gnomon.jobs.compare.exchange").write(self, files)

    def missing(self) -> tuple[str, ...]:
        """The configurations that were measured before and should have been measured after, but were not."""
        return tuple(dict.fromkeys(label for pair in self.pairs for label in pair.lost))


def gate_code(
    fail_slower: float | None, pairs: Sequence[PairPart], undecided: Undecided, *, nothing: bool, lost: bool = False
) -> int:
    """The exit code of a gate over pairs: it considers slow-downs, `lost` configurations, and whether `nothing` was
    compared.
    """
    if fail_slower is None:
        return 0
    gates = {row.gate for pair in pairs for row in pair.configurations}
    if lost or "slower" in gates or any(pair.lost for pair in pairs):
        return GATE_FAILED
    if nothing:
        return NOTHING_COMPARED
    return UNDECIDED if "undecided" in gates and undecided == "fail" else 0
