"""How good predictions are: share within a tolerance, rank, relative error, coverage, and the ceiling of noise."""

from __future__ import annotations

import numpy as np

from gnomon.estimate.columns import Floats


def within(predicted: Floats, measured: Floats, tolerance: float = 0.1) -> float:
    """The share of nets whose prediction is off by at most `tolerance` of the measured time."""
    return float(np.mean(np.abs(predicted - measured) <= tolerance * measured))


def relative_error(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """Mean and median of |predicted - measured| / measured."""
    errors = np.abs(predicted - measured) / measured
    return float(errors.mean()), float(np.median(errors))


def spearman(predicted: Floats, measured: Floats) -> float:
    """Spearman's rank correlation, with mean ranks for ties; 0 where one side is constant."""
    a, b = _ranks(predicted), _ranks(measured)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def coverage(low: Floats, high: Floats, measured: Floats) -> float:
    """The share of nets whose measured time lies in the interval."""
    return float(np.mean((low <= measured) & (measured <= high)))


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    found: Floats = (ends - (counts - 1) / 2.0)[inverse]
    return found
