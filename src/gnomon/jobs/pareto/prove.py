"""The proof of `pareto`: points that the samples do not rule out are measured again side by side and compared.

Without a proof, the points are the samples. A point is chosen by its number or by bounds.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.sample import Run
from gnomon.errors import InfeasibleError, UsageError
from gnomon.jobs.pareto.document import Coded, PointPart, by_one_clock, point_part
from gnomon.jobs.pareto.search import spread
from gnomon.jobs.pareto.space import Sample
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import Clock
from gnomon.report import units
from gnomon.search.base import Assignment, Cost, Evaluation
from gnomon.session.contender import Contender
from gnomon.session.model_session import ModelSession
from gnomon.session.objectives import (
    GOALS,
    LATENCY,
    RELEVANT,
    Against,
    Estimate,
    Goal,
    against,
    cost_of,
    estimate,
    goal_of,
    goals_of,
)

MOST_SESSIONS = 3
"""The most sessions of the proof: if more points remain than fit, only representative points are measured."""

_CLOCKS: tuple[Clock, Clock] = ("cpu", "wall")

LookAgain = Callable[[Sequence[Sample]], Mapping[Assignment, Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The points to measure again, and counts of the others.

    `left_out` counts the results on the sampled front, or within noise of it, that did not fit. `behind` counts the
    results that are farther behind than the observed noise explains. `noise` is, for each clock and objective, the
    largest difference between two processes of the same assignment (0.02: 2 %); None if nothing was sampled twice.
    `sessions` is the number of sessions of the proof, 0 without a proof.
    """

    chosen: tuple[Sample, ...]
    left_out: int = 0
    behind: int = 0
    sessions: int = 0
    noise: Mapping[Clock, tuple[float, ...]] | None = None


