"""`gnomon solve` and `gnomon front` as functions: problems with given prices."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from gnomon.api.options import Memory, Under, limits_of
from gnomon.core.front.front import Front
from gnomon.errors import ProblemError, UsageError, system_errors
from gnomon.formats.problem import MOST_LETTERS
from gnomon.jobs.solve import job
from gnomon.jobs.solve.document import FrontDocument, SolveDocument
from gnomon.measure.progress import Progress, Watch
from gnomon.options import option
from gnomon.system.files import read_at_most, read_regular
from gnomon.values import seconds

_HINT = "Give a JSON file of the format gnomon-problem, or pipe one in: PROGRAM | gnomon solve -"


def objective_weights(text: str) -> dict[str, float]:
    """The weights of a problem's objectives, by name."""
    numbers: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.rpartition("="))
        if name in numbers:
            raise ValueError(f"{name!r} is given twice")
        try:
            numbers[name] = float(number)
        except ValueError:
            raise ValueError(f"{part!r} is not a weight: give latency=1,memory=0.1") from None
        if not name:
            raise ValueError(f"{part!r} names no objective: give latency=1,memory=0.1")
    return numbers


def read_problem(path: str) -> bytes:
    """The bytes of a file, or of the standard input for "-". ProblemError if they cannot be read or are too many."""
    if path != "-":
        return _read(Path(path))
    with system_errors(ProblemError, "the standard input cannot be read", hint=_HINT):
        content = read_at_most(sys.stdin.buffer, MOST_LETTERS)
    if len(content) > MOST_LETTERS:
        raise ProblemError(f"the problem is larger than {MOST_LETTERS >> 20} MiB", hint="Give a smaller problem.")
    return content


def _read(path: Path) -> bytes:
    with system_errors(ProblemError, f"the problem {path} cannot be read", hint=_HINT):
        return read_regular(path, MOST_LETTERS)


TimeLimit = Annotated[
    float | None,
    option("--time-limit", read=seconds, help="Seconds after which the solver returns its best results."),
]
Problem = Annotated[str | bytes | Path | Mapping[str, object], option(metavar="PROBLEM", read=read_problem)]


def solve(
    problem: Problem,
    weights: Annotated[
        Mapping[str, float] | None,
        option(
            "--weights",
            read=objective_weights,
            metavar="NAME=1,NAME=0.1",
            help="The weight of each objective; a single objective needs none.",
        ),
    ] = None,
    *,
    method: Annotated[
        Literal["auto", "elimination", "milp"],
        option(help="The method: elimination, a mixed-integer program, or whichever fits."),
    ] = "auto",
    under: Under = MappingProxyType({}),
    memory: Memory = MappingProxyType({}),
    time_limit_s: TimeLimit = 60.0,
) -> SolveDocument:
    """Find an assignment of least cost for PROBLEM, a JSON file (docs/formats/problem-json.md), or - for stdin.

    Raises ProblemError for a malformed problem, and InfeasibleError if no assignment is allowed. From Python, a problem
    is a JSON text, a file (a Path), or JSON values. A limit without a unit is in the objective's unit.
    """
    text, limits = _problem_text(problem), limits_of(under, memory)
    return job.solve_problem(text, weights, method=method, under=limits, time_limit_s=time_limit_s)


def front(
    problem: Problem,
    *,
    epsilon: Annotated[
        float,
        option(
            least=0.0,
            most=10.0,
            help="Accept points that are at most this share more expensive than others: 0.01 for 1 %.",
        ),
    ] = 0.0,
    under: Under = MappingProxyType({}),
    memory: Memory = MappingProxyType({}),
    sweep: Annotated[
        str | None,
        option(
            metavar="NAME[:CHOICE]",
            help="Instead, minimise the first other objective at 20 limits on this one, such as memory:gpu.",
        ),
    ] = None,
    time_limit_s: TimeLimit = 60.0,
    on_progress: Watch | None = None,
) -> FrontDocument:
    """Find the best trade-offs between the objectives of PROBLEM (docs/formats/problem-json.md), or - for stdin.

    Raises ProblemError for a malformed problem, and InfeasibleError if no assignment is allowed.
    """
    begin = time.monotonic()

    def watch(front: Front) -> None:
        left_s = None if time_limit_s is None else max(0.0, time_limit_s - (time.monotonic() - begin))
        if on_progress is not None:
            on_progress(Progress(stage="search for trade-offs", done=len(front), total=len(front), left_s=left_s))

    text, limits = _problem_text(problem), limits_of(under, memory)
    if sweep is not None and epsilon:
        raise UsageError("--sweep cannot be combined with --epsilon: its points are exact", hint="Leave out --epsilon.")
    if sweep is not None:
        return job.sweep_limit(text, sweep, under=limits, time_limit_s=time_limit_s, watch=on_progress)
    return job.front_problem(text, epsilon=epsilon, under=limits, time_limit_s=time_limit_s, watch=watch)


def _problem_text(problem: str | bytes | Path | Mapping[str, object]) -> str | bytes:
    if isinstance(problem, Path):
        return _read(problem)
    if isinstance(problem, Mapping):
        try:
            return json.dumps(problem, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ProblemError(f"the problem has a value that is not JSON: {error}", hint="Use null.") from error
    return problem
