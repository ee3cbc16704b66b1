"""The state of a machine at one moment. Runs on the device: standard library only, Python 3.8 or later.

Run as a program, it prints the snapshot as JSON, so that this file can be piped into `python3 -` on any device. Values
that a kernel does not report are left out. `gnomon.measure.environment` judges pairs of snapshots.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from gnomon.wire import Snapshot


def snapshot(root: str = "/") -> Snapshot:
    """Read the state of the machine whose /proc and /sys lie below `root`; `gnomon.wire.Snapshot` describes each value.

    monotonic_s, pid, cores and own_cpu_s are always present; all others are present if the kernel reports them.
    """
    base = Path(root)
    own = os.times()
    state: Snapshot = {
        "monotonic_s": time.monotonic(),
        "pid": os.getpid(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "own_cpu_s": own.user + own.system + own.children_user + own.children_system,
        **_load(base),
        **_cpu_times(base),
        **_memory(base),
        **_frequencies(base),
        **_throttling(base),
        **_cgroup(base),
        **_zones(base),
        "slowed_to_cool": _slowed(base),
        "firmware_limits": _firmware_limits(base),
        "on_battery": _on_battery(base),
    }
    return cast("Snapshot", {key: value for key, value in state.items() if value not in (None, {}, [])})


def read(path: Path | str) -> str:
    """The text of a small kernel file; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20).strip()
    except (OSError, ValueError):  # a path that came from a file may contain a zero byte
        return ""


_DIGITS = 20
"""No kernel counter has this many digits."""


def _number(text: str) -> int | None:
    try:
        return int(text) if len(text) < _DIGITS else None
    except ValueError:
        return None


def _table(text: str) -> dict[str, int]:
    """The first number after each name in a text such as /proc/meminfo or /proc/vmstat."""
    table: dict[str, int] = {}
    for line in text.splitlines():
        words = line.replace(":", " ").split()
        if len(words) > 1 and words[1].isdecimal() and len(words[1]) < _DIGITS:
            table.setdefault(words[0], int(words[1]))
    return table


def _load(base: Path) -> Snapshot:
    words = read(base / "proc/loadavg").split()
    try:
        return {"load_average_1m": float(words[0]), "runnable": int(words[3].partition("/")[0])}
    except (IndexError, ValueError):
        return {}


def _cpu_times(base: Path) -> Snapshot:
    lines = read(base / "proc/stat").splitlines()
    ticks = [int(w) for w in lines[0].split()[1:9] if w.isdecimal() and len(w) < _DIGITS] if lines else []
    if len(ticks) < 8:
        return {}
    per_second = os.sysconf("SC_CLK_TCK")
    user, nice, system, idle, waiting, irq, softirq, steal = ticks
    return {
        "cpu_busy_s": (user + nice + system + irq + softirq) / per_second,
        "cpu_total_s": (sum(ticks)) / per_second,
        "cpu_steal_s": steal / per_second,
        "cpu_io_wait_s": waiting / per_second,
        "cpu_idle_s": idle / per_second,
    }


def _memory(base: Path) -> Snapshot:
    info, events = _table(read(base / "proc/meminfo")), _table(read(base / "proc/vmstat"))
    sizes: Snapshot = {}
    if "MemAvailable" in info:
        sizes["memory_available_bytes"] = info["MemAvailable"] * 1024
    if "SwapTotal" in info and "SwapFree" in info:
        sizes["swap_used_bytes"] = (info["SwapTotal"] - info["SwapFree"]) * 1024
    if "pswpin" in events and "pswpout" in events:
        sizes["swapped_pages"] = events["pswpin"] + events["pswpout"]
    return sizes


def _cores(base: Path) -> list[Path]:
    folders = (base / "sys/devices/system/cpu").glob("cpu[0-9]*")
    return sorted(folders, key=lambda p: int(p.name[3:]) if p.name[3:].isdecimal() else -1)


