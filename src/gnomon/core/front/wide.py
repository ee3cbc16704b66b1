"""Points of a front by weighted sums alone, for models too large for elimination or for enumerating sets of charges.

Each point comes from one call of `solve`, whose proven bound gives a half-plane. Together the half-planes prove a
factor, never exactness.
"""

from __future__ import annotations

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.front.hull import end_factor, proven_factor, support
from gnomon.core.front.limited import solve_within
from gnomon.core.front.search import Search, ideal_factor, spread_weights
from gnomon.core.solver.solve import Solution
from gnomon.errors import ProblemError

_LEAST_S = 1e-3
_SHARE = 0.25  # the share of the remaining time for one minimum
_TOLERANCE = 2e-6  # relative to the range of the weighted sum; HiGHS accepts a gap of half this size


def search_wide(search: Search) -> float:
    """Find points by weighted sums, and return the factor within which they are proved to cover everything."""
    count = len(search.model.objectives)
    ideal = np.full(count, -np.inf)
    for unit in np.eye(count):
        solution = solved(search, unit)
        if solution is not None:
            ideal[unit.argmax()] = solution.bound
        if search.out_of_time() and len(search.costs):
            return _never_exact(ideal_factor(search.costs, ideal))
    reach = search.costs.max(axis=0) - search.costs.min(axis=0) if len(search.costs) else np.ones(count)
    scale: Floats = np.asarray(1.0 / np.where(reach > 0, reach, 1.0))
    if count == 2:
        return _plane(search, scale)
    for weights in spread_weights(scale, count):
        if search.out_of_time():
            break
        solved(search, weights)
    return _never_exact(ideal_factor(search.costs, ideal))


def _never_exact(factor: float) -> float:
    """The factor, raised above 1 if necessary, because 1 would claim exactness although the bounds have a tolerance."""
    return max(factor, 1.0 + _TOLERANCE)


def solved(search: Search, weights: Floats) -> Solution | None:
    """The minimum under weights (objectives,), which is also added to the search; None if nothing was found in time.

    InfeasibleError is not caught.
    """
    names = (objective.name for objective in search.model.objectives)
    limit_s, left_s = search.limits.milp_s, search.left_s
    if left_s is not None:
        limit_s = max(min(limit_s, _SHARE * left_s()), _LEAST_S)
    clock_s = None if left_s is None else lambda: -left_s()
    weighted = dict(zip(names, weights.tolist(), strict=True))
    try:
        solution = solve_within(search.model, weighted, time_limit_s=limit_s, clock_s=clock_s)
    except ProblemError as error:
        if type(error) is not ProblemError:
            raise
        return None
    search.learn(np.array([solution.assignment], dtype=np.intp))
    return solution


def _plane(search: Search, scale: Floats) -> float:
    def ask(weights: Floats) -> tuple[Floats, Floats]:
        bounds, costs = np.full(len(weights), -np.inf), np.full((len(weights), 2), np.inf)
        for i, row in enumerate(weights):
            solution = None if search.out_of_time() else solved(search, row)
            if solution is not None:
                loose = search.slack(row) if solution.method == "elimination" else _TOLERANCE
                bounds[i], costs[i] = solution.bound - loose, solution.cost
        return bounds, costs

    proved = float("inf")
    for hull in support(ask, scale, _TOLERANCE, search.factor):
        # HiGHS's time limit may have left the ends open.
        ends = end_factor(search.costs, hull.weights[:2], hull.bounds[:2], 2 * _TOLERANCE)
        proved = _never_exact(max(proven_factor(search.costs, hull.weights, hull.bounds), ends))
        if search.out_of_time() or len(hull.weights) >= search.limits.weightings or proved <= search.factor:
            break
        search.show(proved)
    return proved
