"""The job `estimator measure` by a tool that measures by itself: whole nets, as the table of their space was."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gnomon.devices.guard import guarded_folder
from gnomon.devices.opening import opened
from gnomon.errors import DeviceError, MeasurementError, UsageError
from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.nets_measure import NetsMeasured
from gnomon.jobs.patience import patiently
from gnomon.jobs.request import Request
from gnomon.jobs.steps import Steps
from gnomon.jobs.tool_bench import Seen, Write
from gnomon.jobs.tool_kit import Toolkit, known_anchor, toolkit
from gnomon.jobs.tool_options import options_document, tool_options
from gnomon.measure.progress import Watch
from gnomon.models.units import write_net
from gnomon.runtimes.bench_tool import BenchTool
from gnomon.spaces.latency_table import Table
from gnomon.spaces.search_space import SearchSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The nets, and what they are measured as. `seen` outlives a phone that leaves."""

    space: SearchSpace
    table: Table
    nets: Sequence[tuple[int, ...]]
    watch: Watch | None
    tell: Callable[[str], None] | None
    seen: dict[int, Seen] = field(default_factory=dict)


def measure_nets_with_tool(
    request: Request,
    space: SearchSpace,
    table: Table,
    nets: Sequence[tuple[int, ...]],
    *,
    tool: BenchTool,
    watch: Watch | None = None,
    tell: Callable[[str], None] | None = None,
) -> NetsMeasured:
    """Measure whole nets by the tool, the backend and the settings of a table, beside its anchor.

    The time is the table's own: that of the layers, without the call around them. UsageError for a table that no tool
    made, MeasurementError where no net runs.
    """
    context = table.manifest.context
    if context.get("runtime") != tool.name:
        raise UsageError(
            f"the table was not measured by {tool.name}, so that nets measured by it would not fit",
            hint=f"Build one: gnomon table build {space.name} --runtime {tool.name}.",
        )
    if not request.wish.backends:
        request = replace(request, wish=replace(request.wish, backends=(str(context.get("backend")),)))
    kit = toolkit(tool, request, tool_options(options_document(context.get("protocol", {}))), tell)
    asked = _Asked(space=space, table=table, nets=nets, watch=watch, tell=tell)
    return patiently(lambda again: _measure(again, kit, asked), request, tell)


def _measure(request: Request, kit: Toolkit, asked: _Asked) -> NetsMeasured:
    start = time.monotonic()
    steps = Steps("nets", asked.watch)
    with opened(request.device, on_wait=asked.tell) as device, guarded_folder("gnomon-tool-") as folder:
        try:
            bench = kit.bench(device, request, folder)
            anchor, about = known_anchor(bench, asked.space, asked.table.manifest, request.seed)
            context = kit.context(device, about)
            steps.expect(len(asked.nets))
            drawn = random.Random(request.seed)  # noqa: S311  # an order, no secret
            for first in range(0, len(asked.nets), kit.options.anchor):
                part = range(first, min(first + kit.options.anchor, len(asked.nets)))
                for index in part:
                    asked.seen.setdefault(index, Seen(write=_writer(asked, index, request.seed)))
                bench.rounds([asked.seen[index] for index in part], anchor, kit.options.benches, drawn)
                steps.step(len(part))
        except DeviceError as error:
            error.met = True
            raise
    failures = tuple((index, one.reason) for index, one in sorted(asked.seen.items()) if not one.told)
    if len(failures) == len(asked.nets):
        reasons = "; ".join(dict.fromkeys(reason for _, reason in failures))
        raise MeasurementError(f"no net ran ({reasons})", hint="Try another backend, with a table of its own.")
    theirs = asked.table.manifest.context
    return NetsMeasured(
        rows=tuple(_row(net, asked.seen[index]) for index, net in enumerate(asked.nets)),
        failures=failures,
        unlike=tuple(f"{k}: {theirs.get(k)} there, {v} here" for k, v in context.items() if v != theirs.get(k)),
        clock="wall",
        doubts=(),
        seconds=time.monotonic() - start,
    )


def _writer(asked: _Asked, index: int, seed: int) -> Write:
    def write(path: Path) -> Path:
        return write_net(asked.space.net(asked.nets[index]), path, seed=seed)

    return write


def _row(net: tuple[int, ...], seen: Seen) -> NetRow:
    if not seen.told:
        return NetRow(assignment=tuple(net))
    level = seen.level()
    return NetRow(assignment=tuple(net), latency_s=level.time_s, low_s=level.low_s, high_s=level.high_s)
