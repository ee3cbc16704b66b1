"""The job `solve`: the exact minimum of a problem that is given as JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.core.brief import brief
from gnomon.core.solve import Solution, solve
from gnomon.core.space import decimal
from gnomon.formats.problem import read_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveReport:
    """A solution and the wall time that reading the problem and solving it took."""

    solution: Solution
    seconds: float

    __repr__ = brief

    def document(self) -> dict[str, Any]:
        """The report as a JSON object; `code` is a text, as many readers of JSON round large integers."""
        found = self.solution
        return {
            "assignment": list(found.choices),
            "code": decimal(found.code),
            "cost": list(found.cost),
            "optimal": found.optimal,
            "method": found.method,
            "bound": found.bound if math.isfinite(found.bound) else None,
            "width": found.width,
            "seconds": self.seconds,
        }

    def to_json(self) -> str:
        """The report as JSON on one line; `bound` is in weighted units, null where none is proved."""
        return json.dumps(self.document(), ensure_ascii=False, allow_nan=False)


def solve_problem(
    text: str | bytes,
    weights: Mapping[str, float] | None = None,
    *,
    method: str = "auto",
    time_limit_s: float | None = None,
) -> SolveReport:
    """Read a problem and find an assignment of least weighted cost.

    A problem with one objective needs no weights. Raises ProblemError for a malformed problem, InfeasibleError
    where no assignment is allowed, and UsageError for weights or options that cannot be meant.
    """
    begin = time.perf_counter()
    solution = solve(read_problem(text), weights, method=method, time_limit_s=time_limit_s)
    return SolveReport(solution=solution, seconds=time.perf_counter() - begin)
