"""The JSON documents of `gnomon suite`, which its Python functions return."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gnomon.core.codec import fields_of
from gnomon.jobs.compare.document import CompareDocument, PairPart, Undecided, VerdictPart, gate_code
from gnomon.report.answer import FirstVersion
from gnomon.report.plain import many

if TYPE_CHECKING:
    from gnomon.jobs.suite.plan import Cell

State = Literal["waiting", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPart:
    """The reason why a cell failed."""

    kind: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPart:
    """A cell of a suite's run.

    `device` is the device that ran the cell. The runs are in `campaign` of `record` on the machine that controlled the
    device (`host`). `answer` is the job's answer in a sentence, and `seconds` the job's duration.
    """

    id: str
    job: str
    model: str
    selector: str
    slot: int
    repeat: int
    state: State
    device: str | None = None
    host: str | None = None
    campaign: str | None = None
    record: str | None = None
    answer: str | None = None
    seconds: float | None = None
    error: ErrorPart | None = None


def cell_part(cell: Cell, state: State, **outcome: Any) -> CellPart:
    """A cell with its outcome."""
    return CellPart(**fields_of(CellPart, cell), state=state, **outcome)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SuiteDocument(FirstVersion):
    """The answer of `gnomon suite run` and `status`: the run of a suite, and its cells in the order of the file."""

    format: Literal["gnomon-suite"] = "gnomon-suite"
    suite: str
    run: str
    record: str
    finished: bool
    done: int
    failed: int
    waiting: int
    out: tuple[str, ...]
    cells: tuple[CellPart, ...]

    main = "cells"

    def headline(self) -> tuple[str, str]:
        """The suite, and the number of its cells that are done."""
        counts = f"{self.done} of {len(self.cells)} cells done, {self.failed} failed, {self.waiting} waiting"
        return self.suite, f"{counts}."

    @property
    def whole(self) -> bool:
        """Whether every cell is done."""
        return self.done == len(self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCell:
    """A cell of two runs of a suite: their comparison, or the reason (`why`) for not comparing them.

    `lost` means that the cell was done before but is not done after.
    """

    cell: str
    label: str
    comparison: CompareDocument | None
    why: str | None
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SuiteCompareDocument(FirstVersion):
    """The answer of `gnomon suite compare`; all verdicts of all cells together hold with probability 1 - `alpha`."""

    format: Literal["gnomon-suite-compare"] = "gnomon-suite-compare"
    suite: str
    before: str
    after: str
    alpha: float
    cells: tuple[ComparedCell, ...]
    fail_slower: float | None = None
    undecided: Undecided = "fail"

    main = "cells"

    @property
    def exit_code(self) -> int:
        """The exit code of the gate if there is one (`fail_slower`)."""
        nothing = not self.verdicts()
        return gate_code(self.fail_slower, self.pairs(), self.undecided, nothing=nothing, lost=self.missing())

    def headline(self) -> tuple[str, str]:
        """The suite, and the numbers of configurations that became slower or faster."""
        missing = " Some configurations that were measured before are missing." if self.missing() else ""
        return self.suite, f"Of {many(len(self.verdicts()), 'configuration')}: {self.counts()}.{missing}"

    def counts(self) -> str:
        """The number of configurations with each verdict, or with each of the gate's verdicts if there is a gate."""
        counts = Counter(row.gate or row.verdict for row in self.verdicts())
        if self.fail_slower is not None:
            return f"{counts['slower']} slower, {counts['undecided']} undecided, {counts['pass']} pass"
        text = f"{counts['slower']} slower, {counts['faster']} faster, {counts['same']} same"
        return f"{text}, {counts['unknown']} undecided"

    def missing(self) -> bool:
        """Whether a cell that was done before is not done after, or has lost a configuration."""
        return any(cell.lost for cell in self.cells) or any(pair.lost for pair in self.pairs())

    def verdicts(self) -> list[VerdictPart]:
        """The configurations of all cells that were compared."""
        return [row for pair in self.pairs() for row in pair.configurations]

    def pairs(self) -> list[PairPart]:
        """The pairs of both runs of each compared cell."""
        return [pair for cell in self.cells if cell.comparison for pair in cell.comparison.pairs]
