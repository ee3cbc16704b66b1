"""The job `table build`: measure every unit of a search space once on a device, as a table. See docs/jobs/table.md."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import gnomon
from gnomon.core.codec import fields_of
from gnomon.errors import MeasurementError, UsageError
from gnomon.jobs.table.document import TableDocument, table_document
from gnomon.jobs.table.folder import (
    MANIFEST,
    ROWS,
    TableFolder,
    check_place,
    context_document,
    is_table,
    keep_space,
    read_table,
)
from gnomon.jobs.table.fusion import fused_chains
from gnomon.jobs.table.in_place import Prices, priced_in_place, without_added
from gnomon.jobs.table.parts import part_writer
from gnomon.jobs.table.traces import Traces
from gnomon.measure.effort import Effort
from gnomon.measure.environment import worst
from gnomon.measure.progress import Steps, Tell, Watch
from gnomon.session import replay as recall
from gnomon.session.bench.baseline import (
    Gauge,
    Timed,
    gauge_of,
    measure_beside_gauge,
    parts_of,
    place_each,
    placed_unit,
)
from gnomon.session.bench.bench import Bench, Placed, open_bench
from gnomon.session.request import MeasureRequest, patiently
from gnomon.spaces.fuse import UNFUSED, FusionRules
from gnomon.spaces.latency_table import STABLE, Manifest, Row, complaints, unlike
from gnomon.spaces.loading import SearchSpace
from gnomon.spaces.models import ModelSpace, format_of
from gnomon.spaces.unit import Unit

EFFORT = Effort(
    rounds=3,
    block_s=0.005,
    warm_s=0.006,
    rewarm_s=0.001,
    samples_least=4,
    processes_least=6,
    processes_most=6,
    laggard=1e9,
    together=33,
)
"""The effort for a unit: six processes, each shared by 32 units and the anchor, with three short visits. A unit that is
still uncertain gets twice as many processes.
"""

_STARTS = 3
"""The number of processes for a user's command, which is started again for each visit."""

_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """The space to measure, the conditions (`request`), and the path of the table.

    `rules` are the chains of operators that the user wants to be fused (None: those of the table or of the runtime's
    traces). With `again`, units that the table already holds are measured too; otherwise, a table of the same context
    is completed. `effort` is the effort for each unit, except that the timeout is the request's.
    """

    request: MeasureRequest
    space: SearchSpace
    out: Path
    rules: FusionRules | None = None
    again: bool = False
    effort: Effort = EFFORT


def effort_for(request: MeasureRequest, usual: Effort) -> Effort:
    """The effort for a model, with the request's timeout and, for a command, with fewer starts."""
    effort = replace(usual, timeout_s=request.effort.timeout_s)
    if not request.settings.commands:
        return effort
    return replace(effort, rounds=1, processes_least=_STARTS, processes_most=_STARTS)


def _protocol(effort: Effort) -> dict[str, object]:
    return {"rounds": effort.rounds, "block_s": effort.block_s, "processes": effort.processes_least}


def build_table(asked: TableRequest, *, watch: Watch | None = None, tell: Tell | None = None) -> TableDocument:
    """Measure the units of a space that the table lacks, and write each row at once.

    Written rows remain, however the build ends, and the same command continues the build. Returns the table with the
    number of units that were measured in this call, and complaints. Raises GnomonError.
    """
    check_place(asked.out)
    if not asked.space.tables(UNFUSED if asked.rules is None else asked.rules).units:  # before any waiting
        raise UsageError(f"the space {asked.space.name} has no units to measure", hint="Give a space with operators.")
    seen: set[Unit] = set()
    return patiently(lambda request: _build(replace(asked, request=request), seen, (watch, tell)), asked.request, tell)


