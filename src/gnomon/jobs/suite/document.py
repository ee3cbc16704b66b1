"""The JSON documents of suites, from which their reports are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gnomon.core import codec
from gnomon.jobs.compare.document import CompareDocument

State = Literal["waiting", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPart:
    """Why a cell failed."""

    kind: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPart:
    """A cell of a suite's run.

    `device` is the one that took it, `campaign` and `record` are where its runs are, on the machine that drove the
    device (`host`). `answer` is what the job said in a sentence, `seconds` how long it took.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDocument:
    """What `gnomon suite run` and `status` print: the run of a suite, and each cell in the order of the file."""

    format: Literal["gnomon-suite"]
    version: Literal[1]
    suite: str
    run: str
    record: str
    finished: bool
    done: int
    failed: int
    waiting: int
    out: tuple[str, ...]
    cells: tuple[CellPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCell:
    """A cell of two runs of a suite: their comparison, or why there is none.

    `lost`: it was done before, and is not done after.
    """

    cell: str
    label: str
    comparison: CompareDocument | None
    why: str | None
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCompareDocument:
    """What `gnomon suite compare` prints; all verdicts of all cells together hold with probability 1 - `alpha`."""

    format: Literal["gnomon-suite-compare"]
    version: Literal[1]
    suite: str
    before: str
    after: str
    alpha: float
    cells: tuple[ComparedCell, ...]


def suite_document(made: SuiteDocument | SuiteCompareDocument) -> dict[str, Any]:
    """It in JSON values."""
    return codec.document(made)
