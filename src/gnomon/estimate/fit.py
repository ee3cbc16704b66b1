"""Fitting: a prior from tables and other devices, samples of whole nets, and the interval they allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gnomon.errors import UsageError
from gnomon.estimate.columns import Columns, Floats, times
from gnomon.estimate.conformal import factor
from gnomon.estimate.estimator import Coefficients, Estimator, Noise
from gnomon.estimate.evidence import NOISE, Evidence, Posterior, Problem, climb, posterior, starts
from gnomon.estimate.options import FitOptions, Learner
from gnomon.estimate.prior import Prior, build
from gnomon.estimate.residual import learn
from gnomon.estimate.robust import factors
from gnomon.estimate.source import Source

MOST_SAMPLES = 20_000
_NOTHING_SEEN_NOISE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    theta: Floats
    posterior: Posterior
    errors: Floats
    weights: Floats


def fit(
    columns: Columns,
    rows: ArrayLike,
    times_s: ArrayLike,
    *,
    options: FitOptions | None = None,
    sources: Sequence[Source] = (),
) -> Estimator:
    """The estimator of a device from whole nets: one row a net (nets, columns), one time a net in seconds.

    Without samples it needs a table (prices in `columns`) and is their sum, with an interval as wide as ignorance.
    `sources` are other devices' coefficients on the same columns. Deterministic. Raises UsageError for what does not
    fit together, and for neither samples nor prices.
    """
    chosen = options or FitOptions()
    x = columns.matrix(rows if np.size(rows) else np.zeros((0, len(columns))), "samples")
    y = times(times_s, len(x))
    if len(x) > MOST_SAMPLES:
        raise UsageError(f"{len(x)} samples are given, and no more than {MOST_SAMPLES} are used", hint="give fewer")
    if not len(x) and columns.prior_s is None:
        raise UsageError("there is neither a sample nor a price to estimate from", hint="measure a few whole nets")
    level = float(np.median(y)) if len(x) else 1.0
    prior = build(columns, x, level, [s.on(columns) for s in sources])
    x1 = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    found = _search(prior, x1, y / level, chosen)
    return _estimator(columns, (x1, y, level), prior, found, chosen)


def _search(prior: Prior, x1: Floats, y: Floats, options: FitOptions) -> _Found:
    """Sizes, noise and weights in turn: weights need residuals, residuals need sizes."""
    sizes = np.array([b.size for b in prior.blocks])
    centred = y - x1 @ prior.mean
    problem = Problem(y=centred, designs=tuple(x1 @ b.directions for b in prior.blocks), sizes=sizes)
    if not len(y):
        start = np.append(np.log(sizes), math.log(_NOTHING_SEEN_NOISE))
        return _Found(theta=start, posterior=posterior(problem, start, y), errors=y, weights=y)
    spread = y**2 + options.floor**2
    multiplied = np.ones(len(y))
    theta: Floats | None = None
    for _ in range(options.passes):
        evidence = Evidence(problem, multiplied * spread)
        first = max(starts(sizes), key=evidence) if theta is None else theta
        theta = climb(evidence, first, later=theta is not None)
        told = posterior(problem, theta, multiplied * spread)
        fitted = x1 @ prior.mean + problem.stacked @ told.mean
        spread = np.maximum(fitted, 0.0) ** 2 + options.floor**2
        multiplied = factors(told.loo_residual, told.loo_variance, multiplied, options.tail)
    if theta is None:
        theta = np.append(np.log(sizes), math.log(NOISE))
    told = posterior(problem, theta, multiplied * spread)
    return _Found(
        theta=theta, posterior=told, errors=math.exp(2 * theta[-1]) * multiplied * spread, weights=1 / multiplied
    )


def _estimator(
    columns: Columns, samples: tuple[Floats, Floats, float], prior: Prior, found: _Found, options: FitOptions
) -> Estimator:
    x1, y, level = samples
    coefficients = _coefficients(prior, found, level)
    noise = math.exp(float(found.theta[-1]))
    floor_s = options.floor * level if len(y) else 0.0
    residual_s, variance = found.posterior.loo_residual * level, found.posterior.loo_variance * level**2
    errors = found.errors * level**2
    learnt = None
    if options.learner is Learner.AUTO and len(y):
        learnt = learn(x1[:, 1:], y - x1 @ coefficients.mean, errors)
    if learnt is not None:
        # The linear part's own doubt stays in the variance of what is left out.
        residual_s, variance = learnt.loo_residual, learnt.loo_variance + np.maximum(variance - errors, 0.0)
        errors, noise = errors * learnt.shrink**2, noise * learnt.shrink
    # A left-out net is scored as any other net: by the deviation that is predicted for it, outlier or not.
    expected = np.maximum(y - residual_s, 0.0)
    score = residual_s / np.sqrt(np.maximum(variance - errors, 0.0) + noise**2 * (expected**2 + floor_s**2))
    priced = columns.prior_s is not None and ~np.isnan(columns.prior_s)
    given = np.any([b.directions[1:, 0] != 0 for b in prior.blocks if b.name == "other devices"], axis=0)
    return Estimator(
        columns=columns,
        level_s=level if len(y) else 0.0,
        coefficients=coefficients,
        noise=Noise(
            relative=noise,
            floor_s=floor_s,
            width=factor(score, options.coverage, _freedom(found)),
            coverage=options.coverage,
        ),
        known=(x1[:, 1:] != 0).any(axis=0) | priced | given,
        sizes={b.name: math.exp(float(t)) for b, t in zip(prior.blocks, found.theta[:-1], strict=True)},
        weights=np.minimum(found.weights, 1.0),
        residual=None if learnt is None else learnt.learner,
    )


def _freedom(found: _Found) -> float:
    """The number of samples less the sum of their leverages, the effective number of coefficients."""
    return float((found.errors / found.posterior.loo_variance).sum())


def _coefficients(prior: Prior, found: _Found, level: float) -> Coefficients:
    told = found.posterior
    width = len(prior.mean)
    directions = np.concatenate([b.directions for b in prior.blocks], axis=1)
    mean = (prior.mean + directions @ told.mean) * level
    if told.more is not None:
        return Coefficients(
            mean=mean, own=np.zeros(width), more=directions @ told.more * level, less=np.zeros((width, 0))
        )
    single = (directions != 0).sum(axis=0) == 1  # a kind's directions have one column each
    scaled = directions * np.sqrt(told.prior) * level
    own = (scaled[:, single] ** 2).sum(axis=1)
    less = np.zeros((width, 0)) if told.less is None else directions @ told.less * level
    return Coefficients(mean=mean, own=own, more=scaled[:, ~single], less=less)
