"""Statistics of repeated timings: median, interval, outliers, trend, and the comparison of two candidates.

Timings are not independent: calls of one process share its memory layout, its threads and its luck. So the unit that
counts is the fresh **process**, and the interval over several processes is Student's, computed from one number per
process: the logarithm of a time. A bootstrap over three to ten processes, the usual choice, covers the true value far
less often than its nominal probability (Hesterberg, "What Teachers Should Know about the Bootstrap", 2015). Nor may one
disturbed process decide a comparison: if there are five or more processes and one lies far off, the comparison uses the
interval of a trimmed mean. The tests measure the false alarms of these methods, with disturbed processes and with the
stop rule.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gnomon.core.sample import Run


Array = NDArray[np.float64]

UNKNOWN = (0.0, math.inf)
"""The interval of a time with too few measurements to bound it."""

_TRIMMED_FROM = 5
"""The minimum number of processes for a comparison to trim: with fewer, too few are left to estimate a spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Times in seconds, in the order in which one visit to one process took them: a `Run` reduced to its times."""

    process: int
    block: int
    values_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The statistics of one candidate's samples.

    `n` is the number of samples, and `processes` is the number of fresh processes. `low_s` and `high_s` bound the
    median (p50) with 95 % confidence; they are None if there are too few samples to bound it. `outliers` counts samples
    that are flagged; they are never removed. `trend` is True if the times rose or fell during the measurement, so that
    the summary does not describe a steady state.
    """

    n: int
    processes: int
    median_s: float
    low_s: float | None
    high_s: float | None
    p10_s: float
    p90_s: float
    p99_s: float
    min_s: float
    outliers: int
    trend: bool

    @property
    def relative_half_width(self) -> float:
        """Half the width of the interval divided by the median: 0.02 means that the median is known within 2 %;
        infinity if it is unknown.
        """
        if self.low_s is None or self.high_s is None or self.median_s <= 0:
            return math.inf
        return (self.high_s - self.low_s) / 2 / self.median_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """The factor by which one candidate is faster than another, with its 95 % interval (None: not bounded)."""

    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Candidate a against candidate b: `ratio` is a's time over b's, with its 95 % interval (None: not bounded).

    `verdict` is about a: "faster", "slower" or "tie". `pairs` counts the independent pairs behind the interval and
    `unit` is the unit of a pair: "process", or "block" if only one process was measured (its luck then remains
    unknown). `trimmed` is True if a process lay so far off that a fifth of the processes was trimmed at either end.
    """

    ratio: float
    low: float | None
    high: float | None
    verdict: Literal["faster", "slower", "tie"]
    pairs: int
    unit: Literal["process", "block"]
    trimmed: bool = False

    @property
    def speedup(self) -> Speedup:
        """The factor by which candidate a is faster than candidate b."""
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        return Speedup(ratio=1 / self.ratio, low=low, high=high)


_FAR = 1.5
"""The ratio from which a slower candidate is surely not as fast, however little is known about the spread."""
_NARROW = 1.04
"""The largest ratio of an interval's ends at which a tie is certain: 2 % to either side."""


def may_be_as_fast(verdict: str, ratio: float) -> bool:
    """Return True if a may be as fast as b, given the verdict and the ratio of a `Comparison`.

    A single pair bounds nothing, so its verdict is a tie, but a candidate that is far slower is still not as fast.
    """
    return verdict == "tie" and ratio < _FAR


def is_narrow(low: float | None, high: float | None) -> bool:
    """Return True if the interval of a tie is so narrow that both sides are certainly equally fast."""
    return bool(low and high and high <= _NARROW * low)


def blocks_of(runs: Iterable[Run], *, clock: Literal["wall", "cpu"] = "wall") -> tuple[Block, ...]:
    """The times of the runs that succeeded without a profiler, in order of process and block."""
    blocks = [
        Block(process=r.process, block=r.block, values_s=r.samples.wall_s if clock == "wall" else r.samples.cpu_s)
        for r in runs
        if r.samples is not None and not r.profiled and r.samples.wall_ns
    ]
    return tuple(sorted(blocks, key=lambda b: (b.process, b.block)))


