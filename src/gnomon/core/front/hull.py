"""Supported points of two objectives, with the weightings that prove that nothing lies below their convex hull.

This is the dichotomic scheme (Aneja and Nair, "Bicriteria transportation problem", 1979; Cohon, 1978): the minimum
under the weighting that gives two neighbours the same cost either is a point below the line through them or proves
that no such point exists. All open lines of a round are solved at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.front.dominance import nondominated
from gnomon.core.front.search import BATCH_ENTRIES

Ask = Callable[[Floats], tuple[Floats, Floats]]
"""Maps weightings (W, 2) to proven lower bounds (W,) and costs (W, 2); +inf if nothing was found.

A bound of -inf means that no time was left.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hull:
    """The points found, in order of the first cost, and half-planes that contain them all: weights @ cost >= bounds."""

    costs: Floats
    weights: Floats
    bounds: Floats


def corners(costs: Floats) -> Floats:
    """The corners of the staircase of a front (N, 2) in order: a vector that no point covers lies below one of them.

    The two unbounded corners beyond its ends are left out, because the minimum of each objective is known.
    """
    return np.stack([costs[1:, 0], costs[:-1, 1]], axis=1)


def proven_factor(costs: Floats, weights: Floats, bounds: Floats) -> float:
    """The least factor, at least 1, within which points of the front (N, 2) are proved to cover all allowed vectors."""
    return float(plane_factors(corners(costs), weights, bounds).max(initial=1.0))


def plane_factors(spots: Floats, weights: Floats, bounds: Floats) -> Floats:
    """The factor (N,) that half-planes prove for each corner (N, 2); +inf if a bound that is needed is not positive.

    A corner u leaves room for a vector v with factor * v < u only if weights @ u > factor * bound for all half-planes.
    """
    factors = np.empty(len(spots))
    step = max(1, BATCH_ENTRIES // max(1, len(weights)))
    for start in range(0, len(spots), step):
        part = slice(start, start + step)
        factors[part] = least_factors(spots[part] @ weights.T, bounds).min(axis=1, initial=np.inf)
    return factors


def least_factors(reached: Floats, bounds: Floats) -> Floats:
    """The factor, at least 1, by which each weighted cost exceeds its bound; +inf if the bound is not positive."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(reached <= bounds, 1.0, np.where(bounds > 0, reached / bounds, np.inf))


def end_factor(costs: Floats, sides: Floats, bounds: Floats, slack: Floats | float) -> float:
    """The factor, at least 1, that is proved beyond both ends of a front (N, 2), where `proven_factor` proves nothing.

    `sides` (2, 2) weigh one objective each, and `bounds` (2,) are their proved bounds. A cost that exceeds its bound by
    no more than `slack` counts as the minimum. The factor is +inf if nothing is known, or if a bound that is needed is
    not positive.
    """
    if not len(costs):
        return float("inf")
    reached = costs.min(axis=0) * np.diag(sides)
    return float(np.where(reached <= bounds + slack, 1.0, least_factors(reached, bounds)).max())


def support(ask: Ask, scale: Floats, slack: float, factor: float = 1.0) -> Iterator[Hull]:
    """The supported points found so far, yielded after each round; none if no assignment is allowed.

    `scale` (2,) makes the objectives comparable, and `slack` is the rounding error of scaled weighted sums. A line is
    skipped if the corner above it is already proved within `factor`.
    """
    weights: Floats = np.eye(2) * scale
    bounds, costs = ask(weights)
    if not np.isfinite(costs).all():
        return
    hull = Hull(costs=costs[nondominated(costs)], weights=weights, bounds=bounds)
    closed: set[tuple[float, ...]] = set()
    while True:
        yield hull
        lines = _open_lines(hull, scale, slack, factor, closed)
        if not len(lines):
            return
        bounds, costs = ask(lines)
        costs = np.concatenate([hull.costs, costs])
        proved = bounds > -np.inf
        hull = Hull(
            costs=costs[nondominated(costs)],
            weights=np.concatenate([hull.weights, lines[proved]]),
            bounds=np.concatenate([hull.bounds, bounds[proved]]),
        )


def _open_lines(hull: Hull, scale: Floats, slack: float, factor: float, closed: set[tuple[float, ...]]) -> Floats:
    """The weightings of those lines between neighbours on the convex hull that have not been solved yet."""
    points = hull.costs * scale
    lower = _lower(points)
    lines = []
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
        lines.append(weights)
    return np.array(lines).reshape(-1, 2)


def _lower(points: Floats) -> list[int]:
    """The lower left convex hull of a front, in order (Andrew's monotone chain, 1979)."""
    hull: list[int] = []
    for i, (x, y) in enumerate(points.tolist()):
        while len(hull) > 1:
            (ax, ay), (bx, by) = points[hull[-2]], points[hull[-1]]
            if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                break
            hull.pop()
        hull.append(i)
    return hull
