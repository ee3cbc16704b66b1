"""Heat, throttling and a weak supply as boards tell them, and the doubts they raise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnomon.agent.snapshot import snapshot
from gnomon.measure.environment import HOT_C, NEAR_C, judge, worst

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


def board(root: Path, **changed: str) -> dict[str, Any]:
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
            assert "slows the machine down from 90 on" in doubts[0].message


@pytest.mark.parametrize(
    ("points", "hot_from", "told"),
    [
        ({}, HOT_C, ""),
        ({"critical": 110.0}, HOT_C, "switches the machine off from 110"),
        ({"critical": 80.0}, 80.0 - NEAR_C, "switches the machine off from 80"),
        ({"passive": 70.0, "critical": 110.0}, 70.0 - NEAR_C, "slows the machine down from 70"),
        ({"hot": 99.0, "critical": 110.0}, 99.0 - NEAR_C, "slows the machine down from 99"),
    ],
)
def test_each_zone_has_its_own_limit(points: dict[str, float], hot_from: float, told: str) -> None:
    trips = {"trip_points_c": {"soc": points}} if points else {}
    for over, kinds in ((-0.5, []), (0.5, ["hot"])):
        after = {"temperatures_c": {"soc": hot_from + over, "board": 20.0}, **trips}
        doubts = judge(trips, after)
        assert [doubt.kind for doubt in doubts] == kinds
        assert all(told in doubt.message for doubt in doubts)


def test_points_that_are_switched_off_are_none(tmp_path: Path) -> None:
    off = {f"{ZONE}trip_point_{k}_temp": text for k, text in enumerate(["50000", "0", "-274000", "256000"])}
    assert "trip_points_c" not in board(tmp_path, **off)
    assert "trip_points_c" not in board(tmp_path, **dict.fromkeys(off, "nonsense"))


def test_of_several_zones_the_one_the_furthest_over_is_told() -> None:
    after = {
        "temperatures_c": {"a": 92.0, "b": 75.0},
        "trip_points_c": {"a": {"passive": 95.0}, "b": {"passive": 70.0}},
    }
    assert judge({}, after)[0].message.startswith("b reached 75")


def test_a_processor_that_is_slowed_down_against_heat(tmp_path: Path) -> None:
    cool, slow, slower = board(tmp_path), board(tmp_path, cooling="2\n"), board(tmp_path, cooling="5\n")
    assert slow["slowed_to_cool"] == {"cooling_device2:cpufreq-cpu4": 2}
    for pair in ((cool, slow), (slow, cool)):
        assert [doubt.kind for doubt in judge(*pair)] == ["throttled"]
    pairs = [{"before": cool, "after": after} for after in (slow, slower, cool)]
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
