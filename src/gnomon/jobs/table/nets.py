"""The job `estimator measure`: whole nets of a space, measured as the table of that space was."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gnomon.core.codec import fields_of
from gnomon.errors import DeviceError, GnomonError, MeasurementError, UsageError
from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.table.document import NetFailure, NetPart, NetsDocument
from gnomon.jobs.table.job import EFFORT, context_of
from gnomon.measure.environment import worst
from gnomon.measure.progress import Steps, Watch
from gnomon.models.units import write_net
from gnomon.runtimes.snpe import BenchTool
from gnomon.session.bench.baseline import Gauge, Timed, gauge_of, measure_beside_gauge, shaky
from gnomon.session.bench.bench import Bench, Placed, measured_net_name, open_bench
from gnomon.session.bench.tool import ToolRuntime, said_of, tool_runtime
from gnomon.session.request import MeasureRequest, patiently
from gnomon.spaces.fuse import UNFUSED, rules
from gnomon.spaces.latency_table import Table, different
from gnomon.spaces.loading import SearchSpace, draw

NET_EFFORT = replace(EFFORT, rounds=4, block_s=0.03, warm_s=0.03, together=10)
"""What a whole net is worth: an estimator rests on few of them.

Eight share a process with the anchor and the reference net, as all lie in its memory.
"""


def measure_nets(
    request: MeasureRequest,
    space: SearchSpace,
    table: Table,
    nets: Sequence[tuple[int, ...]],
    *,
    tool: BenchTool | None = None,
    watch: Watch | None = None,
    tell: Callable[[str], None] | None = None,
) -> tuple[tuple[NetRow, ...], NetsDocument]:
    """Measure whole nets beside the table's anchor; the same call goes on where it was interrupted.

    Returns the nets in their order, without a latency where one failed, and the document of them without its `file`.
    By a `tool` they are measured on the backend and by the settings of its table. MeasurementError where none runs,
    UsageError for a table that no such tool made; other GnomonErrors for the device and the runtime.
    """
    measures = None if tool is None else _as_the_table(tool, request, table, tell)
    return patiently(lambda again: _measure(again, space, table, nets, measures, watch, tell), request, tell)


def _as_the_table(
    tool: BenchTool, request: MeasureRequest, table: Table, tell: Callable[[str], None] | None
) -> ToolRuntime:
    context = table.manifest.context
    if context.get("runtime") != tool.name:
        raise UsageError(
            f"the table was not measured by {tool.name}, so that nets measured by it would not fit",
            hint=f"Build one: gnomon table build {table.manifest.space} --runtime {tool.name}.",
        )
    if not request.wish.backends:
        request = replace(request, wish=replace(request.wish, backends=(str(context.get("backend")),)))
    return tool_runtime(tool, request, said_of(context.get("protocol", {})), tell)


def _measure(
    request: MeasureRequest,
    space: SearchSpace,
    table: Table,
    nets: Sequence[tuple[int, ...]],
    tool: ToolRuntime | None,
    watch: Watch | None,
    tell: Callable[[str], None] | None,
) -> tuple[tuple[NetRow, ...], NetsDocument]:
    start = time.monotonic()
    steps = Steps("nets", watch)
    effort = NET_EFFORT if tool is None else tool.effort
    request = replace(request, effort=replace(effort, timeout_s=request.effort.timeout_s))
    question = {"space": space.name, "anchor": table.manifest.anchor}
    with open_bench(
        request, kind="nets", subject=space.name, question=question, tool=tool, watch=steps, tell=tell
    ) as bench:
        units = (unit for in_force in (rules(table.manifest.rules), UNFUSED) for unit in space.tables(in_force).units)
        gauge = gauge_of(bench, tuple(units), table)
        if tool is None:
            large = _placed(bench, space, reference_net(space, table))
            gauge = replace(gauge, large=replace(large.candidate, key="reference"))
        steps.expect(len(nets))
        rows: dict[int, NetRow] = {}
        failures: list[NetFailure] = []
        room = max(1, bench.request.effort.together - (2 if gauge.large else 1))
        for first in range(0, len(nets), room):
            part = range(first, min(first + room, len(nets)))
            placed: dict[int, Placed] = {}
            for index in part:
                try:
                    placed[index] = _placed(bench, space, nets[index])
                except DeviceError:
                    raise
                except GnomonError as error:
                    failures.append(NetFailure(net=index, reason=error.message))
            found = _measured(bench, gauge, list({one.key: one for one in placed.values()}.values()))
            for index, one in placed.items():
                if found[one.key].reason:
                    failures.append(NetFailure(net=index, reason=found[one.key].reason))
                else:
                    took = found[one.key]
                    known = {**fields_of(NetRow, took), "latency_s": took.call_s, "reference_s": took.large_s}
                    rows[index] = NetRow(assignment=tuple(nets[index]), **known)
            steps.step(len(part))
        if not rows:
            reasons = "; ".join(dict.fromkeys(failure.reason for failure in failures))
            raise MeasurementError(f"no net ran ({reasons})", hint="Try another runtime with --runtime.")
        bench.runner.finish({"reason": f"{len(nets)} nets of {space.name}"})
        measured = tuple(rows.get(index, NetRow(assignment=tuple(net))) for index, net in enumerate(nets))
        return measured, NetsDocument(
            clock=gauge.clock,
            nets=tuple(NetPart(**fields_of(NetPart, row)) for row in measured),
            failures=tuple(failures),
            unlike=tuple(_unlike(bench, table, gauge)),
            doubts=tuple(worst(bench.runner.environments)),
            seconds=time.monotonic() - start,
        )


_DRAWN = 64


def reference_net(space: SearchSpace, table: Table) -> tuple[int, ...]:
    """The net that others are measured beside: the slowest by the table of some that are drawn, always the same."""
    tables = space.tables(rules(table.manifest.rules))
    times = table.times_s
    prices = np.array([*(times.get(unit, 0.0) for unit in tables.units), *[0.0] * len(tables.extras)])
    nets = draw(tables, min(_DRAWN, tables.nets()), seed=0)
    return tuple(int(choice) for choice in nets[np.argmax(tables.sums(nets, prices))])


def _measured(bench: Bench, gauge: Gauge, placed: Sequence[Placed]) -> dict[str, Timed]:
    """What nets take; those that are not known well enough are seen in twice as many processes."""
    found = measure_beside_gauge(bench, gauge, "nets", placed)
    once = bench.request.effort.processes_least
    more = [one for one in placed if shaky(found[one.key], once)]
    return found | measure_beside_gauge(bench, gauge, "nets again", more, again=True)


def _placed(bench: Bench, space: SearchSpace, net: tuple[int, ...]) -> Placed:
    made = space.net(net)
    key = f"net-{measured_net_name(made)}"
    path = bench.folder / f"{key}.onnx"
    if not path.exists():
        write_net(made, path, seed=bench.request.seed)
    return bench.place(key, path)


def _unlike(bench: Bench, table: Table, gauge: Gauge) -> list[str]:
    """How the bench differs from what the table was measured with, a phrase each: the table's, then this one's."""
    told = different(table.manifest.context, context_of(bench, gauge.told))
    if gauge.clock != table.manifest.clock:
        told.append(f"clock: {table.manifest.clock} and {gauge.clock}")
    return told
