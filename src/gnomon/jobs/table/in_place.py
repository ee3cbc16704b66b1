"""Prices in place: what units take inside of whole nets, by the runtime's own trace of these.

A unit alone may carry conversions of layout, and operators that do not run as one, which it never has inside of a net.
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
"""Nets among which a few are chosen."""

_TIMES = 2
"""The nets of a space in which a unit must be seen to be priced in place: in one net, its neighbours might decide."""

_WORTH = 2
"""Nets are measured that give so many prices each, at least: one costs about as much as two units alone."""

_LEAST_UNITS = 3
"""A net of fewer units is little more than a unit alone."""

_ALIKE = 0.2
"""The widest half interval of a unit that counts as stable: what stands beside it makes its times differ truly."""

_ONCE = 0.05
"""The half interval of a unit that was seen in one net alone, at least."""

_LEAST_SHARE = 0.2
"""The least share of a kernel's traced time that is its own."""

_PROCESSES = 3
"""Processes in which a net is traced."""

_LONG_S = 1e-3
"""A kernel that takes longer is hardly ever left alone on a busy machine: then its trace tells nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Rows of units in place, and what an operator takes that is in none (None: no net has such)."""

    rows: tuple[Row, ...] = ()
    other_s: float | None = None


def priced_in_place(traces: Traces, gauge: Gauge, rules: FusionRules, wanted: Sequence[Unit]) -> Prices:
    """Prices of the wanted units that few whole nets show, by the trace that the runtime leaves of these."""
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
    """Few of many drawn nets that together have the wanted units, greedily."""
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
    """The mean price of each unit of a net, and of an operator in no unit: together what the net takes beyond an
    empty call.

    The profiler made each kernel longer by the same time, which is taken off; what no kernel takes lies between
    kernels, equally. Of units that run as one the first has the time. What the runtime added, such as a conversion of
    layout, is that of the next kernel, which needs it, else of the last unit. A unit is left out where several products
    seem to be one kernel, whose names the runtime made up. Of an interrupted net the kernels that take long are left
    out, and the others have taken what they took.
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
    if times:  # what was added behind the last kernel turns its result round
        times[list(times)[-1]] += waiting_s
    by_unit: dict[Unit, list[float]] = defaultdict(list)
    for group, time_s in times.items():
        if group not in unclear:
            by_unit[net.nodes[group].unit].append(time_s)
    others = traced.on_device.others
    return {unit: sum(seen) / len(seen) for unit, seen in by_unit.items()}, other_s / others if others else None


def without_added(row: Row, traces: Traces, overhead_s: float) -> Row:
    """The row of a unit that ran alone, without what the runtime put around it by its trace; as it is without one."""
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
    """The seconds of kernels without the profiler's own, so that they are no more than the whole together."""
    told_s = np.array([kernel.time_s for kernel in kernels])
    extra_s = np.sort(told_s * (1 - _LEAST_SHARE))  # what is taken off of one at most
    taken = np.cumsum(extra_s) + extra_s * np.arange(len(extra_s) - 1, -1, -1)  # of all, where each loses so much
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
