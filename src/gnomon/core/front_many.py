"""The front of one objective, or of three and more: label passes against the ideal completion.

A few weighted minima give points to begin with. The first pass is content with being near, which gives points that let
the second drop more.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.front_bounds import minimise_weighted
from gnomon.core.front_cases import Case
from gnomon.core.front_labels import LabelPass, Stopped
from gnomon.core.front_plan import Plan
from gnomon.core.front_screen import IdealScreen
from gnomon.core.front_search import Search, whole

_NEAR = 1.05
_EDGE_STEPS = 8
_RANDOM = 64


def search_many(search: Search, cases: list[Case], relaxed: Plan) -> float:
    """Search all cases; returns the factor within which the points found are proved to cover everything."""
    count = len(search.model.objectives)
    ideal, assignments = minimise_weighted(relaxed, np.eye(count))
    if not np.isfinite(ideal.value).all():
        return 1.0
    search.learn(assignments)
    search.learn(minimise_weighted(relaxed, spread_weights(_scale(search), count))[1])
    search.show(ideal_factor(search.costs, ideal.value))
    slack = np.zeros(count) if whole(search.model) else np.array([search.slack(unit) for unit in np.eye(count)])
    factors = [search.factor]
    if search.factor < _NEAR and bool((ideal.value > 0).all()):
        factors.insert(0, _NEAR)
    proved = float("inf")
    for factor in factors:
        for case in cases:
            minima, found = minimise_weighted(case.plan, np.eye(count))
            if not np.isfinite(minima.value).all():
                continue
            search.learn(found)
            known = search.costs / factor - case.charge + slack
            screen = IdealScreen(case.plan, minima, known)
            labels = LabelPass(case.plan, screen, room=search.limits.labels, out_of_time=search.out_of_time)
            try:
                search.learn(labels.run())
            except Stopped:
                return min(proved, ideal_factor(search.costs, ideal.value))
        proved = factor
        search.show(factor)
    return search.factor


def ideal_factor(costs: Floats, ideal: Floats) -> float:
    """The least factor over the ideal vector, which no allowed one is below, that some point keeps to."""
    if not len(costs) or not bool((ideal > 0).all()):
        return float("inf")
    return float((costs / ideal).max(axis=1).min())


def spread_weights(scale: Floats, count: int) -> Floats:
    """Weightings (W, objectives) of all mixes of two objectives in steps, the even one, and random ones, scaled."""
    rows = [np.full(count, 1.0 / count)]
    for i, j in combinations(range(count), 2):
        for step in range(1, _EDGE_STEPS):
            row = np.zeros(count)
            row[i], row[j] = step / _EDGE_STEPS, 1 - step / _EDGE_STEPS
            rows.append(row)
    drawn = np.random.default_rng(0).dirichlet(np.ones(count), _RANDOM)
    return np.concatenate([np.array(rows), drawn]) * scale


def _scale(search: Search) -> Floats:
    reach = search.costs.max(axis=0) - search.costs.min(axis=0) if len(search.costs) else np.ones(0)
    return np.asarray(1.0 / np.where(reach > 0, reach, 1.0))
