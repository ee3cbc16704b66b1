"""Problems whose prices are given: what `gnomon solve` and `gnomon front` do, as functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gnomon.core.front.front import Front
from gnomon.errors import ProblemError
from gnomon.jobs.solve import job
from gnomon.jobs.solve.document import FrontDocument, SolveDocument


def solve(
    problem: str | bytes | Path | Mapping[str, Any],
    weights: Mapping[str, float] | None = None,
    *,
    method: str = "auto",
    time_limit_s: float | None = 60.0,
) -> SolveDocument:
    """Find an assignment of least cost for a problem: its JSON text, a file of it (a Path), or its values.

    The format is that of docs/formats/problem-json.md. Raises ProblemError for a malformed problem and InfeasibleError
    where no assignment is allowed.
    """
    return job.solve_problem(_problem_text(problem), weights, method=method, time_limit_s=time_limit_s)


def front(
    problem: str | bytes | Path | Mapping[str, Any],
    *,
    epsilon: float = 0.0,
    time_limit_s: float | None = 60.0,
    on_progress: Callable[[Front], None] | None = None,
) -> FrontDocument:
    """Find the Pareto front of a problem, given as to `solve`; `on_progress` gets each front on the way.

    A point may be at most the share `epsilon` more expensive than one that is not in the front. Raises ProblemError for
    a malformed problem and InfeasibleError where no assignment is allowed.
    """
    return job.front_problem(_problem_text(problem), epsilon=epsilon, time_limit_s=time_limit_s, watch=on_progress)


def _problem_text(problem: str | bytes | Path | Mapping[str, Any]) -> str | bytes:
    if isinstance(problem, Path):
        try:
            return problem.read_bytes()
        except OSError as error:
            raise ProblemError(
                f"the problem {problem} cannot be read: {error.strerror or error}", hint="Give a JSON file."
            ) from error
    if isinstance(problem, Mapping):
        try:
            return json.dumps(problem, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ProblemError(f"the problem holds a value that JSON has not: {error}", hint="Use null.") from error
    return problem
