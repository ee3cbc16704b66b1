"""Supported points of two objectives, with the weightings that prove that nothing lies below their convex hull.

The dichotomic scheme (Aneja and Nair, "Bicriteria transportation problem", 1979; Cohon, 1978): the weighting under
which two neighbours cost the same either finds a point below the line through them or proves that there is none.
All open lines of a round are asked at once.

What is proved below single corners of a front, and which are still open.

A region is all that lies below a corner divided by a factor. A relaxed pass leaves bounds of what may still be there;
corners found later lie in the region of one before, so that its bounds count for them.

Label sets that bound from below what may lie under some corners of a front, merged so that they stay small.

A pass over the plan for R regions at once. Each region has K weightings and thresholds: sought are vectors whose
weighted costs are below all thresholds. The labels of a bucket's state are vectors of K bounds. A
label is dropped where its bound and the least completion reach a threshold. Each label also has the cost of one partial
assignment that it stands for, and those of the last bucket are whole assignments: points near the front.

Bounds of labels, and their merging: a merged label is nowhere above any of those that it stands for.

A label here is a vector of K lower bounds, on the weighted cost under each of K weightings of what it stands for; its
group says what it may be completed with. Two labels that differ little are replaced by the smaller bound of each
weighting, as in relaxed decision diagrams (Bergman, Cire, van Hoeve and Hooker, "Decision Diagrams for
Optimization", 2016). What is lost shows in the bounds themselves, so that no account of it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.front.dominance import nondominated
from gnomon.core.front.labels import Stopped, starts_of
from gnomon.core.front.plan import Bucket, Minima, Plan, beyond, minimise_weighted, weighed
from gnomon.core.front.search import Case

Ask = Callable[[Floats], tuple[Floats, Floats, Ints]]
"""Weightings (W, 2) to proven lower bounds (W,), costs (W, 2) and assignments (W, slots); +inf costs for nothing.

A bound of -inf says that the time was over.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hull:
    """Points found, by rising first cost, and half-planes that hold all there is: weights @ cost >= bounds."""

    costs: Floats
    assignments: Ints
    weights: Floats
    bounds: Floats


def corners(costs: Floats) -> Floats:
    """The corners of the staircase of a front (N, 2) in order: what is covered by no point lies below one of them.

    The two unbounded ones beyond its ends are left out, as the least of each objective is known.
    """
    return np.stack([costs[1:, 0], costs[:-1, 1]], axis=1)


def excess(points: Floats, weights: Floats, bounds: Floats) -> Floats:
    """How far each point lies above each bound, (points, W)."""
    return np.asarray(points @ weights.T - bounds)


def proven_factor(costs: Floats, weights: Floats, bounds: Floats) -> float:
    """The least factor from 1 that is proved: each allowed vector is covered by a point of the front (N, 2) over it.

    A corner u leaves room for a vector v, factor * v < u, only if weights @ u > factor * bound for all half-planes.
    It is +inf where a bound that is needed is not positive.
    """
    return float(plane_factors(corners(costs), weights, bounds).max(initial=1.0))


