"""Many models measured by a tool that measures by itself: separate benches in rounds, each beside an anchor."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gnomon.core.sample import Failure
from gnomon.core.stats import Block, median, summarise
from gnomon.devices.base import Device
from gnomon.errors import GnomonError, MeasurementError
from gnomon.jobs.targets import describe
from gnomon.runtimes.bench_tool import Benched, BenchOrder, BenchTool
from gnomon.spaces.latency_table import STABLE
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
