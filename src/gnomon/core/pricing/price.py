"""Prices of operators inside a whole graph, from traced runs and from runs without a profiler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_PATIENCE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One assignment that was run: the backend and the traced time of each operator, and the untraced total.

    `assignment[i]` is the index of operator i's backend; `operator_s[i]` are its traced seconds; `total_s` are the
    seconds of the whole run without tracing; `weight` is the weight of this observation relative to others.
    """

    assignment: tuple[int, ...]
    operator_s: tuple[float, ...]
    total_s: float
    weight: float = 1.0


def operator_prices(observations: Sequence[Observation], backends: int) -> Array:
    """The seconds of each operator on each backend, shape (operators, backends); infinity if none was observed.

    Tracing itself takes time at each operator, and the executor has a cost that no operator accounts for. Both are
    modelled as a constant per operator and backend, fitted by least squares to the totals that were measured without
    tracing (with a small ridge that keeps the constants of the backends similar if the data cannot tell them apart).
    Whatever then remains between a run's total and the sum of its operators is spread over them in proportion to their
    times, so that the prices from one observation add up to its total. An operator that several observations saw on the
    same backend gets the weighted mean of its prices.
    """
    if not observations:
        raise ValueError("no observation to price from")
    count = len(observations[0].assignment)
    constants = _constants(observations, backends)
    total = np.zeros((count, backends))
    weight = np.zeros((count, backends))
    rows = np.arange(count)
    for seen in observations:
        chosen = np.asarray(seen.assignment)
        traced = np.asarray(seen.operator_s)
        priced = np.maximum(traced + constants[chosen], 0.05 * traced)
        priced = priced * (seen.total_s / max(float(priced.sum()), 1e-12))
        total[rows, chosen] += seen.weight * priced
        weight[rows, chosen] += seen.weight
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(weight > 0, total / weight, np.inf)


