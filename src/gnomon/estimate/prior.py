"""The prior of the linear model: its mean is the table's prices, and its blocks say how these may be wrong.

A block is a set of directions in the space of coefficients that share an unknown size: the bias, the scale of the
table, the columns of one kind, their shared properties, the mean of other devices, or the differences between those
devices. Simpler models are special cases: with all sizes zero, the table's sum; with only bias and table, a scale and a
bias; with kinds, a correction of each price. The sizes of the blocks and the noise are those with the highest evidence.

Samples are y = design u + e. Each direction has one coordinate in u, a unit normal variable times the size of its
block, and the errors are independent with the variance `noise**2 * weights`. Everything is exact linear algebra in the
smaller of two spaces, the space of the directions or the space of the samples (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, chapter 2; MacKay, Bayesian Interpolation, 1992, for the evidence).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gnomon.estimate.columns import Columns, Floats

TABLE_SIZE = 0.3
# Sums of tables alone were off by 1 to 17 %. Without samples of nets, a common deviation of 10 % allows for this.
UNSEEN_TABLE_SIZE = 0.1
KIND_SIZE = 0.5
PRICED_SIZE = 0.1
BESIDE_SOURCES_SIZE = 0.1
SIZE_SPREAD = 1.5  # of the logarithm of a block's size
_LEAST_VARIATION = 1e-9
NOISE = 0.06
NOISE_SPREAD = 1.2  # of the logarithm of the relative noise
_MOST_NOISE = 0.3  # more noise would explain everything; the residuals still widen intervals
_OF_DEVICES = 0.5  # the least spread of the noises of similar devices, as logarithms
_STEPS = (1.6, 0.8, 0.4, 0.2)
_LATER_STEPS = (0.8, 0.3)
_MOST = 9.0
_FACTORIAL = 4  # up to this many blocks, all combinations of on and off are tried as starts
_JITTER = 1e-9
WORK = "work"
"""The name of the block for the shared properties of columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Directions that share an unknown size, whose prior is log-normal with the median `size`.

    Row 0 of `directions` (1 + columns, r) is the bias. If each direction changes a single column, `alone` (r,) has the
    rows of these columns, and `directions` (r,) has the change of each.
    """

    name: str
    directions: Floats
    size: float
    alone: NDArray[np.intp] | None = None

    def design(self, x1: Floats) -> Floats:
        """The effects (n, r) of the directions on nets (n, 1 + columns)."""
        if self.alone is None:
            return np.asarray(x1 @ self.directions, dtype=float)
        return np.asarray(x1[:, self.alone] * self.directions, dtype=float)

    def spread(self, values: Floats, width: int) -> Floats:
        """The coefficients (width, k) for values (r, k) along the directions."""
        if self.alone is None:
            return np.asarray(self.directions @ values, dtype=float)
        coefficients = np.zeros((width, values.shape[1]))
        coefficients[self.alone] = values * self.directions[:, None]
        return coefficients


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """The prior of the coefficients, bias first, in units of the level: their mean, and the blocks."""

    mean: Floats
    blocks: tuple[Block, ...]


def build(columns: Columns, x: Floats, level_s: float, sources: Sequence[Floats]) -> Prior:
    """The prior for samples `x` (n, columns) with the median time `level_s`.

    `sources` are coefficients (1 + columns) of other devices, each divided by that device's level.
    """
    width = 1 + len(columns)
    mean = np.zeros(width)
    blocks: list[Block] = []
    if len(x):
        blocks.append(Block(name="bias", directions=np.ones(1), size=columns.bias, alone=np.zeros(1, dtype=np.intp)))
    priced = _priced(columns)
    if priced.any() and columns.prior_s is not None:
        mean[1:][priced] = columns.prior_s[priced] / level_s
        blocks.append(
            Block(name="table", directions=mean[:, None].copy(), size=TABLE_SIZE if len(x) else UNSEEN_TABLE_SIZE)
        )
    if sources:
        stack = np.stack([np.asarray(s, dtype=float) for s in sources], axis=1)
        middle = stack.mean(axis=1, keepdims=True)
        blocks.append(Block(name="other devices", directions=middle, size=1.0))
        if stack.shape[1] > 1:
            blocks.append(Block(name="differences of devices", directions=stack - middle, size=KIND_SIZE))
    if (common := _common(columns, x)) is not None:
        blocks.append(Block(name=WORK, directions=common, size=BESIDE_SOURCES_SIZE if sources else KIND_SIZE))
    for kind in dict.fromkeys(columns.kinds):
        members = np.flatnonzero(np.array(columns.kinds) == kind)
        size = PRICED_SIZE if priced[members].all() else BESIDE_SOURCES_SIZE if sources else KIND_SIZE
        blocks.append(
            Block(
                name=kind, directions=_sizes(columns, members, x, mean), size=size, alone=(1 + members).astype(np.intp)
            )
        )
    return Prior(mean=mean, blocks=tuple(blocks))


def _priced(columns: Columns) -> NDArray[np.bool_]:
    if columns.prior_s is None:
        return np.zeros(len(columns), dtype=bool)
    return ~np.isnan(columns.prior_s)


def _common(columns: Columns, x: Floats) -> Floats | None:
    """A direction for each shared property that varies between nets, scaled so that together they change the level by
    1; None without any.
    """
    if columns.shared is None:
        return None
    variation = (x @ columns.shared).std(axis=0) if len(x) else np.zeros(columns.shared.shape[1])
    varied = variation > _LEAST_VARIATION * np.abs(columns.shared).max(axis=0)
    if not varied.any():
        return None
    directions = np.zeros((1 + len(columns), int(varied.sum())))
    directions[1:] = columns.shared[:, varied] / variation[varied] / np.sqrt(varied.sum())
    return directions


def _sizes(columns: Columns, members: NDArray[np.intp], x: Floats, mean: Floats) -> Floats:
    """The step of a kind's prior for each column: its price, or a step that changes the level by 1 at the usual
    variation of the kind's columns.
    """
    scale = np.ones(len(members)) if columns.scale is None else columns.scale[members]
    own = mean[1:][members]
    if (own > 0).all() or (not len(x) and _priced(columns)[members].all() and not own.any()):
        return own  # without samples, a price of 0 is used as it is
    inner = x[:, members] / scale
    if len(x) > 1:
        inner = inner - inner.mean(axis=0)
    variation = float(np.sqrt((inner**2).sum(axis=1).mean())) if inner.size else 0.0
    usual = 1.0 / variation if variation > _LEAST_VARIATION else 1.0
    if (own > 0).any():  # columns without a price are assumed to cost as much as the others of their kind
        usual = float(np.exp(np.log(own[own > 0] * scale[own > 0]).mean()))
    return np.where(own > 0, own, usual / scale)


def expected_noise(others: Sequence[float]) -> tuple[float, float]:
    """The prior of the noise: its median, and the deviation of its logarithm, pooled with other devices' noises."""
    logs = np.log([NOISE, *(max(noise, 1e-3) for noise in others)])
    spread = math.hypot(float(logs[1:].std()), _OF_DEVICES) if others else NOISE_SPREAD
    return math.exp(float(logs.mean())), min(spread + NOISE_SPREAD / len(logs), NOISE_SPREAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Samples in units of the level: `y` (n,) less the time that the prior expects, and each block's design (n, r) and
    median size.
    """

    y: Floats
    designs: tuple[Floats, ...]
    sizes: Floats
    stacked: Floats = field(init=False)
    owner: NDArray[np.intp] = field(init=False)
    grams: tuple[Floats, ...] = field(init=False)

    def __post_init__(self) -> None:
        stacked = np.concatenate(self.designs, axis=1) if self.designs else np.zeros((len(self.y), 0))
        object.__setattr__(self, "stacked", stacked)
        counts = [d.shape[1] for d in self.designs]
        object.__setattr__(self, "owner", np.repeat(np.arange(len(counts)), counts).astype(np.intp))
        small = stacked.shape[0] < stacked.shape[1]
        object.__setattr__(self, "grams", tuple(d @ d.T for d in self.designs) if small else ())


class Evidence:
    """The log of the evidence times the hyperprior, as a function of the logs of the blocks' sizes and, last, of the
    noise.

    `noise` is the prior of the noise, as `expected_noise` returns it.
    """

    def __init__(self, problem: Problem, weights: Floats, noise: tuple[float, float] = (NOISE, NOISE_SPREAD)) -> None:
        self._p = problem
        self._noise = noise
        self._weights = weights
        self._log_sizes = np.log(problem.sizes)
        self._log_weights = float(np.log(weights).sum())
        if not problem.grams:
            scaled = problem.stacked / weights[:, None]
            self._cross = problem.stacked.T @ scaled
            self._moment = scaled.T @ problem.y
            self._square = float(problem.y @ (problem.y / weights))

    def __call__(self, theta: Floats) -> float:
        """The value at a point."""
        prior = -0.5 * float((((theta[:-1] - self._log_sizes) / SIZE_SPREAD) ** 2).sum())
        prior -= 0.5 * ((float(theta[-1]) - math.log(self._noise[0])) / self._noise[1]) ** 2
        return prior + (self._by_samples(theta) if self._p.grams else self._by_directions(theta))

    def _by_samples(self, theta: Floats) -> float:
        count = len(self._p.y)
        k = np.zeros((count, count))
        for size, gram in zip(np.exp(2 * theta[:-1]), self._p.grams, strict=True):
            k += size * gram
        k[np.diag_indices(count)] += math.exp(2 * theta[-1]) * self._weights + _JITTER
        factor = np.linalg.cholesky(k)
        a = np.linalg.solve(factor, self._p.y)
        return float(-0.5 * a @ a - np.log(np.diag(factor)).sum())

    def _by_directions(self, theta: Floats) -> float:
        count = len(self._p.y)
        noise = math.exp(2 * theta[-1])
        t = np.exp(theta[:-1])[self._p.owner]
        a = (self._cross * t[:, None]) * t / noise
        a[np.diag_indices(len(t))] += 1.0
        factor = np.linalg.cholesky(a)
        b = np.linalg.solve(factor, t * self._moment) / math.sqrt(noise)
        quadratic = (self._square - float(b @ b)) / noise if noise else 0.0
        log_det = 2 * float(np.log(np.diag(factor)).sum()) + count * 2 * float(theta[-1]) + self._log_weights
        return -0.5 * (quadratic + log_det)


def climb(evidence: Evidence, start: Floats, *, later: bool = False) -> Floats:
    """A point of high evidence, reached by a deterministic pattern search: it takes ever smaller steps along single
    coordinates, as long as they increase the evidence.
    """
    best, value = start, evidence(start)
    most = np.append(np.full(len(start) - 1, _MOST), math.log(_MOST_NOISE))
    for step in _LATER_STEPS if later else _STEPS:
        for _ in range(2):
            for j in range(len(best)):
                for sign in (step, -step):
                    while -_MOST <= best[j] + sign <= most[j]:
                        trial = best.copy()
                        trial[j] += sign
                        reached = evidence(trial)
                        if reached <= value + 1e-6:
                            break
                        best, value = trial, reached
    return best


def starts(sizes: Floats) -> list[Floats]:
    """Starting points: all blocks at full size, or some of them small, each with little and with much noise."""
    count = len(sizes)
    if count <= _FACTORIAL:
        patterns: Sequence[Sequence[float]] = list(itertools.product((-3.0, 0.0), repeat=count))
    else:
        patterns = [[0.0] * count, [-3.0] * count]
        for j in range(count):
            patterns = [*patterns, [-3.0 * (i == j) for i in range(count)], [-3.0 * (i != j) for i in range(count)]]
    return [np.array([*(np.log(sizes) + p), math.log(noise)]) for p in patterns for noise in (0.02, 0.15)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """The posterior of the directions: its mean (r,), and its covariance as diag(prior) - less less' or as more more'.

    `loo_residual`, `loo_variance` (n,): each sample less its prediction from the other samples, and the variance of
    this difference, including the sample's own error.
    """

    mean: Floats
    prior: Floats
    more: Floats | None
    less: Floats | None
    loo_residual: Floats
    loo_variance: Floats


def posterior(problem: Problem, theta: Floats, weights: Floats) -> Posterior:
    """The posterior at given sizes and noise (logs, as in Evidence), with closed-form leave-one-out residuals."""
    t = np.exp(theta[:-1])[problem.owner]
    errors = math.exp(2 * theta[-1]) * weights + _JITTER
    design = problem.stacked * t
    if problem.grams:
        k = design @ design.T
        k[np.diag_indices(len(errors))] += errors
        half = np.linalg.inv(np.linalg.cholesky(k))
        alpha = half.T @ (half @ problem.y)
        precision = (half**2).sum(axis=0)
        less = t[:, None] * (half @ design).T
        mean, more = t * (design.T @ alpha), None
    else:
        scaled = design / errors[:, None]
        a = design.T @ scaled
        a[np.diag_indices(len(t))] += 1.0
        half = np.linalg.inv(np.linalg.cholesky(a))
        u = half.T @ (half @ (scaled.T @ problem.y))
        alpha = (problem.y - design @ u) / errors
        precision = 1 / errors - ((half @ scaled.T) ** 2).sum(axis=0)
        mean, less, more = t * u, None, t[:, None] * half.T
    precision = np.maximum(precision, 1e-300)
    return Posterior(
        mean=mean, prior=t**2, more=more, less=less, loo_residual=alpha / precision, loo_variance=1 / precision
    )
