"""Prices in place: the times of units inside whole nets, from the runtime's own traces of these nets.

A unit alone may take longer: the runtime may convert layouts around it, or not fuse its operators.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnomon.core.stats import median
from gnomon.jobs.table.traces import TracedKernel, TracedNet, Traces
from gnomon.session.bench.baseline import Gauge, measure_beside_gauge, parts_of
from gnomon.spaces.features import CountTables
from gnomon.spaces.fuse import FusionRules, fused
from gnomon.spaces.latency_table import Row
from gnomon.spaces.loading import draw
from gnomon.spaces.models import ModelSpace
from gnomon.spaces.unit import VIEWS, Unit
from gnomon.spaces.work import multiplies

_DRAWN = 256
"""The number of drawn nets from which a few are chosen."""

_TIMES = 2
"""The number of nets that must contain a unit before it gets a price in place, unless the space consists of models: in
a single net, the neighbours might decide the unit's time.
"""

_WORTH = 2
"""The least number of new prices that a net must give, because measuring it costs about as much as two units alone."""

_LEAST_UNITS = 3
"""The least number of units in a net; a smaller net is little more than a unit alone."""

_ALIKE = 0.2
"""The largest relative half-width with which a unit counts as stable: times really depend on neighbours."""

_ONCE = 0.05
"""The least relative half-width of a unit that was seen in only one net."""

_LEAST_SHARE = 0.2
"""The least share of a kernel's traced time that is assumed not to be due to the profiler."""

_PROCESSES = 3
"""The number of processes in which a net is traced."""

_LONG_S = 1e-3
"""The longest traced time of a kernel that is used on a busy machine, where longer kernels are mostly interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Rows of units in place, and the time of an operator that is in no unit (None: no net has such an operator)."""

    rows: tuple[Row, ...] = ()
    other_s: float | None = None


def priced_in_place(traces: Traces, gauge: Gauge, rules: FusionRules, wanted: Sequence[Unit]) -> Prices:
    """Prices of the wanted units, from the runtime's traces of a few whole nets that contain them."""
    bench, space = traces.bench, traces.space
    tables = space.tables(rules)
    if isinstance(space, ModelSpace):
        chosen, times = [[k] for k in range(len(space.nets))], 1
    else:
        chosen, times = [a.tolist() for a in _covering(tables, wanted, bench.request.seed)], _TIMES
    traced = [net for entry in traces.place(chosen) if (net := traces.trace(entry, _PROCESSES)) is not None]
    seen: dict[Unit, list[float]] = {unit: [] for unit in wanted}
    widths, others, at_s = [], [], 0.0
    for part in parts_of(traced, bench.request.effort.together - 1):
        measured = measure_beside_gauge(bench, gauge, "nets", [net.on_device.placed for net in part])
        for net in part:
            whole = measured[net.on_device.placed.key]
            if whole.reason:
                continue
            priced, other_s = prices(net, rules, max(0.0, whole.call_s - gauge.overhead_s))
            if len(priced) < _LEAST_UNITS:
                continue
            widths.append(whole.half_width)
            others += [] if other_s is None else [other_s]
            at_s = max(at_s, whole.at_s)
            for unit, time_s in priced.items():
                if unit in seen:
                    seen[unit].append(time_s)
    width = median(widths) if widths else math.inf
    rows = [
        _row(unit, times_s, gauge.overhead_s, width, at_s) for unit, times_s in seen.items() if len(times_s) >= times
    ]
    return Prices(rows=tuple(rows), other_s=median(others) if others else None)


def _covering(tables: CountTables, wanted: Sequence[Unit], seed: int) -> list[np.ndarray]:
    """A few of many drawn nets that together contain the wanted units, chosen greedily."""
    drawn = draw(tables, min(tables.nets(), _DRAWN), seed=seed)
    column = {unit: k for k, unit in enumerate(tables.units)}
    has = tables.counts(drawn)[:, [column[unit] for unit in wanted]] > 0
    has &= has.sum(axis=0) >= _TIMES
    lacking = np.full(len(wanted), _TIMES)
    chosen: list[np.ndarray] = []
    while True:
        gains = (has & (lacking > 0)).sum(axis=1)
        best = int(gains.argmax())
        if gains[best] < _WORTH:
            return chosen if (lacking <= 0).sum() >= _WORTH * len(chosen) else []
        chosen.append(drawn[best])
        lacking -= has[best]
        has[best] = False


