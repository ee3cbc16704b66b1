"""Change points of a series of times: where its level moved for good, despite autocorrelated noise.

Neighbouring blocks of one process are not independent: whatever slows one down mostly slows the next down too. A
search that takes them for independent finds changes in every quiet series. So the series is treated in three steps,
each of them published: single blocks far off their neighbours are drawn in (Hampel's filter; Davies and Gather, "The
Identification of Multiple Outliers", 1993), what a value has of the one before is taken out by a robust estimate of
it (Chakar, Lebarbier, Levy-Leduc and Robin, "A Robust Approach for Estimating Change-Points in the Mean of an AR(1)
Process", 2017), and the best division of what is left, with a penalty for each change, is found exactly (Jackson et
al., "An Algorithm for Optimal Partitioning of Data on an Interval", 2005; PELT finds the same sooner in series far
longer than these). The tests measure its false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST = 5
"""Blocks of a level at least: what is over sooner is a disturbance."""

RELEVANT = 0.02
"""How far two neighbouring levels must be apart, as a share of the lower one, to count as two."""

_PENALTY = 8.0
"""The least gain of a change, in variances of the noise times log n. Schwarz takes 2; more makes up for the memory of a
series and its noise being estimates."""

_HALF_WINDOW, _FAR = 5, 3.0
_NORMAL_90 = 1.6449
"""How many standard deviations nine in ten values of a normal distribution are within."""

_MOST_MEMORY = 0.98
_STEPS = 4
"""Steps between levels whose differences are left out where the noise is looked at."""

_ROUGH = 0.25
"""How far the memory that medians estimate may be off."""

_FINEST = 1e-4
"""The noise of a series that shows none: levels that differ by less are the same."""


def change_points(values_s: Sequence[float], *, relevant: float = RELEVANT) -> tuple[int, ...]:
    """Where new levels begin, as indices of the series; none in one too short to tell noise from change.

    ValueError for values that are not above 0.
    """
    times = np.asarray(values_s, dtype=np.float64)
    if times.size and not times.min() > 0:
        raise ValueError("a time is above 0")
    if times.size < 4 * LEAST:
        return ()
    series = _drawn_in(np.log(times))
    memory = _memory(series)
    # The first value has none before it; a change at k of the series is one at k - 1 of what is left.
    left = (series[1:] - memory * series[:-1]) / (1 - memory)
    changes = [k + 1 for k in _divided(left / _noise(left), _PENALTY * math.log(left.size))]
    return tuple(_relevant(np.log(times), changes, math.log1p(relevant)))


def _drawn_in(series: Array) -> Array:
    """The series with values far from the median of their neighbours moved to the limit of what is near."""
    padded = np.pad(series, _HALF_WINDOW, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _HALF_WINDOW + 1)
    middle = np.median(windows, axis=1)
    off = series - middle
    # A machine with two levels that take turns has no outliers: what is far off must also be rare.
    limit = _FAR * max(float(np.quantile(np.abs(off), 0.9)) / _NORMAL_90, _FINEST)
    drawn: Array = middle + np.clip(off, -limit, limit)
    return drawn


def _memory(series: Array) -> float:
    """How much of a value's distance from its level the next one keeps, from 0 on.

    Differences over two steps have 1 + memory times the variance of those over one. Mean squares tell that closely, but
    many changes of level pass for memory in them; medians tell it roughly, whatever changes, and bound it.
    """
    single, two = series[1:] - series[:-1], series[2:] - series[:-2]
    close = _excess(_variance(single), _variance(two))
    rough = _excess(float(np.median(np.abs(single))) ** 2, float(np.median(np.abs(two))) ** 2)
    return min(max(0.0, min(close, rough + _ROUGH)), _MOST_MEMORY)


def _excess(near: float, two: float) -> float:
    return two / near - 1 if near > 0 else 0.0


def _variance(differences: Array) -> float:
    """Mean square without the few largest, which may be steps between levels: two for each."""
    squares = np.sort(differences**2)
    return float(squares[: max(1, squares.size - 2 * _STEPS)].mean())


def _noise(series: Array) -> float:
    """The standard deviation of the noise of independent values around levels, from their differences."""
    return max(math.sqrt(_variance(np.diff(series)) / 2), _FINEST)


def _divided(series: Array, penalty: float) -> list[int]:
    """The division of least squares around means, plus a penalty for each change: where its parts begin but the first.

    The series has noise of variance 1. No part is shorter than `LEAST`. Takes time with the square of the length.
    """
    n = series.size
    sums = np.concatenate(([0.0], np.cumsum(series - series.mean())))
    lengths = np.arange(n + 1, dtype=np.float64)
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(n + 1, dtype=np.int64)
    for end in range(LEAST, n + 1):
        last = end - LEAST + 1
        # Squares of the values are the same in every division, so that only those of the means count.
        cost = best[:last] - (sums[end] - sums[:last]) ** 2 / (end - lengths[:last])
        before[end] = np.argmin(cost)
        best[end] = cost[before[end]] + penalty
    starts: list[int] = []
    end = int(before[n])
    while end > 0:
        starts.append(end)
        end = int(before[end])
    return starts[::-1]


def _relevant(logs: Array, changes: list[int], least: float) -> list[int]:
    """The changes without those between levels that are too near, the nearest taken out first."""
    kept = list(changes)
    while kept:
        bounds = [0, *kept, logs.size]
        levels = [float(np.median(logs[a:b])) for a, b in pairwise(bounds)]
        steps = [abs(b - a) for a, b in pairwise(levels)]
        nearest = min(range(len(steps)), key=steps.__getitem__)
        if steps[nearest] >= least:
            break
        del kept[nearest]
    return kept