def median(values: Sequence[float]) -> float:
    """The median; ValueError for no values."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile by linear interpolation (type 7 of Hyndman and Fan, 1996); ValueError for no values."""
    if len(values) == 0:
        raise ValueError("no values")
    # A block holds a few dozen values: sorting them is ten times as fast as handing them to numpy.
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))


def trimmed_mean(values: Sequence[float], *, proportion: float = 0.1) -> float:
    """The mean without the given proportion of the values at either end; ValueError for no values.

    This is meant for times that a profiler rounded to whole microseconds: their median can only be a whole or half
    microsecond.
    """
    if len(values) == 0:
        raise ValueError("no values")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    cut = int(proportion * len(ordered))
    return float(ordered[cut : len(ordered) - cut].mean())


def outliers(values: Sequence[float], *, k: float = 10.0) -> tuple[bool, ...]:
    """A flag for each value: True if it is further from the median than k standard deviations, estimated by the MAD.

    If more than half of the values are equal, the MAD is 0 and the mean absolute deviation takes its place
    (Iglewicz and Hoaglin, "How to Detect and Handle Outliers", 1993).
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        return ()
    distance = np.abs(x - np.median(x))
    scale = 1.4826 * float(np.median(distance)) or 1.2533 * float(distance.mean())
    return tuple(bool(flag) for flag in distance > k * scale)


def pooled_variance(groups: Iterable[Sequence[float]]) -> float | None:
    """The pooled variance within groups of values, without groups of one value; None if no group has two values."""
    again = [np.array(values) for values in groups if len(values) > 1]
    if not again:
        return None
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in again)
    return squares / sum(len(values) - 1 for values in again)


def order_statistic_interval(values: Sequence[float], *, confidence: float = 0.95) -> tuple[float, float]:
    """The distribution-free interval of the median of independent values (David and Nagaraja, Order
    Statistics, 7.1).

    Returns (0, infinity) for fewer than six values at 95 %, because no pair of order statistics then covers the median
    with this confidence.
    """
    n = len(values)
    below, total = -1, 0.0
    for k in range(max(0, int(n / 2 - 8 * math.sqrt(n))), n // 2 + 1):
        log_p = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2)
        total += math.exp(log_p)
        if total > (1 - confidence) / 2:
            break
        below = k
    if below < 0:
        return UNKNOWN
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return float(ordered[below]), float(ordered[n - 1 - below])


@functools.lru_cache(maxsize=4096)
def student_quantile(p: float, df: int) -> float:
    """The p-quantile of Student's t with df degrees of freedom, by bisection of its distribution function."""
    if df < 1 or not 0 < p < 1:
        raise ValueError("need df >= 1 and 0 < p < 1")
    if p < 0.5:
        return -student_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while _student_central(high, df) < 2 * p - 1:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_central(middle, df) < 2 * p - 1 else (low, middle)
    return (low + high) / 2


_MANY = 200
"""The degrees of freedom from which the expansion is as exact as the finite sum (one term for every two degrees)."""


def _student_central(t: float, df: int) -> float:
    """The probability that |T| <= t.

    For few degrees of freedom it is a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4). For many it is an
    expansion about the normal distribution (G. W. Hill, "Algorithm 395", 1970), which differs from the sum by less
    than 1e-14.
    """
    if df >= _MANY:
        a = df - 0.5
        b, square = 48 * a * a, a * math.log1p(t * t / df)
        scale = 10 * b * (b + 0.8 * square * square + 100)
        more = (square + 3) / b - (((4 * square + 33) * square + 240) * square + 855) / scale
        return math.erf(math.sqrt(square / 2) * (1 + more))
    angle = math.atan(t / math.sqrt(df))
    square = math.cos(angle) ** 2
    if df == 1:
        return 2 * angle / math.pi
    term = math.cos(angle) if df % 2 else 1.0
    total = term
    for k in range(3 if df % 2 else 2, df - 1, 2):
        term *= square * (k - 1) / k
        total += term
    if df % 2:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def _interval(logs: Array, confidence: float, cut: int = 0) -> tuple[float, float, float]:
    """The geometric mean of independent values, given as logarithms, without `cut` values at each end; and its
    interval.

    The interval is Student's, with the winsorised variance if values are cut: Tukey and McLaughlin, "Less Vulnerable
    Confidence and Significance Procedures for Location Based on a Single Sample", 1963.
    """
    kept = np.sort(logs)[cut : logs.size - cut] if cut else logs
    centre = float(kept.mean())
    if kept.size < 2:
        return math.exp(centre), *UNKNOWN
    spread = float(np.clip(logs, kept.min(), kept.max()).std(ddof=1))
    half = student_quantile((1 + confidence) / 2, kept.size - 1) * spread * math.sqrt(logs.size) / kept.size
    return math.exp(centre), math.exp(min(centre - half, 700.0)), math.exp(min(centre + half, 700.0))


