"""The JSON documents of `gnomon solve` and `gnomon front`, which their functions return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gnomon.report.answer import FirstVersion
from gnomon.report.conditions import LimitPart


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SolveDocument(FirstVersion):
    """The answer of `gnomon solve`: choices by slot, their code as a text, the cost in each objective, and a proof.

    `bound` is in weighted units, null if none is proved; `seconds` is the time for reading and solving. `free` is the
    least weighted cost without the limits, null if it is unknown.
    """

    format: Literal["gnomon-solve"] = "gnomon-solve"
    assignment: tuple[str, ...]
    code: str
    cost: tuple[float, ...]
    optimal: bool
    method: str
    bound: float | None
    width: int
    limits: tuple[LimitPart, ...] = ()
    free: float | None = None
    seconds: float

    def headline(self) -> tuple[str, str]:
        """The number of slots and the proof, in words."""
        proof = "proved to be the least" if self.optimal else "not proved to be the least"
        return f"{len(self.assignment)} slots", f"A cost of {', '.join(f'{cost:.6g}' for cost in self.cost)}, {proof}."


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivePart:
    """An objective and its unit."""

    name: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPointPart:
    """A point: a choice for each slot, its code as a text, and its cost in each objective.

    In a sweep it is the best point that keeps the limit `at_most`; otherwise `at_most` is null.
    """

    assignment: tuple[str, ...]
    code: str
    cost: tuple[float, ...]
    at_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FrontDocument(FirstVersion):
    """The answer of `gnomon front` with its proof; `swept` is the objective that `--sweep` limits."""

    format: Literal["gnomon-front"] = "gnomon-front"
    certificate: str | Mapping[str, float]
    objectives: tuple[ObjectivePart, ...]
    points: tuple[FrontPointPart, ...]
    swept: ObjectivePart | None = None
    seconds: float

    main = "points"

    def headline(self) -> tuple[str, str]:
        """The objectives and the number of points."""
        return ", ".join(objective.name for objective in self.objectives), f"{len(self.points)} points."
