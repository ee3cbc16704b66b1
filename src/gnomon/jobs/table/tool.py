"""The job `table build` by a tool that measures by itself, such as SNPE on a phone. See docs/snpe.md.

The job `estimator measure` by a tool that measures by itself: whole nets, as the table of their space was.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gnomon
from gnomon.devices.base import Device
from gnomon.devices.opening import opened
from gnomon.errors import MeasurementError, UsageError
from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.table.folder import TableFolder, is_table, read_table
from gnomon.jobs.table.job import Built, TableRequest, check_same
from gnomon.jobs.table.nets import NetsMeasured
from gnomon.jobs.table.tool_bench import (
    Anchor,
    Seen,
    ToolBench,
    Toolkit,
    ToolOptions,
    Write,
    first_anchor,
    known_anchor,
    options_document,
    tool_options,
    toolkit,
    unit_writer,
)
from gnomon.jobs.table.tool_fusion import found_chains
from gnomon.measure.progress import Steps, Watch
from gnomon.models.units import write_net
from gnomon.runtimes.snpe import BenchTool
from gnomon.session.request import Request, device_met, patiently
from gnomon.spaces.fuse import FusionRules, rules
from gnomon.spaces.latency_table import Manifest, Row, Table, complaints
from gnomon.spaces.loading import SearchSpace
from gnomon.spaces.unit import Unit
from gnomon.system.process import guarded_folder


@dataclass(slots=True, kw_only=True)
class _Progress:
    """What outlives a phone that leaves: the units that need no more, and the benches of those under way."""

    done: set[Unit] | None = None
    seen: dict[Unit, Seen] = field(default_factory=dict)
    measured: int = 0


def build_with_tool(
    asked: TableRequest,
    tool: BenchTool,
    options: ToolOptions,
    *,
    watch: Watch | None = None,
    tell: Callable[[str], None] | None = None,
) -> Built:
    """Measure the units of a space that the table lacks, each in several benches, and write them down.

    A phone that leaves is waited for; what ends the build costs the units under way. Raises GnomonError.
    """
    kit = toolkit(tool, asked.request, options, tell)
    kept = _Progress()

    def job(request: Request) -> Built:
        return _build(replace(asked, request=request), kit, kept, (watch, tell))

    return patiently(job, asked.request, tell)


def _build(
    asked: TableRequest,
    kit: Toolkit,
    kept: _Progress,
    told: tuple[Watch | None, Callable[[str], None] | None],
) -> Built:
    start = time.monotonic()
    steps = Steps("units", told[0])
    with (
        opened(asked.request.device, on_wait=told[1]) as device,
        guarded_folder("gnomon-tool-") as folder,
        device_met(),
    ):
        bench = kit.bench(device, asked.request, folder)
        known = read_table(asked.out) if is_table(asked.out) else None
        manifest, anchor = _begin(asked, kit, device, bench, known)
        units = asked.space.tables(rules(manifest.rules)).units
        if kept.done is None:
            kept.done = set() if known is None or asked.again else {row.unit for row in known.rows}
        rows = TableFolder(asked.out, manifest)
        try:
            for row in _rows(kit, kept, bench, anchor, _Todo(asked, units, kept.done, steps)):
                rows.append(row)
                kept.done.add(row.unit)
                kept.measured += 1
        finally:
            rows.close()
    table = read_table(asked.out)
    return Built(
        table=table,
        path=asked.out,
        measured=kept.measured,
        complaints=tuple(complaints(table, units)),
        doubts=(),
        campaign="",
        seconds=time.monotonic() - start,
    )


@dataclass(frozen=True, slots=True)
class _Todo:
    """The units that need a row, in a random order: those with benches already come first."""

    asked: TableRequest
    units: Sequence[Unit]
    done: set[Unit]
    steps: Steps


def _begin(
    asked: TableRequest, kit: Toolkit, device: Device, bench: ToolBench, known: Table | None
) -> tuple[Manifest, Anchor]:
    """The manifest and the anchor: those of the table that is there, or new ones."""
    seed, space = asked.request.seed, asked.space
    if known is None:
        anchor, times_s, about = first_anchor(kit, bench, space, seed)
    else:
        anchor, about = known_anchor(bench, space, known.manifest, seed)
        times_s = tuple(known.manifest.anchor_calls_s)
    in_force, evidence = _chains(asked, kit, bench, known)
    manifest = Manifest(
        space=space.name,
        context=kit.context(device, about),
        clock="wall",
        overhead_s=0.0,
        anchor=anchor.unit.id,
        anchor_calls_s=times_s,
        rules=tuple(in_force.document()),
        evidence=tuple(evidence),
        notes=tuple(f"{key}:{value}" for key, value in about.items()),
        created_at_s=time.time(),
        gnomon_version=gnomon.__version__,
    )
    if known is not None:
        check_same(known.manifest, manifest, asked.out)
        manifest = known.manifest
    return manifest, anchor


def _chains(
    asked: TableRequest, kit: Toolkit, bench: ToolBench, known: Table | None
) -> tuple[FusionRules, list[dict[str, Any]]]:
    """The chains that run as one, and why: as the user says, as the table has it, or as the tool shows."""
    if asked.rules is not None:
        return asked.rules, [{"source": "the user"}]
    if known is not None:
        return rules(known.manifest.rules), []
    return found_chains(bench, asked.space, seed=asked.request.seed, benches=kit.options.benches)


def _rows(kit: Toolkit, kept: _Progress, bench: ToolBench, anchor: Anchor, work: _Todo) -> Iterator[Row]:
    """The rows of the units, a few at a time beside the anchor."""
    seed = work.asked.request.seed
    drawn = random.Random(seed)  # noqa: S311  # an order, no secret
    order = [unit for unit in work.units if unit not in work.done]
    drawn.shuffle(order)
    order.sort(key=lambda unit: unit not in kept.seen)
    work.steps.expect(len(order))
    for start in range(0, len(order), kit.options.anchor):
        part = order[start : start + kit.options.anchor]
        for unit in part:
            kept.seen.setdefault(unit, Seen(write=unit_writer(unit, seed)))
        bench.rounds([kept.seen[unit] for unit in part], anchor, kit.options.benches, drawn)
        for unit in part:
            yield tool_row(unit, kept.seen.pop(unit))
        work.steps.step(len(part))


def tool_row(unit: Unit, seen: Seen) -> Row:
    """The row of a unit by what its benches told."""
    if not seen.told:
        return Row(unit=unit, status="failed", at_s=time.time(), reason=seen.reason or "it was never measured")
    level = seen.level()
    return Row(
        unit=unit,
        status="ok" if seen.stable else "unstable",
        at_s=time.time(),
        call_s=level.time_s,
        low_s=level.low_s,
        high_s=level.high_s,
        drift=seen.drift,
        processes=seen.benches,
        samples={f"{k}/0": (value,) for k, value in enumerate(seen.values_s)},
        reported=seen.reported(),
        reason=seen.reason,
    )


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
    with opened(request.device, on_wait=asked.tell) as device, guarded_folder("gnomon-tool-") as folder, device_met():
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
