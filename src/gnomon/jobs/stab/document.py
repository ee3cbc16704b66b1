"""The JSON document of `gnomon stab`; docs/jobs/stab.md describes each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnomon.jobs.place.document import PlaceDocument
from gnomon.measure.environment import Caveat
from gnomon.report import units
from gnomon.report.answer import Answer
from gnomon.session.document import GraphPart, ModelPart, OperatorPart


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePart:
    """A trace file behind the decision: its backend, and its origin as recorded in the file."""

    backend: str
    file: str
    whole_run_us: int | None
    operators: int
    device: str | None
    runtime: str | None
    taken_at_s: float | None
    runs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPart:
    """The decision with the least sum of prices. `counts` are the numbers of operators by backend, `lacks` are costs
    that the prices do not include.
    """

    predicted_us: float | None
    counts: Mapping[str, int]
    mixes: bool
    best_single: str
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPart:
    """The published scheduler's decision from the same traces.

    Without a decision, `why_not` has the reason and all other values are null.
    """

    decides: bool
    why_not: str | None
    predicted_us: float | None = None
    counts: Mapping[str, int] | None = None
    default: str | None = None
    told_us: Mapping[str, int | None] | None = None
    scheduled_us: int | None = None
    settings: Mapping[str, str] | None = None
    unlike_exact: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledOperator(OperatorPart):
    """An operator, its microseconds on each backend, and its backend in each decision."""

    times_us: Mapping[str, float]
    exact: str
    published: str | None
    written: str | None
    ran_on: str | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StabDocument(Answer):
    """The result of `gnomon stab`; times are in microseconds (`_us`).

    `written` names the decision in the `package`. `singles` are the sums over all operators on each backend alone.
    `proof` is the document of the placement that proved the decision; null without profiling.
    """

    format: Literal["gnomon-stab"] = "gnomon-stab"
    version: Literal[3] = 3
    nnpackage: ModelPart
    graph: GraphPart
    threads: int
    profiled: bool
    written: str
    package: str
    traces: tuple[TracePart, ...]
    exact: ExactPart
    singles: Mapping[str, float | None]
    published: PublishedPart
    operators: tuple[ScheduledOperator, ...]
    proof: PlaceDocument | None
    doubts: tuple[Caveat, ...]
    seconds: float

    main = "operators"

    def headline(self) -> tuple[str, str]:
        """The package and the decision."""
        return f"{Path(self.nnpackage.path).name} in {self.package}", self._answer()

    def _answer(self) -> str:
        if self.written == "published":
            return "The package has the decision of ONE's stab; this placement was not run."
        if self.proof is not None:
            return self.proof.decision.reason
        single, predicted_us = self.exact.best_single, self.exact.predicted_us
        if not self.exact.mixes:
            return f"According to the traces, no mix is faster than {single} alone; nothing was run."
        gain = (self.singles[single] or 0.0) / predicted_us if predicted_us else float("inf")
        words = f"a mix is {units.digits(gain)} times as fast as {single} alone"
        return f"According to the traces, {words}; nothing was run."

    @property
    def placement(self) -> dict[int, str]:
        """The backend of each operator in the package."""
        return {row.index: row.written for row in self.operators if row.written is not None}
