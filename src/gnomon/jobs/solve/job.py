"""The jobs `solve` and `front`: the exact minimum and the Pareto front of a problem that is given as JSON."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gnomon.core.codec import fields_of
from gnomon.core.cost import CostModel, limit_on
from gnomon.core.front.front import Front, exact_front
from gnomon.core.front.limited import solve_within
from gnomon.core.solver.solve import Solution
from gnomon.core.space import decimal
from gnomon.errors import InfeasibleError, UsageError
from gnomon.formats.problem import read_problem
from gnomon.jobs.solve.document import FrontDocument, FrontPointPart, ObjectivePart, SolveDocument
from gnomon.measure.progress import Meter, Watch
from gnomon.report.conditions import limit_parts
from gnomon.values import quantity_in

_SWEPT = 20  # the number of limits in a sweep
_LEAST_S = 1e-3  # the least time for solving, so that a first assignment is found even if reading took all the time


def solve_problem(
    text: str | bytes,
    weights: Mapping[str, float] | None = None,
    *,
    method: str = "auto",
    under: Mapping[str, float | str] = MappingProxyType({}),
    time_limit_s: float | None = None,
) -> SolveDocument:
    """Read a problem and find an assignment of least weighted cost.

    A problem with one objective needs no weights. `under` has further limits: the greatest value of an objective or of
    NAME:CHOICE, either a number in the objective's unit or a text with a unit. Raises ProblemError for a malformed
    problem, InfeasibleError if no assignment is allowed, and UsageError for invalid weights or options.
    """
    begin = time.perf_counter()
    model = _limited(read_problem(text), under)
    if time_limit_s is not None and math.isfinite(time_limit_s) and time_limit_s > 0:
        time_limit_s = max(time_limit_s - (time.perf_counter() - begin), _LEAST_S)
    solution = solve_within(model, weights, method=method, time_limit_s=time_limit_s, clock_s=time.perf_counter)
    used = [model.used(limit, solution.assignment) for limit in model.limits]
    limits = tuple(
        replace(part, at=model.peak(limit, solution.assignment)[1], price=None) if limit.order else part
        for part, limit in zip(limit_parts(model.limits, used, solution.prices), model.limits, strict=True)
    )
    own = {"assignment": solution.choices, "code": decimal(solution.code), "limits": limits}
    seconds = {"seconds": time.perf_counter() - begin}
    return SolveDocument(**fields_of(SolveDocument, solution) | own | seconds)


def sweep_limit(
    text: str | bytes,
    place: str,
    *,
    under: Mapping[str, float | str],
    time_limit_s: float | None = None,
    watch: Watch | None = None,
) -> FrontDocument:
    """Read a problem, and minimise its first objective other than NAME at several limits of NAME, or of NAME:CHOICE.

    The limits are evenly spaced and start at what the best assignment uses without a limit. The sweep ends at the
    first limit that no assignment keeps. Raises as `solve_problem` does, and UsageError if there is no other objective.
    """
    begin = time.perf_counter()
    model = _limited(read_problem(text), under)
    name, _, choice = place.partition(":")
    limit = limit_on(model, name, [choice] if choice else [], math.inf)
    others = [objective.name for objective in model.objectives if objective.name != name]
    if not others:
        raise UsageError(f"the problem has no objective but {name}", hint="Sweep something else, such as switches.")

    def solved(within: CostModel, left: int) -> Solution:
        rest_s = None if time_limit_s is None else time_limit_s - (time.perf_counter() - begin)
        share_s = None if rest_s is None else max(rest_s / left, _LEAST_S)
        return solve_within(within, {others[0]: 1.0}, time_limit_s=share_s, clock_s=time.perf_counter)

    meter = Meter(f"limits of {limit.name}", _SWEPT, watch)
    solution = solved(model, _SWEPT)
    meter.step()
    most = model.used(limit, solution.assignment)
    points, apart = [_point(solution, most)], 0.0
    for left in range(_SWEPT - 1, 0, -1) if most > 0 else ():
        at_most = most * left / _SWEPT
        try:
            solution = solved(replace(model, limits=(*model.limits, replace(limit, at_most=at_most))), left)
        except InfeasibleError:
            break
        meter.step()
        points.append(_point(solution, at_most))
        apart = max(apart, math.inf if solution.bound <= 0 < solution.value else solution.value / solution.bound - 1)
    meter.finish()
    return FrontDocument(
        certificate="exact" if apart <= 0 else {"epsilon": apart} if apart < math.inf else "heuristic",
        objectives=_objectives(model),
        swept=ObjectivePart(name=limit.name, unit=limit.unit),
        points=tuple(reversed(points)),
        seconds=time.perf_counter() - begin,
    )


def _point(solution: Solution, at_most: float) -> FrontPointPart:
    return FrontPointPart(assignment=solution.choices, code=decimal(solution.code), cost=solution.cost, at_most=at_most)


def _objectives(model: CostModel) -> tuple[ObjectivePart, ...]:
    return tuple(ObjectivePart(name=o.name, unit=o.unit) for o in model.objectives)


def _limited(model: CostModel, under: Mapping[str, float | str]) -> CostModel:
    """The model with further limits. UsageError for unknown names and for wrong units."""
    limits = list(model.limits)
    for place, most in under.items():
        name, _, choice = place.partition(":")
        limit = limit_on(model, name, [choice] if choice else [], 0.0)
        limits.append(replace(limit, at_most=quantity_in(place, most, limit.unit)))
    return replace(model, limits=tuple(limits)) if under else model


def front_problem(
    text: str | bytes,
    *,
    epsilon: float = 0.0,
    under: Mapping[str, float | str] = MappingProxyType({}),
    time_limit_s: float | None = None,
    watch: Callable[[Front], Any] | None = None,
) -> FrontDocument:
    """Read a problem and find its Pareto front or, if `epsilon` is above 0, points that cover it within 1 + `epsilon`.

    After `time_limit_s` the search ends with its results so far, and the certificate says what is proved. `watch`
    receives the fronts found on the way. Raises ProblemError for a malformed problem, InfeasibleError if no assignment
    is allowed, and UsageError for invalid options.
    """
    if time_limit_s is not None and not (math.isfinite(time_limit_s) and time_limit_s > 0):
        raise UsageError(f"the time limit is {time_limit_s} s", hint="Give a number of seconds above 0.")
    begin = time.perf_counter()
    model = _limited(read_problem(text), under)
    left_s = None if time_limit_s is None else lambda: time_limit_s - (time.perf_counter() - begin)
    front = exact_front(model, epsilon=epsilon, left_s=left_s, watch=watch)
    seconds = time.perf_counter() - begin
    return FrontDocument(
        certificate=front.certificate.document(),
        objectives=_objectives(model),
        points=tuple(
            FrontPointPart(
                assignment=tuple(model.space.names(point.assignment)),
                code=decimal(model.space.encode(point.assignment)),  # text: many JSON readers round large integers
                cost=point.cost,
            )
            for point in front.points
        ),
        seconds=seconds,
    )
