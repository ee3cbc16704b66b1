"""How wide an interval must be, from residuals of leaving one sample out.

A score is a left-out residual over its predicted deviation. With many samples the interval takes their quantile, as
conformal prediction does (Barber et al., Predictive Inference with the Jackknife+, 2021); with few a single score would
decide, so that the quantile is smoothed (Harrell and Davis, 1982) and drawn towards what Student errors give, widened
for the few samples the deviation itself comes from.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from gnomon.estimate.columns import Floats

_TRUST = 20.0  # with so many samples, half of the trust is in the scores
_HEAVY = 1.05  # errors with heavy tails against normal ones
_NONE_SEEN = 2.0
_GRID = 4000


def factor(scores: Floats, coverage: float, freedom: float) -> float:
    """By what the predicted deviation is multiplied to give the half-width of an interval of this coverage.

    `freedom` is how many samples are left beyond the coefficients that they determine.
    """
    count = len(scores)
    normal = NormalDist().inv_cdf((1 + coverage) / 2)
    if count == 0:
        return normal * _NONE_SEEN
    assumed = normal * _HEAVY * (1 + 0.8 / max(freedom, 1.0))
    seen = smooth_quantile(np.abs(scores), coverage) * (1 + 4.0 / max(freedom, 1.0))
    if not seen > 0:
        return assumed
    trust = count / (count + _TRUST)
    return math.exp((1 - trust) * math.log(assumed) + trust * math.log(seen))


def smooth_quantile(values: Floats, share: float) -> float:
    """The Harrell-Davis quantile: the order statistics, weighted by a beta distribution around the share."""
    ordered = np.sort(values)
    count = len(ordered)
    a, b = share * (count + 1) - 1, (1 - share) * (count + 1) - 1
    u = (np.arange(_GRID) + 0.5) / _GRID
    log_density = a * np.log(u) + b * np.log1p(-u)
    density = np.exp(log_density - log_density.max())
    place = np.minimum((u * count).astype(np.intp), count - 1)
    weights = np.bincount(place, weights=density, minlength=count)
    return float(weights @ ordered / weights.sum())
