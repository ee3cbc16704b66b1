"""The front of two objectives: label sets find all points in the triangles between neighbours on the hull.

A vector that no point covers lies below a corner of the points' staircase, and above the hull's line. A pass takes the
corners of each triangle as one region, and finds everything below them. A first pass searches close to the hull,
because points there leave less room for the rest.

If that takes too many labels, or if only a front within an epsilon was asked for, labels that differ little are merged
into one that takes the smaller bound under each weighting, as in relaxed decision diagrams (Bergman, Cire, van Hoeve
and Hooker, "Decision Diagrams for Optimization", 2016). The labels that remain at the end bound the vectors that may
still lie below the corners, and each label leads to a point. These points move corners down, and the part that is still
open is searched again with less merging (see docs/jobs/front.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints, OutOfTime
from gnomon.core.front.dominance import covered, nondominated
from gnomon.core.front.hull import Hull, corners, end_factor, least_factors, plane_factors, proven_factor, support
from gnomon.core.front.labels import Budget, LabelPass, Labels, TooMany, falling, starts_of
from gnomon.core.front.plan import Plan, minimise_weighted
from gnomon.core.front.search import BATCH_ENTRIES, Case, Search

_BOUND_ENTRIES = 1 << 25  # the numbers in memory for the bounds of a pass
_LABELS = 40_000  # if a bucket has more labels than this, they are merged

# The weightings that bound labels, besides the objectives themselves, as multiples of the ratio of a region's own
# weighting. Labels are merged by the two weightings after the first.
_EXACT_RATIOS = (1.0, 1 / 2, 2.0)
_MERGED_RATIOS = ((1.0, 1 / 2, 2.0, 1 / 8, 8.0), (1.0, 2 / 3, 3 / 2, 1 / 4, 4.0))  # passes alternate
_MOST_RATIO = 1e9

_NEAR_HULL = 0.1  # the part of the way from the hull to the corners that a first exact pass searches
_EASY_LABELS = 1_500_000  # with more labels in the first exact passes, exactness is far away
_FACTORS = (1.01, 1.0025)  # on the way to exactness
_PASSES = 9  # for each of these factors
_PARTED_LABELS = 250_000  # with more labels, a later exact pass halves its regions; grows eightfold each time
_ROUNDS = 4  # the maximum number of rounds of merging until a set is small enough
_BESIDE = 3  # neighbours with which a merged label is compared
_TOGETHER = 0.2  # times (factor - 1): corners that lie closer together than this make one region
_WIDTH = 0.5  # times (factor - 1): labels that differ by less are merged; the width halves with each pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """What a pass leaves open below some corners (N, 2): bounds (labels, K) on the costs under weightings (K, 2).

    A vector that was not found and lies below one of the corners divided by `factor` costs at least the bounds of one
    of the labels.
    """

    corners: Floats
    factor: float
    weights: Floats
    left: Floats

    def within(self, spots: Floats) -> Ints:
        """The indices of the given corners (N, 2) of a front that lie below one of the region's corners."""
        start = np.searchsorted(-spots[:, 1], -self.corners[0, 1])
        stop = np.searchsorted(spots[:, 0], self.corners[-1, 0], "right")
        return np.asarray(start + np.flatnonzero(covered(-spots[start:stop], -self.corners)))

    def factors(self, spots: Floats) -> Floats:
        """The factor (N,) that is proved for each given corner (N, 2), all of which must be `within` the region."""
        proved = np.full(len(spots), self.factor)
        reached = spots @ self.weights.T
        for bounds in self.left:  # each label must be excluded by one of its bounds
            np.maximum(proved, least_factors(reached, bounds).min(axis=1), out=proved)
        return proved

    def next_weighting(self, spot: Floats) -> Floats:
        """The weighting half-way from the main weighting to the mix that comes closest to excluding the worst label."""
        mixes = self.weights[:-2]
        shares = self.left[:, :-2] / np.maximum(mixes @ spot, np.finfo(np.float64).tiny)
        worst = shares[shares.max(axis=1).argmin()]
        return np.asarray(np.sqrt(mixes[0] * mixes[worst.argmax()]))


