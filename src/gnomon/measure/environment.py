"""What made a run unstable, and what to do about it, from a snapshot before and one after."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

BUSY_SHARE = 0.10
"""Share of the cores' time that others may take before a run is doubted."""

HOT_C = 85.0
LOW_MEMORY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A reason not to trust a run: what was seen, and the next step.

    `kind` is "busy", "steal", "throttled", "hot", "frequency", "governor", "quota", "swap", "memory" or
    "battery"; jobs add "insensitive" and "not-finite".
    """

    kind: str
    message: str
    hint: str


def judge(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Doubt]:
    """The doubts about what was measured between two snapshots of `gnomon.agent.snapshot.snapshot`.

    What a machine does not tell raises no doubt. Time of other processes is told from one's own only if
    one process took both snapshots and waited for what was measured; otherwise the load before the run
    has to do.
    """
    return [doubt for _, doubt in _weighed(before, after)]


def worst(pairs: Iterable[Mapping[str, Any]]) -> list[Doubt]:
    """Each kind of doubt about several runs once, where it was worst; a pair has snapshots `before` and `after`."""
    found: dict[str, _Weighed] = {}
    for pair in pairs:
        for weight, doubt in _weighed(pair["before"], pair["after"]):
            if doubt.kind not in found or weight > found[doubt.kind][0]:
                found[doubt.kind] = weight, doubt
    return [doubt for _, doubt in found.values()]


_Weighed = tuple[float, Doubt]
"""A doubt and how bad it is, comparable among doubts of its kind."""


def _weighed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[_Weighed]:
    yield from _others(before, after)
    yield from _clock(before, after)
    yield from _heat(before, after)
    yield from _memory(before, after)


def _seen(weight: float, kind: str, message: str, hint: str) -> _Weighed:
    return weight, Doubt(kind=kind, message=message, hint=hint)


def _grown(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> float:
    """How much a counter rose; 0 if either snapshot lacks it or the machine restarted."""
    if key not in before or key not in after:
        return 0.0
    return max(0.0, float(after[key]) - float(before[key]))


def _others(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[_Weighed]:
    total_s = _grown(before, after, "cpu_total_s")
    if total_s > 0 and "pid" in before and before["pid"] == after.get("pid"):
        foreign = (_grown(before, after, "cpu_busy_s") - _grown(before, after, "own_cpu_s")) / total_s
        if foreign > BUSY_SHARE:
            yield _seen(
                foreign,
                kind="busy",
                message=f"other processes used {foreign:.0%} of the machine",
                hint="Stop them (see top) or measure at a quieter time; compare CPU time instead of wall time.",
            )
    elif (load := before.get("load_average_1m", 0.0) / max(1, before.get("cores", 1))) > 0.5:
        yield _seen(
            load,
            kind="busy",
            message=f"the load was {before['load_average_1m']:.1f} on {before.get('cores', 1)} cores before the run",
            hint="Stop other programs (see top) and wait a minute, then measure again.",
        )
    stolen = _grown(before, after, "cpu_steal_s") / total_s if total_s > 0 else 0.0
    if stolen > BUSY_SHARE / 5:
        yield _seen(
            stolen,
            kind="steal",
            message=f"other virtual machines took {stolen:.0%} of the time",
            hint="Measure on hardware of your own, or take more rounds at another time.",
        )


def _clock(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[_Weighed]:
    if before.get("governors") != after.get("governors"):
        yield _seen(
            math.inf,
            kind="governor",
            message="the frequency governor changed during the run",
            hint="Stop what changes it (power-profiles-daemon, tlp), then measure again.",
        )
    elif slow := sorted({g for g in before.get("governors", {}).values() if g in ("powersave", "ondemand")}):
        # Under intel_pstate and amd-pstate "powersave" also scales up, so the frequencies decide there.
        idle = [f for f in after.get("frequencies_khz", {}).values() if f[0] and f[3] and f[0] < 0.8 * f[3]]
        if idle:
            yield _seen(
                len(idle),
                kind="governor",
                message=f"the governor {slow[0]!r} left {len(idle)} cores below 80 % of their frequency",
                hint="Choose 'performance' for the time of measuring: cpupower frequency-set -g performance.",
            )
    limits_before = [f[2] for f in before.get("frequencies_khz", {}).values()]
    limits_after = [f[2] for f in after.get("frequencies_khz", {}).values()]
    if limits_before != limits_after:
        taken_khz = sum(f or 0 for f in limits_before) - sum(f or 0 for f in limits_after)
        yield _seen(
            taken_khz,
            kind="frequency",
            message="the highest allowed frequency changed during the run",
            hint="Let the device cool down, plug it in, then measure again.",
        )
    if count := _grown(before, after, "cgroup_throttled"):
        yield _seen(
            count,
            kind="quota",
            message=f"the container's processor quota ran out {count:.0f} times",
            hint="Raise or remove the quota (docker --cpus, CPUQuota=), or use fewer threads.",
        )
    if not before.get("on_battery") and after.get("on_battery"):
        yield _seen(
            0.0,
            kind="battery",
            message="the device went over to its battery during the run",
            hint="Plug it in, then measure again.",
        )


def _heat(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[_Weighed]:
    hint = "Let the device cool down or cool it better, and pause between rounds."
    if count := _grown(before, after, "throttle_count"):
        yield _seen(count, kind="throttled", message=f"the processor throttled {count:.0f} times from heat", hint=hint)
    zones = {name: value for name, value in after.get("temperatures_c", {}).items() if value < 150}
    if zones and max(zones.values()) >= HOT_C:
        hottest = max(zones, key=lambda name: zones[name])
        yield _seen(
            zones[hottest], kind="hot", message=f"{hottest} reached {zones[hottest]:.0f} degrees Celsius", hint=hint
        )


def _memory(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[_Weighed]:
    if pages := _grown(before, after, "swapped_pages"):
        yield _seen(
            pages,
            kind="swap",
            message=f"{pages:.0f} pages were swapped during the run",
            hint="Free memory, or turn swap off for the time of measuring (swapoff -a).",
        )
    least = min(s.get("memory_available_bytes", LOW_MEMORY_BYTES) for s in (before, after))
    if least < LOW_MEMORY_BYTES:
        yield _seen(
            -least,
            kind="memory",
            message=f"only {least >> 20} MiB of memory were available",
            hint="Stop other programs, then measure again.",
        )