def worth_proving(samples: Sequence[Sample], most: int, again: LookAgain | None = None) -> Worth:
    """The samples to measure again: all of them if they fit into one session (`most` at once).

    Otherwise, they are the sampled front, the single backends, and the results that may be behind only because of one
    unlucky process. A result is ruled out only by another that is ahead in *every* objective by more than the noise of
    that objective. The noise is estimated by sampling once more (with `again`, each in a fresh process): first the
    front, the single backends and the results next to them, then all results that this noise does not rule out, until
    none are left. The better of two samples counts. If the samples do not fit into one session, there are more
    sessions, up to `MOST_SESSIONS`; results that are only predicted get one session. If more samples remain than fit,
    those that represent the front come first, then single backends, then the samples nearest to the front. Of several
    samples of a single backend with different options, only the nearest one counts.
    """
    if len(samples) <= most:
        return Worth(chosen=tuple(sorted(samples, key=lambda s: s.wall)))
    best, looked = list(samples), set[int]()
    pairs: list[tuple[Sample, Sample]] = []
    while True:
        noise = _noise(pairs)
        front, behind = _standing(best, noise)
        order = sorted(range(len(best)), key=lambda k: (k not in front, behind[k]))
        singles = {best[k].single: k for k in reversed(order) if best[k].single is not None}.values()
        asked = {*front, *singles, *(k for k in order if behind[k] < 1), *order[:most]} - looked
        if again is None or not asked:
            break
        looked |= asked
        resampled = again([samples[k] for k in sorted(asked)])
        for k in asked:
            if (second := resampled.get(samples[k].assignment)) is not None:
                pairs.append((samples[k], second))
                best[k] = _better(samples[k], second)
    near = [k for k in order if k in front or behind[k] < 1]
    wanted = len({*near, *singles})
    sessions = -(-(wanted - 1) // (most - 1)) if again else 1
    room = 1 + (most - 1) * max(1, min(sessions, MOST_SESSIONS))  # the first sample is in all sessions
    chosen = _chosen(best, front, sorted(singles, key=order.index), near, room)
    left_out = len(set(near) - set(chosen))
    return Worth(
        chosen=tuple(sorted((samples[k] for k in chosen), key=lambda s: s.wall)),
        left_out=left_out,
        behind=len(samples) - len(chosen) - left_out,
        noise={clock: tuple(np.expm1(most).tolist()) for clock, most in noise.items()} or None,
    )


def _noise(pairs: Sequence[tuple[Sample, Sample]]) -> dict[Clock, Floats]:
    """The largest difference between two processes of an assignment: a log ratio for each objective, by clock."""
    costs: dict[Clock, list[tuple[Cost, Cost]]] = {
        "cpu": [(a.cpu, b.cpu) for a, b in pairs if a.cpu is not None and b.cpu is not None],
        "wall": [(a.wall, b.wall) for a, b in pairs],
    }
    logs = {clock: np.abs(np.diff([_logs(both) for both in rows], axis=1)) for clock, rows in costs.items() if rows}
    return {clock: differences.max(axis=(0, 1)) for clock, differences in logs.items()}


def _better(first: Sample, second: Sample) -> Sample:
    """The better of two samples in each objective, because disturbances only make a process slower."""
    both = None if first.cpu is None or second.cpu is None else tuple(map(min, first.cpu, second.cpu))
    return replace(first, wall=tuple(map(min, first.wall, second.wall)), cpu=both)


def _logs(costs: Sequence[Cost]) -> Floats:
    return np.log(np.maximum(np.array(costs, dtype=np.float64), 1e-300))  # an exact 0 is ahead of everything else


def _standing(samples: Sequence[Sample], noise: Mapping[Clock, Floats]) -> tuple[set[int], list[float]]:
    """The samples that no other dominates, and the distance by which each sample is behind.

    Noise cannot explain a distance of 1 or more. Two samples that both have a CPU time are compared by it, all other
    pairs by wall time. For each objective, the gain that would make a sample better than another by `RELEVANT` is
    divided by the objective's noise. The smallest quotient is the distance between the two, and a sample is behind by
    the largest of its distances.
    """
    tells = np.array([s.cpu is not None for s in samples])
    wall = _logs([s.wall for s in samples])
    cpu = _logs([s.cpu or s.wall for s in samples])
    dominated, behind = np.zeros(len(samples), dtype=bool), np.full(len(samples), -np.inf)
    # The lead in each objective that exceeds the noise; it is never below the smallest difference that counts.
    cpu_slack, wall_slack = (np.maximum(noise.get(clock, 0.0), math.log1p(RELEVANT)) for clock in _CLOCKS)
    for k in range(len(samples)):
        both = (tells & tells[k])[:, None]
        ahead = np.where(both, cpu - cpu[k], wall - wall[k])
        needed = ((ahead + math.log1p(RELEVANT)) / np.where(both, cpu_slack, wall_slack)).min(axis=1)
        needed[k] = -np.inf
        behind = np.maximum(behind, needed)
        dominated |= (ahead >= 0).all(axis=1) & (ahead > 0).any(axis=1)
    return set(np.flatnonzero(~dominated).tolist()), behind.tolist()


def _chosen(
    best: Sequence[Sample], front: set[int], singles: Sequence[int], near: Sequence[int], most: int
) -> list[int]:
    """At most `most` samples: representatives of the front, the single backends, the rest of the front, the nearest."""
    ends = sorted(front)
    room = max(most // 2, most - len(singles))
    uniform = all(best[k].cpu is not None for k in ends)
    costs = [(best[k].cpu if uniform else None) or best[k].wall for k in ends]
    first = [ends[i] for i in spread(costs, room)] if ends else []
    return list(dict.fromkeys([*first, *singles, *ends, *near]))[:most]


def measure_points(
    session: ModelSession, contenders: Sequence[Contender]
) -> tuple[dict[str, Measured], dict[str, Measured], int]:
    """Measure contenders interleaved in fresh processes, in several sessions if they do not all fit on the device.

    Returns the measurements by contender key, the same measurements converted to the speed of the first session (the
    first contender runs in all sessions), and the number of sessions.

    No contender is stopped early, because a front's slow points count as much as its fast ones. Proofs of other sets of
    contenders are not reused, because their runs were not measured side by side with these.
    """
    names = "\0".join(sorted(c.key for c in contenders))
    mark = hashlib.sha256(names.encode()).hexdigest()[:8]
    together = max(2, session.request.effort.together)
    effort = replace(session.request.effort, laggard=1e9, together=together)
    anchor, others = contenders[0], contenders[1:]
    sessions = -(-len(others) // (together - 1)) or 1
    session.runner.note("labels", {f"proof {mark}/{c.key}": c.label for c in contenders})
    measured: dict[str, Measured] = {}
    at_one_speed: dict[str, Measured] = {}
    for turn in range(sessions):
        named = {c.key: f"proof {mark}/{c.key}" for c in (anchor, *others[turn::sessions])}
        if turn:
            named[anchor.key] = f"proof {mark}, session {turn + 1}/{anchor.key}"
        candidates = [replace(c.candidate, key=named[c.key]) for c in (anchor, *others[turn::sessions])]
        outcomes = session.runner.measure("measure the front again", candidates, effort)
        now = outcomes[named[anchor.key]]
        ratio = _ratio(measured[anchor.key], now) if turn else {}
        for key in (key for key in named if key != anchor.key or not turn):
            measured[key], at_one_speed[key] = outcomes[named[key]], _scaled(outcomes[named[key]], ratio)
    return measured, at_one_speed, sessions


def _ratio(then: Measured, now: Measured) -> dict[tuple[int, Clock], float]:
    """The ratio of a contender's times in two sessions, for each process and clock."""
    speeds: dict[tuple[int, Clock], float] = {}
    for clock in _CLOCKS:
        first, second = ({b.process: b.values_s[0] for b in GOALS[LATENCY].processes(m, clock)} for m in (then, now))
        for process in first.keys() & second.keys():
            if first[process] > 0 and second[process] > 0:
                speeds[process, clock] = first[process] / second[process]
    return speeds


def _scaled(measured: Measured, speeds: Mapping[tuple[int, Clock], float]) -> Measured:
    def scaled(run: Run) -> Run:
        if run.samples is None:
            return run
        wall, cpu = speeds.get((run.process, "wall"), 1.0), speeds.get((run.process, "cpu"), 1.0)
        samples = replace(
            run.samples,
            wall_ns=tuple(round(ns * wall) for ns in run.samples.wall_ns),
            cpu_ns=tuple(round(ns * cpu) for ns in run.samples.cpu_ns),
        )
        return replace(run, samples=samples)

    return replace(measured, runs=tuple(map(scaled, measured.runs))) if speeds else measured


def decide(
    goals: Sequence[Goal], points: Sequence[PointPart], measured: Sequence[Measured], clocks: Sequence[Clock]
) -> list[PointPart]:
    """The points with the verdicts of the proof: estimates, which point surely dominates which, and ties.

    A point is dominated only by a point that is surely better in some objective, by more than 1 %, and in no objective
    surely worse, nor possibly worse by more than 1 %. The comparison must be sure for all points together, because
    among many equal points one always looks better than another. Two points that both have a CPU time (`clocks`) are
    compared by it, all other pairs by wall time. The points that are not dominated are the front, numbered in order of
    the first objective. The points are returned in this order, the front first.
    """
    alive = [k for k, outcome in enumerate(measured) if cost_of(goals, outcome, clocks[k]) is not None]
    versus: dict[tuple[int, int], list[Against]] = {}
    beaten: dict[int, list[int]] = {k: [] for k in alive}
    for a, b in itertools.permutations(alive, 2):
        clock: Clock = "cpu" if clocks[a] == clocks[b] == "cpu" else "wall"
        versus[a, b] = [against(goal, measured[a], measured[b], clock) for goal in goals]
        strict = [against(goal, measured[a], measured[b], clock, rivals=len(alive) - 1) for goal in goals]
        if dominates_surely(versus[a, b], strict):
            beaten[b].append(a)
    standing = front_of(beaten)
    differ = len({clocks[k] for k in alive}) > 1
    latency = next((goal for goal in goals if goal.name == LATENCY), None)
    decided = [replace(point, failure=outcome.failure) for point, outcome in zip(points, measured, strict=True)]
    for k in alive:
        others = [o for o in alive if o != k]
        decided[k] = replace(
            points[k],
            estimates=tuple(estimate(goal, measured[k], clocks[k]) for goal in goals),
            dominated_by=None if k in standing else next(o for o in beaten[k] if o in standing),
            ties=tuple(o for o in others if all(map(_same, versus[o, k]))),
            maybe_dominated_by=tuple(o for o in others if o not in beaten[k] and _may_dominate(versus[o, k])),
            beats=tuple(o for o in others if any(v.verdict == "better" for v in versus[k, o])),
            clock=clocks[k],
            wall=estimate(latency, measured[k], "wall") if differ and latency else None,
        )
    return _ordered(goals, decided, alive)


def front_of(beaten: Mapping[int, Sequence[int]]) -> set[int]:
    """The points that no point of the front dominates, given the points that dominate each.

    Because noise hides differences, dominance is not transitive: a point may be dominated only by points that are
    themselves dominated. If points dominate each other in a ring, the first of them stays.
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


def dominates_surely(compared: Sequence[Against], strict: Sequence[Against] | None = None) -> bool:
    """Return True if the noise leaves no doubt: surely better in some objective, and surely no worse in any.

    `strict` has the same comparisons, but by intervals that hold jointly for the comparisons with all points.
    """
    return any(v.verdict == "better" for v in strict or compared) and all(v.not_worse for v in compared)


def _may_dominate(compared: Sequence[Against]) -> bool:
    better = any(v.verdict == "better" for v in compared)
    return better and not any(v.surely_worse for v in compared)


def _same(compared: Against) -> bool:
    """Return True if the noise makes two points indistinguishable in an objective."""
    return compared.verdict == "tie" and compared.low <= 1 <= compared.high


def _ordered(goals: Sequence[Goal], decided: Sequence[PointPart], alive: Sequence[int]) -> list[PointPart]:
    """The front in order of its estimates, then the dominated points, then the failed ones, with adjusted indices."""
    names = [goal.name for goal in goals]

    def key(k: int) -> tuple[int, tuple[float, ...]]:
        values = tuple(e.value for e in by_one_clock(names, decided[k]))
        return (2 if k not in alive else 1 if decided[k].dominated_by is not None else 0), values

    order = sorted(range(len(decided)), key=key)
    place = {old: new for new, old in enumerate(order)}

    def placed(indices: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(place[o] for o in indices))

    return [
        replace(
            point,
            number=new + 1 if old in alive and point.dominated_by is None else None,
            dominated_by=None if point.dominated_by is None else place[point.dominated_by],
            ties=placed(point.ties),
            maybe_dominated_by=placed(point.maybe_dominated_by),
            beats=placed(point.beats),
        )
        for new, old in enumerate(order)
        for point in [decided[old]]
    ]


def sampled_points(front: Sequence[Evaluation], coded: Coded, clock: Clock | None = None) -> list[PointPart]:
    """The sampled front as points without intervals, for when nothing is measured again."""
    return [
        replace(
            point_part(coded, trial.assignment, trial.cost),
            estimates=tuple(Estimate(value=c, low=None, high=None) for c in trial.cost or ()),
            number=k + 1,
            clock=clock,
        )
        for k, trial in enumerate(front)
    ]


def enough(points: Sequence[PointPart]) -> PointPart | None:
    """The first single backend on the front that no mix on the front surely beats by more than 1 % in any objective.

    None if every single backend is beaten, or the front has no mix.
    """
    mixed = [p for p in points if p.number is not None and not p.single]
    plain = [k for k, p in enumerate(points) if p.number is not None and p.single]
    unbeaten = [points[k] for k in plain if not any(k in p.beats for p in mixed)]
    return unbeaten[0] if unbeaten and mixed else None


def check_bounds(objectives: Sequence[str], pick: int | None, under: Mapping[str, float]) -> None:
    """Raise UsageError for an invalid choice, before anything is measured."""
    if pick is not None and under:
        raise UsageError("--pick and --under cannot be combined", hint="Give --pick or --under.")
    if pick is not None and pick < 1:
        raise UsageError(f"there is no point {pick}", hint="Points are numbered from 1.")
    goals_of([*objectives, *under])
    for name in under:
        if name not in objectives:
            raise UsageError(
                f"{name!r} is not among the objectives ({', '.join(objectives)})", hint=f"Add --objective {name}."
            )


def choose(
    points: Sequence[PointPart], objectives: Sequence[str], pick: int | None, under: Mapping[str, float]
) -> PointPart | None:
    """The point with this number, or the fastest point under all bounds; None if none is requested.

    A point is under a bound if the upper end of its interval is or, without an interval, if its value is. The fastest
    point has the least latency, by wall time if the clocks of the points differ, or the least value of the first
    objective if latency is not an objective. UsageError for a number that does not exist, InfeasibleError if no point
    is under the bounds.
    """
    front = [p for p in points if p.number is not None]
    if pick is not None:
        for point in front:
            if point.number == pick:
                return point
        raise UsageError(
            f"the front has no point {pick}",
            hint=f"It has the points 1 to {len(front)}; the same command without --pick shows them.",
        )
    if not under:
        return None
    column = {name: k for k, name in enumerate(objectives)}

    def upper(point: PointPart, name: str) -> float:
        own = (point.estimates or ())[column[name]]
        return own.value if own.high is None else own.high

    fitting = [p for p in front if all(upper(p, name) <= bound for name, bound in under.items())]
    if not fitting:
        bounds = [f"{units.value(bound, goal_of(name).unit)} of {name}" for name, bound in under.items()]
        best = {name: min(upper(p, name) for p in front) for name in under}
        least = [f"{units.value(value, goal_of(name).unit)} of {name}" for name, value in best.items()]
        raise InfeasibleError(
            f"no point of the front is surely under {' and '.join(bounds)} (at best: {', '.join(least)})",
            hint="Raise the limits of --under, search longer with more --iterations, or add a --tuning that helps. "
            "The same command without --under shows the front.",
        )
    first = column.get(LATENCY, 0)
    return min(fitting, key=lambda p: by_one_clock(objectives, p)[first].value)
