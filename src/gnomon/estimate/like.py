"""Estimate times of units that have never been measured from times of similar units, by a Gaussian process over
logarithms.

The logarithm of a time is the sum of levels (one for all units, one for each sort and one for each family; families are
named "sort:family"), of linear and smooth functions of the features (one of each for all units and for each family),
and of noise (Rasmussen and Williams 2006, chapters 2 and 5). Far from all measured units the model is linear in the
logarithms of work. The size, the length and the noise are the values from a small grid that make the measured times
most probable.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gnomon.errors import UsageError
from gnomon.estimate.columns import Floats

_LENGTHS = (1.5, 3.0, 5.0, 8.0)
_SIZES = (0.2, 0.5, 1.0)
_NOISES = (0.03, 0.06, 0.12, 0.25, 0.4)
_LEVEL, _SORT, _FAMILY, _SLOPE, _SLOPE_OF_FAMILY = 3.0, 1.0, 0.5, 1.0, 0.5
LEAST = 8
"""The minimum number of times to learn from."""

MOST = 4000
"""The maximum number of times to learn from; of more, only every n-th is used, so that learning takes only seconds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Like:
    """A fitted model of times, made by `learn_likeness`."""

    centre: Floats
    spread: Floats
    points: Floats
    families: tuple[str, ...]
    level: float
    length: float
    size: float
    noise: float
    half: Floats
    alpha: Floats

    def predict(self, features: ArrayLike, families: Sequence[str]) -> tuple[Floats, Floats]:
        """The expected logarithms (n,) and their covariance (n, n), noise included; features are (n, k)."""
        x = (np.asarray(features, float) - self.centre) / self.spread
        codes = _codes(self.families, families)
        mixed = _covariance((x, codes), (self.points, _codes(self.families, self.families)), self.length, self.size)
        along = mixed @ self.half.T
        own = _covariance((x, codes), (x, codes), self.length, self.size) - along @ along.T
        own[np.diag_indices(len(own))] += self.noise**2
        return self.level + mixed @ self.alpha, own


def learn_likeness(
    features: ArrayLike, families: Sequence[str], logs: ArrayLike, errors: ArrayLike | None = None
) -> Like:
    """Learn logarithms of times (n,) from features (n, k) and families. UsageError for fewer than `LEAST` times.

    `errors` are the standard errors of the logarithms, which are added to the noise.
    """
    x, y = np.asarray(features, float), np.asarray(logs, float)
    own = np.zeros(len(y)) if errors is None else np.asarray(errors, float) ** 2
    if len(y) < LEAST:
        raise UsageError(
            f"{len(y)} measured units are too few to estimate the times of other units; {LEAST} are needed",
            hint="Build a table with more units: gnomon table build operators",
        )
    step = -(-len(y) // MOST)
    x, y, own, families = x[::step], y[::step], own[::step], tuple(families[::step])
    centre, spread = x.mean(axis=0), x.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    points, codes, level = (x - centre) / spread, _codes(families, families), float(y.mean())
    given = points, codes
    best: tuple[float, tuple[float, float, float], Any] | None = None
    for length, size in itertools.product(_LENGTHS, _SIZES):
        base = _covariance(given, given, length, size)
        for noise in _NOISES:
            half = np.linalg.cholesky(base + np.diag(noise**2 + own))
            left = np.linalg.solve(half, y - level)
            evidence = -0.5 * float(left @ left) - float(np.log(np.diag(half)).sum())
            if best is None or evidence > best[0]:
                best = evidence, (length, size, noise), half
    assert best is not None  # noqa: S101  # the loops are not empty
    length, size, noise = best[1]
    inverse: Floats = np.asarray(np.linalg.inv(best[2]), dtype=np.float64)
    return Like(
        centre=centre,
        spread=spread,
        points=points,
        families=families,
        level=level,
        length=length,
        size=size,
        noise=noise,
        half=inverse,
        alpha=inverse.T @ (inverse @ (y - level)),
    )


def _codes(learnt: Sequence[str], asked: Sequence[str]) -> tuple[Floats, Floats]:
    """The families asked for, and their sorts, both as numbers."""
    number = {name: k for k, name in enumerate(dict.fromkeys((*learnt, *asked)))}
    sort = {name.partition(":")[0]: k for name, k in reversed(number.items())}
    return (
        np.array([number[name] for name in asked], float),
        np.array([sort[name.partition(":")[0]] for name in asked], float),
    )


_Points = tuple[Floats, tuple[Floats, Floats]]


def _covariance(a: _Points, b: _Points, length: float, size: float) -> Floats:
    same, alike = ((own[:, None] == other).astype(float) for own, other in zip(a[1], b[1], strict=True))
    smooth = kernel(a[0] / length, b[0] / length) * size**2
    linear = a[0] @ b[0].T
    covariance: Floats = (
        _LEVEL**2
        + _SLOPE**2 * linear
        + smooth
        + alike * _SORT**2
        + same * (_FAMILY**2 + _SLOPE_OF_FAMILY**2 * linear + smooth)
    )
    return covariance


def kernel(a: Floats, b: Floats) -> Floats:
    """exp(-d**2 / 2) for the distances d between the rows of `a` and those of `b` (len(a), len(b))."""
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T
    return np.asarray(np.exp(-0.5 * np.maximum(squares, 0.0)))
