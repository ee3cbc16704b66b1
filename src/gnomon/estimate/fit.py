"""Fit an estimator: a prior from tables and other devices, samples of whole nets, and intervals calibrated by the
samples.

Errors are modelled with heavy tails, so that a net that was measured under load counts little: a Student error is a
normal error with an unknown variance. The expected inverse of this variance is the weight of a sample in each pass, and
the samples determine how heavy the tails are (Lange, Little and Taylor, Robust Statistical Modeling Using the t
Distribution, 1989). Each residual comes from a fit without its sample, so that an outlier cannot pull the model towards
itself.

The width of intervals follows from the scores of the samples: each left-out residual divided by its predicted
deviation. With many samples, the width is a quantile of the scores, as in conformal prediction (Barber et al.,
Predictive Inference with the Jackknife+, 2021). With few samples, a single score would decide. So the quantile is
smoothed (Harrell and Davis, 1982) and drawn towards the quantile of normal errors, which is widened for heavy tails and
because the deviation itself comes from few samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from gnomon.errors import UsageError
from gnomon.estimate.columns import Columns, FitOptions, Floats, times
from gnomon.estimate.estimator import Coefficients, Estimator, Noise
from gnomon.estimate.prior import (
    Evidence,
    Posterior,
    Prior,
    Problem,
    build,
    climb,
    expected_noise,
    posterior,
    starts,
)

MOST_SAMPLES = 20_000
_NOTHING_SEEN_NOISE = 0.06
_LEAST_LOG_NOISE = math.log(1e-3)  # below it, a sample's own error would be divided by nearly zero
_TAILS = (3.0, 1.0, 2.0, 5.0)  # degrees of freedom of the errors' Student distribution, the usual value first
_SURE_TAIL = 2.0  # the log likelihood of another tail must exceed that of the usual tail by this much
_SCALES = np.exp(np.linspace(-2.4, 0.8, 17))  # the scales of errors to try, in units of the estimated noise
_FLOOR = 0.2  # errors grow with a net's time, but stay nearly the same below this share of the median time
_TRUST = 20.0  # with this many samples, half of the trust is in the scores
_HEAVY = 1.05  # the width of errors with heavy tails, relative to normal ones
_GRID = 4000
_ROUNDED = 12**-0.5  # the standard deviation of rounding to whole steps, in steps
_STEPS_S = tuple(10.0**-k for k in range(10))
_LEAST_STEP = 1e-4  # as a share of the shortest time: finer steps do not matter


def factors(residual: Floats, variance: Floats, current: Floats) -> Floats:
    """The factor of each sample's variance, (tail + z**2) / (tail + 1), for residuals z in unweighted deviations."""
    z2 = residual**2 / variance * current
    tail = tail_of(z2)
    multiples: Floats = (tail + z2) / (tail + 1)
    return multiples


def tail_of(squares: Floats) -> float:
    """The degrees of freedom of the Student distribution that makes these squared deviations most likely, at any scale.

    With few degrees of freedom, outliers count little. The usual value is kept unless another value is clearly more
    likely.
    """
    scaled = squares[:, None] / _SCALES**2

    def likelihood(tail: float) -> float:
        normal = math.lgamma((tail + 1) / 2) - math.lgamma(tail / 2) - 0.5 * math.log(tail)
        by_scale = len(squares) * (normal - np.log(_SCALES)) - (tail + 1) / 2 * np.log1p(scaled / tail).sum(axis=0)
        return float(by_scale.max()) + (_SURE_TAIL if tail == _TAILS[0] else 0.0)

    return max(_TAILS, key=likelihood)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A device's coefficients, bias first, each divided by the device's level (the median of its times).

    `noise` is the relative error of a measured net on the device.
    """

    name: str
    columns: tuple[str, ...]
    coefficients: Floats
    noise: float

    def on(self, columns: Columns) -> Floats:
        """The coefficients (1 + columns) in the order of these columns; 0 for columns that the device lacks.

        UsageError if the device has none of these columns.
        """
        own = dict(zip(self.columns, self.coefficients[1:].tolist(), strict=True))
        if not any(name in own for name in columns.names):
            raise UsageError(
                f"the other device '{self.name}' has no column in common with these nets",
                hint="Describe both devices with the same columns.",
            )
        return np.array([self.coefficients[0], *(own.get(name, 0.0) for name in columns.names)])


def source(name: str, columns: Columns, rows: ArrayLike, times_s: ArrayLike) -> Source:
    """The source from a device's own samples, with times in seconds.

    UsageError for inputs that do not fit together or for fewer than two samples.
    """
    x = columns.matrix(rows, "samples")
    y = times(times_s, len(x))
    if len(x) < 2:
        raise UsageError(
            f"the other device '{name}' has fewer than two samples",
            hint="Give two or more samples of the device, or leave the device out.",
        )
    unpriced = replace(columns, prior_s=None, bias=1.0)
    estimator = fit(unpriced, x, y, options=FitOptions(passes=2))
    coefficients = estimator.coefficients.mean / estimator.level_s
    return Source(name=name, columns=columns.names, coefficients=coefficients, noise=estimator.noise.relative)


def factor(scores: Floats, coverage: float, freedom: float) -> float:
    """The factor that turns the predicted deviation into the half-width of an interval of this coverage.

    `freedom` is the number of samples less the number of coefficients that they determine.
    """
    count = len(scores)
    normal = NormalDist().inv_cdf((1 + coverage) / 2)
    if count == 0:
        return normal
    assumed = normal * _HEAVY * (1 + 0.8 / max(freedom, 1.0))
    seen = smooth_quantile(np.abs(scores), coverage) * (1 + 4.0 / max(freedom, 1.0))
    if not seen > 0:
        return assumed
    trust = count / (count + _TRUST)
    return math.exp((1 - trust) * math.log(assumed) + trust * math.log(seen))


def smooth_quantile(values: Floats, share: float) -> float:
    """The Harrell-Davis quantile: the order statistics weighted by a beta distribution around the share."""
    ordered = np.sort(values)
    count = len(ordered)
    a, b = share * (count + 1) - 1, (1 - share) * (count + 1) - 1
    u = (np.arange(_GRID) + 0.5) / _GRID
    log_density = a * np.log(u) + b * np.log1p(-u)
    density = np.exp(log_density - log_density.max())
    place = np.minimum((u * count).astype(np.intp), count - 1)
    weights = np.bincount(place, weights=density, minlength=count)
    return float(weights @ ordered / weights.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solution:
    """The result of `_search`. `errors` are the samples' variances; `usual` is the relative error of a measured net."""

    theta: Floats
    posterior: Posterior
    errors: Floats
    weights: Floats
    usual: float