def _constants(observations: Sequence[Observation], backends: int) -> Array:
    """The constant of each backend, in seconds per operator; negative if tracing costs more than the executor."""
    numbers = np.zeros((len(observations), backends))
    gaps = np.zeros(len(observations))
    for row, seen in enumerate(observations):
        numbers[row] = np.bincount(np.asarray(seen.assignment), minlength=backends)
        gaps[row] = seen.total_s - sum(seen.operator_s)
        scale = seen.weight / max(seen.total_s, 1e-12)
        numbers[row] *= scale
        gaps[row] *= scale
    common = float(numbers.sum(axis=1) @ gaps / max(float((numbers.sum(axis=1) ** 2).sum()), 1e-300))
    # The unknowns are the deviations from the common constant; the ridge has the scale of a typical row.
    ridge = 0.1 * float(np.abs(numbers).max()) * np.eye(backends)
    left = np.vstack([numbers, ridge])
    right = np.concatenate([gaps - numbers.sum(axis=1) * common, np.zeros(backends)])
    deviations = np.linalg.lstsq(left, right, rcond=None)[0]
    return np.asarray(common + deviations, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTime:
    """Seconds of the segment of blocks [first, last) on one backend, inside a chain or as the whole model."""

    first: int
    last: int
    backend: int
    time_s: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPrices:
    """Additive prices of blocks: `block_s` (blocks, backends), and the price of a cut for the segment on either side.

    `enter_s[k, b]` is the extra time of a segment on backend b that begins at block k, and `leave_s[k, b]` is the extra
    time of a segment that ends before block k; both are 0 at the model's own ends (k = 0 and k = blocks).
    """

    block_s: Array
    enter_s: Array
    leave_s: Array

    def segment_s(self, first: int, last: int, backend: int) -> float:
        """The predicted time of a segment."""
        inner = float(self.block_s[first:last, backend].sum())
        return inner + float(self.enter_s[first, backend] + self.leave_s[last, backend])

    def chain_s(self, chain: Iterable[tuple[int, int, int]]) -> float:
        """The predicted time of segments (first, last, backend) one after the other."""
        return sum(self.segment_s(*segment) for segment in chain)


def segment_prices(prior_s: Array, times: Sequence[SegmentTime]) -> SegmentPrices:
    """Fit additive prices to segment times, around a prior of each block's time inside the whole graph.

    `prior_s` has shape (blocks, backends). In the model a segment takes the sum of its blocks plus a price at each
    end that is a cut (for a layout reorder, a lost fusion or cold memory). The fit is by least squares with a ridge
    towards the prior and towards cuts that cost nothing, and no price is below zero. Backends do not share prices, so
    each is fitted on its own.
    """
    blocks, backends = prior_s.shape
    block = np.zeros((blocks, backends))
    enter = np.zeros((blocks + 1, backends))
    leave = np.zeros((blocks + 1, backends))
    for backend in range(backends):
        seen = [t for t in times if t.backend == backend]
        block[:, backend], enter[1:blocks, backend], leave[1:blocks, backend] = _fit(prior_s[:, backend], seen)
    return SegmentPrices(block_s=block, enter_s=enter, leave_s=leave)


def _fit(prior: Array, times: Sequence[SegmentTime]) -> tuple[Array, Array, Array]:
    """The prices of one backend: the seconds of each block, and those of entering and of leaving at each inner cut."""
    blocks = len(prior)
    total = max(float(prior.sum()), 1e-12)
    rows, right = [], []
    for seen in times:
        row = np.zeros(blocks + 2 * (blocks - 1))
        row[seen.first : seen.last] = 1.0
        if seen.first > 0:
            row[blocks + seen.first - 1] = 1.0
        if seen.last < blocks:
            row[2 * blocks - 1 + seen.last - 1] = 1.0
        # The error of a long segment matters in proportion to its share of the whole: its weight lies between those for
        # absolute and for relative errors.
        scale = seen.weight / max(float(np.sqrt(seen.time_s * total)), 1e-12)
        rows.append(row * scale)
        right.append((seen.time_s - float(prior[seen.first : seen.last].sum())) * scale)
    # The tolerated deviation of each unknown from its prior: a share of the block, and of a typical block.
    typical = total / blocks
    reach = np.concatenate([0.10 * prior + 0.03 * typical, np.full(2 * (blocks - 1), 0.15 * typical)])
    ridge = np.diag(0.03 / reach)
    left = np.vstack([*rows, ridge])
    target = np.concatenate([np.asarray(right), np.zeros(len(reach))])
    low = np.concatenate([-prior, np.zeros(2 * (blocks - 1))])
    fitted = bounded_least_squares(left, target, low)
    return prior + fitted[:blocks], fitted[blocks : 2 * blocks - 1], fitted[2 * blocks - 1 :]


def bounded_least_squares(left: Array, right: Array, low: Array) -> Array:
    """The x >= low that minimises the squared difference between left @ x and right; `left` must have full column rank.

    It uses block principal pivoting (Portugal, Judice and Vicente, A comparison of block pivoting and interior-point
    algorithms for linear least squares problems with nonnegative variables, 1994). If exchanging blocks does not help,
    it falls back to Murty's single pivots, which always terminate.
    """
    gram, moment = left.T @ left, left.T @ (right - left @ low)
    tiny = 1e-12 * float(np.abs(moment).max(initial=1e-300))
    free = np.ones(len(moment), dtype=bool)
    best, patience = len(moment) + 1, _PATIENCE
    for _ in range(100 + 10 * len(moment)):
        x = np.zeros(len(moment))
        x[free] = np.linalg.solve(gram[np.ix_(free, free)], moment[free])
        gradient = moment - gram @ x
        wrong = np.flatnonzero((free & (x < 0)) | (~free & (gradient > tiny)))
        if not len(wrong):
            break
        if len(wrong) < best:
            best, patience = len(wrong), _PATIENCE
        elif patience:
            patience -= 1
        else:
            wrong = wrong[-1:]
        free[wrong] = ~free[wrong]
    return np.asarray(low + np.maximum(x, 0.0))