def _frequencies(base: Path) -> Snapshot:
    governors: dict[str, str] = {}
    frequencies: dict[str, list[int | None]] = {}
    for core in _cores(base):
        if governor := read(core / "cpufreq/scaling_governor"):
            governors[core.name] = governor
        names = ("scaling_cur_freq", "scaling_min_freq", "scaling_max_freq", "cpuinfo_max_freq")
        values = [_number(read(core / "cpufreq" / name)) for name in names]
        if any(value is not None for value in values):
            frequencies[core.name] = values
    return {"governors": governors, "frequencies_khz": frequencies}


def _throttling(base: Path) -> Snapshot:
    counts = [
        _number(read(core / "thermal_throttle" / name))
        for core in _cores(base)
        for name in ("core_throttle_count", "package_throttle_count")
    ]
    present = [count for count in counts if count is not None]
    return {"throttle_count": sum(present)} if present else {}


def _zones(base: Path) -> Snapshot:
    temperatures: dict[str, float] = {}
    trip_points: dict[str, dict[str, float]] = {}
    for zone in sorted((base / "sys/class/thermal").glob("thermal_zone*")):
        name, temperature = f"{zone.name}:{read(zone / 'type')}", _number(read(zone / "temp"))
        if temperature is not None:
            temperatures[name] = temperature / 1000
        points: dict[str, float] = {}
        for path in zone.glob("trip_point_*_temp"):
            value, kind = _number(read(path)), read(path.with_name(path.name[: -len("temp")] + "type"))
            # Disabled points hold 0 or less, or an unreachable temperature.
            if kind in ("passive", "hot", "critical") and value is not None and 30_000 <= value <= 150_000:
                points[kind] = min(points.get(kind, 1e9), value / 1000)
        if points:
            trip_points[name] = points
    return {"temperatures_c": temperatures, "trip_points_c": trip_points}


def _slowed(base: Path) -> dict[str, int]:
    """The states of the active cooling devices that cool by slowing something down (not fans)."""
    slowed: dict[str, int] = {}
    for device in sorted((base / "sys/class/thermal").glob("cooling_device*")):
        kind, state = read(device / "type"), _number(read(device / "cur_state"))
        slows = any(word in kind.lower() for word in ("cpufreq", "cpuidle", "devfreq", "processor", "powerclamp"))
        if slows and state is not None and state > 0:
            slowed[f"{device.name}:{kind}"] = state
    return slowed


def _firmware_limits(base: Path) -> int | None:
    """The limits that the Raspberry Pi's firmware applies now, as bits; with mainline kernels only the voltage bit."""
    try:
        return int(read(base / "sys/devices/platform/soc/soc:firmware/get_throttled"), 16) & 15
    except ValueError:
        pass
    for alarm in (base / "sys/class/hwmon").glob("hwmon*/in0_lcrit_alarm"):
        if read(alarm.with_name("name")) == "rpi_volt":
            return _number(read(alarm))
    return None


def _cgroup(base: Path) -> Snapshot:
    """How often, and for how long, the CPU quotas of this process's container or slice and of those around it were used
    up.
    """
    totals: Snapshot = {}
    for line in read(base / "proc/self/cgroup").splitlines():
        number, controllers, place = [*line.split(":", 2), "", ""][:3]
        if number != "0" and "cpu" not in controllers.split(","):
            continue
        top = base / "sys/fs/cgroup" / ("" if number == "0" else controllers)
        parts = [part for part in place.split("/") if part not in ("", ".", "..")]
        for depth in range(len(parts), -1, -1):
            values = _table(read(top.joinpath(*parts[:depth]) / "cpu.stat"))
            if "nr_throttled" in values:
                spent_s = values.get("throttled_usec", 0) / 1e6 + values.get("throttled_time", 0) / 1e9
                totals["cgroup_throttled"] = totals.get("cgroup_throttled", 0) + values["nr_throttled"]
                totals["cgroup_throttled_s"] = totals.get("cgroup_throttled_s", 0.0) + spent_s
    return totals


def _on_battery(base: Path) -> bool | None:
    supplies = sorted((base / "sys/class/power_supply").glob("*"))
    states = [read(supply / "status") for supply in supplies if read(supply / "type") == "Battery"]
    return any(state == "Discharging" for state in states) if states else None


if __name__ == "__main__":
    print(json.dumps(snapshot()))
