"""Many models measured by a tool that measures by itself: separate benches in rounds, each beside an anchor.

A tool that measures by itself, one of its backends and how it is asked; and the anchor that a table notes.

What a tool that measures by itself is asked, as a user says it: KEY=VALUE, gnomon's own keys and the tool's.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.core.stats import Block, median, summarise
from gnomon.devices.base import Device
from gnomon.errors import GnomonError, MeasurementError, UsageError
from gnomon.jobs.table.folder import context_document
from gnomon.models.units import write_unit
from gnomon.runtimes.snpe import Benched, BenchOrder, BenchTool, bench_tools
from gnomon.session.request import Request
from gnomon.session.targets import describe
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.latency_table import STABLE, Manifest
from gnomon.spaces.loading import SearchSpace
from gnomon.spaces.unit import Unit

Write = Callable[[Path], object]
"""Writes a model as an ONNX file. Raises GnomonError where there is no such model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one bench told of a model: the time that counts, all figures in the tool's unit, and the layers' names.

    `floor_s` is what the time may be wrong by because the tool rounds.
    """

    time_s: float
    figures: dict[str, float]
    layers: tuple[str, ...]
    floor_s: float
    about: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A time in seconds, by several benches, and its interval: None where there was but one."""

    time_s: float
    low_s: float | None
    high_s: float | None

    def drift(self, now_s: float) -> float:
        """The factor that brings times of now to the speed of then: 1 where the difference may be noise."""
        if self.low_s is not None and self.high_s is not None and self.low_s <= now_s <= self.high_s:
            return 1.0
        return self.time_s / now_s


@dataclass(frozen=True, slots=True)
class Anchor:
    """A unit that is benched again and again, and its level when it was first measured."""

    unit: Unit
    write: Write
    level: Level


def level_of(values_s: Sequence[float], floor_s: float) -> Level:
    """The median of separate benches, its 95 % interval by Student (`gnomon.core.stats`), widened by rounding."""
    found = summarise([Block(process=k, block=0, values_s=(value,)) for k, value in enumerate(values_s)])
    middle = median(values_s)
    if not math.isfinite(found.high_s):
        return Level(time_s=middle, low_s=None, high_s=None)
    low = min(found.low_s, middle) - floor_s
    return Level(time_s=middle, low_s=max(0.0, low), high_s=max(found.high_s, middle) + floor_s)


