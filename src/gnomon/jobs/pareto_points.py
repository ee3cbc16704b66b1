"""The points of `pareto`'s front: made from samples where nothing is proved, and chosen from by number or bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gnomon.errors import InfeasibleError, UsageError
from gnomon.jobs.objectives import LATENCY, Estimate
from gnomon.jobs.pareto_prove import Point
from gnomon.search.base import Assignment, Told


def sampled_points(
    front: Sequence[Told], code: Callable[[Assignment], int], label: Callable[[Assignment], str]
) -> list[Point]:
    """The sampled front itself, where nothing is measured again: values without intervals."""
    return [
        Point(
            assignment=told.assignment,
            code=code(told.assignment),
            label=label(told.assignment),
            contender=None,
            sampled=told.cost,
            estimates=tuple(Estimate(value=c, low=None, high=None) for c in told.cost or ()),
            number=k + 1,
        )
        for k, told in enumerate(front)
    ]


def check_bounds(objectives: Sequence[str], pick: int | None, under: Mapping[str, float]) -> None:
    """UsageError for a choice that cannot be meant, before anything is measured."""
    if pick is not None and under:
        raise UsageError("a point is picked by its number or by a bound, not both", hint="Give --pick or --under.")
    if pick is not None and pick < 1:
        raise UsageError(f"there is no point {pick}", hint="Points are numbered from 1.")
    for name in under:
        if name not in objectives:
            raise UsageError(
                f"{name!r} is no objective here", hint=f"Add --objective {name}; there are: {', '.join(objectives)}."
            )


def choose(
    points: Sequence[Point], objectives: Sequence[str], pick: int | None, under: Mapping[str, float]
) -> Point | None:
    """The point of that number, or the fastest one under all bounds; None where none is asked for.

    A point is under a bound if the upper end of its interval is, or its value where it has none. "Fastest" is least in
    latency, or in the first objective without one. UsageError for a number that there is not, InfeasibleError where no
    point is under the bounds.
    """
    front = [p for p in points if p.number is not None]
    if pick is not None:
        for point in front:
            if point.number == pick:
                return point
        raise UsageError(f"the front has no point {pick}", hint=f"It has 1 to {len(front)}.")
    if not under:
        return None
    column = {name: k for k, name in enumerate(objectives)}

    def upper(point: Point, name: str) -> float:
        found = (point.estimates or ())[column[name]]
        return found.value if found.high is None else found.high

    fitting = [p for p in front if all(upper(p, name) <= bound for name, bound in under.items())]
    if not fitting:
        least = "; ".join(f"the least {name} is {min(upper(p, name) for p in front):.6g}" for name in under)
        raise InfeasibleError(
            f"no point of the front is surely under the bounds ({least}, in seconds or bytes)",
            hint="Loosen --under, search on with more --iterations, or add an --option that saves it.",
        )
    first = column.get(LATENCY, 0)
    return min(fitting, key=lambda p: (p.estimates or ())[first].value)
