"""A tool that measures by itself, one of its backends and how it is asked; and the anchor that a table notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnomon.devices.base import Device
from gnomon.errors import MeasurementError, UsageError
from gnomon.jobs.request import Request
from gnomon.jobs.table_files import context_document
from gnomon.jobs.tool_bench import Anchor, ToolBench, Write, level_of
from gnomon.jobs.tool_options import ToolOptions, backend_of
from gnomon.models.units import write_unit
from gnomon.runtimes.bench_tool import BenchTool
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.latency_table import Manifest, unlike
from gnomon.spaces.search_space import SearchSpace
from gnomon.spaces.unit import Unit

_ANCHORS = 5
"""How many units are tried as the anchor: a converter may die on the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """A tool, one of its backends, and how it is asked."""

    tool: BenchTool
    backend: str
    options: ToolOptions

    def bench(self, device: Device, request: Request, folder: Path) -> ToolBench:
        """The tool at work on an open device."""
        return ToolBench(self.tool, device, self.options.order(self.backend, request.seed), folder)

    def context(self, device: Device, about: Mapping[str, str]) -> dict[str, Any]:
        """What must be equal for rows to stand in one table; `about` is what the tool told of phone and SDK."""
        told = device.describe().fingerprint
        version = next((v for k, v in about.items() if "SDK version" in k), "")
        facts = {name: told[name] for name in ("machine", "cpu_model", "soc", "cores") if name in told}
        return context_document(
            {
                "device": {**facts, **{k: v for k, v in about.items() if k.startswith("ro.")}},
                "runtime": self.tool.name,
                "backend": self.backend,
                "version": version or self.tool.probe().version,
                "configuration": f"{self.tool.name} {self.backend}",
                "dtype": "float32",
                "key": "/".join(self.tool.lookup),
                "protocol": self.options.document(),
            }
        )


def toolkit(tool: BenchTool, request: Request, options: ToolOptions, tell: Callable[[str], None] | None) -> Toolkit:
    """What a request asks of a tool; says which of its wishes the tool has no way to keep. Raises GnomonError."""
    backend = backend_of(tool, request)
    if tell is not None:
        asked = {"--pin": request.device.pin, "--governor": request.device.governor}
        idle = [name for name, value in asked.items() if value]
        if idle:
            tell(f"{tool.name} measures by itself: {' and '.join(idle)} have no part in it")
    longest_s = max(options.timeout_s, request.effort.timeout_s)
    return Toolkit(tool=tool, backend=backend, options=replace(options, timeout_s=longest_s))


def first_anchor(
    kit: Toolkit, bench: ToolBench, space: SearchSpace, seed: int
) -> tuple[Anchor, tuple[float, ...], dict[str, str]]:
    """The unit in the middle by size, or the next one that the tool runs; what it took, and what the tool told.

    MeasurementError where none of several runs.
    """
    units = sorted(space.tables(UNFUSED).units, key=lambda unit: math.prod(unit.inputs[0]))
    middle = len(units) // 2
    near = sorted(range(len(units)), key=lambda k: (abs(k - middle), k))[:_ANCHORS]
    reasons = []
    for unit in (units[k] for k in near):
        told = bench.benches(unit_writer(unit, seed), kit.options.benches)
        if not isinstance(told, str):
            times_s = tuple(one.time_s for one in told)
            return Anchor(unit, unit_writer(unit, seed), level_of(times_s, told[0].floor_s)), times_s, told[-1].about
        reasons.append(f"{unit.label}: {told}")
    raise MeasurementError(
        f"{kit.tool.name} runs none of {len(reasons)} units on {kit.backend}, such as {reasons[0]}",
        hint="Choose another backend with --backend, or see what the phone and the SDK say.",
    )


def known_anchor(bench: ToolBench, space: SearchSpace, manifest: Manifest, seed: int) -> tuple[Anchor, dict[str, str]]:
    """The anchor that a table was measured beside, and what the tool tells on this day.

    MeasurementError where it does not run, UsageError for a table that has none of this space.
    """
    unit = next((one for one in space.tables(UNFUSED).units if one.id == manifest.anchor), None)
    if unit is None or not manifest.anchor_calls_s:
        raise UsageError(
            f"the table has no anchor of the space {space.name}: it was made of a file, or for another space",
            hint="Build a new one: give --out another path.",
        )
    told = bench.bench(unit_writer(unit, seed))
    if isinstance(told, str):
        raise MeasurementError(
            f"{unit.label}, the table's anchor, does not run: {told}",
            hint="Measure on the phone and the backend of the table, or build another table with --out.",
        )
    return Anchor(unit, unit_writer(unit, seed), level_of(manifest.anchor_calls_s, told.floor_s)), told.about


def check_same(known: Manifest, now: Manifest, path: Path) -> None:
    """MeasurementError where a table was measured otherwise than would be done now."""
    if reasons := unlike(known, now):
        raise MeasurementError(
            f"{path} was measured otherwise (there and now): " + "; ".join(reasons),
            hint="Give --out another path: rows of unlike contexts do not stand in one table.",
        )


def unit_writer(unit: Unit, seed: int) -> Write:
    """Writes a unit as a model."""
    return lambda path: write_unit(unit, path, seed=seed)
