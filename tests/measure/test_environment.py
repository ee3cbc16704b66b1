"""Snapshots of made-up machines and of this one, and the doubts that heat and other trouble raise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gnomon.agent import snapshot as snapshot_file
from gnomon.agent.snapshot import snapshot
from gnomon.measure.environment import HOT_C, NEAR_C, judge, worst
from gnomon.wire import Environment, Snapshot

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
    assert (seen["cores"] or 0) >= 1


def test_this_machine_is_read_in_another_process() -> None:
    code = Path(snapshot_file.__file__).read_bytes()
    done = subprocess.run([sys.executable, "-I", "-S", "-"], input=code, capture_output=True, check=True)
    there, here = json.loads(done.stdout), snapshot()
    assert there.keys() == here.keys()
    assert there["cores"] == here["cores"]


QUIET: Snapshot = {
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
LATER: Snapshot = {**QUIET, "cpu_busy_s": 110.0, "cpu_total_s": 1040.0, "own_cpu_s": 19.0}


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
def test_each_trouble_raises_its_doubt_alone(before: Snapshot, after: Snapshot, kind: str) -> None:
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
def test_of_several_runs_the_worst_is_told(mild: Snapshot, severe: Snapshot, kind: str, told: str) -> None:
    quiet: Snapshot = {}
    pairs: list[Environment] = [{"before": QUIET, "after": {**LATER, **after}} for after in (mild, severe, quiet)]
    for order in (pairs, pairs[::-1]):
        doubts = worst(order)
        assert [d.kind for d in doubts] == [kind]
        assert told in doubts[0].message


def test_each_kind_is_told_once() -> None:
    trouble: Snapshot = {**LATER, "cpu_steal_s": 2.0, "swapped_pages": 9}
    pair: Environment = {"before": QUIET, "after": trouble}
    assert worst([pair, pair, pair]) == judge(QUIET, trouble)
    assert worst([]) == []


def test_a_restart_in_between_raises_no_false_doubt() -> None:
    fresh: Snapshot = {**LATER, "throttle_count": 0, "swapped_pages": 0, "cgroup_throttled": 0, "cpu_total_s": 1.0}
    assert judge(QUIET, fresh) == []


def test_what_was_waited_for_is_ones_own() -> None:
    before = snapshot()
    subprocess.run([sys.executable, "-I", "-S", "-c", "sum(i * i for i in range(10**6))"], check=True)
    after = snapshot()
    assert after["own_cpu_s"] > before["own_cpu_s"]


ZONE = "sys/class/thermal/thermal_zone0/"
COOLING = "sys/class/thermal/cooling_device"
FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"
#: An Odroid-XU4's first zone: three fan speeds, a passive point for each cluster, and the end.
BOARD = {
    ZONE + "type": "cpu0-thermal\n",
    ZONE + "temp": "61000\n",
    ZONE + "trip_point_0_temp": "50000\n",
    ZONE + "trip_point_0_type": "active\n",
    ZONE + "trip_point_1_temp": "95000\n",
    ZONE + "trip_point_1_type": "passive\n",
    ZONE + "trip_point_2_temp": "90000\n",
    ZONE + "trip_point_2_type": "passive\n",
    ZONE + "trip_point_3_temp": "120000\n",
    ZONE + "trip_point_3_type": "critical\n",
    COOLING + "0/type": "pwm-fan\n",
    COOLING + "0/cur_state": "3\n",
    COOLING + "1/type": "cpufreq-cpu0\n",
    COOLING + "1/cur_state": "0\n",
    COOLING + "2/type": "cpufreq-cpu4\n",
    COOLING + "2/cur_state": "0\n",
}
NAME = "thermal_zone0:cpu0-thermal"


def board(root: Path, **changed: str) -> Snapshot:
    """A snapshot of the board, with what one file each says instead."""
    named = {ZONE + "temp": changed.pop("temp", BOARD[ZONE + "temp"])}
    if "cooling" in changed:
        named[COOLING + "2/cur_state"] = changed.pop("cooling")
    for name, text in {**BOARD, **named, **changed}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return snapshot(str(root))


def test_a_board_that_is_cool(tmp_path: Path) -> None:
    seen = board(tmp_path)
    assert seen["trip_points_c"] == {NAME: {"passive": 90.0, "critical": 120.0}}
    assert "slowed_to_cool" not in seen  # the fan slows nothing down
    assert judge(seen, seen) == []


@pytest.mark.parametrize(("temp", "hot"), [("84900", False), ("85000", True), ("91000", True)])
def test_near_the_point_where_the_kernel_acts_is_hot(tmp_path: Path, temp: str, hot: bool) -> None:
    cool, warm = board(tmp_path), board(tmp_path, temp=temp)
    for pair in ((cool, warm), (warm, cool)):  # it may have cooled down since
        doubts = judge(*pair)
        assert [doubt.kind for doubt in doubts] == (["hot"] if hot else [])
        if hot:
            assert "slows the machine down at 90" in doubts[0].message


@pytest.mark.parametrize(
    ("points", "hot_from", "told"),
    [
        ({}, HOT_C, ""),
        ({"critical": 110.0}, HOT_C, "switches the machine off at 110"),
        ({"critical": 80.0}, 80.0 - NEAR_C, "switches the machine off at 80"),
        ({"passive": 70.0, "critical": 110.0}, 70.0 - NEAR_C, "slows the machine down at 70"),
        ({"hot": 99.0, "critical": 110.0}, 99.0 - NEAR_C, "slows the machine down at 99"),
    ],
)
def test_each_zone_has_its_own_limit(points: dict[str, float], hot_from: float, told: str) -> None:
    trips: Snapshot = {"trip_points_c": {"soc": points}} if points else {}
    for over, kinds in ((-0.5, []), (0.5, ["hot"])):
        after: Snapshot = {"temperatures_c": {"soc": hot_from + over, "board": 20.0}, **trips}
        doubts = judge(trips, after)
        assert [doubt.kind for doubt in doubts] == kinds
        assert all(told in doubt.message for doubt in doubts)


def test_points_that_are_switched_off_are_none(tmp_path: Path) -> None:
    off = {f"{ZONE}trip_point_{k}_temp": text for k, text in enumerate(["50000", "0", "-274000", "256000"])}
    assert "trip_points_c" not in board(tmp_path, **off)
    assert "trip_points_c" not in board(tmp_path, **dict.fromkeys(off, "nonsense"))


def test_of_several_zones_the_one_the_furthest_over_is_told() -> None:
    after: Snapshot = {
        "temperatures_c": {"a": 92.0, "b": 75.0},
        "trip_points_c": {"a": {"passive": 95.0}, "b": {"passive": 70.0}},
    }
    assert judge({}, after)[0].message.startswith("b reached 75")


def test_a_processor_that_is_slowed_down_against_heat(tmp_path: Path) -> None:
    cool, slow, slower = board(tmp_path), board(tmp_path, cooling="2\n"), board(tmp_path, cooling="5\n")
    assert slow["slowed_to_cool"] == {"cooling_device2:cpufreq-cpu4": 2}
    for pair in ((cool, slow), (slow, cool)):
        assert [doubt.kind for doubt in judge(*pair)] == ["throttled"]
    pairs: list[Environment] = [{"before": cool, "after": after} for after in (slow, slower, cool)]
    (doubt,) = worst(pairs)
    assert "cooling_device2:cpufreq-cpu4 at step 5" in doubt.message


@pytest.mark.parametrize(
    ("bits", "kinds"),
    [
        ("0", []),
        ("50000", []),  # it happened since the start of the machine, not now
        ("50005", ["throttled", "voltage"]),
        ("1", ["voltage"]),
        ("2", ["throttled"]),
        ("80008", ["throttled"]),
        ("nonsense", []),
    ],
)
def test_what_a_raspberry_pis_firmware_says(tmp_path: Path, bits: str, kinds: list[str]) -> None:
    seen = board(tmp_path, **{FIRMWARE: bits + "\n"})
    assert sorted(doubt.kind for doubt in judge(seen, seen)) == kinds


@pytest.mark.parametrize(("name", "kinds"), [("rpi_volt", ["voltage"]), ("ina3221", [])])
def test_a_mainline_kernel_tells_the_voltage(tmp_path: Path, name: str, kinds: list[str]) -> None:
    files = {"sys/class/hwmon/hwmon1/name": name + "\n", "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "1\n"}
    seen = board(tmp_path, **files)
    assert [doubt.kind for doubt in judge(seen, seen)] == kinds
