"""The machine's cumulative energy counters: which ones exist, how often they change, and how much energy a block of
calls used.

Only counters that accumulate energy themselves are read, in microjoules: the kernel's power capping zones
(Documentation/power/powercap/powercap.rst; they include RAPL on Intel and AMD processors) and `energy*_input` of
hardware monitors (Documentation/hwmon/sysfs-interface.rst). They count the energy of everything that runs, including
what the machine consumes when idle.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .snapshot import read

if TYPE_CHECKING:
    from gnomon.wire import EnergyCounters, EnergyMeter, EnergyRefused, EnergySpent

POLL_S = 2.5
"""The longest time for which counters are watched to see how often they change."""
_ENOUGH_MOVES = 8
_LEAST_UPDATES = 20
"""A measurement is off by up to one update at each end of a block, so a block with fewer updates is too inaccurate."""
_MOST_W = 10_000.0
_CARDS = ("amdgpu", "i915", "nouveau", "xe")
_LOOKED = "energy_uj of power capping zones (RAPL) and energy*_input of hardware monitors"
_PERMIT = (
    "Measure as root, or have an administrator allow it until the next restart: chmod a+r "
    "/sys/class/powercap/*/energy_uj. Kernels have hidden these files from users since CVE-2020-8694, because "
    "frequent readings can reveal secrets."
)


class NoEnergy(Exception):
    """No energy can be measured; `hint` is the next step."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Counter(NamedTuple):
    """A counter: its name, what it counts, its file, and the value at which it wraps around (None: unknown)."""

    name: str
    domain: str
    path: Path
    range_uj: int | None

    def read(self) -> int:
        """The microjoules counted since an unknown moment. NoEnergy if the counter cannot be read or has no valid
        value.
        """
        try:
            with self.path.open("rb") as file:
                text = file.read(64).decode("ascii", "replace").strip()
        except PermissionError as error:
            raise NoEnergy(f"this user may not read the energy counter {self.name} ({self.path})", _PERMIT) from error
        except OSError as error:
            raise NoEnergy(f"the energy counter {self.name} cannot be read: {error.strerror} ({self.path})") from error
        if not re.fullmatch("[0-9]{1,20}", text):
            raise NoEnergy(f"the energy counter {self.name} holds {text[:20]!r}, which is not an energy ({self.path})")
        return int(text)

    def spent(self, before: int, after: int, wall_ns: int) -> int:
        """The microjoules between two readings, with at most one wrap-around. NoEnergy if the readings are
        impossible.
        """
        uj = after - before
        if uj < 0:
            if self.range_uj is None or max(before, after) > self.range_uj:
                raise NoEnergy(f"the energy counter {self.name} went back from {before} to {after} uJ")
            uj += self.range_uj
        if uj * 1e3 > _MOST_W * wall_ns:
            raise NoEnergy(f"the energy counter {self.name} rose by {uj} uJ in {wall_ns} ns, more than {_MOST_W:g} W")
        return uj


class Meter:
    """Adds up the energy of a block: call `start` before it and `stop` after it.

    `wanted` has the names of the counters, and the period and the step that `probe` measured.
    """

    def __init__(self, wanted: EnergyMeter) -> None:
        self._wanted = wanted
        self._counters: list[Counter] = []
        self._before: list[tuple[int, int]] = []
        self._unknown = ""
        try:
            self._counters = chosen(found_counters(), wanted["counters"])
        except NoEnergy as reason:
            self._unknown = str(reason)

    def start(self) -> None:
        """Read the counters; `stop` reports any failure."""
        try:
            self._before = [(time.perf_counter_ns(), counter.read()) for counter in self._counters]
        except NoEnergy as reason:
            self._unknown = self._unknown or str(reason)

    def stop(self) -> EnergySpent:
        """Return ``{"spent_uj": .., "wall_ns": ..}``, or ``{"unknown": reason}`` rather than a meaningless number."""
        spent_uj = wall_ns = 0
        try:
            if not self._unknown:
                for counter, (start_ns, before) in zip(self._counters, self._before, strict=True):
                    after = counter.read()
                    wall_ns = time.perf_counter_ns() - start_ns
                    spent_uj += counter.spent(before, after, wall_ns)
        except NoEnergy as reason:
            self._unknown = str(reason)
        if not self._unknown:
            self._unknown = self._too_short(spent_uj, wall_ns)
        return {"unknown": self._unknown} if self._unknown else {"spent_uj": spent_uj, "wall_ns": wall_ns}

    def _too_short(self, spent_uj: int, wall_ns: int) -> str:
        period_ns, step_uj = self._wanted["period_ns"], self._wanted["step_uj"]
        if wall_ns >= _LEAST_UPDATES * period_ns and spent_uj >= _LEAST_UPDATES * step_uj:
            return ""
        size = f"{wall_ns * 1e-6:.3g} ms and {spent_uj} uJ"
        return f"a block of {size} is too short for counters that rise by {step_uj} uJ every {period_ns * 1e-6:.3g} ms"


