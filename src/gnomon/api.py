"""gnomon from Python: the commands of the command line as functions, with the same options and the records as answers.

::

    import gnomon

    found = gnomon.place("model.onnx", threads=1)
    print(found.verdict.reason, found.package)

Errors are those of `gnomon.errors`. Nothing is printed; `watch` is told of progress and `tell` gets sentences.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict, Unpack

from gnomon.errors import ProblemError, UsageError
from gnomon.jobs.lab import Request
from gnomon.jobs.place import Placement
from gnomon.jobs.place import place as place_job
from gnomon.jobs.profile import Profile
from gnomon.jobs.profile import profile as profile_job
from gnomon.jobs.runs import CampaignRow, list_campaigns
from gnomon.jobs.solve import SolveReport, solve_problem
from gnomon.measure.effort import Effort
from gnomon.measure.progress import Watch
from gnomon.runtimes.base import Wish
from gnomon.store.sqlite import SqliteStore

PathLike = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """How to measure: the options of the command line by their names, in the plural where they may be repeated.

    `processes` is how many fresh processes measure each candidate (default: 3, and up to 6 until it is known within
    2 %). After `budget_s` a stage starts none beyond the least number; a process that does not answer within
    `timeout_s` is killed. `record` is the database of runs (default: the user's own).
    """

    runtimes: Sequence[str]
    backends: Sequence[str]
    threads: int
    shapes: Mapping[str, Sequence[int]]
    inputs: Mapping[str, PathLike]
    precisions: Sequence[str]
    environments: Sequence[Mapping[str, str]]
    processes: int | None
    budget_s: float
    timeout_s: float
    seed: int
    record: PathLike | None
    fresh: bool


def request_of(model: PathLike, options: Options) -> Request:
    """The request that the options mean. UsageError for an option that there is not, or a number out of its range."""
    unknown = sorted(options.keys() - Options.__annotations__.keys())
    if unknown:
        known = ", ".join(Options.__annotations__)
        raise UsageError(f"there is no option {unknown[0]!r}", hint=f"Options: {known}.")
    for name in ("threads", "processes", "budget_s", "timeout_s"):
        value = options.get(name)
        if isinstance(value, int | float) and not 0 < value < math.inf:
            raise UsageError(f"{name} is {value}", hint="Give a finite number above 0.")
    effort: dict[str, Any] = {name: options[name] for name in ("budget_s", "timeout_s") if name in options}
    processes = options.get("processes")
    if processes is not None:
        effort |= {"processes_least": processes, "processes_most": processes}
    record = options.get("record")
    return Request(
        model=Path(model),
        runtimes=tuple(options.get("runtimes", ())),
        wish=Wish(
            threads=options.get("threads", 1),
            backends=tuple(options.get("backends", ())),
            precisions=tuple(options.get("precisions", ())),
            environments=tuple(dict(e) for e in options.get("environments", ())),
        ),
        shapes={name: tuple(shape) for name, shape in options.get("shapes", {}).items()},
        feeds={name: Path(path) for name, path in options.get("inputs", {}).items()},
        effort=Effort(**effort),
        seed=options.get("seed", 0),
        record=None if record is None else Path(record),
        fresh=options.get("fresh", False),
    )


def package_path(model: PathLike) -> Path:
    """Where `place` writes the package of a model unless told otherwise: ./MODEL.gnomon."""
    return Path(f"{Path(model).absolute().stem}.gnomon")


def place(
    model: PathLike,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    watch: Watch | None = None,
    tell: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> Placement:
    """Find the fastest way to run a model on this machine, prove it, and write it as a package to `out`.

    Raises GnomonError; what was measured until then is kept, and the same call goes on from there.
    """
    destination = package_path(model) if out is None else Path(out)
    return place_job(request_of(model, options), destination, overwrite=overwrite, watch=watch, tell=tell)


def profile(
    model: PathLike,
    *,
    watch: Watch | None = None,
    tell: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> Profile:
    """Measure a model whole on every runtime and backend that takes it, end to end and per operator.

    Raises GnomonError; what was measured until then is kept, and the same call goes on from there.
    """
    return profile_job(request_of(model, options), watch=watch, tell=tell)


def solve(
    problem: str | bytes | Path | Mapping[str, Any],
    weights: Mapping[str, float] | None = None,
    *,
    method: str = "auto",
    time_limit_s: float | None = 60.0,
) -> SolveReport:
    """Find an assignment of least cost for a problem: its JSON text, a file of it (a Path), or its values.

    The format is that of docs/problem-json.md. Raises ProblemError for a malformed problem and InfeasibleError
    where no assignment is allowed.
    """
    if isinstance(problem, Path):
        path = problem
        try:
            problem = path.read_bytes()
        except OSError as error:
            raise ProblemError(
                f"the problem {path} cannot be read: {error.strerror or error}", hint="Give a JSON file."
            ) from error
    elif isinstance(problem, Mapping):
        try:
            problem = json.dumps(problem, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ProblemError(f"the problem holds a value that JSON has not: {error}", hint="Use null.") from error
    return solve_problem(problem, weights, method=method, time_limit_s=time_limit_s)


def runs(*, record: PathLike | None = None, limit: int | None = None) -> tuple[CampaignRow, ...]:
    """The campaigns in the record of runs, the newest first, at most `limit`."""
    with SqliteStore.open(None if record is None else Path(record)) as store:
        return tuple(islice(list_campaigns(store), limit))
