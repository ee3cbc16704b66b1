"""Supported points of two objectives, with the weightings that prove that nothing lies below their convex hull.

The dichotomic scheme (Aneja and Nair, "Bicriteria transportation problem", 1979; Cohon, 1978): the weighting under
which two neighbours cost the same either finds a point below the line through them or proves that there is none.
All open lines of a round are asked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gnomon.core.cost import Floats, Ints
from gnomon.core.dominance import nondominated

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
