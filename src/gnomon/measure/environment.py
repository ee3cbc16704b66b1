"""Doubts about a run, each with a next step, derived from a snapshot taken before the run and one taken after it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from gnomon.errors import many
from gnomon.wire import Environment, Snapshot

BUSY_SHARE = 0.10
"""The share of the cores' time that other processes may use before a run is doubted."""

HOT_C = 85.0
"""The temperature above which a zone counts as hot if it does not report the point at which the kernel slows the
machine down.
"""

NEAR_C = 5.0
"""The distance below that point, in degrees, at which a zone already counts as hot."""

LOW_MEMORY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """A reason not to trust a run, with the observation and the next step.

    `kind` is "busy", "steal", "throttled", "hot", "frequency", "governor", "quota", "swap", "memory", "voltage",
    "battery" or "unwatched"; jobs add others, such as "clocks-disagree" and "software-device". The kinds that determine
    the exit code are in `gnomon.errors`.
    """

    kind: str
    message: str
    hint: str


def judge(before: Snapshot, after: Snapshot) -> list[Caveat]:
    """The doubts about measurements taken between two snapshots of `gnomon.agent.snapshot.snapshot`.

    Missing values raise no doubt. The time of other processes is known only if one process took both snapshots and
    waited for the measured processes; otherwise the load before the run is judged.
    """
    return [doubt for _, doubt in _weighed(before, after)]


UNWATCHED: Environment = {"before": {}, "after": {}, "unwatched": True}
"""A substitute for the snapshots of a session that ended before they were reported."""


def worst(pairs: Iterable[Environment]) -> list[Caveat]:
    """The doubts about several runs: each kind once, in its worst case. A pair has snapshots `before` and `after`."""
    doubts: dict[str, _Weighed] = {}
    for pair in pairs:
        for weight, doubt in _weighed(pair["before"], pair["after"]):
            if doubt.kind not in doubts or weight > doubts[doubt.kind][0]:
                doubts[doubt.kind] = weight, doubt
        if pair.get("unwatched"):
            doubts["unwatched"] = _seen(
                0.0,
                "unwatched",
                "the device disconnected or gnomon was killed while it measured, so it is unknown whether the device "
                "was busy or hot then",
            )
    return [doubt for _, doubt in doubts.values()]


_Weighed = tuple[float, Caveat]
"""A doubt with its weight, which is comparable among doubts of the same kind."""

_Counter = Literal[
    "cpu_total_s", "cpu_busy_s", "cpu_steal_s", "own_cpu_s", "cgroup_throttled", "throttle_count", "swapped_pages"
]


def _weighed(before: Snapshot, after: Snapshot) -> Iterator[_Weighed]:
    yield from _others(before, after)
    yield from _clock(before, after)
    yield from _heat(before, after)
    yield from _memory(before, after)


_HINTS = {
    "battery": "Plug the device in, then measure again.",
    "busy": "Stop other processes (see top), or measure at a quieter time.",
    "frequency": "Let the device cool down, plug the device in, then measure again.",
    "governor": "Stop the program that changes it (power-profiles-daemon, tlp), then measure again.",
    "hot": "Let the device cool down or cool it better, and pause between rounds.",
    "memory": "Stop other programs, then measure again.",
    "quota": "Raise or remove the quota (docker --cpus, CPUQuota=), or use fewer threads.",
    "steal": "Measure on a machine that is not shared, or take more rounds at another time.",
    "swap": "Free memory, or turn swap off while measuring (swapoff -a).",
    "throttled": "Let the device cool down or cool it better, and pause between rounds.",
    "unwatched": "If the device may have been busy or hot, measure again with --fresh.",
    "voltage": "Use a stronger power supply and a shorter cable.",
}
"""The next step for each kind of doubt, unless a better one is known."""


def _seen(weight: float, kind: str, message: str, hint: str = "") -> _Weighed:
    return weight, Caveat(kind=kind, message=message, hint=hint or _HINTS[kind])


def _grown(before: Snapshot, after: Snapshot, key: _Counter) -> float:
    """The increase of a counter; 0 if either snapshot lacks it or the machine restarted."""
    if key not in before or key not in after:
        return 0.0
    return max(0.0, float(after[key]) - float(before[key]))


def others_share(before: Snapshot, after: Snapshot) -> float | None:
    """The share of the machine's processor time that other processes used; None if it cannot be separated from the
    measuring processes' own.
    """
    total_s = _grown(before, after, "cpu_total_s")
    if total_s <= 0 or "pid" not in before or before["pid"] != after.get("pid"):
        return None
    return (_grown(before, after, "cpu_busy_s") - _grown(before, after, "own_cpu_s")) / total_s


def steal_share(before: Snapshot, after: Snapshot) -> float | None:
    """The share of the machine's processor time that went to other virtual machines; None if unknown."""
    total_s = _grown(before, after, "cpu_total_s")
    return _grown(before, after, "cpu_steal_s") / total_s if total_s > 0 else None


