"""A fitted estimator: predictions with intervals, explanations of them, and scores of their accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.core.codec import within as range_of
from gnomon.errors import ProblemError
from gnomon.estimate.columns import Columns, Floats, Least0, Unknown

_BATCH = 8192
_LEAST_OF_LEVEL = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Times of nets in seconds: the expected times, and both ends of their intervals."""

    mean_s: Floats
    low_s: Floats
    high_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """The contribution of one column to a net: its time in seconds, and its share of the prediction's variance."""

    column: str
    time_s: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Seconds per unit of each column, bias first (1 + columns,): the mean, and the covariance diag(own) + more more' -
    less less'.
    """

    mean: Floats
    own: Floats
    more: Floats
    less: Floats

    def __post_init__(self) -> None:
        # The order in memory affects the last bits of a product, so fitted and read estimators use the same order.
        for name in ("mean", "own", "more", "less"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=float))

    def variance(self, x1: Floats) -> Floats:
        """The variance of the expected time of rows that begin with a 1 for the bias, in seconds squared."""
        variance = (x1 * x1) @ self.own
        for sign, part in ((1.0, self.more), (-1.0, self.less)):
            if part.shape[1]:
                along = x1 @ part
                variance += sign * np.einsum("ij,ij->i", along, along)
        return np.maximum(variance, 0.0)

    def times(self, row: Floats) -> Floats:
        """The covariance times a row (1 + columns,)."""
        return self.own * row + self.more @ (self.more.T @ row) - self.less @ (self.less.T @ row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The error of one measured net is `relative` times the root of the sum of its squared time and `floor_s` squared.
    Half of an interval is `width` times the predicted deviation.
    """

    relative: Least0
    floor_s: Least0
    width: Least0
    coverage: Annotated[float, range_of(0.5, 0.999, "a share from 0.5 to 0.999")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimator:
    """A linear model of times with its uncertainty. Columns with neither a sample nor a price are not `known`.

    `level_s` is the median of the samples' times (0 without samples), `sizes` are the estimated sizes of the prior's
    blocks, and `weights` are the weights of the samples (1: the sample counted fully).
    """

    columns: Columns
    level_s: float
    coefficients: Coefficients
    noise: Noise
    known: NDArray[np.bool_]
    sizes: Mapping[str, float]
    weights: Floats

    def predict(self, rows: ArrayLike, *, unknown: Unknown = Unknown.REFUSE) -> Prediction:
        """Times of nets, one for each row (nets, columns).

        Raises ProblemError if a net has a column that is not known, unless `unknown` is WIDEN.
        """
        x = self._checked(rows, unknown)
        mean, deviation = np.empty(len(x)), np.empty(len(x))
        for start in range(0, len(x), _BATCH):
            part = slice(start, start + _BATCH)
            mean[part], deviation[part] = self._moments(x[part])
        half = self.noise.width * deviation
        return Prediction(mean_s=mean, low_s=np.maximum(mean - half, 0.0), high_s=mean + half)

    def mean_s(self, rows: ArrayLike, *, unknown: Unknown = Unknown.REFUSE) -> Floats:
        """The expected times alone, in seconds: the fastest prediction, for search loops."""
        return self._mean(self._checked(rows, unknown))

    def probability(self, rows: ArrayLike, bound_s: float, *, unknown: Unknown = Unknown.REFUSE) -> Floats:
        """The probability that each net takes at most `bound_s`.

        Times are assumed to be normally distributed, with the width of the interval.
        """
        prediction = self.predict(rows, unknown=unknown)
        normal = NormalDist()
        deviation = (prediction.high_s - prediction.mean_s) / normal.inv_cdf((1 + self.noise.coverage) / 2)
        z = (bound_s - prediction.mean_s) / np.maximum(deviation, 1e-300)
        return np.array([normal.cdf(float(v)) for v in z])

    def explain(self, row: ArrayLike) -> tuple[Contribution, ...]:
        """The contributions of a net's columns, of the bias and of noise, the largest share of variance first.

        The times add up to the expected time (unless it was raised to the minimum, a hundredth of the level), and the
        shares to 1. A share can be negative if columns are known better together than separately.
        """
        x = self._checked(row, Unknown.WIDEN)[:1]
        x1 = np.concatenate([[1.0], x[0]])
        mean, _ = self._moments(x)
        noise = (self.noise.relative * math.hypot(float(mean[0]), self.noise.floor_s)) ** 2
        parts = x1 * self.coefficients.times(x1)
        total = float(parts.sum()) + noise or 1.0
        time = x1 * self.coefficients.mean
        names = ("bias", *self.columns.names)
        doubts = [
            Contribution(column=n, time_s=float(t), share=float(p) / total)
            for n, t, p, v in zip(names, time, parts, x1, strict=True)
            if v
        ]
        doubts.append(Contribution(column="noise", time_s=0.0, share=noise / total))
        return tuple(sorted(doubts, key=lambda d: -d.share))

    def _checked(self, rows: ArrayLike, unknown: Unknown) -> Floats:
        x = self.columns.matrix(rows)
        if Unknown(unknown) is Unknown.REFUSE and not self.known.all():
            strange = np.flatnonzero(~self.known & (x != 0).any(axis=0))
            if strange.size:
                names = [self.columns.names[i] for i in strange]
                shown = ", ".join(f"'{n}'" for n in names[:3]) + (
                    f" and {len(names) - 3} more" if len(names) > 3 else ""
                )
                raise ProblemError(
                    f"there is neither a sample nor a price for {shown}",
                    hint="Measure a net that has it, price it in the table, or allow wide intervals (unknown='widen').",
                )
        return x

    def _mean(self, x: Floats) -> Floats:
        mean: Floats = x @ self.coefficients.mean[1:] + self.coefficients.mean[0]
        return np.maximum(mean, _LEAST_OF_LEVEL * self.level_s)

    def _moments(self, x: Floats) -> tuple[Floats, Floats]:
        mean = self._mean(x)
        x1 = np.concatenate([np.ones((len(x), 1)), x], axis=1)
        variance = self.coefficients.variance(x1)
        variance += self.noise.relative**2 * (mean**2 + self.noise.floor_s**2)
        return mean, np.sqrt(variance)


def within(predicted: Floats, measured: Floats, tolerance: float = 0.1) -> float:
    """The share of predictions with an error of at most `tolerance` of the measured time."""
    return float(np.mean(np.abs(predicted - measured) <= tolerance * measured))


def relative_error(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """Mean and median of |predicted - measured| / measured."""
    errors = np.abs(predicted - measured) / measured
    return float(errors.mean()), float(np.median(errors))


def spearman(predicted: Floats, measured: Floats) -> float:
    """Spearman's rank correlation, with mean ranks for ties; 0 if either side is constant."""
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
    ranks: Floats = (ends - (counts - 1) / 2.0)[inverse]
    return ranks