def fit(
    columns: Columns,
    rows: ArrayLike,
    times_s: ArrayLike,
    *,
    options: FitOptions | None = None,
    sources: Sequence[Source] = (),
    errors_s: ArrayLike | None = None,
) -> Estimator:
    """Fit the estimator of a device to whole nets: one row (nets, columns) and one time in seconds for each net.

    Without samples, `columns` must have the prices of a table; the estimator then predicts the table's sum, with
    intervals from the errors that tables have shown.

    `sources` are other devices' coefficients on the same columns. `errors_s` are the standard errors of the times
    (nets,), NaN for an unknown error: a net that is known only roughly counts little. The fit is deterministic.
    UsageError if the inputs do not fit together, or if there are neither samples nor prices.
    """
    chosen = options or FitOptions()
    x = columns.matrix(rows if np.size(rows) else np.zeros((0, len(columns))), "samples")
    y = times(times_s, len(x))
    if len(x) > MOST_SAMPLES:
        raise UsageError(f"{len(x)} samples are more than the limit of {MOST_SAMPLES}", hint="Give fewer samples.")
    if not len(x) and columns.prior_s is None:
        raise UsageError("there are neither samples nor prices to fit to", hint="Measure a few whole nets.")
    level = float(np.median(y)) if len(x) else 1.0
    prior = build(columns, x, level, [s.on(columns) for s in sources])
    x1 = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    own = np.hypot(_own(errors_s, y), _ROUNDED * resolution(y)) / level
    noise = expected_noise([s.noise for s in sources])
    try:
        best = _search(prior, x1, y / level, own, chosen, noise)
        return _estimator(columns, (x1, y, level, own), prior, best, chosen)
    except np.linalg.LinAlgError as error:  # beyond the precision of a float
        raise UsageError(
            f"prices and times differ too much in size for a fit (the nets' median time is {level:.3g} s)",
            hint="Give both in seconds.",
        ) from error


def _own(errors_s: ArrayLike | None, y: Floats) -> Floats:
    """The standard errors of the times in seconds; unknown errors are replaced by the others' median relative error."""
    if errors_s is None or not len(y):
        return np.zeros(len(y))
    given = np.asarray(errors_s, dtype=float)
    stated = ~np.isnan(given)
    usual = float(np.median(given[stated] / y[stated])) if stated.any() else 0.0
    return np.where(stated, given, usual * y)


def resolution(times_s: Floats) -> float:
    """The resolution of a clock, in seconds: the largest power of ten of which all times are whole multiples.

    0 if there is no such power, or if it is too fine to matter.
    """
    if not len(times_s):
        return 0.0
    for step in _STEPS_S:
        multiples = times_s / step
        whole = np.round(multiples)
        if (whole >= 1).all() and (np.abs(multiples - whole) < 1e-6).all():
            return step if step > _LEAST_STEP * float(times_s.min()) else 0.0
    return 0.0


