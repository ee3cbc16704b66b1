"""Change points of a series of times with autocorrelated noise: the places where its level moved for good.

Neighbouring blocks of one process are not independent: a disturbance that slows one block down usually slows the next
one down too. A search that assumes independent blocks finds changes even in a quiet series. The series is therefore
processed in three steps, each a published method:

1. Single blocks that lie far from their neighbours are moved closer to them (Hampel's filter; Davies and Gather, "The
   Identification of Multiple Outliers", 1993).
2. The autocorrelation is estimated robustly and removed (Chakar, Lebarbier, Levy-Leduc and Robin, "A Robust Approach
   for Estimating Change-Points in the Mean of an AR(1) Process", 2017).
3. The best division of the resulting series, with a penalty for each change, is found exactly (Jackson et al., "An
   Algorithm for Optimal Partitioning of Data on an Interval", 2005; PELT finds the same division, and is faster only
   for far longer series).

The tests measure the rate of false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST = 5
"""The minimum number of blocks in a level: a shorter shift counts as a disturbance."""

RELEVANT = 0.02
"""The minimum distance between two neighbouring levels that count as different, as a share of the lower level."""

_PENALTY = 8.0
"""The minimum gain for which a change is accepted, in units of the noise's variance times log n. Schwarz's criterion
uses 2. The larger value allows for the fact that the memory and the noise of the series are only estimates."""

_HALF_WINDOW, _FAR = 5, 3.0
_NORMAL_90 = 1.6449
"""The number of standard deviations within which nine in ten values of a normal distribution lie."""

_MOST_MEMORY = 0.98
_STEPS = 4
"""The number of changes of level for which `_variance` leaves out the largest differences."""

_ROUGH = 0.25
"""The error allowed for when the memory is estimated from medians."""

_FINEST = 1e-4
"""The minimum noise that is assumed, even for a series that shows none."""


def change_points(values_s: Sequence[float], *, relevant: float = RELEVANT) -> tuple[int, ...]:
    """The indices of the series at which new levels begin.

    There are none if the series is too short to distinguish noise from change. ValueError for values that are not
    above 0.
    """
    times = np.asarray(values_s, dtype=np.float64)
    if times.size and not times.min() > 0:
        raise ValueError("every time must be above 0")
    if times.size < 4 * LEAST:
        return ()
    series = _drawn_in(np.log(times))
    memory = _memory(series)
    # The first value has no predecessor, so index k of the series is index k - 1 of `left`.
    left = (series[1:] - memory * series[:-1]) / (1 - memory)
    changes = [k + 1 for k in _divided(left / _noise(left), _PENALTY * math.log(left.size))]
    return tuple(_relevant(np.log(times), changes, math.log1p(relevant)))


def _drawn_in(series: Array) -> Array:
    """The series, with each value that is too far from its neighbours' median moved to the limit around that median."""
    padded = np.pad(series, _HALF_WINDOW, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * _HALF_WINDOW + 1)
    middle = np.median(windows, axis=1)
    off = series - middle
    # A machine that alternates between two levels has no outliers: to be one, a value must be both far off and rare.
    limit = _FAR * max(float(np.quantile(np.abs(off), 0.9)) / _NORMAL_90, _FINEST)
    drawn: Array = middle + np.clip(off, -limit, limit)
    return drawn


def _memory(series: Array) -> float:
    """The share of a value's distance from its level that the next value keeps, at least 0.

    The variance of differences over two steps is (1 + memory) times the variance of differences over one step. Mean
    squares estimate this ratio closely, but they mistake frequent changes of level for memory. Medians estimate it only
    roughly, but changes of level hardly disturb them, so they bound the first estimate from above.
    """
    single, two = series[1:] - series[:-1], series[2:] - series[:-2]
    close = _excess(_variance(single), _variance(two))
    rough = _excess(float(np.median(np.abs(single))) ** 2, float(np.median(np.abs(two))) ** 2)
    return min(max(0.0, min(close, rough + _ROUGH)), _MOST_MEMORY)


def _excess(near: float, two: float) -> float:
    return two / near - 1 if near > 0 else 0.0


def _variance(differences: Array) -> float:
    """The mean square without the few largest values, which may come from steps between levels (two for each step)."""
    squares = np.sort(differences**2)
    return float(squares[: max(1, squares.size - 2 * _STEPS)].mean())


def _noise(series: Array) -> float:
    """The standard deviation of independent values around their levels, estimated from neighbours' differences."""
    return max(math.sqrt(_variance(np.diff(series)) / 2), _FINEST)


def _divided(series: Array, penalty: float) -> list[int]:
    """The indices at which the parts of the best division begin, except the first part.

    The best division minimises the sum of squares around the means of its parts plus a penalty for each change. The
    series must have noise of variance 1. No part is shorter than `LEAST`. The time grows with the square of the length.
    """
    n = series.size
    sums = np.concatenate(([0.0], np.cumsum(series - series.mean())))
    lengths = np.arange(n + 1, dtype=np.float64)
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(n + 1, dtype=np.int64)
    for end in range(LEAST, n + 1):
        last = end - LEAST + 1
        # The squares of the values have the same sum in every division, so only the squares of the means count.
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
    """The changes, except those between levels that are too close together; the closest levels are joined first."""
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
