"""What many small models are measured beside: the empty graph, which every call holds, and an anchor against drift."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gnomon.errors import MeasurementError
from gnomon.jobs.bench import Bench, Placed
from gnomon.jobs.targets import describe
from gnomon.jobs.timed import Timed, levels_of, timed
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.clock import Clock, cpu_tells
from gnomon.measure.effort import Effort
from gnomon.models.units import write_unit
from gnomon.spaces.latency_table import STABLE, Table
from gnomon.spaces.unit import Unit, empty

_MORE = 2
"""Processes of the empty graph and of the anchor's reference beyond those of units, which all rest on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """What all models are measured beside: the anchor, and the empty graph, whose time every call holds.

    `reference_s` are the anchor's calls by process at the speed to which all times are brought.
    """

    unit: Unit
    anchor: Candidate
    clock: Clock
    overhead_s: float
    reference_s: tuple[float, ...]


def gauge_of(bench: Bench, units: Sequence[Unit], table: Table | None = None) -> Gauge:
    """Measure the empty graph and the anchor: that of a table, with its speed as reference, else the middle unit.

    What the record holds of an interrupted campaign is not measured again. MeasurementError where they do not run.
    """
    unit = _anchor_of(units, table)
    first = placed_unit(bench, empty((1, 1, 1, 1)), "empty")
    second = placed_unit(bench, unit, f"anchor-{unit.id}")
    processes = bench.request.effort.processes_least + _MORE
    effort = replace(bench.request.effort, processes_least=processes, processes_most=processes)
    measured = bench.runner.measure("gauge", [first.candidate, second.candidate], effort)
    for what, placed in (("empty graph", first), ("anchor", second)):
        if not measured[placed.key].ok:
            raise MeasurementError(
                f"{bench.runtime.name} does not run the {what}: {describe(measured[placed.key].failure)}",
                hint="Without it no time can be trusted. Try another runtime with --runtime.",
            )
    wall = table is not None and table.manifest.clock == "wall"
    clock: Clock = "wall" if wall else clock_of(bench, list(measured.values()))
    own = tuple(levels_of(measured[second.key], clock).values())
    overhead = timed(measured[first.key], clock)
    known = table.manifest.anchor_calls_s if table is not None else ()
    return Gauge(
        unit=unit,
        anchor=second.candidate,
        clock=clock,
        overhead_s=overhead.call_s,
        reference_s=tuple(known) or own,
    )


def clock_of(bench: Bench, measured: Sequence[Measured]) -> Clock:
    """CPU time where one thread was asked for and it tells all, else wall time."""
    one = bench.request.wish.threads == 1
    return "cpu" if one and all(cpu_tells(m.runs) for m in measured if m.ok) else "wall"


def placed_unit(bench: Bench, unit: Unit, key: str) -> Placed:
    """A unit as a model on the device. Raises GnomonError."""
    path = bench.folder / f"{key}.onnx"
    write_unit(unit, path, seed=bench.request.seed)
    return bench.place(key, path)


def measure_beside_gauge(
    bench: Bench, gauge: Gauge, stage: str, placed: Sequence[Placed], *, again: bool = False
) -> dict[str, Timed]:
    """Measure models beside fresh runs of the anchor; `again` takes as many processes once more.

    At most `effort.together` - 1 models at once. Where the record holds all of them, nothing is measured.
    """
    if not placed:
        return {}
    effort = bench.request.effort
    sitting = effort.processes_least
    if again:
        twice = 2 * effort.processes_least
        effort = replace(effort, processes_least=twice, processes_most=twice)
    if all(_is_known(bench, p, effort) for p in placed):
        found = {p.key: bench.runner.known(p.key) for p in placed}
    else:
        beside = _next_anchor(bench, gauge, sitting if again else 0)
        found = bench.runner.measure(stage, [beside, *(p.candidate for p in placed)], effort)
    anchors = [bench.runner.known(key) for key in _anchors(bench, gauge)]
    return {
        p.key: timed(found[p.key], gauge.clock, reference_s=gauge.reference_s, anchors=anchors, sitting=sitting)
        for p in placed
    }


def shaky(one: Timed, processes: int) -> bool:
    """Whether a model that runs is not known well enough, and was seen in no more than these processes."""
    return not one.reason and one.half_width > STABLE and one.processes <= processes


def _anchor_of(units: Sequence[Unit], table: Table | None) -> Unit:
    """The unit that a table has as its anchor, else the middle one by the numbers that it reads and makes."""
    if table is not None and table.manifest.anchor:
        for unit in (*units, *(row.unit for row in table.rows)):
            if unit.id == table.manifest.anchor:
                return unit
        raise MeasurementError(
            f"the table's anchor, the unit {table.manifest.anchor}, is neither in the table nor in the space",
            hint="Build a new table: give --out another path.",
        )
    return by_size(units)[len(units) // 2]


def by_size(units: Sequence[Unit]) -> list[Unit]:
    """Units by the numbers that they read and make, once for each layer; an anchor is one from the middle."""
    return sorted(units, key=lambda unit: (_size(unit), unit.id))


def _size(unit: Unit) -> int:
    return (sum(map(math.prod, unit.inputs)) + math.prod(unit.output)) * len(unit.layers)


def _is_known(bench: Bench, placed: Placed, effort: Effort) -> bool:
    """Whether the record holds all visits to a model, or a failure that is final."""
    known = bench.runner.known(placed.key)
    visits = {(run.process, run.block) for run in known.runs if run.samples is not None}
    wanted = itertools.product(range(effort.processes_least), range(effort.rounds))
    return known.failure is not None or visits.issuperset(wanted)


def _anchors(bench: Bench, gauge: Gauge) -> Iterator[str]:
    """The names of the anchor's runs beside others, of this time and of those that the record holds."""
    yield gauge.anchor.key
    number = 0
    while bench.runner.known(f"{gauge.anchor.key}/{number}").runs:
        yield f"{gauge.anchor.key}/{number}"
        number += 1


def _next_anchor(bench: Bench, gauge: Gauge, processes: int) -> Candidate:
    """The anchor under a name of which so many processes are known: a fresh one, unless the last has exactly those."""
    names = list(_anchors(bench, gauge))[1:]
    if names and processes:
        last = bench.runner.known(names[-1])
        if last.ok and {run.process for run in last.runs} == set(range(processes)):
            return replace(gauge.anchor, key=names[-1])
    return replace(gauge.anchor, key=f"{gauge.anchor.key}/{len(names)}")