def values_by_process(blocks: Iterable[Block]) -> dict[int, list[float]]:
    """The values of each process that has values, block after block."""
    groups: dict[int, list[float]] = {}
    for block in blocks:
        if block.values_s:
            groups.setdefault(block.process, []).extend(block.values_s)
    return groups


def median_interval(blocks: Sequence[Block]) -> tuple[float, float]:
    """The 95 % interval of the median time that fresh processes of the same candidate would show.

    With several processes, this is Student's interval over the logarithms of their medians, so three processes give a
    wide interval, as they should. With one process, it comes from the order statistics of the block medians, or of the
    samples if there are too few blocks. The interval always contains the median of all samples.
    """
    groups = values_by_process(blocks)
    pooled = [v for values in groups.values() for v in values]
    if not pooled or min(pooled) <= 0:
        return UNKNOWN
    if len(groups) > 1:
        _, low, high = _interval(np.log([median(values) for values in groups.values()]), 0.95)
    else:
        low, high = order_statistic_interval([median(b.values_s) for b in blocks if b.values_s])
        if math.isinf(high):
            low, high = order_statistic_interval(pooled)
    centre = median(pooled)
    return min(low, centre), max(high, centre)


def _bounded(low: float, high: float) -> tuple[float | None, float | None]:
    """The ends of an interval; None if they are unknown."""
    return (low, high) if low > 0 and math.isfinite(high) else (None, None)