def _search(
    prior: Prior, x1: Floats, y: Floats, own: Floats, options: FitOptions, expected: tuple[float, float]
) -> _Solution:
    """Estimate sizes and noise, then weights, repeatedly: weights need residuals, and residuals need sizes.

    A sample's variance is the variance of any net times a factor from its residual, plus its `own` standard error
    squared. `expected` is the prior of the noise (see `expected_noise`).
    """
    sizes = np.array([b.size for b in prior.blocks])
    centred = y - x1 @ prior.mean
    problem = Problem(y=centred, designs=tuple(b.design(x1) for b in prior.blocks), sizes=sizes)
    if not len(y):
        start = np.append(np.log(sizes), math.log(_NOTHING_SEEN_NOISE))
        post = posterior(problem, start, y)
        return _Solution(theta=start, posterior=post, errors=y, weights=y, usual=_NOTHING_SEEN_NOISE)
    spread = y**2 + _FLOOR**2
    multiplied = np.ones(len(y))

    def weights(log_noise: float) -> Floats:
        return np.asarray(multiplied * spread + own**2 * math.exp(-2 * log_noise), dtype=float)

    log_noise = math.log(expected[0])
    theta = np.append(np.log(sizes), log_noise)
    for number in range(options.passes):
        evidence = Evidence(problem, weights(log_noise), expected)
        first = theta if number else max(starts(sizes), key=evidence)
        theta = climb(evidence, first, later=number > 0)
        log_noise = max(float(theta[-1]), _LEAST_LOG_NOISE)
        post = posterior(problem, theta, weights(log_noise))
        fitted = x1 @ prior.mean + problem.stacked @ post.mean
        spread = np.maximum(fitted, 0.0) ** 2 + _FLOOR**2
        multiplied = factors(post.loo_residual, post.loo_variance, multiplied)
    final = weights(log_noise)
    post = posterior(problem, theta, final)
    usual = math.hypot(math.exp(float(theta[-1])), float(np.median(own / np.sqrt(spread))))
    errors = math.exp(2 * theta[-1]) * final
    return _Solution(theta=theta, posterior=post, errors=errors, weights=usual**2 * spread / errors, usual=usual)


def _estimator(
    columns: Columns, samples: tuple[Floats, Floats, float, Floats], prior: Prior, best: _Solution, options: FitOptions
) -> Estimator:
    x1, y, level, own = samples
    coefficients = _coefficients(prior, best, level)
    noise = best.usual
    floor_s = _FLOOR * level if len(y) else 0.0
    residual_s, variance = best.posterior.loo_residual * level, best.posterior.loo_variance * level**2
    errors = best.errors * level**2
    # A left-out net is scored by the deviation predicted for any net, even if it is an outlier. But if the net's own
    # standard error is larger, that error counts, so that a rough measurement does not widen all intervals.
    expected = np.maximum(y - residual_s, 0.0)
    any_net = noise**2 * (expected**2 + floor_s**2)
    score = residual_s / np.sqrt(np.maximum(variance - errors, 0.0) + np.maximum(any_net, (own * level) ** 2))
    priced = columns.prior_s is not None and ~np.isnan(columns.prior_s)
    given = np.any([b.directions[1:, 0] != 0 for b in prior.blocks if b.name == "other devices"], axis=0)
    if columns.shared is not None and len(y):  # samples of other columns also show the price of a shared property
        given = given | columns.shared.any(axis=1)
    # The number of samples less the sum of their leverages, the effective number of coefficients.
    freedom = float((best.errors / best.posterior.loo_variance).sum())
    return Estimator(
        columns=columns,
        level_s=level if len(y) else 0.0,
        coefficients=coefficients,
        noise=Noise(
            relative=noise,
            floor_s=floor_s,
            width=factor(score, options.coverage, freedom),
            coverage=options.coverage,
        ),
        known=(x1[:, 1:] != 0).any(axis=0) | priced | given,
        sizes={b.name: math.exp(float(t)) for b, t in zip(prior.blocks, best.theta[:-1], strict=True)},
        weights=np.minimum(best.weights, 1.0),
    )


def _coefficients(prior: Prior, best: _Solution, level: float) -> Coefficients:
    post = best.posterior
    width = len(prior.mean)
    counts = [b.directions.shape[-1] for b in prior.blocks]

    def spread(values: Floats) -> Floats:
        """Coefficients from values along all directions (r, k)."""
        parts = np.split(values, np.cumsum(counts)[:-1])
        pairs = zip(prior.blocks, parts, strict=True)
        return sum((b.spread(part, width) for b, part in pairs), np.zeros((width, values.shape[1])))

    mean = (prior.mean + spread(post.mean[:, None])[:, 0]) * level
    if post.more is not None:
        return Coefficients(mean=mean, own=np.zeros(width), more=spread(post.more) * level, less=np.zeros((width, 0)))
    own, more = np.zeros(width), []
    for block, variance in zip(prior.blocks, np.split(post.prior, np.cumsum(counts)[:-1]), strict=True):
        scaled = block.directions * np.sqrt(variance) * level
        if block.alone is None:
            more.append(scaled)
        else:
            np.add.at(own, block.alone, scaled**2)
    less = np.zeros((width, 0)) if post.less is None else spread(post.less) * level
    return Coefficients(mean=mean, own=own, more=np.concatenate([np.zeros((width, 0)), *more], axis=1), less=less)
