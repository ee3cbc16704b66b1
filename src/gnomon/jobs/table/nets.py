"""The job `estimator measure`: measure whole nets of a space under the conditions of the space's table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gnomon.core.codec import fields_of
from gnomon.errors import MeasurementError
from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.table.document import NetFailure, NetPart, NetsDocument
from gnomon.jobs.table.job import EFFORT, context_of, effort_for
from gnomon.measure.environment import worst
from gnomon.measure.progress import Steps, Tell, Watch
from gnomon.report.conditions import table_conditions
from gnomon.session.bench.baseline import Gauge, gauge_of, measure_well, place_each, placed_net
from gnomon.session.bench.bench import Bench, open_bench
from gnomon.session.request import MeasureRequest, patiently
from gnomon.spaces.fuse import UNFUSED, rules
from gnomon.spaces.latency_table import Table, different
from gnomon.spaces.loading import SearchSpace, draw

NET_EFFORT = replace(EFFORT, rounds=3, block_s=0.02, warm_s=0.02, together=10)
"""The effort for a whole net.

Only eight nets share a process with the anchor and the reference net, because a process holds all of them in memory.
"""


def measure_nets(
    request: MeasureRequest,
    space: SearchSpace,
    table: Table,
    nets: Sequence[tuple[int, ...]],
    *,
    watch: Watch | None = None,
    tell: Tell | None = None,
) -> tuple[tuple[NetRow, ...], NetsDocument]:
    """Measure whole nets alongside the table's anchor; the same call continues an interrupted one.

    Returns the nets in their order (failed ones without a latency), and their document without its `file`.
    MeasurementError if no net runs; other GnomonErrors for the device and the runtime.
    """
    return patiently(lambda again: _measure(again, space, table, nets, watch, tell), request, tell)


def _measure(
    request: MeasureRequest,
    space: SearchSpace,
    table: Table,
    nets: Sequence[tuple[int, ...]],
    watch: Watch | None,
    tell: Tell | None,
) -> tuple[tuple[NetRow, ...], NetsDocument]:
    start = time.monotonic()
    steps = Steps("nets", watch)
    request = replace(request, effort=effort_for(request, NET_EFFORT))
    question = {"space": space.name, "anchor": table.manifest.anchor}
    with open_bench(request, kind="nets", subject=space.name, question=question, watch=steps, tell=tell) as bench:
        units = (unit for in_force in (rules(table.manifest.rules), UNFUSED) for unit in space.tables(in_force).units)
        large = placed_net(bench, space.net(reference_net(space, table)), "net")
        gauge = replace(gauge_of(bench, tuple(units), table), large=replace(large.candidate, key="reference"))
        steps.expect(len(nets))
        rows: dict[int, NetRow] = {}
        failures: list[NetFailure] = []
        room = bench.request.effort.together - 2
        for first in range(0, len(nets), room):
            part = range(first, min(first + room, len(nets)))
            placed, unplaced = place_each(part, lambda index: placed_net(bench, space.net(nets[index]), "net"))
            failures += [NetFailure(net=index, reason=error.message) for index, error in unplaced.items()]
            timed = measure_well(bench, gauge, "nets", list({net.key: net for net in placed.values()}.values()))
            for index, own in placed.items():
                if timed[own.key].reason:
                    failures.append(NetFailure(net=index, reason=timed[own.key].reason))
                else:
                    took = timed[own.key]
                    fields = {**fields_of(NetRow, took), "latency_s": took.call_s, "reference_s": took.large_s}
                    rows[index] = NetRow(assignment=tuple(nets[index]), **fields)
            steps.step(len(part))
        if not rows:
            reasons = "; ".join(dict.fromkeys(failure.reason for failure in failures))
            raise MeasurementError(f"no net ran ({reasons})", hint="Try another runtime with --runtime.")
        bench.runner.finish({"reason": f"{len(nets)} nets of {space.name}"})
        context = context_of(bench)
        measured = tuple(rows.get(index, NetRow(assignment=tuple(net))) for index, net in enumerate(nets))
        return measured, NetsDocument(
            clock=gauge.clock,
            nets=tuple(NetPart(**fields_of(NetPart, row)) for row in measured),
            failures=tuple(failures),
            unlike=tuple(_unlike(bench, table, gauge)),
            doubts=tuple(worst(bench.runner.environments)),
            seconds=time.monotonic() - start,
            context=context,
            conditions=table_conditions(context, bench.runner.campaign.started_at_s),
        )


_DRAWN = 64


def reference_net(space: SearchSpace, table: Table) -> tuple[int, ...]:
    """The net that is measured with all others: according to the table, the slowest of a fixed sample of nets."""
    tables = space.tables(rules(table.manifest.rules))
    times = table.times_s
    prices = np.array([*(times.get(unit, 0.0) for unit in tables.units), *[0.0] * len(tables.extras)])
    nets = draw(tables, min(_DRAWN, tables.nets()), seed=0)
    return tuple(int(choice) for choice in nets[np.argmax(tables.sums(nets, prices))])


def _unlike(bench: Bench, table: Table, gauge: Gauge) -> list[str]:
    """The differences between the conditions of the table and the bench: a phrase for each, the table's value first."""
    differences = different(table.manifest.context, context_of(bench))
    if gauge.clock != table.manifest.clock:
        differences.append(f"clock: {table.manifest.clock} and {gauge.clock}")
    return differences
