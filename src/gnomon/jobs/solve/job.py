"""The job `solve`: the exact minimum of a problem that is given as JSON.

The job `front`: the Pareto front of a problem that is given as JSON.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.core import codec
from gnomon.core.cost import CostModel
from gnomon.core.front.front import Front, exact_front
from gnomon.core.solver.solve import Solution, solve
from gnomon.core.space import decimal
from gnomon.errors import UsageError
from gnomon.formats.problem import read_problem
from gnomon.jobs.solve.document import FrontDocument, FrontPointPart, ObjectivePart, SolveDocument
from gnomon.report.answer import Answer

_LEAST_S = 1e-3  # where reading took the rest: a first assignment is found all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveReport(Answer):
    """A solution and the wall time that reading the problem and solving it took."""

    solution: Solution
    seconds: float

    __repr__ = Answer.__repr__

    def headline(self) -> tuple[str, str]:
        """How many slots were decided, and what is proved."""
        found = self.solution
        told = "the least there is" if found.optimal else "not proved the least"
        return f"{len(found.choices)} slots", f"A cost of {found.value:.6g}, {told}."

    def document(self) -> dict[str, Any]:
        """As JSON values; `bound` is in weighted units, null where none is proved."""
        found = self.solution
        return codec.document(
            SolveDocument(
                format="gnomon-solve",
                version=1,
                assignment=found.choices,
                code=decimal(found.code),
                cost=found.cost,
                optimal=found.optimal,
                method=found.method,
                bound=found.bound,
                width=found.width,
                seconds=self.seconds,
            )
        )


def solve_problem(
    text: str | bytes,
    weights: Mapping[str, float] | None = None,
    *,
    method: str = "auto",
    time_limit_s: float | None = None,
) -> SolveReport:
    """Read a problem and find an assignment of least weighted cost.

    A problem with one objective needs no weights. Raises ProblemError for a malformed problem, InfeasibleError
    where no assignment is allowed, and UsageError for invalid weights or options.
    """
    begin = time.perf_counter()
    model = read_problem(text)
    if time_limit_s is not None and math.isfinite(time_limit_s) and time_limit_s > 0:
        time_limit_s = max(time_limit_s - (time.perf_counter() - begin), _LEAST_S)
    solution = solve(model, weights, method=method, time_limit_s=time_limit_s, clock_s=time.perf_counter)
    return SolveReport(solution=solution, seconds=time.perf_counter() - begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontReport(Answer):
    """A front and the wall time that reading the problem and finding the front took."""

    model: CostModel
    front: Front
    seconds: float

    __repr__ = Answer.__repr__

    def headline(self) -> tuple[str, str]:
        """The objectives, and how many points."""
        names = ", ".join(objective.name for objective in self.model.objectives)
        return names, f"{len(self.front)} points."

    def document(self) -> dict[str, Any]:
        """As JSON values; codes are texts, as many readers of JSON round large integers."""
        space = self.model.space
        return codec.document(
            FrontDocument(
                format="gnomon-front",
                version=1,
                certificate=self.front.certificate.document(),
                objectives=tuple(ObjectivePart(name=o.name, unit=o.unit) for o in self.model.objectives),
                points=tuple(
                    FrontPointPart(
                        assignment=tuple(space.names(point.assignment)),
                        code=decimal(space.encode(point.assignment)),
                        cost=point.cost,
                    )
                    for point in self.front.points
                ),
                seconds=self.seconds,
            )
        )


def front_problem(
    text: str | bytes,
    *,
    epsilon: float = 0.0,
    time_limit_s: float | None = None,
    watch: Callable[[Front], Any] | None = None,
) -> FrontReport:
    """Read a problem and find its Pareto front, or with an `epsilon` above 0 points that cover it within that factor.

    After `time_limit_s` the search ends with what it has, and the certificate says what is proved. `watch` is given
    fronts on the way. Raises ProblemError for a malformed problem, InfeasibleError where no assignment is allowed, and
    UsageError for invalid options.
    """
    if time_limit_s is not None and not (math.isfinite(time_limit_s) and time_limit_s > 0):
        raise UsageError(f"the time limit is {time_limit_s} s", hint="use a number of seconds above 0")
    begin = time.perf_counter()
    model = read_problem(text)
    left_s = None if time_limit_s is None else lambda: time_limit_s - (time.perf_counter() - begin)
    found = exact_front(model, epsilon=epsilon, left_s=left_s, watch=watch)
    return FrontReport(model=model, front=found, seconds=time.perf_counter() - begin)
