"""The front of two objectives: supported points, then label passes below thresholds that fall with each point found.

For each case of charges, half-planes weights @ cost >= bounds hold what is not found yet. A pass finds all that lies
below any threshold, so that it raises the bounds to the thresholds. A first pass with low thresholds finds
points close to the hull cheaply; with them the thresholds of the second, which leaves nothing, are low. Where an
epsilon is enough, relaxed passes close single corners before (see docs/jobs/front.md).

Points of a front by weighted sums alone, where elimination or the sets of charges would grow too large.

Each is a run of `solve`, and its proven bound is a half-plane. What they prove together is a factor, never exactness.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gnomon.core.cost import Floats, Ints
from gnomon.core.front.dominance import covered, nondominated
from gnomon.core.front.labels import LabelPass, PlaneScreen, Stopped, Trimmer
from gnomon.core.front.plan import Plan, minimise_weighted
from gnomon.core.front.regions import (
    Hull,
    Proofs,
    Region,
    Regions,
    RelaxedPass,
    corners,
    end_factor,
    excess,
    open_regions,
    proven_factor,
    support,
)
from gnomon.core.front.search import BATCH_ENTRIES, Case, Search, ideal_factor, spread_weights
from gnomon.core.solver.solve import Solution, solve
from gnomon.errors import ProblemError

_FIRST_PASS = 0.1  # of the way from the bounds to the thresholds that leave nothing
_EASY_LABELS = 50_000  # more labels of the first pass say that exactness is far
_EASY_SUMS = 1 << 21  # and so do more sums
_FACTORS = (1.01, 1.0025)  # on the way to a far one
_POWERS = (64, 12, 3, 1)  # of the half of the factor asked for: how much is thinned on the way to it
_WIDEST = 1.5
_KEPT_LABELS = 2000  # a set of labels that is not thinned
_BOUND_ENTRIES = 1 << 25  # numbers of the bounds that a pass holds
_OLDEST = 9  # passes for one corner, each with half the width
_MOST_REGIONS = 400  # from here on one pass for all is better


class PlaneSearch:
    """Finds the front of a search of two objectives, case by case."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.plain = replace(search.model, charges=())
        self.scale: Floats = np.ones(2)
        self.slack = 0.0
        self.open: list[Proofs] = []

    def run(self, cases: list[Case], relaxed: Plan) -> float:
        """Search all cases; returns the factor within which the points found are proved to cover everything.

        `relaxed` is the plan without charges, whose bounds hold in every case. No points mean that nothing is allowed.
        """
        base = Case(plan=relaxed, charge=np.zeros(2))
        hull = self._supported(base, first=True)
        if hull is None:
            return 1.0
        self.open = [Proofs(base, hull.weights, hull.bounds)]
        if len(cases) == 1:
            self.search.show(self._factor())
        else:
            self.search.show(self._uncharged(hull))
            hulls = []
            for case in cases:
                if self.search.out_of_time():
                    return self._uncharged(hull)
                found = self._considered(case, hull)
                if found is not None:
                    hulls.append(found)
            self.open = hulls
            self.search.show(self._factor())
        try:
            self._passes()
        except Stopped:
            return self._factor()
        return min(self._factor(), self.search.factor)

    def _uncharged(self, hull: Hull) -> float:
        """The factor proved by bounds without charges: the least of each objective may cost more than they say."""
        sides = hull.weights[:2]
        slack = np.array([self.slack + self.search.slack(side) for side in sides])  # of the bounds, of what is compared
        ends = end_factor(self.search.costs, sides, hull.bounds[:2], slack)
        return max(self._factor(), ends)

    def _passes(self) -> None:
        """Close all cases; raises Stopped where that takes too long or too many labels."""
        search = self.search
        if search.factor > 1:
            self._within(search.factor)
            return
        try:
            self._each(_FIRST_PASS, _EASY_LABELS, _EASY_SUMS)
        except Stopped as stopped:
            if not stopped.room or not bool((search.costs > 0).all()):
                raise
            # Exactness is far: what is near is worth more until then.
            for factor in _FACTORS:
                self._within(factor)
        search.show(self._factor())
        self._each(1.0, search.limits.labels)

    def _within(self, goal: float) -> None:
        """Cover everything within a factor above 1, as far as that can be; raises Stopped."""
        if self._relax(goal):
            return
        half = float(np.sqrt(goal))
        for power in _POWERS:
            factor, scouts = self._factor(), power == max(_POWERS)
            # The first pass is for its points; a later one is only worth its time if it proves more.
            if factor > goal and half**power <= _WIDEST and (scouts or half ** (1 + power) < factor):
                self._near(half, half**power, goal)

    def _relax(self, factor: float) -> bool:
        """Relaxed passes for the corners that are not proved within a factor, until that pays no more; whether all are.

        Each corner's passes merge less and less.
        """
        for _ in range(_OLDEST):
            for entry in self.open:
                regions = open_regions(entry, corners(self.search.costs), factor, self.scale)
                if len(regions) > _MOST_REGIONS or bool((regions.ages >= _OLDEST).any()):
                    return False
                most = max(1, _BOUND_ENTRIES // (entry.case.plan.entries * regions.weights.shape[1]))
                for start in range(0, len(regions), most):
                    self._regions(entry, regions.part(start, start + most), factor)
            reached = self._factor()
            self.search.show(reached)
            if reached <= factor:
                return True
        return False

    def _regions(self, entry: Proofs, asked: Regions, factor: float) -> None:
        search, charge = self.search, entry.case.charge
        paid = asked.weights @ charge
        inner = replace(asked, thresholds=asked.thresholds - paid)
        relaxed = RelaxedPass(entry.case.plan, inner, self.slack, search.out_of_time)
        relaxed.run()
        costs = relaxed.costs() + charge
        fresh = np.flatnonzero(~covered(costs, search.costs))
        fresh = fresh[nondominated(costs[fresh])]
        if len(fresh):
            search.learn(relaxed.assignments(fresh))
        for i, left in enumerate(relaxed.left()):
            entry.regions.append(
                Region(
                    corner=asked.corners[i],
                    factor=factor,
                    weights=asked.weights[i],
                    left=left + paid[i] - self.slack,
                    age=int(asked.ages[i]),
                )
            )

    def _each(self, part: float, room: int, sums: float = math.inf) -> None:
        for entry in self.open:
            self._pass(entry, part, min(room, self.search.limits.labels), sums)

    def _near(self, near: float, thin: float, goal: float) -> None:
        """Passes after which all corners not proved within `goal` are within near * thin; labels are thinned."""
        for entry in self.open:
            reach = self._reach(entry, near, goal)
            proved = near
            if reach is not None:
                used, thresholds = reach
                trimmer = Trimmer(entry.case.plan, thin, _KEPT_LABELS, entry.case.charge)
                self._labels(entry, used, thresholds, self.search.limits.labels, trimmer)
                proved = near * float(np.exp(trimmer.spent))
            entry.proved = min(entry.proved, max(proved, goal))
        self.search.show(self._factor())

    def _factor(self) -> float:
        spots, worst = corners(self.search.costs), 1.0
        for entry in self.open:
            worst = max(worst, min(entry.proved, float(entry.factors(spots)[0].max(initial=1.0))))
        return worst

    def _ask(self, case: Case, weights: Floats) -> tuple[Floats, Floats, Ints]:
        step = max(1, BATCH_ENTRIES // max(1, case.plan.entries))
        bounds = np.full(len(weights), -np.inf)
        assignments = np.zeros((len(weights), len(case.plan.buckets)), dtype=np.intp)
        for i in range(0, len(weights), step):
            if i > 1 and self.search.out_of_time():
                break
            part = slice(i, i + step)
            minima, assignments[part] = minimise_weighted(case.plan, weights[part])
            bounds[part] = minima.value + weights[part] @ case.charge - self.slack
        allowed = np.isfinite(bounds)
        self.search.learn(assignments[allowed])
        costs = self.plain.evaluate(assignments) + case.charge
        costs[~allowed] = np.inf
        return bounds, costs, assignments

    def _supported(self, case: Case, *, first: bool = False) -> Hull | None:
        search = self.search
        if first:
            _, costs, _ = self._ask(case, np.eye(2))
            if not np.isfinite(costs).all():
                return None
            reach = np.abs(costs[0] - costs[1])
            exponents = np.round(np.log2(np.where(reach > 0, reach, 1.0)))
            self.scale = np.asarray(2.0 ** -np.clip(exponents, -900, 900))
            self.slack = search.slack(self.scale)

        def go_on(hull: Hull) -> bool:
            if search.out_of_time() or len(hull.weights) >= search.limits.weightings:
                return False
            return search.factor == 1 or proven_factor(search.costs, hull.weights, hull.bounds) > search.factor

        return support(lambda w: self._ask(case, w), self.scale, 2 * self.slack, go_on, search.factor)

    def _considered(self, case: Case, hull: Hull) -> Proofs | None:
        """The case with its own half-planes, or the hull's weightings' where they leave nothing; None: impossible."""
        bounds, _, _ = self._ask(case, hull.weights)
        if bool((bounds == np.inf).any()):
            return None
        bounds = np.maximum(bounds, hull.bounds)  # those of all cases together hold, too
        spots = corners(self.search.costs) / self.search.factor
        if not np.isfinite(self._thresholds(hull.weights, bounds, spots)).any():
            return Proofs(case, hull.weights, bounds)
        own = self._supported(case)
        if own is None:
            return None
        if self.search.out_of_time():
            weights = np.concatenate([own.weights, hull.weights])
            return Proofs(case, weights, np.concatenate([own.bounds, bounds]))
        return Proofs(case, own.weights, own.bounds)

    def _thresholds(self, weights: Floats, bounds: Floats, spots: Floats) -> Floats:
        """For each weighting the largest weighted spot that it sees to, -inf where it sees to none."""
        found = np.full(len(weights), -np.inf)
        step = max(1, BATCH_ENTRIES // max(1, len(weights)))
        for start in range(0, len(spots), step):
            part = spots[start : start + step]
            over = excess(part, weights, bounds)
            nearest = over.argmin(axis=1)
            left = over[np.arange(len(part)), nearest] > 0
            nearest, part = nearest[left], part[left]
            np.maximum.at(found, nearest, (weights[nearest] * part).sum(axis=1))
        return found

    def _reach(self, entry: Proofs, factor: float, goal: float) -> tuple[Ints, Floats] | None:
        """The weightings to use, as numbers, and their thresholds; None where all corners are closed.

        Corners count that are not proved within `goal`, divided by `factor`.
        """
        spots = corners(self.search.costs)
        spots = spots[entry.factors(spots)[0] > goal] / factor
        full = self._thresholds(entry.weights, entry.bounds, spots)
        used = np.flatnonzero(full > -np.inf)
        most = max(2, _BOUND_ENTRIES // max(1, entry.case.plan.entries))
        if len(used) > most:
            used = used[np.unique(np.linspace(0, len(used) - 1, most).round().astype(np.intp))]
            full[used] = self._thresholds(entry.weights[used], entry.bounds[used], spots)
            used = used[full[used] > -np.inf]
        return (used, full[used]) if len(used) else None

    def _pass(self, entry: Proofs, part: float, room: int, sums: float) -> None:
        """Find all that lies below thresholds a part of the way up; the bounds rise to them. Stopped: time is over."""
        self.search.in_time()
        reach = self._reach(entry, self.search.factor, self.search.factor)
        if reach is None:
            return
        used, thresholds = reach
        bounds = entry.bounds[used]
        if part < 1:
            thresholds = bounds + part * (thresholds - bounds)
        self._labels(entry, used, thresholds, room, None, sums)
        entry.bounds = entry.bounds.copy()
        entry.bounds[used] = np.maximum(bounds, thresholds)

    def _labels(
        self,
        entry: Proofs,
        used: Ints,
        thresholds: Floats,
        room: int,
        trimmer: Trimmer | None,
        sums: float = math.inf,
    ) -> None:
        search, plan, weights = self.search, entry.case.plan, entry.weights[used]
        search.in_time()
        minima, _ = minimise_weighted(plan, weights)
        search.in_time()
        screen = PlaneScreen(plan, minima, thresholds - weights @ entry.case.charge, self.scale, self.slack)
        labels = LabelPass(plan, screen, room=room, sums=sums, out_of_time=search.out_of_time, trimmer=trimmer)
        search.learn(labels.run())


_LEAST_S = 1e-3
_SHARE = 0.25  # of the time that is left, for one minimum
_TOLERANCE = 2e-6  # HiGHS is content with a gap of half of this, of the range of the weighted sum


def search_wide(search: Search) -> float:
    """Find points by weighted sums; returns the factor within which they are proved to cover everything."""
    count = len(search.model.objectives)
    ideal = np.full(count, -np.inf)
    for unit in np.eye(count):
        found = _minimum(search, unit)
        if found is not None:
            ideal[unit.argmax()] = found.bound
        if search.out_of_time() and len(search.costs):
            return _never_exact(ideal_factor(search.costs, ideal))
    reach = search.costs.max(axis=0) - search.costs.min(axis=0) if len(search.costs) else np.ones(count)
    scale: Floats = np.asarray(1.0 / np.where(reach > 0, reach, 1.0))
    if count == 2:
        return _plane(search, scale)
    for weights in spread_weights(scale, count):
        if search.out_of_time():
            break
        _minimum(search, weights)
    return _never_exact(ideal_factor(search.costs, ideal))


def _never_exact(factor: float) -> float:
    """A factor of 1 from bounds within a tolerance would be a claim of exactness."""
    return max(factor, 1.0 + _TOLERANCE)


def _minimum(search: Search, weights: Floats) -> Solution | None:
    """The minimum, also learnt; None where HiGHS found nothing in time. InfeasibleError is the caller's."""
    names = (objective.name for objective in search.model.objectives)
    limit_s, left_s = search.limits.milp_s, search.left_s
    if left_s is not None:
        limit_s = max(min(limit_s, _SHARE * left_s()), _LEAST_S)
    clock_s = None if left_s is None else lambda: -left_s()
    weighted = dict(zip(names, weights.tolist(), strict=True))
    try:
        found = solve(search.model, weighted, time_limit_s=limit_s, clock_s=clock_s)
    except ProblemError as error:
        if type(error) is not ProblemError:
            raise
        return None
    search.learn(np.array([found.assignment], dtype=np.intp))
    return found


def _plane(search: Search, scale: Floats) -> float:
    def ask(weights: Floats) -> tuple[Floats, Floats, Ints]:
        bounds = np.full(len(weights), -np.inf)
        costs = np.full((len(weights), 2), np.inf)
        assignments = np.zeros((len(weights), len(search.model.space.slots)), dtype=np.intp)
        for i, row in enumerate(weights):
            found = None if search.out_of_time() else _minimum(search, row)
            if found is not None:
                loose = _TOLERANCE if found.method == "milp" else search.slack(row)
                bounds[i], costs[i], assignments[i] = found.bound - loose, found.cost, found.assignment
        return bounds, costs, assignments

    def factor(hull: Hull) -> float:
        # A time limit of HiGHS may have left the ends open.
        ends = end_factor(search.costs, hull.weights[:2], hull.bounds[:2], 2 * _TOLERANCE)
        return max(proven_factor(search.costs, hull.weights, hull.bounds), ends)

    def go_on(hull: Hull) -> bool:
        if search.out_of_time() or len(hull.weights) >= search.limits.weightings:
            return False
        proved = factor(hull)
        search.show(_never_exact(proved))
        return search.factor == 1 or proved > search.factor

    hull = support(ask, scale, _TOLERANCE, go_on, search.factor)
    if hull is None:
        return float("inf")
    return _never_exact(factor(hull))