@dataclass(slots=True, kw_only=True)
class Seen:
    """What is known of one model so far: each bench with its factor of drift, or why there is none."""

    write: Write
    told: list[Told] = field(default_factory=list)
    drifts: list[float] = field(default_factory=list)
    reason: str = ""

    @property
    def benches(self) -> int:
        """How many benches succeeded."""
        return len(self.told)

    @property
    def values_s(self) -> tuple[float, ...]:
        """The time of each bench, as told."""
        return tuple(one.time_s for one in self.told)

    @property
    def floor_s(self) -> float:
        """What rounding may hide."""
        return max(one.floor_s for one in self.told)

    def level(self) -> Level:
        """The time at the anchor's first speed."""
        return level_of([t.time_s * d for t, d in zip(self.told, self.drifts, strict=True)], self.floor_s)

    @property
    def stable(self) -> bool:
        """Whether the level is known well enough, see `gnomon.spaces.latency_table.STABLE`."""
        found = self.level()
        if found.low_s is None or found.high_s is None:
            return False
        return (found.high_s - found.low_s) / 2 <= STABLE * found.time_s

    @property
    def drift(self) -> float:
        """The factor between what was told and the level."""
        return self.level().time_s / median(self.values_s)

    def reported(self) -> dict[str, float]:
        """All figures: the least of the minima, the median of the averages, the largest of the maxima."""
        pick = {"Min_Time": min, "Max_Time": max}
        names = [name for name in self.told[0].figures if all(name in one.figures for one in self.told)]
        made = {}
        for name in names:
            values = [one.figures[name] for one in self.told]
            # The median of an odd number of figures is one of them, written as the tool wrote it.
            middle = sorted(values)[len(values) // 2] if len(values) % 2 else median(values)
            fold = pick.get(name.rpartition("/")[2])
            made[name] = fold(values) if fold else middle
        return made


class ToolBench:
    """An open device with a tool and what is asked of it. `folder` is on this machine."""

    def __init__(self, tool: BenchTool, device: Device, order: BenchOrder, folder: Path) -> None:
        self._tool, self._device, self._order, self._folder = tool, device, order, folder

    def bench(self, write: Write) -> Told | str:
        """Write, convert and measure a model once; the reason where that fails. DeviceError where the device left."""
        path = self._folder / "unit.onnx"
        try:
            write(path)
        except GnomonError as error:
            return error.message
        found = self._tool.measure(self._device, path, self._order)
        return describe(found) if isinstance(found, Failure) else self._told(found)

    def _told(self, found: Benched) -> Told | str:
        """The time that counts, of the one backend that was asked for."""
        key, statistic = self._tool.lookup
        for backend, keys in found.times_s.items():
            value = keys.get(key, {}).get(statistic, 0.0)
            if not (math.isfinite(value) and value > 0):
                return f"{self._tool.name} told no {key}, {statistic} of it"
            layers = tuple(found.layers_s.get(backend, {}))
            return Told(
                time_s=value,
                figures={f"{k}/{s}": v for k, row in found.figures.get(backend, {}).items() for s, v in row.items()},
                layers=layers,
                # Each layer is rounded by itself, and always alike: half a step each, as independent errors add.
                floor_s=self._tool.resolution_s / 2 * math.sqrt(max(1, len(layers))),
                about=dict(found.told),
            )
        return "; ".join(describe(failure) for failure in found.failures.values()) or f"{self._tool.name} told nothing"

    def benches(self, write: Write, count: int) -> list[Told] | str:
        """So many benches of a model; the reason where one fails."""
        found = []
        for _ in range(count):
            told = self.bench(write)
            if isinstance(told, str):
                return told
            found.append(told)
        return found

    def rounds(self, models: Iterable[Seen], anchor: Anchor, benches: int, drawn: random.Random) -> None:
        """Bench each model until it has so many benches, and twice as many where those do not tell it well enough.

        In rounds, each in an order of its own after the anchor. What was seen before stays. A model that fails is given
        up, with the benches that it has. MeasurementError where the anchor fails: then it is not the models.
        """
        known = list(models)
        self._until(known, anchor, benches, drawn)
        if benches > 1:
            self._until([one for one in known if one.told and not one.stable], anchor, 2 * benches, drawn)

    def _until(self, models: Sequence[Seen], anchor: Anchor, benches: int, drawn: random.Random) -> None:
        for number in range(1, benches + 1):
            todo = [one for one in models if one.benches < number and not one.reason]
            if not todo:
                continue
            drift = anchor.level.drift(self._now_s(anchor))
            drawn.shuffle(todo)
            for one in todo:
                told = self.bench(one.write)
                if isinstance(told, str):
                    one.reason = told
                else:
                    one.told.append(told)
                    one.drifts.append(drift)

    def _now_s(self, anchor: Anchor) -> float:
        """The anchor's time in one bench; a second one is tried."""
        now = self.bench(anchor.write)
        if isinstance(now, str):
            now = self.bench(anchor.write)
        if isinstance(now, str):
            raise MeasurementError(
                f"{self._tool.name} does not run the anchor any more, which it did before: {now}",
                hint="See what is wrong with the phone or the SDK, then start again: what was measured is kept.",
            )
        return now.time_s


_OWN = ("runs", "inputs", "benches", "anchor", "timeout")
_TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """How a tool measures: `benches` separate starts of a model give its interval, each of `runs` over `inputs`.

    Twice as many are made where those do not tell it well enough. The anchor is benched again before each `anchor`
    models. A program of the tool is killed after `timeout_s`.
    `settings` are the tool's own, which it checks.
    """

    runs: int = 5
    inputs: int = 10
    benches: int = 3
    anchor: int = 8
    timeout_s: float = _TIMEOUT_S
    settings: Mapping[str, str] = field(default_factory=dict)

    def order(self, backend: str, seed: int) -> BenchOrder:
        """The order for one backend."""
        return BenchOrder(
            backends=(backend,),
            runs=self.runs,
            inputs=self.inputs,
            seed=seed,
            timeout_s=self.timeout_s,
            settings=self.settings,
        )

    def document(self) -> dict[str, Any]:
        """What must be equal for rows to stand in one table, as JSON values."""
        return {"runs": self.runs, "inputs": self.inputs, "benches": self.benches, "settings": dict(self.settings)}


def tool_options(said: Mapping[str, str]) -> ToolOptions:
    """The options that a user says; what gnomon does not know is the tool's. UsageError for what is no number."""
    numbers = {name: _number(name, said[name]) for name in _OWN if name in said}
    timeout_s = numbers.pop("timeout", _TIMEOUT_S)
    settings = {name: value for name, value in said.items() if name not in _OWN}
    return ToolOptions(timeout_s=float(timeout_s), settings=settings, **numbers)


def options_document(document: Mapping[str, Any]) -> dict[str, str]:
    """What `ToolOptions.document` wrote, as a user would say it."""
    own = {name: str(document[name]) for name in ("runs", "inputs", "benches") if name in document}
    return {**own, **{str(name): str(value) for name, value in dict(document.get("settings", {})).items()}}


def tool_of(request: Request) -> BenchTool | None:
    """The tool that a request names, or None where it names runtimes. UsageError where it names both."""
    tools = bench_tools()
    named = [name for name in request.runtimes if name in tools]
    if named and len(request.runtimes) > 1:
        raise UsageError(
            f"a table is of one runtime, not of {', '.join(request.runtimes)}", hint=f"Give --runtime {named[0]} alone."
        )
    return tools[named[0]] if named else None


def backend_of(tool: BenchTool, request: Request) -> str:
    """The one backend that is meant. UsageError for several, or for one that the tool does not have."""
    wish = request.wish
    known = tool.probe().backends
    if len(wish.backends) > 1:
        raise UsageError(
            f"a table is of one backend of {tool.name}, not of {', '.join(wish.backends)}",
            hint="Build one table each, with --out of its own.",
        )
    if wish.precisions or wish.environments:
        raise UsageError(
            f"{tool.name} measures by itself, and takes no --precision or --env", hint="Use --set for its settings."
        )
    chosen = wish.backends[0] if wish.backends else tool.usual
    if chosen not in known:
        raise UsageError(f"{tool.name} has no backend {chosen[:60]!r}", hint=f"It has: {', '.join(known)}.")
    return chosen


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise UsageError(f"{name} is {text[:60]!r}", hint=f"Give a whole number of 1 or more: {name}=5.")
    return int(text)


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


def unit_writer(unit: Unit, seed: int) -> Write:
    """Writes a unit as a model."""
    return lambda path: write_unit(unit, path, seed=seed)
