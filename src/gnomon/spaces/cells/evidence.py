"""Is a reduced space better than the full one? Random networks of both, compared by their errors at equal latency.

Design spaces are compared by the distribution of the errors of networks drawn at random, not by their best ones, and
only where complexity is equal (Radosavovic, Johnson, Xie, Lo and Dollar, "On network design spaces for visual
recognition", 2019; Radosavovic, Kosaraju, Girshick, He and Dollar, "Designing network design spaces", 2020). Here the
complexity is latency: networks are put into bins by it, and in each bin both spaces weigh the same.

The test permutes which space a network is of within the bins, so that latency has no part in what it finds. Nothing
here asks whether values were measured or predicted; predicted ones say what is predicted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.errors import ProblemError

_LEAST = 8  # networks of each space below which no distribution is told
_CHUNK = 1 << 22  # numbers that are held at once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnNetworks:
    """Networks drawn at random from a space: error rates (N,), and latencies (N,) in a unit that both spaces share.

    ProblemError for shapes that do not fit, what is not finite, latencies that are not above 0, fewer than 8 networks.
    """

    errors: Floats
    latencies: Floats

    def __post_init__(self) -> None:
        errors, latencies = (np.asarray(one, dtype=np.float64) for one in (self.errors, self.latencies))
        if errors.ndim != 1 or errors.shape != latencies.shape or len(errors) < _LEAST:
            raise ProblemError(
                f"errors of shape {errors.shape} and latencies of shape {latencies.shape} do not make a distribution",
                hint=f"Give one of each a network, and at least {_LEAST} networks.",
            )
        if not (np.isfinite(errors).all() and np.isfinite(latencies).all() and (latencies > 0).all()):
            raise ProblemError(
                "an error or a latency is not finite, or a latency is not above 0",
                hint="Leave out the networks that failed.",
            )
        object.__setattr__(self, "errors", errors)
        object.__setattr__(self, "latencies", latencies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Median:
    """The median error of a space at the shared latencies, and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpaceEvidence:
    """The comparison of two spaces at equal latency.

    `thresholds` (M,) are errors, and `full` and `reduced` (M,) the share of networks of each with at most that error.
    `statistic` is the largest distance between them (Kolmogorov and Smirnov), `p_value` how likely one as large is if
    both spaces are alike; `ahead` and `p_ahead` are those of the largest lead of the reduced one alone, and `behind`
    is its largest lag: the reduced space dominates where that is 0. `compared` networks of each were in the `bins` bins
    of latency that both spaces reach; the others are left out.
    """

    thresholds: Floats
    full: Floats
    reduced: Floats
    statistic: float
    p_value: float
    ahead: float
    p_ahead: float
    behind: float
    full_median: Median
    reduced_median: Median
    compared: tuple[int, int]
    bins: int


