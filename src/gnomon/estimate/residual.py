"""A learner of what the linear model leaves over: a Gaussian process, kept only where it wins in cross-validation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from gnomon.estimate.columns import Floats

MOST_SAMPLES = 600
LEAST_SAMPLES = 30
LEAST_GAIN = 0.1
LEAST_SURE = 3.0  # deviations of the mean gain
FOLDS = 5
_LENGTHS = (1.0, 2.0, 4.0)
_SIZES = (0.5, 1.0, 2.0)  # in units of the residuals' deviation
_SHRINKS = (1.0, 0.4, 0.15)  # what is learnt is not noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """A Gaussian process over standardised columns: `points` (n, columns), `alpha` (n,), `half` (n, n), size in
    seconds.

    The kernel is size**2 exp(-d**2 / 2), with d the distance in units of `length` (columns,).
    """

    centre: Floats
    length: Floats
    points: Floats
    alpha: Floats
    half: Floats
    size_s: float

    def mean(self, x: Floats) -> Floats:
        """What is added to the expected time, in seconds."""
        return np.asarray(self._kernel(x) @ self.alpha)

    def variance(self, x: Floats) -> Floats:
        """The variance of what is added, in seconds squared."""
        along = self._kernel(x) @ self.half.T
        return np.asarray(np.maximum(self.size_s**2 - np.einsum("ij,ij->i", along, along), 0.0))

    def _kernel(self, x: Floats) -> Floats:
        return kernel((x - self.centre) / self.length, self.points) * self.size_s**2


def kernel(a: Floats, b: Floats) -> Floats:
    """exp(-d**2 / 2) of the rows' distances (len(a), len(b))."""
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T
    return np.asarray(np.exp(-0.5 * np.maximum(squares, 0.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """A learner, by what it shrinks the errors' deviations, and residuals and variances of leaving one sample out."""

    learner: Residual
    shrink: float
    loo_residual: Floats
    loo_variance: Floats


def learn(x: Floats, residual: Floats, errors: Floats) -> Learnt | None:
    """A learner of residuals in seconds with independent error variances, if it wins.

    It is compared with none at all by its mean absolute error on folds, in units of the errors' deviations. None with
    few or too many samples, or where it gains less than 10 % or not surely.
    """
    count = len(residual)
    if not LEAST_SAMPLES <= count <= MOST_SAMPLES:
        return None
    centre = x.mean(axis=0)
    spread = x.std(axis=0)
    spread = np.where(spread > 0, spread, np.inf) * np.sqrt(max(int((spread > 0).sum()), 1))
    size = float(np.sqrt((residual**2 / errors).mean() * errors.mean()))
    without = np.abs(residual) / np.sqrt(errors)
    best, gain = (np.inf, 1.0, 1.0, 1.0), without
    for length in _LENGTHS:
        z = (x - centre) / (spread * length)
        base = kernel(z, z)
        for factor, shrink in itertools.product(_SIZES, _SHRINKS):
            left = _folded(base * (factor * size) ** 2, residual, errors * shrink**2)
            losses = np.abs(left) / np.sqrt(errors)
            if losses.mean() < best[0]:
                best, gain = (float(losses.mean()), length, factor, shrink), without - losses
    _, length, factor, shrink = best
    least = max(LEAST_GAIN * without.mean(), LEAST_SURE * gain.std() / np.sqrt(count))
    if gain.mean() <= least:
        return None
    points = (x - centre) / (spread * length)
    k = kernel(points, points) * (factor * size) ** 2
    k[np.diag_indices(count)] += errors * shrink**2
    half = np.linalg.inv(np.linalg.cholesky(k))
    alpha = half.T @ (half @ residual)
    precision = (half**2).sum(axis=0)
    found = Residual(centre=centre, length=spread * length, points=points, alpha=alpha, half=half, size_s=factor * size)
    return Learnt(learner=found, shrink=shrink, loo_residual=alpha / precision, loo_variance=1 / precision)


def _folded(k: Floats, residual: Floats, errors: Floats) -> Floats:
    """The residuals that are left where each fold is predicted from the others."""
    left = np.empty_like(residual)
    fold = np.arange(len(residual)) % FOLDS
    for number in range(FOLDS):
        held, kept = fold == number, fold != number
        inner = k[np.ix_(kept, kept)] + np.diag(errors[kept])
        left[held] = residual[held] - k[np.ix_(held, kept)] @ np.linalg.solve(inner, residual[kept])
    return left
