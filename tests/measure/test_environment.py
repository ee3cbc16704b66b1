"""Snapshots of made-up machines and of this one, and the doubts they raise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gnomon.agent import snapshot as snapshot_file
from gnomon.agent.snapshot import snapshot
from gnomon.measure.environment import judge, worst

MACHINE = {
    "proc/loadavg": "0.50 0.40 0.30 2/345 6789",
    "proc/stat": "cpu  100 0 50 800 10 1 2 30 0 0\ncpu0 1 2 3",
    "proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable:    4000000 kB\nSwapTotal: 1000 kB\nSwapFree: 400 kB\n",
    "proc/vmstat": "pswpin 3\npswpout 4\n",
    "proc/self/cgroup": "4:cpu,cpuacct:/a/b\n0::/slice/../slice/scope\n",
    "sys/fs/cgroup/slice/cpu.stat": "nr_periods 9\nnr_throttled 5\nthrottled_usec 2500000\n",
    "sys/fs/cgroup/slice/scope/cpu.stat": "usage_usec 7\n",
    "sys/fs/cgroup/cpu,cpuacct/a/cpu.stat": "nr_throttled 2\nthrottled_time 500000000\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1000000",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "2000000",
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "2400000",
    "sys/devices/system/cpu/cpu10/cpufreq/scaling_governor": "performance",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "7",
    "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "1",
    "sys/class/thermal/thermal_zone0/temp": "45500",
    "sys/class/thermal/thermal_zone0/type": "soc",
    "sys/class/power_supply/BAT0/type": "Battery",
    "sys/class/power_supply/BAT0/status": "Discharging",
}


def build(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def test_a_machine_is_read(tmp_path: Path) -> None:
    seen = snapshot(build(tmp_path, MACHINE))
    assert seen["load_average_1m"] == 0.5
    assert seen["runnable"] == 2
    assert seen["cpu_busy_s"] == pytest.approx(1.53)
    assert seen["cpu_total_s"] == pytest.approx(9.93)
    assert seen["cpu_steal_s"] == pytest.approx(0.3)
    assert seen["memory_available_bytes"] == 4_000_000 * 1024
    assert seen["swap_used_bytes"] == 600 * 1024
    assert seen["swapped_pages"] == 7
    assert (seen["cgroup_throttled"], seen["cgroup_throttled_s"]) == (7, 3.0)
    assert seen["governors"] == {"cpu0": "schedutil", "cpu10": "performance"}
    assert seen["frequencies_khz"] == {"cpu0": [1_000_000, None, 2_000_000, 2_400_000]}
    assert seen["throttle_count"] == 8
    assert seen["temperatures_c"] == {"thermal_zone0:soc": 45.5}
    assert seen["on_battery"] is True


def test_a_machine_that_tells_nothing_is_read_too(tmp_path: Path) -> None:
    assert snapshot(str(tmp_path)).keys() == {"monotonic_s", "pid", "cores", "own_cpu_s"}
    assert judge(snapshot(str(tmp_path)), snapshot(str(tmp_path))) == []


def test_counters_of_thousands_of_digits_are_left_out(tmp_path: Path) -> None:
    nines = "9" * 5000
    root = build(tmp_path, {"proc/stat": f"cpu 1 2 3 4 5 6 7 {nines}\n", "proc/meminfo": f"MemAvailable: {nines} kB\n"})
    assert snapshot(root).keys() == {"monotonic_s", "pid", "cores", "own_cpu_s"}


def test_a_group_whose_name_cannot_be_a_path_is_passed_over(tmp_path: Path) -> None:
    seen = snapshot(build(tmp_path, {**MACHINE, "proc/self/cgroup": "0::/sli\0ce\n4:cpu,cpuacct:/a\0\n"}))
    assert "cgroup_throttled" not in seen
    assert seen["cores"] >= 1


def test_this_machine_is_read_in_another_process() -> None:
    code = Path(snapshot_file.__file__).read_bytes()
    done = subprocess.run([sys.executable, "-I", "-S", "-"], input=code, capture_output=True, check=True)
    there, here = json.loads(done.stdout), snapshot()
    assert there.keys() == here.keys()
    assert there["cores"] == here["cores"]


QUIET: dict[str, Any] = {
    "pid": 1,
    "cores": 4,
    "load_average_1m": 0.1,
    "cpu_busy_s": 100.0,
    "cpu_total_s": 1000.0,
    "cpu_steal_s": 0.0,
    "own_cpu_s": 10.0,
    "memory_available_bytes": 4 << 30,
    "swapped_pages": 5,
    "governors": {"cpu0": "performance"},
    "frequencies_khz": {"cpu0": [2000, 1000, 2000, 2000]},
    "throttle_count": 3,
    "temperatures_c": {"soc": 50.0},
    "cgroup_throttled": 1,
    "on_battery": False,
}
LATER = {**QUIET, "cpu_busy_s": 110.0, "cpu_total_s": 1040.0, "own_cpu_s": 19.0}


def test_a_quiet_machine_raises_no_doubt() -> None:
    assert judge(QUIET, LATER) == []


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ({}, {"own_cpu_s": 12.0}, "busy"),
        ({"load_average_1m": 3.0}, {"pid": 2}, "busy"),
        ({}, {"cpu_steal_s": 2.0}, "steal"),
        ({}, {"throttle_count": 4}, "throttled"),
        ({}, {"temperatures_c": {"soc": 50.0, "npu": 91.0}}, "hot"),
        ({}, {"frequencies_khz": {"cpu0": [1500, 1000, 1500, 2000]}}, "frequency"),
        ({}, {"governors": {"cpu0": "powersave"}}, "governor"),
        (
            {"governors": {"cpu0": "ondemand"}},
            {"governors": {"cpu0": "ondemand"}, "frequencies_khz": {"cpu0": [1000, 1000, 2000, 2000]}},
            "governor",
        ),
        ({}, {"cgroup_throttled": 2}, "quota"),
        ({}, {"swapped_pages": 6}, "swap"),
        ({}, {"memory_available_bytes": 10 << 20}, "memory"),
        ({}, {"on_battery": True}, "battery"),
    ],
)
def test_each_trouble_raises_its_doubt_alone(before: dict[str, Any], after: dict[str, Any], kind: str) -> None:
    doubts = judge({**QUIET, **before}, {**LATER, **after})
    assert [d.kind for d in doubts] == [kind]
    assert doubts[0].message
    assert doubts[0].hint.endswith((".", ")"))


@pytest.mark.parametrize(
    ("mild", "severe", "kind", "told"),
    [
        ({"own_cpu_s": 14.5}, {"own_cpu_s": 10.0, "cpu_busy_s": 134.0}, "busy", "85%"),
        ({"cpu_steal_s": 2.0}, {"cpu_steal_s": 20.0}, "steal", "50%"),
        ({"throttle_count": 4}, {"throttle_count": 9}, "throttled", "6 times"),
        ({"temperatures_c": {"soc": 90.0}}, {"temperatures_c": {"soc": 99.0}}, "hot", "99"),
        ({"cgroup_throttled": 2}, {"cgroup_throttled": 8}, "quota", "7 times"),
        ({"swapped_pages": 6}, {"swapped_pages": 105}, "swap", "100 pages"),
        ({"memory_available_bytes": 99 << 20}, {"memory_available_bytes": 9 << 20}, "memory", "9 MiB"),
    ],
)
def test_of_several_runs_the_worst_is_told(mild: dict[str, Any], severe: dict[str, Any], kind: str, told: str) -> None:
    pairs = [{"before": QUIET, "after": {**LATER, **after}} for after in (mild, severe, {})]
    for order in (pairs, pairs[::-1]):
        doubts = worst(order)
        assert [d.kind for d in doubts] == [kind]
        assert told in doubts[0].message


def test_each_kind_is_told_once() -> None:
    trouble = {**LATER, "cpu_steal_s": 2.0, "swapped_pages": 9}
    pair = {"before": QUIET, "after": trouble}
    assert worst([pair, pair, pair]) == judge(QUIET, trouble)
    assert worst([]) == []


def test_a_restart_in_between_raises_no_false_doubt() -> None:
    fresh = {**LATER, "throttle_count": 0, "swapped_pages": 0, "cgroup_throttled": 0, "cpu_total_s": 1.0}
    assert judge(QUIET, fresh) == []


def test_what_was_waited_for_is_ones_own() -> None:
    before = snapshot()
    subprocess.run([sys.executable, "-I", "-S", "-c", "sum(i * i for i in range(10**6))"], check=True)
    after = snapshot()
    assert after["own_cpu_s"] > before["own_cpu_s"]