def has_trend(series: Sequence[Sequence[float]], *, alpha: float = 0.01, relevant: float = 0.02) -> bool:
    """Return True if the series, each in order of time, rise or fall together by at least `relevant` of their level.

    Two conditions must hold: Kendall's test, summed over independent series (Hirsch, Slack and Smith, 1982), finds a
    trend, and the change from the first half to the second, as the median over the series, is large enough. Long series
    are first reduced to the medians of 32 stretches.
    """
    score, variance, changes = 0.0, 0.0, []
    for values in series:
        x = np.asarray(values, dtype=np.float64)
        if x.size > 32:
            x = np.asarray([np.median(part) for part in np.array_split(x, 32)])
        n = x.size
        if n < 3:
            continue
        score += float(np.triu(np.sign(x[None, :] - x[:, None]), 1).sum())
        ties = np.unique(x, return_counts=True)[1].astype(np.float64)
        variance += (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
        first = float(np.median(x[: n // 2]))
        changes.append(float(np.median(x[n - n // 2 :])) / first - 1 if first > 0 else 0.0)
    if variance <= 0 or abs(float(np.median(changes))) < relevant:
        return False
    z = max(abs(score) - 1, 0.0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2)) < alpha


def summarise(blocks: Sequence[Block]) -> Summary:
    """The summary of one candidate's samples. ValueError for no samples."""
    blocks = sorted(blocks, key=lambda b: (b.process, b.block))
    groups = values_by_process(blocks)
    pooled = [v for values in groups.values() for v in values]
    if not pooled:
        raise ValueError("no samples to summarise")
    low_s, high_s = _bounded(*median_interval(blocks))
    # The blocks of one process lie apart in time, with other candidates between them, so a trend shows in the blocks. A
    # process with fewer than four blocks shows a trend in its samples instead.
    medians = {p: [median(b.values_s) for b in blocks if b.process == p and b.values_s] for p in groups}
    series = [medians[process] if len(medians[process]) >= 4 else values for process, values in groups.items()]
    series.append([median(s) for s in series])
    return Summary(
        n=len(pooled),
        processes=len(groups),
        median_s=median(pooled),
        low_s=low_s,
        high_s=high_s,
        p10_s=quantile(pooled, 0.1),
        p90_s=quantile(pooled, 0.9),
        p99_s=quantile(pooled, 0.99),
        min_s=min(pooled),
        outliers=sum(sum(outliers(values)) for values in groups.values()),
        trend=has_trend(series),
    )


def compare(
    a: Sequence[Block], b: Sequence[Block], *, confidence: float = 0.95, relevant: float | None = None
) -> Comparison:
    """Compare two candidates that were measured interleaved: blocks of the same process and number ran side by side.

    Each process gives one number: the median, over the blocks that both candidates have, of the logarithm of the ratio
    of the block medians. Disturbances that affect both candidates cancel in this ratio. The interval is Student's
    interval over these numbers. If there are five or more numbers and `outliers` flags one, it is the interval of their
    trimmed mean, so that one disturbed process does not decide. The verdict is a tie if the interval contains 1 or the
    ratio is within `relevant` of 1 (by default 1 %, and 5 % if only one process was measured). With fewer than two
    pairs nothing bounds the ratio, and the verdict is a tie. Raises ValueError if the candidates have no block in
    common.
    """
    left = {(x.process, x.block): median(x.values_s) for x in a if x.values_s}
    right = {(x.process, x.block): median(x.values_s) for x in b if x.values_s}
    paired: dict[int, list[float]] = {}
    for key in sorted(left.keys() & right.keys()):
        if left[key] > 0 and right[key] > 0:
            paired.setdefault(key[0], []).append(math.log(left[key] / right[key]))
    if not paired:
        raise ValueError("the two configurations share no block of positive times")
    unit: Literal["process", "block"] = "process" if len(paired) > 1 else "block"
    logs = np.asarray([median(p) for p in paired.values()] if unit == "process" else next(iter(paired.values())))
    trimmed = unit == "process" and _disturbed(logs)
    ratio, low, high = _interval(logs, confidence, cut=max(1, logs.size // 5) if trimmed else 0)
    threshold = relevant if relevant is not None else (0.01 if unit == "process" else 0.05)
    verdict: Literal["faster", "slower", "tie"] = "tie"
    if abs(math.log(ratio)) >= math.log1p(threshold):
        verdict = "faster" if high < 1 else "slower" if low > 1 else "tie"
    ends = _bounded(low, high)
    return Comparison(
        ratio=ratio, low=ends[0], high=ends[1], verdict=verdict, pairs=logs.size, unit=unit, trimmed=trimmed
    )


_MEDIAN = math.sqrt(math.pi / 2)
"""The standard error of a median divided by that of a mean, for normal values."""

_UNSEEN = 0.02
"""The relative standard error assumed for an anchor that ran in only one process."""

_LEAST_NOISE = 0.02
"""The least noise of an anchor's times: without drift, other candidates in its process move them by up to 4 %."""


def drift(reference_s: Sequence[float], beside_s: Sequence[float]) -> float:
    """The factor that converts times to the machine's speed when the reference times were measured.

    `reference_s` are an anchor's reference times, and `beside_s` are its times measured next to the times to be
    converted. The factor is shrunk by the anchor's own noise, so that no noise is added if the machine keeps its speed:
    a ratio within two standard errors of 1 counts as 1, and one far outside counts in full (positive-part estimator of
    James and Stein, 1961).
    """
    if not reference_s or not beside_s:
        return 1.0
    then, now = np.log(reference_s), np.log(beside_s)
    log = float(np.median(then) - np.median(now))
    noise = max(math.hypot(_error(then), _error(now)), _LEAST_NOISE)
    kept = max(0.0, 1 - (2 * noise / log) ** 2) if log else 0.0
    return math.exp(kept * log)


def _error(logs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """The standard error of the median of these logarithms."""
    if logs.size < 2:
        return _UNSEEN
    return _MEDIAN * float(logs.std(ddof=1)) / math.sqrt(logs.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of two configurations that were not measured interleaved: one level per process, in order of time.

    `levels_s` are seconds of one call, and `moments_s` are the times at which the processes ran (seconds since 1970).
    """

    levels_s: tuple[float, ...]
    moments_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """The comparison of two sides that were measured apart: the geometric means of their processes' levels.

    `error` is the standard error of the logarithm of their ratio, and `freedom` is its degrees of freedom; `p` is the
    probability of a ratio this far from 1 if nothing changed. `drift` is the part of the error that comes from the
    machine's drift; it is 0 if the times do not show that the machine drifted.
    """

    before_s: float
    after_s: float
    error: float
    freedom: float
    p: float
    drift: float

    @property
    def ratio(self) -> float:
        """The time of the second side over the time of the first."""
        return self.after_s / self.before_s

    def interval(self, alpha: float) -> tuple[float, float]:
        """The interval of the ratio with confidence 1 - alpha; (0, infinity) if the error is unknown."""
        if not math.isfinite(self.error):
            return UNKNOWN
        half = self.error * _student(alpha, self.freedom)
        centre = math.log(self.ratio)
        return math.exp(max(centre - half, -700.0)), math.exp(min(centre + half, 700.0))

    def seen(self, alpha: float, often: float, *, above: float = 0.0) -> float | None:
        """The slow-down (0.03: 3 %) whose interval lies above a ratio with probability `often`; None if unknown.

        `above` is the logarithm of that ratio.
        """
        if not math.isfinite(self.error):
            return None
        half = self.error * (_student(alpha, self.freedom) + _student(2 * (1 - often), self.freedom))
        return math.expm1(min(above + half, 700.0))


def _student(alpha: float, freedom: float) -> float:
    """The two-sided quantile of Student's t."""
    return _between(lambda df: student_quantile(1 - alpha / 2, df), freedom)


def _between(value_of: Callable[[int], float], freedom: float) -> float:
    """The value for fractional degrees of freedom, interpolated between the values for whole ones."""
    below = max(1, math.floor(freedom))
    low, high = value_of(below), value_of(below + 1)
    share = min(max(1 / freedom - 1 / (below + 1), 0.0) / (1 / below - 1 / (below + 1)), 1.0)
    return high + share * (low - high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """The spread between earlier runs of the same thing, beyond the scatter of their processes.

    `variance` is the variance of the logarithm of one run's level, and `freedom` is its degrees of freedom. A spread
    that was given rather than estimated has so many degrees of freedom that their number does not matter.
    """

    variance: float
    freedom: int


FEWEST_RUNS = 5
"""The minimum number of runs of one thing for estimating the spread between runs: of 1,000 simulated pairs of equal
sides whose sessions differ by 0.5, 1 and 2 %, at most 13 are called different with five runs, up to 25 with four and up
to 33 with three."""

_GRANTED = 1_000_000


def granted_sessions(spread: float) -> Sessions | None:
    """A known spread between runs, given as a standard deviation of the logarithm; None if it is 0."""
    return Sessions(variance=spread**2, freedom=_GRANTED) if spread > 0 else None


def sessions_of(groups: Iterable[Sequence[Side]]) -> Sessions | None:
    """The spread between runs, from groups of runs of the same thing; None if there are too few (`FEWEST_RUNS`).

    The estimate is the variance of the runs' centres less the mean variance of a centre (the estimator of the analysis
    of variance).
    """
    squares, explained, freedom, runs = 0.0, 0.0, 0, 0
    for group in groups:
        sides = [_centre(np.log(side.levels_s))[:2] for side in group if len(side.levels_s) > 1]
        if len(sides) > 1:
            centres = np.asarray([centre for centre, _ in sides])
            squares += float(((centres - centres.mean()) ** 2).sum())
            explained += sum(variance for _, variance in sides)
            freedom, runs = freedom + len(sides) - 1, runs + len(sides)
    if freedom < FEWEST_RUNS - 1:
        return None
    return Sessions(variance=max(0.0, squares / freedom - explained / runs), freedom=freedom)


def compare_apart(a: Side, b: Side, *, doubt: float = 0.0, sessions: Sessions | None = None) -> Apart:
    """Compare two configurations that were measured at different times, each in several fresh processes.

    This is Welch's test on the logarithms of the processes' levels (B. L. Welch, 1947). A single process that is far
    off counts as little as in `compare`: with five or more processes the means leave out the outer fifth, with
    winsorised variances (K. K. Yuen, 1974). A machine's speed wanders, so processes of the same side are more alike
    than processes of different sides. The error is therefore a mean over models of this drift (`_models`), weighted by
    the likelihood of each model given the times of both sides (restricted likelihood; H. D. Patterson and R. Thompson,
    1971). A single side does not reveal the spread between sessions; `sessions` is this spread if earlier runs have
    shown it. `doubt` is a further standard error, for other known differences between the sides.

    ValueError if a side has no levels, or a level that is not positive.
    """
    if not a.levels_s or not b.levels_s or min(*a.levels_s, *b.levels_s) <= 0:
        raise ValueError("both sides need positive times")
    logs = [np.log(np.asarray(s.levels_s))[np.argsort(np.asarray(s.moments_s), kind="stable")] for s in (a, b)]
    (first, u, df), (second, v, dg) = map(_centre, logs)
    if not math.isfinite(u + v):
        return _apart(first, second, math.inf, 1.0)
    (left, likely), (right, likely_too) = map(_wandering, logs)
    likely = likely + likely_too
    weights = np.exp(likely - likely.max())
    weights /= weights.sum()
    parts = np.stack([u * left, v * right])
    variances = parts.sum(axis=0)
    freedoms = variances**2 / np.maximum((parts.T**2 / (df, dg)).sum(axis=1), 1e-300)
    # This is the mean of standard errors, because the least likely models, with variances hundreds of times as large,
    # would dominate a mean of variances.
    total = float(weights @ np.sqrt(variances)) ** 2
    freedom = float(weights @ freedoms) if u + v > 0 else float(df + dg)
    moved = float(weights[0]) < _STEADY
    scatter = u + v
    if sessions is not None and scatter + 2 * sessions.variance > total:
        between = 2 * sessions.variance
        total = scatter + between
        own = scatter**2 / float(freedoms[0]) if scatter > 0 else 0.0
        freedom = total**2 / max(own + between**2 / sessions.freedom, 1e-300)
        moved = between > scatter
    drifted = math.sqrt(max(0.0, total - scatter)) if moved else 0.0
    return _apart(first, second, math.sqrt(total + doubt**2), freedom, drifted)


_FEWEST_TURNS = 6
"""The number of pairs of processes needed to recognise turns from the times alone: with six, one in 32 pairs of runs
that merely happened at the same time looks as if the runs had taken turns.
"""


def by_turns(a: Side, b: Side, *, noted: bool = True) -> bool:
    """Return True if the processes of two sides ran in turns, in pairs with one process of each side.

    Simultaneous runs on two machines may look like this by chance. If it was not `noted` that both sides belong to one
    session, they must also have alternated in going first (first, second, second, first, ..), over at least
    `_FEWEST_TURNS` pairs.
    """
    moments = {*a.moments_s, *b.moments_s}
    if not len(a.levels_s) == len(b.levels_s) == len(moments) / 2 > 1:
        return False
    order = [side for _, side in sorted((t, k) for k, own in enumerate((a, b)) for t in own.moments_s)]
    beside = all(sum(both) == 1 for both in zip(order[::2], order[1::2], strict=True))
    changing = all(first != other for first, other in itertools.pairwise(order[::2]))
    return beside and (noted or (changing and len(a.levels_s) >= _FEWEST_TURNS))


def compare_by_turns(a: Side, b: Side, *, doubt: float = 0.0) -> Apart:
    """Compare two configurations whose processes ran in turns (`by_turns`), each process with its partner in the pair.

    This is Student's test on the logarithms of the ratios, without a tenth of them at either end, because on a busy
    machine a few ratios are far off in every measurement. Disturbances of both processes of a pair cancel in the ratio,
    so neither the machine's drift nor the spread between sessions need be known. `doubt` is a further standard error,
    for an error that all processes of both sides share, such as a clock's resolution.
    """
    first, second = (np.log(np.asarray(s.levels_s))[np.argsort(np.asarray(s.moments_s), kind="stable")] for s in (a, b))
    apart, variance, freedom = _centre(second - first, share=_TRIMMED)
    before = _centre(first)[0]
    return _apart(before, before + apart, math.sqrt(variance + doubt**2), freedom)


def _apart(first: float, second: float, error: float, freedom: float, drift: float = 0.0) -> Apart:
    """The comparison of two sides with these logarithms of their levels."""
    apart = second - first
    p = float(apart == 0 or not math.isfinite(error))
    if 0 < error < math.inf:
        p = _between(lambda df: 1 - _student_central(abs(apart / error), df), freedom)
    return Apart(before_s=math.exp(first), after_s=math.exp(second), error=error, freedom=freedom, p=p, drift=drift)


_MEMORIES, _SHARES = (0.5, 4.0), (0.5, 0.9, 0.99, 0.999)
"""Models of a machine that drifts: how long its speed persists, as a multiple of a side's length, and the drift's share
of the variance. Before anything is measured, each of these models is as likely as the model of a steady machine."""

_STEADY = 0.005
"""The probability of a steady machine below which its drift is reported."""


@functools.lru_cache(maxsize=64)
def _models(n: int) -> tuple[NDArray[np.float64], Array, Array]:
    """For n processes: the matrix of the residual sum of squares, the variance of a mean and the logarithm of the
    determinants, for a steady machine and for each model of drift.

    A model of drift is a first-order autoregression in addition to the processes' own scatter.
    """
    lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / n
    residuals, means, determinants = [], [], []
    for memory, share in [(1.0, 0.0), *itertools.product(_MEMORIES, _SHARES)]:
        alike = (1 - share) * np.eye(n) + share * np.exp(-lags / memory)
        inverse = np.linalg.inv(alike)
        ones = inverse.sum(axis=0)
        residuals.append(inverse - np.outer(ones, ones) / ones.sum())
        means.append(float(alike.mean()))
        determinants.append(float(np.linalg.slogdet(alike)[1]) + math.log(ones.sum()))
    return np.stack(residuals), np.asarray(means), np.asarray(determinants)


def _wandering(logs: Array) -> tuple[Array, Array]:
    """The variance of a side's centre under each model divided by the variance under the first model, and the
    logarithms of the models' restricted likelihoods, given the side's values in order.
    """
    n = logs.size
    if _disturbed(logs):
        ordered = np.sort(logs)
        cut = max(1, n // 5)
        logs = np.clip(logs, ordered[cut], ordered[n - 1 - cut])
    residuals, means, determinants = _models(n)
    centred = logs - logs.mean()
    squares = np.maximum(np.einsum("i,kij,j->k", centred, residuals, centred) / (n - 1), 1e-30)
    return squares * means * n / squares[0], -(determinants + (n - 1) * np.log(squares)) / 2


def _disturbed(logs: Array) -> bool:
    return logs.size >= _TRIMMED_FROM and any(outliers(logs.tolist()))


_TRIMMED = 0.1
"""The share of the ratios of turns that is left out at either end. With a load of 18 on two cores it makes intervals
of 30 turns 10 to 30 % narrower; with normal ratios it makes them 7 % wider."""


def _centre(logs: Array, *, share: float = 0.0) -> tuple[float, float, float]:
    """The centre of a side, the centre's variance, and its degrees of freedom; for a single process the variance is
    infinite.

    The centre is the mean without a `share` of the values at either end, or without a fifth if one value lies far off.
    """
    n = logs.size
    if n < 2:
        return float(logs.mean()), math.inf, 1.0
    cut = max(1, n // 5) if _disturbed(logs) else int(share * n)
    if not cut:
        return float(logs.mean()), float(logs.var(ddof=1)) / n, float(n - 1)
    ordered = np.sort(logs)
    kept = ordered[cut : n - cut]
    spread = float(np.clip(ordered, kept[0], kept[-1]).var(ddof=1))
    return float(kept.mean()), (n - 1) * spread / (kept.size * (kept.size - 1)), float(kept.size - 1)
