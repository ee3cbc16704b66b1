"""The proof of `pareto`: the points of a sampled front measured again side by side, and what that says of each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnomon.core.dominance import nondominated
from gnomon.core.sample import Failure
from gnomon.jobs.contender import Contender, choose_clock
from gnomon.jobs.lab import Lab
from gnomon.jobs.objectives import Against, Estimate, Goal, against, estimate
from gnomon.jobs.pareto_search import spread
from gnomon.measure.campaign import Measured
from gnomon.measure.clock import Clock
from gnomon.search.base import Assignment, Cost, Told

SLACK = 0.02
"""How far a sampled point may lie behind the sampled front, in every objective, to be measured again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of the front, or one that was measured beside it.

    `number` counts the front's points from 1, None for others. `estimates` has one an objective; None where the point
    failed in the proof. `dominated_by` is the index, among all points of the proof, of one that surely dominates it.
    `ties` are the indices of points that the noise does not tell it from in any objective. `maybe` are those that may
    dominate it: better somewhere, and nowhere surely worse. `beats` are those than which it is surely better in an
    objective. `single` says that one backend takes all that it can.
    """

    assignment: Assignment
    code: int
    label: str
    contender: Contender | None
    sampled: Cost | None
    estimates: tuple[Estimate, ...] | None
    failure: Failure | None = None
    number: int | None = None
    dominated_by: int | None = None
    ties: tuple[int, ...] = ()
    maybe: tuple[int, ...] = ()
    beats: tuple[int, ...] = ()
    single: bool = False


def worth_proving(told: Sequence[Told], most: int) -> tuple[tuple[Told, ...], int]:
    """The results to measure again: the sampled front and what lies within noise of it; and how many are left out.

    A result is left out if another is nowhere behind it and more than `SLACK` ahead of it somewhere. If there are more
    than `most`, those that stand for all are chosen, the front's own first.
    """
    alive = [t for t in told if t.cost is not None]
    costs = [t.cost or () for t in alive]
    if not alive:
        return (), 0
    table = np.array(costs)
    front = [int(i) for i in nondominated(table)]
    behind = np.zeros(len(table), dtype=bool)
    for row in table[front]:
        behind |= (row <= table).all(axis=1) & (row * (1 + SLACK) < table).any(axis=1)
    on_front = set(front)
    near = [int(i) for i in np.flatnonzero(~behind) if int(i) not in on_front]
    chosen = [front[k] for k in spread([costs[i] for i in front], most)]
    if most > len(chosen) and near:
        chosen += [near[k] for k in spread([costs[i] for i in near], most - len(chosen))]
    chosen.sort(key=lambda i: costs[i])
    return tuple(alive[i] for i in chosen), len(front) + len(near) - len(chosen)


def measure_points(lab: Lab, contenders: Sequence[Contender]) -> tuple[dict[str, Measured], Clock]:
    """Measure them interleaved in fresh processes; by contender's key, and the clock that decides.

    All of them together: a front's slow points count as much as its fast ones. What was proved as another set is not
    reused, as its runs did not stand side by side with these.
    """
    names = "\0".join(sorted(c.key for c in contenders))
    mark = hashlib.sha256(names.encode()).hexdigest()[:8]
    renamed = {c.key: replace(c.candidate, key=f"proof {mark}/{c.key}") for c in contenders}
    effort = replace(lab.request.effort, laggard=1e9, together=max(len(contenders), 1))
    lab.runner.note("labels", {renamed[c.key].key: c.label for c in contenders})
    measured = lab.runner.measure("measure the front again", list(renamed.values()), effort)
    results = {c.key: measured[renamed[c.key].key] for c in contenders}
    return results, choose_clock(lab, results.values())


def decide(
    goals: Sequence[Goal], points: Sequence[Point], measured: Mapping[str, Measured], clock: Clock
) -> list[Point]:
    """What the proof says of each point: estimates, who surely dominates whom, and ties.

    A point is dominated only by one that is surely no worse in any objective (by more than 1 %) and surely better in
    one. The others are the front, numbered by rising first objective. The points come in that order, the front first.
    """
    found = [measured[p.contender.key] if p.contender else None for p in points]
    alive = [k for k, m in enumerate(found) if m is not None and m.ok and _complete(goals, m, clock)]
    versus: dict[tuple[int, int], list[Against]] = {}
    for a in alive:
        for b in alive:
            first, second = found[a], found[b]
            if a != b and first is not None and second is not None:
                versus[a, b] = [against(goal, first, second, clock) for goal in goals]
    beaten = {k: [o for o in alive if o != k and dominates_surely(versus[o, k])] for k in alive}
    standing = front_of(beaten)
    made: dict[int, Point] = {}
    for k, point in enumerate(points):
        known = found[k]
        if k not in alive or known is None:
            made[k] = replace(point, failure=known.failure if known else None)
            continue
        made[k] = replace(
            point,
            estimates=tuple(estimate(goal, known, clock) for goal in goals),
            dominated_by=None if k in standing else next(o for o in beaten[k] if o in standing),
            ties=tuple(o for o in alive if o != k and all(v.verdict == "tie" for v in versus[o, k])),
            maybe=tuple(o for o in alive if o != k and _may_dominate(versus[o, k])),
            beats=tuple(o for o in alive if o != k and any(v.verdict == "better" for v in versus[k, o])),
        )
    return _ordered(made, alive)


def front_of(beaten: Mapping[int, Sequence[int]]) -> set[int]:
    """The points that no point of the front dominates, from who dominates each.

    As less than 1 % is no difference, to dominate is not transitive: a point that one of the dominated dominates may
    be far from the front's own. Where points dominate each other in a ring, the first of them stays.
    """
    standing: set[int] = set()
    undecided = dict(beaten)
    while undecided:
        off = {k for k, others in undecided.items() if standing.intersection(others)}
        on = [k for k, others in undecided.items() if k not in off and not undecided.keys() & set(others) - off]
        if not off and not on:
            on = [next(iter(undecided))]
        standing.update(on if not off else ())
        for k in off or on:
            del undecided[k]
    return standing


def dominates_surely(compared: Sequence[Against]) -> bool:
    """Whether the noise leaves no doubt: surely better in an objective, and surely no worse in any."""
    return any(v.verdict == "better" for v in compared) and all(v.not_worse for v in compared)


def _may_dominate(compared: Sequence[Against]) -> bool:
    told = {v.verdict for v in compared}
    return "better" in told and "worse" not in told and not dominates_surely(compared)


def _complete(goals: Sequence[Goal], measured: Measured, clock: Clock) -> bool:
    return all(goal.value(measured, clock) is not None for goal in goals)


def _ordered(made: Mapping[int, Point], alive: Sequence[int]) -> list[Point]:
    """The front by rising estimates, then the dominated, then what failed; indices follow the points."""

    def key(k: int) -> tuple[int, tuple[float, ...]]:
        point = made[k]
        values = tuple(e.value for e in point.estimates or ())
        return (2 if k not in alive else 1 if point.dominated_by is not None else 0), values

    order = sorted(made, key=key)
    place = {old: new for new, old in enumerate(order)}
    points = []
    for new, old in enumerate(order):
        point = made[old]
        on_front = old in alive and point.dominated_by is None
        points.append(
            replace(
                point,
                number=new + 1 if on_front else None,
                dominated_by=None if point.dominated_by is None else place[point.dominated_by],
                ties=tuple(sorted(place[o] for o in point.ties)),
                maybe=tuple(sorted(place[o] for o in point.maybe)),
                beats=tuple(sorted(place[o] for o in point.beats)),
            )
        )
    return points
