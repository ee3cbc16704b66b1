"""What many small models took: one number a process, an interval, and the drift of the machine meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.stats import Block, median, quantile, summarise
from gnomon.jobs.contender import blocks
from gnomon.jobs.targets import describe
from gnomon.measure.campaign import Measured
from gnomon.measure.clock import Clock

QUIET = 0.1
"""The share of a process's calls that count: neighbours only ever add to a call, also to its CPU time, as they share
caches and cores with it. The lower decile is where a call is that they left alone."""

_MEDIAN = math.sqrt(math.pi / 2)
"""The standard error of a median over that of a mean, of normal values."""

_UNSEEN = 0.02
"""The relative standard error of an anchor of which one process alone is known."""

_LEAST_NOISE = 0.02
"""What else shares its process moves an anchor by as much as twice this, which is no drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A call of a model, or why there is none (`reason`).

    `call_s` is the median over processes of the lower decile of their calls, `low_s` and `high_s` its 95 % interval
    (None: not known), all brought to the speed of the reference by `drift`. `samples` are the raw seconds of calls by
    process and block. `at_s` is when the last was taken, seconds since 1970.
    """

    reason: str = ""
    at_s: float = 0.0
    call_s: float = 0.0
    low_s: float | None = None
    high_s: float | None = None
    drift: float = 1.0
    processes: int = 0
    samples: Mapping[str, Sequence[float]]

    @property
    def half_width(self) -> float:
        """Half the interval over the call's time; infinity where it is not known."""
        if self.low_s is None or self.high_s is None:
            return math.inf
        return (self.high_s - self.low_s) / 2 / self.call_s


def levels_of(measured: Measured, clock: Clock) -> dict[int, float]:
    """By process, the lower decile of its calls in seconds."""
    by_process: dict[int, list[float]] = {}
    for block in blocks(measured, clock):
        by_process.setdefault(block.process, []).extend(block.values_s)
    return {process: quantile(values, QUIET) for process, values in by_process.items()}


def moments_of(measured: Measured) -> dict[int, float]:
    """By process, when it was measured: the mean of its blocks' times, seconds since 1970."""
    seen: dict[int, list[float]] = {}
    for run in measured.runs:
        if run.samples is not None:
            seen.setdefault(run.process, []).append(run.started_at_s)
    return {process: sum(times) / len(times) for process, times in seen.items()}


def timed(
    measured: Measured,
    clock: Clock,
    *,
    reference_s: Sequence[float] = (),
    anchors: Iterable[Measured] = (),
    sitting: int = 1 << 16,
) -> Timed:
    """What was measured of a model, at the speed at which the anchor took `reference_s` (by process).

    `anchors` are the anchor's runs beside all models: each process of the model is held against the anchor's process
    that is nearest to it in time. Every `sitting` processes, as they follow in time, have a drift of their own.
    """
    if not measured.ok:
        at_s = max((run.started_at_s for run in measured.runs), default=0.0)
        return Timed(reason=describe(measured.failure), at_s=at_s, samples={})
    levels, moments, seen = levels_of(measured, clock), moments_of(measured), _seen(anchors, clock)
    order = sorted(levels, key=lambda process: moments[process])
    brought: dict[int, float] = {}
    for start in range(0, len(order), sitting):
        part = order[start : start + sitting]
        factor = drift(reference_s, _nearest([moments[process] for process in part], seen))
        brought |= {process: levels[process] * factor for process in part}
    told = summarise([Block(process=process, block=0, values_s=(value,)) for process, value in brought.items()])
    call_s = median(list(brought.values()))
    known = told.low_s > 0 and math.isfinite(told.high_s)
    return Timed(
        at_s=max(run.started_at_s for run in measured.runs if run.samples is not None),
        call_s=call_s,
        low_s=min(told.low_s, call_s) if known else None,
        high_s=max(told.high_s, call_s) if known else None,
        drift=call_s / median(list(levels.values())),
        processes=len(levels),
        samples={f"{b.process}/{b.block}": b.values_s for b in blocks(measured, clock)},
    )


def drift(reference_s: Sequence[float], beside_s: Sequence[float]) -> float:
    """The factor that brings times to the speed of the reference, by what the anchor took then and takes beside them.

    Shrunk by the anchor's own noise, so that a machine which keeps its speed gets no noise added: a ratio within two
    standard errors is none, a far larger one counts in full (positive-part estimator of James and Stein, 1961).
    """
    if not reference_s or not beside_s:
        return 1.0
    then, now = np.log(reference_s), np.log(beside_s)
    log = float(np.median(then) - np.median(now))
    noise = max(math.hypot(_error(then), _error(now)), _LEAST_NOISE)
    kept = max(0.0, 1 - (2 * noise / log) ** 2) if log else 0.0
    return math.exp(kept * log)


def _error(logs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """The standard error of their median."""
    if logs.size < 2:
        return _UNSEEN
    return _MEDIAN * float(logs.std(ddof=1)) / math.sqrt(logs.size)


def _seen(anchors: Iterable[Measured], clock: Clock) -> list[tuple[float, float]]:
    """When each process of the anchor was measured, and its level."""
    seen: list[tuple[float, float]] = []
    for anchor in anchors:
        if anchor.ok:
            moments, levels = moments_of(anchor), levels_of(anchor, clock)
            seen += [(moments[p], levels[p]) for p in levels]
    return seen


def _nearest(moments: Iterable[float], seen: Sequence[tuple[float, float]]) -> list[float]:
    """The levels of the anchor's processes that are nearest to these moments, each once."""
    if not seen:
        return []
    found = {min(seen, key=lambda one: abs(one[0] - at_s)) for at_s in moments}
    return [level for _, level in sorted(found)]
