"""How far two orders agree: Kendall's tau-b, and how sure that is."""

from __future__ import annotations

import numpy as np

from gnomon.errors import ProblemError
from gnomon.spaces.features import Floats

_DRAWS = 500


def kendall_tau(first: Floats, second: Floats) -> float:
    """Kendall's tau-b of two lists of numbers: 1 the same order, -1 the reverse; 0 where either is all alike.

    Pairs that are equal in one list count half (M. Kendall, "The treatment of ties in ranking problems", 1945). Takes
    time and memory with the square of the length. ProblemError for lists of unlike length, shorter than 2, or with NaN.
    """
    x, y = _checked(first, second)
    return _weighted(x, y, np.ones(len(x)))


def tau_interval(first: Floats, second: Floats, *, coverage: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """An interval of tau-b by resampling the items with replacement (percentile bootstrap)."""
    x, y = _checked(first, second)
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(_DRAWS):
        rows = np.unique(rng.integers(0, len(x), len(x)), return_counts=True)
        values.append(_weighted(x[rows[0]], y[rows[0]], rows[1].astype(np.float64)))
    tail = (1 - coverage) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def _checked(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2 or np.isnan(x).any() or np.isnan(y).any():
        raise ProblemError(
            "two lists of at least two numbers each are compared", hint="Give numbers of the same items."
        )
    return x, y


def _weighted(x: Floats, y: Floats, weights: Floats) -> float:
    """Tau-b of items that count as often as their weight."""
    # Compared, not subtracted: of infinities there is an order, but no difference.
    a, b = (np.greater.outer(one, one).astype(np.float64) - np.less.outer(one, one) for one in (x, y))
    pairs = weights[:, None] * weights[None]
    scale = np.sqrt(float((pairs * a * a).sum()) * float((pairs * b * b).sum()))
    return float(np.clip((pairs * a * b).sum() / scale, -1.0, 1.0)) if scale else 0.0