def plane_factors(spots: Floats, weights: Floats, bounds: Floats) -> Floats:
    """The same for each corner (N, 2) alone: (N,)."""
    found = np.empty(len(spots))
    step = max(1, (1 << 22) // max(1, len(weights)))
    for start in range(0, len(spots), step):
        reached = spots[start : start + step] @ weights.T
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = np.where(reached <= bounds, 1.0, np.where(bounds > 0, reached / bounds, np.inf))
        found[start : start + step] = factors.min(axis=1, initial=np.inf)
    return found


def end_factor(costs: Floats, sides: Floats, bounds: Floats, slack: Floats | float) -> float:
    """The factor from 1 that is proved beyond both ends of a front (N, 2), which `proven_factor` leaves out.

    `sides` (2, 2) weigh the objectives one by one, `bounds` (2,) are proved of them. What exceeds a bound by no more
    than `slack` counts as least. It is +inf where nothing is known, or a bound that is needed is not positive.
    """
    if not len(costs):
        return float("inf")
    reached = costs.min(axis=0) * np.diag(sides)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.where(bounds > 0, reached / bounds, np.inf)
    return float(np.where(reached <= bounds + slack, 1.0, factors).max())


def support(ask: Ask, scale: Floats, slack: float, go_on: Callable[[Hull], bool], factor: float = 1.0) -> Hull | None:
    """The supported points, or None where nothing is allowed. `scale` (2,) makes the objectives comparable.

    `slack` is the rounding of scaled weighted sums. Before each round `go_on` is asked, with what is there. A line is
    not asked where the corner above it is already proved within `factor`.
    """
    sides = np.array([[1.0, 0.0], [0.0, 1.0]]) * scale
    bounds, costs, assignments = ask(sides)
    if not np.isfinite(costs).all():
        return None
    known = nondominated(costs)
    hull = Hull(costs=costs[known], assignments=assignments[known], weights=sides, bounds=bounds)
    closed: set[tuple[float, ...]] = set()
    while go_on(hull):
        lines = _open_lines(hull, scale, slack, factor, closed)
        if not len(lines):
            break
        bounds, costs, assignments = ask(lines)
        allowed = np.isfinite(costs).all(axis=1)
        every = np.concatenate([hull.costs, costs[allowed]])
        which = np.concatenate([hull.assignments, assignments[allowed]])
        known = nondominated(every)
        hull = Hull(
            costs=every[known],
            assignments=which[known],
            weights=np.concatenate([hull.weights, lines[bounds > -np.inf]]),
            bounds=np.concatenate([hull.bounds, bounds[bounds > -np.inf]]),
        )
    return hull


def _open_lines(hull: Hull, scale: Floats, slack: float, factor: float, closed: set[tuple[float, ...]]) -> Floats:
    """Weightings of the lines between neighbours on the convex hull of the points that were not asked yet."""
    points = hull.costs * scale
    lower = _lower(points)
    found = []
    for a, b in pairwise(lower):
        key = (*hull.costs[a], *hull.costs[b])
        if key in closed:
            continue
        closed.add(key)
        width, height = points[b] - points[a]
        weights = np.array([-height, width]) / (width - height) * scale
        value = float(weights @ hull.costs[a])
        corner = np.array([[hull.costs[b, 0], hull.costs[a, 1]]])
        pair = hull.costs[[a, b]]
        if float(weights @ corner[0]) - value <= slack:
            continue
        if factor > 1 and proven_factor(pair, hull.weights, hull.bounds) <= factor:
            continue
        found.append(weights)
    return np.array(found).reshape(-1, 2)


def _lower(points: Floats) -> list[int]:
    """The lower left convex hull of a front in order (Andrew's monotone chain, 1979)."""
    found: list[int] = []
    for i, (x, y) in enumerate(points.tolist()):
        while len(found) > 1:
            (ax, ay), (bx, by) = points[found[-2]], points[found[-1]]
            if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                break
            found.pop()
        found.append(i)
    return found


_ROUNDS = 4
_BESIDE = 3  # neighbours that a label is compared with


def thin(bounds: Floats, groups: Ints, width: Floats, most: int) -> tuple[Ints, Floats]:
    """Merge labels (K, N) of the same group (N,) that are less than `width` (N,) apart, and closer ones than that
    until about `most` are left, though never fewer than two a group.

    The distance is that of the difference of the bounds under weightings 2 and 1; `width` is a group's own. Returns for
    each merged label, by group, the number of the one that has its bound under weighting 0; and the bounds (K, M).
    """
    place, found = _merged(bounds, groups, width)
    for _ in range(_ROUNDS):
        kept = _undominated(found, groups[place])
        place, found = place[kept], found[:, kept]
        if len(place) <= most:
            break
        inner = groups[place]
        starts = starts_of(inner)
        counts = np.diff(np.append(starts, len(inner)))
        share = max(2.0, _level(counts, most))
        apart = found[2] - found[1]
        reach = np.maximum.reduceat(apart, starts) - np.minimum.reduceat(apart, starts)
        wide = np.where(counts > share, reach / (share - 1), 0.0)
        fewer, found = _merged(found, inner, np.maximum(width[place], np.repeat(wide, counts)))
        place = place[fewer]
    return place, found


def _merged(bounds: Floats, groups: Ints, width: Floats) -> tuple[Ints, Floats]:
    """Labels by cells of a width, counted from each group's least difference, so that a common drift merges nothing."""
    order = np.argsort(groups, kind="stable")
    inner = groups[order]
    starts = starts_of(inner)
    counts = np.diff(np.append(starts, len(inner)))
    apart = (bounds[2] - bounds[1])[order]
    apart -= np.repeat(np.minimum.reduceat(apart, starts), counts)
    cells = (apart / width[order] + 1e-9).astype(np.int64)
    keys = np.repeat(np.arange(len(starts)), counts) * (int(cells.max(initial=0)) + 1) + cells
    first = np.argsort(bounds[0][order], kind="stable")
    first = first[np.argsort(keys[first], kind="stable")]
    order, starts = order[first], starts_of(keys[first])
    if len(starts) == len(order):
        return order, bounds[:, order]
    return order[starts], np.minimum.reduceat(bounds[:, order], starts, axis=1)


def _undominated(bounds: Floats, groups: Ints) -> NDArray[np.bool_]:
    """Which labels, by group and difference, no label a few places beside them is nowhere above.

    Domination is transitive, so that a dropped label's dominators include one that is kept.
    """
    drop = np.zeros(len(groups), dtype=bool)
    for step in range(1, min(_BESIDE, len(groups) - 1) + 1):
        same = groups[step:] == groups[:-step]
        low, high = bounds[:, :-step], bounds[:, step:]
        after = (low <= high).all(axis=0) & same
        drop[step:] |= after
        drop[:-step] |= (high <= low).all(axis=0) & same & ~after
    return ~drop


def _level(counts: Ints, most: int) -> float:
    """The cap under which counts add up to `most`."""
    ordered = np.sort(counts)
    below = np.cumsum(ordered)
    left = len(ordered) - 1 - np.arange(len(ordered))
    place = int(np.searchsorted(below + ordered * left, most, side="right"))
    if place == len(ordered):
        return float(ordered[-1])
    return (most - (float(below[place - 1]) if place else 0.0)) / (len(ordered) - place)


_LABELS = 40_000  # of a bucket
_SUMS = 800_000  # that are formed at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """Regions to be searched: their corners (R, 2), and how many passes led to them, `ages` (R,).

    `weights` (R, K, objectives) are weightings, the first one being the main one and the next two on its sides;
    `thresholds` (R, K) are theirs. Labels are merged that differ by less than `width` (R,) in weighted cost.
    """

    corners: Floats
    ages: Ints
    weights: Floats
    thresholds: Floats
    width: Floats

    def __len__(self) -> int:
        return len(self.corners)

    def part(self, start: int, stop: int) -> Regions:
        """Some of them."""
        return Regions(**{field.name: getattr(self, field.name)[start:stop] for field in fields(self)})


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels by region and state; `costs` (objectives, N) are those of one that each stands for, `links` lead to it."""

    bounds: Floats
    costs: Floats
    starts: Ints
    choice: Ints
    links: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """Labels on their way: region, row of the bucket's terms, bounds and later costs (K, N), costs, links."""

    region: Ints
    row: Ints
    bounds: Floats
    later: Floats
    costs: Floats
    links: tuple[Ints, ...]

    def thinned(self, groups: Ints, width: Floats, most: int) -> _Part:
        if not len(groups):
            return self
        place, bounds = thin(self.bounds, groups, width[self.region], most)
        links = tuple(link[place] for link in self.links)
        return _Part(self.region[place], self.row[place], bounds, self.later[:, place], self.costs[:, place], links)


class RelaxedPass:
    """One pass for some regions; `run` first, which raises Stopped where the time is over."""

    def __init__(self, plan: Plan, regions: Regions, slack: float, out_of_time: Callable[[], bool]) -> None:
        self.plan, self.regions, self.out_of_time = plan, regions, out_of_time
        self.limits: Floats = regions.thresholds.T + slack
        self.flat: Floats = regions.weights.reshape(-1, regions.weights.shape[2])
        self.held: list[_Labels] = []

    def run(self) -> None:
        """Fill the buckets."""
        minima = minimise_weighted(self.plan, self.flat)[0]
        above = beyond(self.plan, minima)
        for bucket, rest in zip(self.plan.buckets, above, strict=True):
            if self.out_of_time():
                raise Stopped
            self.held.append(self._labels(bucket, minima, rest))

    def left(self) -> list[Floats]:
        """For each region the bounds (labels, K) of what is left: any vector sought is nowhere below some row."""
        last = self.held[-1]
        return [last.bounds[:, a:b].T for a, b in zip(last.starts[:-1], last.starts[1:], strict=True)]

    def costs(self) -> Floats:
        """The costs (labels, objectives) of one assignment of each label that is left."""
        return self.held[-1].costs.T

    def assignments(self, chosen: Ints) -> Ints:
        """The assignments (N, slots) of some of the labels that are left, by number."""
        return self.plan.assignments([held.choice for held in self.held], [held.links for held in self.held], chosen)

    def _labels(self, bucket: Bucket, minima: Minima, rest: Floats) -> _Labels:
        rows = bucket.states * bucket.size
        shape = (rows, *self.regions.thresholds.shape)
        own = weighed(bucket, self.flat).reshape(shape)
        ups = [minima.up[c][s].reshape(shape) for c, s in zip(bucket.children, bucket.states_of, strict=True)]
        least = own + np.repeat(rest, bucket.size, axis=0).reshape(shape)
        for up in ups:
            least += up
        region, row = np.nonzero((least < self.limits.T).all(axis=2).T)
        bounds = np.ascontiguousarray(own[row, region].T)
        later = least[row, region].T - bounds
        part = _Part(region, row, bounds, later, np.ascontiguousarray(bucket.terms[row].T), ())
        by_size = sorted(range(len(ups)), key=lambda i: (len(self.held[bucket.children[i]].choice), i))
        for place, i in enumerate(by_size):
            if place:
                part = part.thinned(part.region * rows + part.row, self.regions.width, _LABELS)
            part = self._joined(bucket, part, i, part.later - ups[i][part.row, part.region].T)
        part = part.thinned(part.region * bucket.states + part.row // bucket.size, self.regions.width, _LABELS)
        state = part.row // bucket.size
        starts = np.searchsorted(part.region * bucket.states + state, np.arange(shape[1] * bucket.states + 1))
        order = np.argsort(by_size, kind="stable").tolist()
        choice: Ints = (part.row - state * bucket.size).astype(np.int32)
        return _Labels(part.bounds, part.costs, starts, choice, tuple(part.links[i].astype(np.int32) for i in order))

    def _joined(self, bucket: Bucket, part: _Part, child: int, later: Floats) -> _Part:
        """Sums with the labels of a child that fit, without those that reach a threshold."""
        number = bucket.children[child]
        other, states = self.held[number], self.plan.buckets[number].states
        part = _Part(part.region, part.row, part.bounds, later, part.costs, part.links)
        bounds, starts, numbers = other.bounds, other.starts, None
        total = float(np.diff(starts)[part.region * states + bucket.states_of[child][part.row]].sum())
        if total > _SUMS:
            fewer = np.sqrt(_SUMS / total)
            groups = part.region * (bucket.states * bucket.size) + part.row
            part = part.thinned(groups, self.regions.width, int(fewer * len(groups)))
            groups = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            width = self.regions.width[groups // states]
            numbers, bounds = thin(bounds, groups, width, int(fewer * len(groups)))
            starts = np.searchsorted(groups[numbers], np.arange(len(starts)))
        key = part.region * states + bucket.states_of[child][part.row]
        counts = starts[key + 1] - starts[key]
        own = np.repeat(np.arange(len(key)), counts)
        theirs = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts - starts[key], counts)
        sums = part.bounds[:, own] + bounds[:, theirs]
        region = part.region[own]
        kept = np.flatnonzero((sums + part.later[:, own] < self.limits[:, region]).all(axis=0))
        own, theirs = own[kept], theirs[kept]
        theirs = theirs if numbers is None else numbers[theirs]
        costs = part.costs[:, own] + other.costs[:, theirs]
        links = (*(link[own] for link in part.links), theirs)
        return _Part(region[kept], part.row[own], sums[:, kept], part.later[:, own], costs, links)


# The main weighting and multiples of its ratio: narrow ones to tell labels apart, wide ones for what lies far away.
# Passes take turns with two sets.
_RATIOS = np.array([[1.0, 1 / 2, 2.0, 1 / 4, 4.0, 1 / 16, 16.0], [1.0, 2 / 3, 3 / 2, 2 / 5, 5 / 2, 1 / 10, 10.0]])
_TOGETHER = 0.2  # of what the factor is above 1: corners that are as close make one region
_FIRST_WIDTH = 0.5  # of the same: differences that the first pass does not tell apart
_NARROWER = 0.5  # from each pass to the next
_MOST_RATIO = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A corner (2,), the factor that it was divided by, weightings (K, 2), and the bounds (labels, K) of what is left.

    `age` counts the passes that led to it.
    """

    corner: Floats
    factor: float
    weights: Floats
    left: Floats
    age: int

    def factors(self, spots: Floats) -> Floats:
        """The factor that is proved for each of the spots (N, 2), which must lie in the region: (N,)."""
        found = np.full(len(spots), self.factor)
        reached = spots @ self.weights.T
        for row in self.left:  # each label must be closed by one of its bounds
            with np.errstate(divide="ignore", invalid="ignore"):
                single = np.where(reached <= row, 1.0, np.where(row > 0, reached / row, np.inf))
            np.maximum(found, single.min(axis=1), out=found)
        return found


@dataclass(slots=True)
class Proofs:
    """What is proved about what is not found of a case: half-planes weights (W, 2) @ cost >= bounds (W,), and regions.

    `proved` is the factor within which all of the case is covered.
    """

    case: Case
    weights: Floats
    bounds: Floats
    regions: list[Region] = field(default_factory=list)
    proved: float = float("inf")

    def factors(self, spots: Floats) -> tuple[Floats, Ints]:
        """The factor proved for each corner (N, 2), and the last region that it lies in, -1 for none."""
        found = plane_factors(spots, self.weights, self.bounds)
        which = np.full(len(spots), -1)
        for number, region in enumerate(self.regions):
            inside = np.flatnonzero((spots <= region.corner).all(axis=1))
            if len(inside):
                which[inside] = number
                found[inside] = np.minimum(found[inside], region.factors(spots[inside]))
        return found, which


def open_regions(proofs: Proofs, spots: Floats, factor: float, scale: Floats) -> Regions:
    """The regions of all corners (N, 2), in order, that are not proved within a factor above 1.

    Objectives are scaled by `scale` (2,) to be comparable.
    """
    proved, which = proofs.factors(spots)
    open_ = np.flatnonzero(proved > factor)
    runs: list[list[int]] = []
    for i in open_.tolist():
        if runs and _close(spots[[*runs[-1], i]], 1 + _TOGETHER * (factor - 1)):
            runs[-1].append(i)
        else:
            runs.append([i])
    corners = np.array([spots[run].max(axis=0) for run in runs]).reshape(-1, 2)
    middle = np.array([run[len(run) // 2] for run in runs], dtype=np.intp)
    parents = [proofs.regions[number] if number >= 0 else None for number in which[middle].tolist()]
    ages = np.array([parent.age + 1 if parent is not None else 0 for parent in parents], dtype=np.intp)
    multiples = _ratios(proofs, corners, parents, scale)[:, None] * _RATIOS[ages % len(_RATIOS)]
    weights = np.asarray(np.stack([multiples / (1 + multiples), 1 / (1 + multiples)], axis=-1) * scale)
    width = _FIRST_WIDTH * (factor - 1) * _NARROWER**ages * (weights[:, 0] * corners).sum(axis=1)
    tiny = np.finfo(np.float64).tiny ** 0.5
    return Regions(
        corners=corners,
        ages=ages,
        weights=weights,
        thresholds=(weights * corners[:, None]).sum(axis=2) / factor,
        width=np.maximum(width, tiny),
    )


def _close(spots: Floats, factor: float) -> bool:
    return bool((spots.max(axis=0) <= factor * spots.min(axis=0)).all())


def _ratios(proofs: Proofs, corners: Floats, parents: list[Region | None], scale: Floats) -> Floats:
    """The ratio of the main weighting's scaled components for each corner: that of the half-plane that is tightest.

    What a pass left is attacked from half-way to the weighting that comes closest to closing the worst of it.
    """
    reached = corners @ proofs.weights.T
    with np.errstate(divide="ignore", invalid="ignore"):
        tight = np.where(proofs.bounds > 0, reached / proofs.bounds, np.inf)
    found = _ratio(proofs.weights[tight.argmin(axis=1)] / scale)
    for i, parent in enumerate(parents):
        if parent is not None and len(parent.left):
            shares = parent.left / (parent.weights @ corners[i])
            worst = shares[shares.max(axis=1).argmin()]
            ends = _ratio(parent.weights[[0, int(worst.argmax())]] / scale)
            found[i] = float(np.sqrt(ends[0] * ends[1]))
    return found


def _ratio(weights: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.clip(np.nan_to_num(weights[:, 0] / weights[:, 1], posinf=_MOST_RATIO), 1 / _MOST_RATIO, _MOST_RATIO)