def _others(before: Snapshot, after: Snapshot) -> Iterator[_Weighed]:
    foreign = others_share(before, after)
    if foreign is not None:
        if foreign > BUSY_SHARE:
            yield _seen(foreign, "busy", f"other processes used {foreign:.0%} of the machine")
    elif (load := before.get("load_average_1m", 0.0) / max(1, before.get("cores") or 1)) > 0.5:
        yield _seen(
            load,
            "busy",
            f"the load was {before['load_average_1m']:.1f} on {many(before.get('cores') or 1, 'core')} before the run",
            "Stop other programs (see top) and wait a minute, then measure again.",
        )
    stolen = steal_share(before, after) or 0.0
    if stolen > BUSY_SHARE / 5:
        yield _seen(stolen, "steal", f"CPU steal was {stolen:.0%} of the time: other virtual machines used the cores")


def _clock(before: Snapshot, after: Snapshot) -> Iterator[_Weighed]:
    if before.get("governors") != after.get("governors"):
        yield _seen(math.inf, "governor", "the frequency governor changed during the run")
    elif slow := sorted({g for g in before.get("governors", {}).values() if g in ("powersave", "ondemand")}):
        # Under intel_pstate and amd-pstate, "powersave" also scales up, so the frequencies decide there.
        idle = [f for f in after.get("frequencies_khz", {}).values() if f[0] and f[3] and f[0] < 0.8 * f[3]]
        if idle:
            yield _seen(
                len(idle),
                "governor",
                f"the governor {slow[0]!r} left {many(len(idle), 'core')} below 80 % of the highest frequency",
                "Choose 'performance' while measuring: cpupower frequency-set -g performance.",
            )
    limits_before = [f[2] for f in before.get("frequencies_khz", {}).values()]
    limits_after = [f[2] for f in after.get("frequencies_khz", {}).values()]
    if limits_before != limits_after:
        taken_khz = sum(f or 0 for f in limits_before) - sum(f or 0 for f in limits_after)
        yield _seen(taken_khz, "frequency", "the highest allowed frequency changed during the run")
    if count := _grown(before, after, "cgroup_throttled"):
        yield _seen(count, "quota", f"the container's processor quota ran out {many(round(count), 'time')}")
    if not before.get("on_battery") and after.get("on_battery"):
        yield _seen(0.0, "battery", "the device switched to its battery during the run")


def _heat(before: Snapshot, after: Snapshot) -> Iterator[_Weighed]:
    slowed: dict[str, int] = {**before.get("slowed_to_cool", {}), **after.get("slowed_to_cool", {})}
    limits = (before.get("firmware_limits") or 0) | (after.get("firmware_limits") or 0)
    if count := _grown(before, after, "throttle_count"):
        yield _seen(count, "throttled", f"the processor throttled {many(round(count), 'time')} because of heat")
    elif slowed:
        name, step = max(slowed.items(), key=lambda item: item[1])
        yield _seen(step, "throttled", f"the kernel slowed the machine down because of heat ({name} at step {step})")
    elif limits & 14:
        yield _seen(limits & 14, "throttled", "the firmware slowed the processor down")
    if limits & 1:
        low = "the supply's voltage is too low, which makes the firmware slow the processor down"
        yield _seen(0.0, "voltage", low)
    yield from _hot(before, after)


def _hot(before: Snapshot, after: Snapshot) -> Iterator[_Weighed]:
    """The doubt about the zone that is furthest above its hot point, if any is."""
    seen: list[tuple[float, str, float]] = []
    for snapshot in (before, after):
        for name, value in snapshot.get("temperatures_c", {}).items():
            if value < 150:
                points = snapshot.get("trip_points_c", {}).get(name, {})
                slowing = [points[kind] - NEAR_C for kind in ("passive", "hot") if kind in points]
                # If a zone reports only the point at which the machine is switched off, the firmware slows the machine
                # down earlier.
                hot_c = min(slowing) if slowing else min(HOT_C, points.get("critical", math.inf) - NEAR_C)
                seen.append((value - hot_c, name, value))
    over, name, value = max(seen, default=(-1.0, "", 0.0))
    if over >= 0:
        points = after.get("trip_points_c", before.get("trip_points_c", {})).get(name, {})
        acts = ""
        if points:
            kind = min(points, key=lambda kind: points[kind])
            act = "switches the machine off" if kind == "critical" else "slows the machine down"
            acts = f"; the kernel {act} at {points[kind]:.0f}"
        yield _seen(over, "hot", f"{name} reached {value:.0f} degrees Celsius{acts}")


def _memory(before: Snapshot, after: Snapshot) -> Iterator[_Weighed]:
    if pages := _grown(before, after, "swapped_pages"):
        yield _seen(pages, "swap", f"{many(round(pages), 'page was', 'pages were')} swapped during the run")
    least = min(s.get("memory_available_bytes", LOW_MEMORY_BYTES) for s in (before, after))
    if least < LOW_MEMORY_BYTES:
        yield _seen(-least, "memory", f"only {least >> 20} MiB of memory were available")