def _build(
    asked: TableRequest, seen: set[Unit], listeners: tuple[Watch | None, Callable[[str], None] | None]
) -> TableDocument:
    """Build a table. `seen` are the units that got a row, including those measured before the device was lost."""
    start = time.monotonic()
    steps = Steps("units", listeners[0])
    request = replace(asked.request, effort=effort_for(asked.request, asked.effort))
    models = asked.space if isinstance(asked.space, ModelSpace) else None
    loads = format_of(asked.space.tables(UNFUSED).units)
    question = {"space": asked.space.name, "protocol": _protocol(request.effort), "again": asked.again}
    with (
        ExitStack() as stack,
        open_bench(
            request,
            kind="table",
            subject=asked.space.name,
            question=question,
            watch=steps,
            tell=listeners[1],
            loads=loads,
        ) as bench,
    ):
        old = read_table(asked.out) if is_table(asked.out) else None
        context = context_of(bench, request.effort)
        if old is not None:  # find differences before anything is measured
            ruled = old.manifest.rules if asked.rules is None else tuple(asked.rules.document())
            now = replace(old.manifest, space=asked.space.name, context=context, rules=ruled)
            _check_same(old.manifest, now, asked.out)
            keep_space(asked.space, asked.out)
        traces = Traces(bench=bench, space=asked.space, stack=stack)
        rules, evidence = fused_chains(traces, asked.rules, old)
        units = asked.space.tables(rules).units
        if models is not None and loads != "onnx":
            bench.write = part_writer(models, rules, stack)
            if old is not None and old.manifest.anchor not in {unit.id for unit in units}:
                raise UsageError(
                    f"none of these models has the reference kernel of the table {asked.out}",
                    hint=f"Also give the models that the table was built from: {', '.join(old.manifest.models)}.",
                )
        # A build may have ended before it measured an unstable unit again.
        once = bench.request.effort.processes_least
        kept = [] if old is None or asked.again else old.rows
        have = {row.unit for row in kept if row.status != "unstable" or not 0 < row.processes <= once}
        todo = [unit for unit in units if unit not in have]
        fused = sorted({unit.chain for unit in todo if len(unit.layers) > 1})
        if fused and listeners[1] is not None:
            shown = f"{', '.join(fused[:_MOST_SHOWN])}{', ..' if len(fused) > _MOST_SHOWN else ''}"
            listeners[1](
                f"operators that {bench.runtime.name} fuses are measured as one unit ({shown}); to export the table to"
                " nnabla-nas, which has only single operators, build with --fuse none"
            )
        files = asked.out / MANIFEST, asked.out / ROWS
        if todo or old is None:
            gauge = gauge_of(bench, units, old)
            manifest = Manifest(
                space=asked.space.name,
                context=context,
                clock=gauge.clock,
                overhead_s=gauge.overhead_s,
                anchor=gauge.unit.id,
                anchor_calls_s=gauge.reference_s,
                rules=tuple(rules.document()),
                evidence=tuple(evidence),
                models=tuple(file.path.name for file in models.files.values()) if models else (),
                created_at_s=time.time(),
                gnomon_version=gnomon.__version__,
            )
            if old is not None:
                _check_same(old.manifest, manifest, asked.out)
                own = dict.fromkeys((*old.manifest.models, *manifest.models))
                manifest = replace(old.manifest, models=tuple(own))
            with closing(TableFolder(asked.out, manifest)) as folder:
                bench.runner.note_files(*files)
                if old is None:
                    keep_space(asked.space, asked.out)
                steps.expect(len(todo))
                traced = not bench.bare and any(entry.get("source") == "graph" for entry in evidence)
                in_place = priced_in_place(traces, gauge, rules, todo) if traced else Prices()
                if in_place.other_s is not None:
                    folder.describe(replace(manifest, other_s=in_place.other_s))
                steps.step(len(in_place.rows))
                alone = [unit for unit in todo if unit not in {row.unit for row in in_place.rows}]
                rows = _rows(bench, gauge, alone, steps)
                if traced:
                    rows = (without_added(row, traces, gauge.overhead_s) for row in rows)
                for row in chain(in_place.rows, rows):
                    folder.append(row)
                    seen.add(row.unit)
        bench.runner.note_files(*files, whole=True)
        bench.runner.finish({"reason": f"{len(units)} units of {asked.space.name}", "chosen": str(asked.out)})
        table = read_table(asked.out)
        return replace(
            table_document(table, asked.out, complaints(table, units)),
            measured=len(seen),
            seconds=time.monotonic() - start,
            campaign=bench.runner.campaign.id,
            doubts=tuple(worst(bench.runner.environments)),
        )


def _rows(bench: Bench, gauge: Gauge, todo: Sequence[Unit], steps: Steps) -> Iterator[Row]:
    """The rows of these units, measured in random order, a few at a time together with the anchor.

    A unit with an unstable time gets a second row, from twice as many processes.
    """
    order = list(todo)
    random.Random(bench.request.seed).shuffle(order)  # noqa: S311  # an order, not a secret
    once = bench.request.effort.processes_least
    placed: dict[Unit, Placed] = {}
    shaky: list[Unit] = []
    room = bench.request.effort.together - 1
    for part in parts_of(order, room):
        here, failed = place_each(part, lambda unit: placed_unit(bench, unit, f"unit-{unit.id}"))
        placed |= here
        for unit, error in failed.items():
            yield Row(unit=unit, status="failed", at_s=time.time(), reason=error.message)
        timed = measure_beside_gauge(bench, gauge, "units", list(here.values()))
        for unit in here:
            row = _row(unit, placed[unit], timed)
            if row.status == "unstable" and row.processes <= once:
                shaky.append(unit)
            yield row
        steps.step(len(part))
    for part in parts_of(shaky, room):
        timed = measure_beside_gauge(bench, gauge, "units again", [placed[unit] for unit in part], again=True)
        for unit in part:
            yield _row(unit, placed[unit], timed)


def _row(unit: Unit, placed: Placed, timed: Mapping[str, Timed]) -> Row:
    own = timed[placed.key]
    if own.reason:
        return Row(unit=unit, status="failed", at_s=own.at_s, reason=own.reason)
    return Row(
        unit=unit,
        status="ok" if own.half_width <= STABLE else "unstable",
        **fields_of(Row, own),
    )


def context_of(bench: Bench, effort: Effort | None = None) -> dict[str, object]:
    """The conditions under which the rows of one table must be measured."""
    fingerprint = bench.device.fingerprint
    # Only properties that affect times and never change on one machine; the system's version changes with every
    # update. The number of usable cores matters only to several threads, and the governor only if gnomon does not set
    # it.
    named = ["machine", "cpu_model", "soc", "libc"]
    named += [] if bench.request.settings.threads == 1 else ["cores"]
    named += [] if bench.request.device.governor else ["governor"]
    return context_document(
        {
            "device": {name: fingerprint[name] for name in named if name in fingerprint},
            "settings": recall.settings_of(bench.request.device),
            "runtime": bench.runtime.name,
            "version": bench.probe.version,
            "configuration": bench.configuration.name,
            "options": dict(bench.configuration.options),
            "environment": dict(bench.configuration.environment),
            "dtype": bench.configuration.precision,
            "protocol": _protocol(effort or effort_for(bench.request, EFFORT)),
        }
    )


def _check_same(old: Manifest, now: Manifest, path: Path) -> None:
    """Raise MeasurementError, with all reasons, if rows measured now do not belong in the table at a path."""
    reasons = unlike(old, now)
    if reasons:
        raise MeasurementError(
            f"the table {path} was measured under other conditions (in the table and now): " + "; ".join(reasons),
            hint="Give --out another path: the rows of one table must be measured under the same conditions.",
        )
