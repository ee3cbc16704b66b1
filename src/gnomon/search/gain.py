"""How much a front is expected to gain from assignments of which a model forecasts the costs."""

from __future__ import annotations

import numpy as np

from gnomon.core.cost import Floats
from gnomon.search.surrogate import Forecast

_MARGIN = 0.1  # of the front's range: how far beyond its worst costs a gain still counts
_TINY = 1e-6


def expected_gain(front: Floats, span: Floats, forecast: Forecast) -> Floats:
    """What each forecast (rows) adds to a front (N, objectives), in the mean over its uncertainty.

    With two objectives it is the volume that is dominated up to a margin beyond the front, with others the distance
    by which it leaves what the front dominates (the maximin improvement of Svenson and Santner, Multiobjective
    optimization of expensive-to-evaluate deterministic computer simulator models, 2016), each in parts of the front's
    range; `span` (objectives,) stands for that of a single point. The mean is taken by a cubature of degree 3. Where
    nothing is expected to gain, values are negative: the distance by which the best likely case falls short.
    """
    low = front.min(axis=0)
    reach = np.ptp(front, axis=0)
    scale = np.where(reach > 0, reach, np.where(span > 0, span, 1.0))
    scaled = (front - low) / scale
    objectives = front.shape[1]
    steps = np.concatenate([np.eye(objectives), -np.eye(objectives)]) * np.sqrt(objectives)
    gain = np.zeros(len(forecast.middle))
    for step in steps:
        costs = (forecast.at(step) - low) / scale
        gain += _volume(scaled, costs) if objectives == 2 else np.maximum(_ahead(scaled, costs), 0.0)
    gain *= forecast.chance / len(steps)
    if gain.max(initial=0.0) >= _TINY:
        return gain
    likely = (forecast.at(-np.ones(objectives)) - low) / scale
    return np.minimum(_ahead(scaled, likely), 0.0) - 2.0 * (1.0 - forecast.chance) - 1.0


def _volume(front: Floats, costs: Floats) -> Floats:
    """The area that each row of `costs` adds to a front of two objectives."""
    ordered = front[np.argsort(front[:, 0], kind="stable")]
    corner = front.max(axis=0) + _MARGIN
    # Between two neighbours of the front the area ends at the second cost of the left one.
    left = np.concatenate([[-np.inf], ordered[:, 0]])
    right = np.concatenate([ordered[:, 0], corner[:1]])
    top = np.concatenate([corner[1:], ordered[:, 1]])
    width = np.maximum(right - np.maximum(left, costs[:, :1]), 0.0)
    return np.asarray((width * np.maximum(top - costs[:, 1:], 0.0)).sum(axis=1))


def _ahead(front: Floats, costs: Floats) -> Floats:
    """By how much each row of `costs` is better than each of the front in some objective; negative: it is dominated."""
    nearest = np.full(len(costs), np.inf)
    for point in front:
        nearest = np.minimum(nearest, (point - costs).max(axis=1))
    return nearest