def probe(wanted: list[str]) -> EnergyCounters | EnergyRefused:
    """The counters with these names, and how they change; if no names are given, the counters that together cover the
    machine, counting nothing twice.

    Each counter has `name`, `domain` and `path`. `period_ns` is the usual time between two changes of the slowest
    counter, `step_uj` is the largest of the counters' smallest changes, `power_w` is the power measured meanwhile,
    `still` lists the counters left out because they did not change twice, and `others` lists the remaining counters. On
    failure the answer has only `refused` and `hint`.
    """
    try:
        present = found_counters()
        counters = chosen(present, wanted)
        moves = _watch(counters)
    except NoEnergy as reason:
        return {"refused": str(reason), "hint": reason.hint}
    moving = [counter for counter in counters if len(moves[counter.name]) > 2]
    still = [counter.name for counter in counters if counter not in moving]
    if not moving or (wanted and still):
        return {
            "refused": f"not every energy counter changed twice within {POLL_S:g} s: {', '.join(still)} did not",
            "hint": "They change too seldom to be measured, or never. Name another counter: --energy-counter NAME.",
        }
    periods, steps, power_w = [], [], 0.0
    for counter in moving:
        seen = moves[counter.name]
        gaps = sorted(b[0] - a[0] for a, b in pairwise(seen[1:]))
        periods.append(gaps[len(gaps) // 2])
        steps.append(min(b[1] - a[1] for a, b in pairwise(seen[1:])))
        power_w += (seen[-1][1] - seen[1][1]) * 1e3 / (seen[-1][0] - seen[1][0])
    used = {counter.name for counter in moving}
    return {
        "counters": [{"name": c.name, "domain": c.domain, "path": str(c.path)} for c in moving],
        "period_ns": max(periods),
        "step_uj": max(steps),
        "power_w": power_w,
        "still": still,
        "others": [f"{c.name} ({c.domain})" for c in present if c.name not in used and c.name not in still],
    }


def _watch(counters: list[Counter]) -> dict[str, list[tuple[int, int]]]:
    """The first reading of each counter, then each reading that differs from the one before: nanoseconds, and
    microjoules since the first reading.
    """
    begin = time.perf_counter_ns()
    last = {counter.name: counter.read() for counter in counters}
    moves = {counter.name: [(begin, 0)] for counter in counters}
    while time.perf_counter_ns() - begin < POLL_S * 1e9:
        for counter in counters:
            value, now = counter.read(), time.perf_counter_ns()
            seen = moves[counter.name]
            if value != last[counter.name]:
                uj = counter.spent(last[counter.name], value, now - seen[-1][0])
                seen.append((now, seen[-1][1] + uj))
                last[counter.name] = value
        if all(len(seen) > _ENOUGH_MOVES for seen in moves.values()):
            break
        time.sleep(1e-4)
    return moves


def chosen(counters: list[Counter], wanted: Sequence[str]) -> list[Counter]:
    """The counters with these names, or the usual ones if none is named. NoEnergy if a named counter is missing, or if
    none is named and the usual ones are unknown.
    """
    by_name = {counter.name: counter for counter in counters}
    if missing := [name for name in wanted if name not in by_name]:
        have = ", ".join(sorted(by_name)) or "none"
        raise NoEnergy(f"there is no energy counter {missing[0]!r}", f"The machine has: {have}.")
    if wanted:
        return [by_name[name] for name in dict.fromkeys(wanted)]
    usual = usual_counters(counters)
    if usual:
        return usual
    if counters:
        names = ", ".join(by_name)
        raise NoEnergy(
            f"the machine has energy counters ({names}), but gnomon does not know which of them include others",
            "Name each counter to add up: --energy-counter NAME.",
        )
    raise NoEnergy(f"the machine has no energy counter: gnomon looked for {_LOOKED} below {sysfs()}{_sampled()}")


def usual_counters(counters: list[Counter]) -> list[Counter]:
    """The counters that together cover the machine, counting nothing twice; none if they are unknown.

    For RAPL, these are the packages and their memory, which is counted separately; cores and uncore are part of a
    package, and psys includes everything. Only one control type is used, because the others show the same packages in
    another way. Without RAPL, these are the outermost zones of the only control type; without any zones, the sockets of
    amd_energy or the only counter that does not belong to a graphics card.
    """
    zones: dict[str, list[Counter]] = {}
    for counter in counters:
        if ":" in counter.name and counter.path.name == "energy_uj":
            zones.setdefault(counter.name.partition(":")[0], []).append(counter)
    kinds = sorted(zones, key=lambda kind: (kind != "intel-rapl", not kind.startswith("intel-rapl"), kind))
    if kinds and kinds[0].startswith("intel-rapl"):
        rapl = zones[kinds[0]]
        parts = [c for c in rapl if c.domain.startswith("package") or c.domain == "dram"]
        return parts or [c for c in rapl if c.domain == "psys"]
    if len(kinds) == 1:
        names = {c.name for c in zones[kinds[0]]}
        # Leave out zones within another zone: `a:0:1` is in `a:0`.
        return [c for c in zones[kinds[0]] if not any(c.name.startswith(f"{name}:") for name in names)]
    monitors = [c for c in counters if c.path.name != "energy_uj"]
    sockets = [c for c in monitors if c.name.startswith("amd_energy/") and c.domain.startswith("Esocket")]
    rest = [c for c in monitors if c.name.partition("/")[0] not in (*_CARDS, "amd_energy")]
    if kinds or (sockets and rest):
        return []
    return sockets or (rest if len(rest) == 1 else [])


def found_counters() -> list[Counter]:
    """All counters that the kernel shows, even those that may not be read."""
    base = Path(sysfs()) / "class"
    counters = []
    for zone in sorted(base.glob("powercap/*:*"), key=_numbers):
        if (zone / "energy_uj").exists():
            limit = read(zone / "max_energy_range_uj")
            range_uj = int(limit) if re.fullmatch("[0-9]{1,19}", limit) and int(limit) else None
            counters.append(Counter(zone.name, read(zone / "name") or zone.name, zone / "energy_uj", range_uj))
    names: dict[str, int] = {}
    for file in sorted(base.glob("hwmon/hwmon*/energy*_input"), key=_numbers):
        label = read(file.with_name(file.name.replace("_input", "_label"))) or file.name.partition("_")[0]
        name = f"{read(file.with_name('name')) or file.parent.name}/{label}"
        names[name] = names.get(name, 0) + 1
        counters.append(Counter(name if names[name] == 1 else f"{name}#{names[name]}", label, file, None))
    return counters


def sysfs() -> str:
    """The kernel's folder of devices; GNOMON_SYSFS names a replacement for /sys, for tests."""
    return os.environ.get("GNOMON_SYSFS", "/sys")


def _sampled() -> str:
    """A clause that names sensors of momentary power, for the message about missing counters."""
    base = Path(sysfs()) / "class"
    files = [*base.glob("hwmon/hwmon*/power*_input"), *base.glob("power_supply/*/power_now")]
    names = ", ".join(sorted({read(f.with_name("name")) or f.parent.name for f in files})[:4])
    return f"; momentary power, as reported by {names}, is not enough" if names else ""


def _numbers(path: Path) -> list[tuple[int, str]]:
    """A sort key that puts hwmon10 after hwmon9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split("([0-9]+)", str(path))]