def compare_spaces(
    full: DrawnNetworks, reduced: DrawnNetworks, *, bins: int = 8, rounds: int = 2000, seed: int = 0
) -> SpaceEvidence:
    """Compare networks of a full and of a reduced space in bins of latency, which hold equally many of both together.

    A bin weighs what it holds of both. `rounds` permutations, and as many bootstrap samples. ProblemError where the
    two share no latencies, or a number is below 1.
    """
    if bins < 1 or rounds < 1:
        raise ProblemError("the bins and the rounds are numbers from 1", hint="Use 8 bins and 2000 rounds.")
    errors = np.concatenate([full.errors, reduced.errors])
    is_reduced = np.repeat([False, True], [len(full.errors), len(reduced.errors)])
    place = _bins(np.concatenate([full.latencies, reduced.latencies]), bins)
    counts = np.array([np.bincount(place[is_reduced == side], minlength=bins) for side in (False, True)])
    shared: NDArray[np.bool_] = np.asarray((counts > 0).all(axis=0))
    if not shared.any():
        raise ProblemError(
            "the two spaces have no latencies in common",
            hint="Use fewer bins, or compare them by their fronts: one is faster throughout.",
        )
    inside = shared[place]
    order = np.argsort(errors[inside], kind="stable")
    sample = _Sample(
        errors=errors[inside][order],
        is_reduced=is_reduced[inside][order],
        place=place[inside][order],
        counts=counts,
    )
    rng = np.random.default_rng(seed)
    ahead, behind = _leads(sample, sample.is_reduced[None, :])
    shuffled = _permuted(sample, rounds, rng)
    medians = [_median(sample, side, rounds, rng) for side in (False, True)]
    curves = [np.cumsum(np.where(sample.is_reduced == side, sample.weights(side), 0.0)) for side in (False, True)]
    ends = sample.ends()
    statistic = max(float(ahead[0]), float(behind[0]))
    return SpaceEvidence(
        thresholds=sample.errors[ends],
        full=curves[0][ends],
        reduced=curves[1][ends],
        statistic=statistic,
        p_value=_p(shuffled.max(axis=0), statistic),
        ahead=float(ahead[0]),
        p_ahead=_p(shuffled[0], float(ahead[0])),
        behind=float(behind[0]),
        full_median=medians[0],
        reduced_median=medians[1],
        compared=(int(counts[0, shared].sum()), int(counts[1, shared].sum())),
        bins=int(shared.sum()),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sample:
    """Networks of both spaces by rising error, the bin of each, and how many of each space a bin holds (2, bins)."""

    errors: Floats
    is_reduced: NDArray[np.bool_]
    place: Ints
    counts: Ints

    def weights(self, side: bool) -> Floats:
        """What each network weighs if it is of that space: together they weigh 1."""
        bins = np.where((self.counts > 0).all(axis=0), self.counts.sum(axis=0), 0)
        shares = bins / bins.sum() / np.maximum(self.counts[int(side)], 1)
        return np.asarray(shares[self.place])

    def ends(self) -> Ints:
        """The last place of each error."""
        return np.flatnonzero(np.append(np.diff(self.errors) > 0, True))


def _bins(latencies: Floats, bins: int) -> Ints:
    edges = np.quantile(latencies, np.arange(1, bins) / bins)
    return np.asarray(np.searchsorted(edges, latencies, side="right"), dtype=np.intp)


def _leads(sample: _Sample, marks: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """How far the marked networks (R, N) are ahead of the others at most, and behind them, for each row."""
    steps = np.where(marks, sample.weights(True), -sample.weights(False))
    apart = np.cumsum(steps, axis=1)[:, sample.ends()]
    return np.maximum(apart.max(axis=1), 0.0), np.maximum(-apart.min(axis=1), 0.0)


def _permuted(sample: _Sample, rounds: int, rng: np.random.Generator) -> Floats:
    """Leads and lags (2, rounds) if the two spaces were alike: labels are permuted within each bin."""
    members = [np.flatnonzero(sample.place == b) for b in range(sample.counts.shape[1])]
    found = []
    step = max(1, _CHUNK // len(sample.errors))
    for start in range(0, rounds, step):
        rows = min(step, rounds - start)
        marks = np.zeros((rows, len(sample.errors)), dtype=bool)
        for own in members:
            if len(own):
                marks[:, own] = rng.permuted(np.tile(sample.is_reduced[own], (rows, 1)), axis=1)
        found.append(np.array(_leads(sample, marks)))
    return np.concatenate(found, axis=1)


def _p(shuffled: Floats, seen: float) -> float:
    """The share of permutations that are as extreme, the one that was seen among them."""
    return float((1 + int((shuffled >= seen - 1e-12).sum())) / (1 + len(shuffled)))


def _median(sample: _Sample, side: bool, rounds: int, rng: np.random.Generator) -> Median:
    """The weighted median of one space, and its interval: networks are drawn again within each bin."""
    own = np.flatnonzero(sample.is_reduced == side)
    weights, place = sample.weights(side)[own], sample.place[own]
    errors = sample.errors[own]
    groups = [np.flatnonzero(place == b) for b in np.unique(place)]
    drawn = np.empty(rounds)
    for k in range(rounds):
        chosen = np.concatenate([group[rng.integers(0, len(group), len(group))] for group in groups])
        drawn[k] = _weighted_median(errors, np.bincount(chosen, minlength=len(own)) * weights)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Median(value=_weighted_median(errors, weights), low=float(low), high=float(high))


def _weighted_median(errors: Floats, weights: Floats) -> float:
    """The least of the rising errors at which half the weight is reached."""
    total = np.cumsum(weights)
    return float(errors[int(np.searchsorted(total, total[-1] / 2 * (1 - 1e-12)))])