def prices(traced: TracedNet, rules: FusionRules, whole_s: float) -> tuple[dict[Unit, float], float | None]:
    """The mean price of each unit of a net, and of an operator in no unit.

    The prices add up to the time of the net without the overhead of a call. The profiler lengthens each kernel by the
    same time, which is subtracted. Time outside of all kernels is divided equally among those that the runtime did not
    add. If a kernel computes several units, the first unit gets all its time. The time of a kernel that the runtime
    added, such as a conversion of layout, goes to the next kernel, or else to the last unit. If a kernel seems to
    compute several products, the trace is not trusted and their units are left out. In an interrupted net, long kernels
    are left out, and the others keep their traced times.
    """
    net, group_of = fused(traced.on_device.net, rules)
    kernels = traced.kernels
    own_s = [kernel.time_s for kernel in kernels] if traced.interrupted else _unprofiled(kernels, whole_s)
    computing = sum(not kernel.added for kernel in kernels)
    gap_s = 0.0 if traced.interrupted else max(0.0, whole_s - sum(own_s)) / max(1, computing)
    times: dict[int, float] = {}
    unclear: set[int] = set()
    other_s = waiting_s = 0.0
    for kernel, kernel_s in zip(kernels, own_s, strict=True):
        waiting_s += kernel_s
        if kernel.added:
            continue
        time_s, waiting_s = waiting_s + gap_s, 0.0
        groups = dict.fromkeys(group_of[node] for node in kernel.nodes)
        units = [group for group in groups if set(net.nodes[group].unit.kinds) != VIEWS]
        if not units:
            other_s += time_s
            continue
        times |= {group: 0.0 for group in units if group not in times}
        times[units[0]] += time_s
        several = sum(multiplies(net.nodes[group].unit) for group in units) > 1
        if several or (traced.interrupted and kernel.time_s > _LONG_S):
            unclear.update(units)
    if times:  # a kernel added after the last one converts its result back
        times[list(times)[-1]] += waiting_s
    by_unit: dict[Unit, list[float]] = defaultdict(list)
    for group, time_s in times.items():
        if group not in unclear:
            by_unit[net.nodes[group].unit].append(time_s)
    others = traced.on_device.others
    return {unit: sum(seen) / len(seen) for unit, seen in by_unit.items()}, other_s / others if others else None


def without_added(row: Row, traces: Traces, overhead_s: float) -> Row:
    """The row of a unit alone, less the time of the kernels that the runtime added around it; unchanged without a
    trace.
    """
    if row.call_s is None or row.call_s <= overhead_s:
        return row
    traced = traces.trace(traces.alone(row.unit), 1)
    if traced is None or not any(kernel.added for kernel in traced.kernels):
        return row
    own_s = _unprofiled(traced.kernels, row.call_s - overhead_s)
    added_s = sum(time_s for kernel, time_s in zip(traced.kernels, own_s, strict=True) if kernel.added)
    added = min(added_s / sum(own_s), 1 - _LEAST_SHARE)
    ends = {name: getattr(row, name) for name in ("low_s", "call_s", "high_s")}
    kept = {name: end - added * max(0.0, end - overhead_s) for name, end in ends.items() if end is not None}
    return replace(row, **kept, added=added)


def _unprofiled(kernels: Sequence[TracedKernel], whole_s: float) -> list[float]:
    """The seconds of kernels without the time of the profiler; their sum does not exceed `whole_s`."""
    told_s = np.array([kernel.time_s for kernel in kernels])
    extra_s = np.sort(told_s * (1 - _LEAST_SHARE))  # the most that is subtracted from one kernel
    taken = np.cumsum(extra_s) + extra_s * np.arange(len(extra_s) - 1, -1, -1)  # the total, if each loses this much
    each_s = float(np.interp(max(0.0, told_s.sum() - whole_s), [0.0, *taken], [0.0, *extra_s]))
    own_s = np.maximum(told_s - each_s, _LEAST_SHARE * told_s)
    return list(map(float, own_s * min(1.0, whole_s / own_s.sum())))


def _row(unit: Unit, times_s: Sequence[float], overhead_s: float, half_width: float, at_s: float) -> Row:
    bounded = math.isfinite(half_width)
    if len(times_s) == 1:
        half_width = max(half_width, _ONCE)
    row = Row(
        unit=unit,
        status="ok",
        at_s=at_s,
        call_s=overhead_s + median(times_s),
        low_s=overhead_s + min(times_s) * max(0.0, 1 - half_width) if bounded else None,
        high_s=overhead_s + max(times_s) * (1 + half_width) if bounded else None,
        nets=len(times_s),
    )
    return row if row.relative_half_width <= _ALIKE else replace(row, status="unstable")
