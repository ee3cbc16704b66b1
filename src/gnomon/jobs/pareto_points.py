"""The points of `pareto`'s front: made from samples where nothing is proved, and chosen from by number or bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gnomon.errors import InfeasibleError, UsageError
from gnomon.jobs.objectives import GOALS, LATENCY, Estimate, goals_of
from gnomon.jobs.pareto_prove import Point, by_one_clock
from gnomon.measure.clock import Clock
from gnomon.report import units
from gnomon.search.base import Assignment, Told


def sampled_points(
    front: Sequence[Told],
    code: Callable[[Assignment], int],
    label: Callable[[Assignment], str],
    clock: Clock | None = None,
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
            clock=clock,
        )
        for k, told in enumerate(front)
    ]


def enough(points: Sequence[Point]) -> Point | None:
    """The first single backend on the front that no mix there is surely better than, by more than 1 % in anything.

    None where there is none, and where the front has no mix.
    """
    mixed = [p for p in points if p.number is not None and not p.single]
    plain = [k for k, p in enumerate(points) if p.number is not None and p.single]
    found = [points[k] for k in plain if not any(k in p.beats for p in mixed)]
    return found[0] if found and mixed else None


def check_bounds(objectives: Sequence[str], pick: int | None, under: Mapping[str, float]) -> None:
    """UsageError for a choice that cannot be meant, before anything is measured."""
    if pick is not None and under:
        raise UsageError("a point is picked by its number or by a bound, not both", hint="Give --pick or --under.")
    if pick is not None and pick < 1:
        raise UsageError(f"there is no point {pick}", hint="Points are numbered from 1.")
    goals_of([*objectives, *under])
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
    latency, by wall time where the clocks of the points differ, or in the first objective without a latency. UsageError
    for a number that there is not, InfeasibleError where no point is under the bounds.
    """
    front = [p for p in points if p.number is not None]
    if pick is not None:
        for point in front:
            if point.number == pick:
                return point
        raise UsageError(
            f"the front has no point {pick}",
            hint=f"It has 1 to {len(front)}; the same command without --pick shows them.",
        )
    if not under:
        return None
    column = {name: k for k, name in enumerate(objectives)}

    def upper(point: Point, name: str) -> float:
        found = (point.estimates or ())[column[name]]
        return found.value if found.high is None else found.high

    fitting = [p for p in front if all(upper(p, name) <= bound for name, bound in under.items())]
    if not fitting:
        told = [f"{name} of {_text(name, bound)}" for name, bound in under.items()]
        least = [f"{_text(name, min(upper(p, name) for p in front))} of {name}" for name in under]
        raise InfeasibleError(
            f"no point of the front is surely under {' and '.join(told)} (the least: {', '.join(least)})",
            hint="Loosen --under, search on with more --iterations, or add an --option that saves it. "
            "The same command without --under shows the front.",
        )
    first = column.get(LATENCY, 0)
    return min(fitting, key=lambda p: by_one_clock(objectives, p)[first].value)


def _text(name: str, value: float) -> str:
    """A value of an objective in its unit, for people."""
    written = {"s": units.time, "B": _size, "J": units.energy}
    return written.get(GOALS[name].unit, units.small)(value)


def _size(size_bytes: float | None) -> str:
    """MiB; bytes where those are too few for it."""
    return units.mebibytes(size_bytes) if size_bytes is None or size_bytes >= 2**16 else f"{size_bytes:.0f} B"
