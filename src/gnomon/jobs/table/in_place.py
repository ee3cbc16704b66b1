"""Prices in place: what units take inside of whole nets, by the runtime's own trace of these.

A unit alone may carry conversions of layout, and operators that do not run as one, which it never has inside of a net.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gnomon.core.stats import median
from gnomon.jobs.table.fusion import MULTIPLY
from gnomon.session.bench.baseline import Gauge, Timed, measure_beside_gauge, parts_of, place_each, placed_net
from gnomon.session.bench.bench import Bench, Placed
from gnomon.session.contender import traced_candidate
from gnomon.session.kernels import kernels
from gnomon.spaces.features import CountTables
from gnomon.spaces.fuse import FusionRules, fuse
from gnomon.spaces.latency_table import Row
from gnomon.spaces.loading import SearchSpace, draw
from gnomon.spaces.unit import Net, Unit

_DRAWN = 256
"""Nets among which a few are chosen."""

_TIMES = 2
"""In so many nets a unit is seen that is priced in place: what stood beside it in a single one might decide."""

_WORTH = 2
"""Nets are measured that give so many prices each, at least: one costs about as much as two units alone."""

_LEAST_UNITS = 3
"""A net of fewer units is little more than a unit alone."""

_CALLS = 15
"""Calls of a traced net in a process, of which a few may be interrupted."""

_ALIKE = 0.2
"""The widest half interval of a unit that counts as stable: what stands beside it makes its times differ truly."""

_UNCLEAR = -1
"""Stands for the nodes of a net whose own times the trace does not tell."""

_PROCESSES = 2
"""Processes in which a net is traced."""


def priced_in_place(
    bench: Bench, gauge: Gauge, space: SearchSpace, rules: FusionRules, wanted: Sequence[Unit]
) -> list[Row]:
    """Rows of the wanted units that few whole nets show, by the trace that the runtime leaves of these."""
    tables = space.tables(rules)
    nets = [fuse(space.net(a.tolist()), rules) for a in _covering(tables, wanted, bench.request.seed)]
    nets = [net for net in nets if len(net.nodes) >= _LEAST_UNITS]
    placed, _ = place_each(range(len(nets)), lambda number: placed_net(bench, nets[number], "net"))
    every = {number: _traced(bench, nets[number], one) for number, one in placed.items()}
    traced = {number: times for number, times in every.items() if times}
    found: dict[str, Timed] = {}
    for part in parts_of(list(traced), bench.request.effort.together - 1):
        found |= measure_beside_gauge(bench, gauge, "nets", [placed[number] for number in part])
    times_s: dict[Unit, list[float]] = {unit: [] for unit in wanted}
    ran = {number: whole for number in traced if not (whole := found[placed[number].key]).reason}
    for number, whole in ran.items():
        for unit, time_s in prices(nets[number], traced[number], max(0.0, whole.call_s - gauge.overhead_s)).items():
            if unit in times_s:
                times_s[unit].append(time_s)
    if not ran:
        return []
    width = median([whole.half_width for whole in ran.values()])
    at_s = max(whole.at_s for whole in ran.values())
    return [_row(unit, seen, gauge.overhead_s, width, at_s) for unit, seen in times_s.items() if len(seen) >= _TIMES]


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


def _traced(bench: Bench, net: Net, placed: Placed) -> dict[int, float]:
    """Seconds of the nodes of a net by the runtime's trace; nothing where it leaves none.

    Of nodes that run as one the first has the time. What the runtime added, such as a conversion of layout, is the
    next node's, which needs it. Several products that seem to be one kernel have names that the runtime made up: the
    time of all such is `_UNCLEAR`'s.
    """
    effort = replace(bench.request.effort, processes_least=_PROCESSES, processes_most=_PROCESSES)
    candidate = replace(
        traced_candidate(placed.candidate, len(placed.graph.operators)), process=None, calls_least=_CALLS
    )
    bench.runner.sources = placed.sources
    measured = bench.runner.measure("nets", [candidate], effort)[candidate.key]
    names = [operator.name for operator in placed.graph.operators]
    products = {index for name, index, _ in net.layer_names() if name.endswith(MULTIPLY)}
    times: dict[int, float] = {}
    waiting_s, node = 0.0, _UNCLEAR
    for kernel in kernels(placed.graph, measured) if measured.ok else ():
        nodes = [number for index in kernel.operators if (number := _node_of(names[index])) is not None]
        waiting_s += kernel.time_s
        if not nodes:
            continue
        clear = len(products.intersection(nodes)) < 2
        times |= {number: 0.0 for number in nodes if clear and number not in times}
        node = nodes[0] if clear else _UNCLEAR
        times[node] = times.get(node, 0.0) + waiting_s
        waiting_s = 0.0
    times[node] = times.get(node, 0.0) + waiting_s
    return times if len(times) >= _LEAST_UNITS and any(times.values()) else {}


def _node_of(name: str) -> int | None:
    """The number of the node in the name of an operator (`gnomon.spaces.unit.layer_name`)."""
    head = name.partition(".")[0]
    return int(head[1:]) if head[:1] == "n" and head[1:].isdigit() else None


def prices(net: Net, nodes: Mapping[int, float], whole_s: float) -> dict[Unit, float]:
    """The mean price of each unit of a net, so that all together are what the whole takes beyond an empty call.

    What the profiler made longer is shortened alike; what no kernel takes lies between kernels, equally.
    """
    traced_s = sum(nodes.values())
    factor = min(1.0, whole_s / traced_s)
    gap_s = max(0.0, whole_s - traced_s) / sum(time_s > 0 for time_s in nodes.values())
    by_unit: dict[Unit, list[float]] = defaultdict(list)
    for index, time_s in nodes.items():
        if index == _UNCLEAR:
            continue
        by_unit[net.nodes[index].unit].append(factor * time_s + (gap_s if time_s else 0.0))
    return {unit: sum(seen) / len(seen) for unit, seen in by_unit.items()}


def _row(unit: Unit, times_s: Sequence[float], overhead_s: float, half_width: float, at_s: float) -> Row:
    known = math.isfinite(half_width)
    row = Row(
        unit=unit,
        status="ok",
        at_s=at_s,
        call_s=overhead_s + median(times_s),
        low_s=overhead_s + min(times_s) * max(0.0, 1 - half_width) if known else None,
        high_s=overhead_s + max(times_s) * (1 + half_width) if known else None,
        nets=len(times_s),
    )
    return row if row.relative_half_width <= _ALIKE else replace(row, status="unstable")