@dataclass(slots=True)
class Proofs:
    """The proofs of a case: half-planes weights (W, 2) @ cost >= bounds (W,), and regions."""

    case: Case
    weights: Floats
    bounds: Floats
    regions: list[Region] = field(default_factory=list)

    def factors(self, spots: Floats) -> Floats:
        """The factor (N,) proved for each corner (N, 2)."""
        proved = plane_factors(spots, self.weights, self.bounds)
        for region in self.regions:
            inside = region.within(spots)
            proved[inside] = np.minimum(proved[inside], region.factors(spots[inside]))
        return proved

    def tightest(self, spots: Floats) -> Ints:
        """The index (N,) of the half-plane that each corner (N, 2) exceeds least."""
        return np.asarray((spots @ self.weights.T - self.bounds).argmin(axis=1))

    def weighting(self, spot: Floats) -> Floats:
        """The weighting for a search below a corner (2,)."""
        for region in reversed(self.regions):
            if len(region.left) and len(region.within(spot[None])):
                return region.next_weighting(spot)
        return np.asarray(self.weights[self.tightest(spot[None])[0]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The aim of a pass: everything that is not covered within `factor`, or the `part` of it that is close to the hull.

    An exact pass, for a factor of 1, keeps at most `labels` labels. If there are more, its regions are searched in
    halves if `parted`, and otherwise skipped. Any other pass merges the labels of a bucket that has more than `labels`;
    its `age` counts the earlier passes for the same factor.
    """

    factor: float
    labels: int
    part: float = 1.0
    parted: bool = False
    age: int = 0


def _steps(factor: float) -> Iterator[Step]:
    """The steps of a search until a factor is reached."""
    if factor > 1:
        yield from (Step(factor=factor, labels=_LABELS << age, age=age) for age in count())
    yield from (Step(factor=1.0, labels=_EASY_LABELS, part=part) for part in (_NEAR_HULL, 1.0))
    for near in _FACTORS:
        yield from (Step(factor=near, labels=_LABELS, age=age) for age in range(_PASSES))
    yield from (Step(factor=1.0, labels=_PARTED_LABELS * 8**power, parted=True) for power in count())


class ExactPass(LabelPass):
    """A pass that finds everything that costs less than its region's limits, for two objectives.

    Raises TooMany if there are more than `most` labels, or far more sums than that.
    """

    def reduced(self, labels: Labels, groups: Ints) -> Labels:
        """The staircase of nondominated labels of each group."""
        if not len(groups):
            return labels
        x, y = labels.costs
        order = np.lexsort((y, x, groups))
        kept = order[falling(y[order], groups[order])]
        if self.count + len(kept) > self.budget.most:
            raise TooMany
        return labels.take(kept)

    def fewer(self, labels: Labels, groups: Ints, most: int) -> Labels:
        """Raise TooMany, because an exact pass cannot drop labels."""
        raise TooMany


class MergingPass(LabelPass):
    """A pass that bounds everything that costs less than its region's limits, and finds some of it.

    It merges labels whose differences between the bounds under weightings 2 and 1 lie within their region's `width`
    (R,) of each other. If a bucket has more than `most` labels, the width grows.
    """

    def __init__(self, plan: Plan, weights: Floats, limits: Floats, width: Floats, budget: Budget) -> None:
        super().__init__(plan, weights, limits, budget)
        self.width = width

    def reduced(self, labels: Labels, groups: Ints) -> Labels:
        """The labels merged until there are few enough."""
        return self.fewer(labels, groups, self.budget.most)

    def fewer(self, labels: Labels, groups: Ints, most: int) -> Labels:
        """The labels merged until about `most` are left, without dominated labels."""
        if not len(groups):
            return labels
        width = self.width[labels.region]
        place, bounds = _merged(labels.bounds, groups, width)
        for _ in range(_ROUNDS):
            kept = np.flatnonzero(_undominated(bounds, groups[place]))
            place, bounds = place[kept], bounds[:, kept]
            if len(place) <= most:
                break
            inner = groups[place]
            starts = starts_of(inner)
            counts = np.diff(np.append(starts, len(inner)))
            share = np.maximum(2.0, counts * (most / len(inner)))
            apart = bounds[2] - bounds[1]
            reach = np.maximum.reduceat(apart, starts) - np.minimum.reduceat(apart, starts)
            wide = np.repeat(np.where(counts > share, reach / (share - 1), 0.0), counts)
            fewer, bounds = _merged(bounds, inner, np.maximum(width[place], wide))
            place = place[fewer]
        return labels.take(place, bounds)


def _merged(bounds: Floats, groups: Ints, width: Floats) -> tuple[Ints, Floats]:
    """Merge the labels of each cell: the index of the label with the least main bound, and the least of each bound.

    Cells have a width, and are counted from each group's least difference, so that a shift of a whole group changes
    nothing.
    """
    apart = bounds[2] - bounds[1]
    starts = starts_of(groups)
    apart -= np.repeat(np.minimum.reduceat(apart, starts), np.diff(np.append(starts, len(groups))))
    cells = np.arange(len(groups), dtype=np.float64)
    np.floor_divide(apart, width, out=cells, where=width > 0)
    order = np.lexsort((bounds[0], cells, groups))
    groups, cells, bounds = groups[order], cells[order], bounds[:, order]
    begin = np.ones(len(groups), dtype=bool)
    begin[1:] = (groups[1:] != groups[:-1]) | (cells[1:] != cells[:-1])
    if begin.all():
        return order, bounds
    starts = np.flatnonzero(begin)
    return order[starts], np.minimum.reduceat(bounds, starts, axis=1)


def _undominated(bounds: Floats, groups: Ints) -> NDArray[np.bool_]:
    """A mask of the labels that no label a few places away dominates; the labels are in order of group and difference.

    Dominance is transitive, so one of the labels that dominate a dropped label is kept.
    """
    drop = np.zeros(len(groups), dtype=bool)
    for step in range(1, min(_BESIDE, len(groups) - 1) + 1):
        same = groups[step:] == groups[:-step]
        low, high = bounds[:, :-step], bounds[:, step:]
        after = (low <= high).all(axis=0) & same
        drop[step:] |= after
        drop[:-step] |= (high <= low).all(axis=0) & same & ~after
    return ~drop


def _runs(entry: Proofs, spots: Floats, factor: float) -> list[Floats]:
    """The corners (N, 2) in order, split where the tightest half-plane changes, or where corners lie far apart."""
    tight, near = entry.tightest(spots), 1 + _TOGETHER * (factor - 1)
    runs: list[Floats] = []
    first = 0
    for i in range(1, len(spots) + 1):
        parted = i == len(spots) or tight[i] != tight[first]
        if not parted and factor > 1:
            reach = spots[[first, i]]  # the first corner has the least first cost and the greatest second cost
            parted = bool((reach.max(axis=0) > near * reach.min(axis=0)).any())
        if parted:
            runs.append(spots[first:i])
            first = i
    return runs


class TriangleSearch:
    """The search for the front of two objectives, case by case."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.plain = replace(search.model, charges=())
        self.scale: Floats = np.ones(2)
        self.slack = 0.0
        self.open: list[Proofs] = []

    def run(self, cases: list[Case], relaxed: Plan) -> float:
        """Search all cases, and return the factor within which the points found are proved to cover everything.

        `relaxed` is the plan without charges, whose bounds hold in every case. If no points are found, no assignment is
        allowed.
        """
        base = Case(plan=relaxed, charge=np.zeros(2))
        _, ends = self._ask(base, np.eye(2))
        if not np.isfinite(ends).all():
            return 1.0
        reach = np.abs(ends[0] - ends[1])
        exponents = np.round(np.log2(np.where(reach > 0, reach, 1.0)))
        self.scale = np.asarray(2.0 ** -np.clip(exponents, -900, 900))
        self.slack = self.search.slack(self.scale)
        hull = self._supported(base)
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
                proofs = self._considered(case, hull)
                if proofs is not None:
                    hulls.append(proofs)
            self.open = hulls
            self.search.show(self._factor())
        with suppress(OutOfTime):
            self._search()
        return self._factor()

    def _search(self) -> None:
        """Run passes until the requested factor is proved. Raises OutOfTime."""
        search, factor = self.search, self._factor()
        for step in _steps(search.factor):
            if factor <= search.factor:
                return
            if factor > step.factor and (step.factor == 1 or not (search.costs < 0).any()):
                for entry in self.open:
                    self._pass(entry, step)
                factor = self._factor()
                search.show(factor)

    def _uncharged(self, hull: Hull) -> float:
        """The factor proved by bounds without charges.

        The minimum of each objective may be above these bounds, so the parts beyond the ends of the front count as
        well.
        """
        sides = hull.weights[:2]
        slack = np.array([self.slack + self.search.slack(side) for side in sides])  # of bounds and of costs
        ends = end_factor(self.search.costs, sides, hull.bounds[:2], slack)
        return max(self._factor(), ends)

    def _factor(self) -> float:
        spots = corners(self.search.costs)
        return max((float(entry.factors(spots).max(initial=1.0)) for entry in self.open), default=1.0)

    def _pass(self, entry: Proofs, step: Step) -> None:
        """Run a pass for all corners that are not proved within the step's factor. Raises OutOfTime."""
        spots = corners(self.search.costs)
        runs = _runs(entry, spots[entry.factors(spots) > step.factor], step.factor)
        most = max(1, _BOUND_ENTRIES // (entry.case.plan.entries * (len(_MERGED_RATIOS[0]) + 2)))
        waiting = [runs[start : start + most] for start in range(0, len(runs), most)]
        while waiting:
            if self.search.out_of_time():
                raise OutOfTime
            part = waiting.pop(0)
            try:
                self._regions(entry, part, step)
            except TooMany:
                if not step.parted:
                    return
                half = len(part) // 2  # a single region is left for a later step
                waiting[:0] = [part[:half], part[half:]] if half else []

    def _regions(self, entry: Proofs, runs: list[Floats], step: Step) -> None:
        """Run a pass for runs of corners, each of which is a region."""
        search, charge = self.search, entry.case.charge
        middle = np.array([run[len(run) // 2] for run in runs])
        exact = step.factor == 1
        main = entry.weights[entry.tightest(middle)]
        if not exact:
            main = np.array([entry.weighting(spot) for spot in middle])
        main = main / self.scale
        with np.errstate(divide="ignore"):
            ratio = np.clip(main[:, 0] / main[:, 1], 1 / _MOST_RATIO, _MOST_RATIO)
        ratios = ratio[:, None] * (_EXACT_RATIOS if exact else _MERGED_RATIOS[step.age % len(_MERGED_RATIOS)])
        mixed = np.stack([ratios / (1 + ratios), 1 / (1 + ratios)], axis=-1)
        weights = np.concatenate([mixed, np.broadcast_to(np.eye(2), (len(runs), 2, 2))], axis=1) * self.scale
        limits = np.array([(run @ w.T).max(axis=0) for run, w in zip(runs, weights, strict=True)]) / step.factor
        paid = weights @ charge
        if step.part < 1:
            least = entry.bounds[entry.tightest(middle)]
            limits[:, 0] = least + step.part * (limits[:, 0] - least)
        within = np.ascontiguousarray((limits - paid + self.slack).T)
        labels: LabelPass
        if exact:
            labels = ExactPass(entry.case.plan, weights, within, search.budget(step.labels))
        else:
            width = _WIDTH * 0.5**step.age * (step.factor - 1) * (weights[:, 0] * middle).sum(axis=1)
            labels = MergingPass(entry.case.plan, weights, within, width, search.budget(step.labels))
        labels.run()
        self._learn(labels, charge)
        starts = np.searchsorted(labels.left.region, np.arange(len(runs) + 1))
        for i, (start, stop) in enumerate(pairwise(starts.tolist())):
            left = labels.left.bounds[:, start:stop].T + paid[i]
            if exact:
                left = np.full((int(step.part < 1), weights.shape[1]), -np.inf)
                left[:, 0] = limits[i, 0]
            region = Region(corners=runs[i], factor=step.factor, weights=weights[i], left=left - self.slack)
            entry.regions.append(region)

    def _learn(self, labels: LabelPass, charge: Floats) -> None:
        """Add the assignments of the remaining labels that no known point covers."""
        costs = labels.left.costs.T + charge
        fresh = np.flatnonzero(~covered(costs, self.search.costs))
        fresh = fresh[nondominated(costs[fresh])]
        if len(fresh):
            self.search.learn(labels.assignments(fresh))

    def _ask(self, case: Case, weights: Floats) -> tuple[Floats, Floats]:
        step = max(1, BATCH_ENTRIES // max(1, case.plan.entries))
        bounds = np.full(len(weights), -np.inf)
        costs = np.full((len(weights), 2), np.inf)
        for i in range(0, len(weights), step):
            if i > 1 and self.search.out_of_time():
                break
            part = slice(i, i + step)
            minima, assignments = minimise_weighted(case.plan, weights[part])
            bounds[part] = minima.value + weights[part] @ case.charge - self.slack
            allowed = np.isfinite(minima.value)
            self.search.learn(assignments[allowed])
            costs[part][allowed] = self.plain.evaluate(assignments[allowed]) + case.charge
        return bounds, costs

    def _supported(self, case: Case) -> Hull | None:
        search, hull = self.search, None
        for hull in support(lambda w: self._ask(case, w), self.scale, 2 * self.slack, search.factor):
            if search.out_of_time() or len(hull.weights) >= search.limits.weightings:
                break
            if search.factor > 1 and proven_factor(search.costs, hull.weights, hull.bounds) <= search.factor:
                break
        return hull

    def _considered(self, case: Case, hull: Hull) -> Proofs | None:
        """The proofs of a case, by the hull's weightings if they leave nothing open, or else by its own half-planes.

        None if the case is impossible.
        """
        bounds, _ = self._ask(case, hull.weights)
        if bool((bounds == np.inf).any()):
            return None
        bounds = np.maximum(bounds, hull.bounds)  # the bounds of all cases together also hold
        given = Proofs(case, hull.weights, bounds)
        if float(given.factors(corners(self.search.costs)).max(initial=1.0)) <= self.search.factor:
            return given
        own = self._supported(case)
        if own is None:
            return None
        if self.search.out_of_time():
            weights = np.concatenate([own.weights, hull.weights])
            return Proofs(case, weights, np.concatenate([own.bounds, bounds]))
        return Proofs(case, own.weights, own.bounds)
