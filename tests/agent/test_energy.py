"""Energy counters of the kernel, over made-up trees: which count, what a block took, and what tells nothing."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.energykit import (
    AMD,
    BOARD,
    LAPTOP,
    OLD_AMD,
    RAILS,
    RANGE_UJ,
    SAMPLED,
    SERVER,
    MadeTime,
    build,
    constant_draw,
    zone,
)
from tests.agent.supervisorkit import ROGUE, agent, answered, job

from gnomon.agent import energy
from gnomon.agent.energy import Meter, NoEnergy, chosen, found_counters
from gnomon.measure.effort import Effort
from gnomon.wire import EnergyMeter, EnergySpent

__all__ = ["agent"]

Machine = Callable[..., MadeTime]

METER = EnergyMeter(counters=(), period_ns=1000000, step_uj=0)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes a machine of a tree, with a clock of its own."""

    def make(files: dict[str, str], **how: Any) -> MadeTime:
        made = MadeTime(build(tmp_path / "sys", files), **how)
        monkeypatch.setenv("GNOMON_SYSFS", str(tmp_path / "sys"))
        monkeypatch.setattr(energy, "time", made)
        return made

    return make


def probe(names: list[str]) -> Any:
    return energy.probe(names)


def wanted(*names: str, period_ns: int = 1_000_000, step_uj: int = 1) -> EnergyMeter:
    return {"counters": list(names), "period_ns": period_ns, "step_uj": step_uj}


# Which counters count


PSYS = zone("intel-rapl:0", "psys")
SCMI = {**zone("arm-scmi:0", "soc"), **zone("arm-scmi:0:0", "big"), **zone("arm-scmi:1", "gpu")}


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (LAPTOP, ["intel-rapl:0", "intel-rapl:0:2"]),
        (SERVER, ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1", "intel-rapl:1:0"]),
        (AMD, ["intel-rapl:0"]),
        (PSYS, ["intel-rapl:0"]),
        (zone("intel-rapl-mmio:0", "package-0"), ["intel-rapl-mmio:0"]),
        (SCMI, ["arm-scmi:0", "arm-scmi:1"]),
        (OLD_AMD, ["amd_energy/Esocket0"]),
        (BOARD, ["scmi_sensors/CPU"]),
        ({**AMD, **BOARD, **OLD_AMD}, ["intel-rapl:0"]),
    ],
)
def test_the_machine_is_counted_once(machine: Machine, files: dict[str, str], names: list[str]) -> None:
    machine(files)
    assert [counter.name for counter in chosen(found_counters(), [])] == names


def test_counters_that_may_hold_one_another_are_not_added_up_unasked(machine: Machine) -> None:
    machine(RAILS)
    with pytest.raises(NoEnergy, match=r"ltc2947/energy1, ltc2947/energy1#2.*which of them") as told:
        chosen(found_counters(), [])
    assert "--energy-counter" in told.value.hint
    both = chosen(found_counters(), ["ltc2947/energy1#2", "ltc2947/energy1"])
    assert [counter.path.parent.name for counter in both] == ["hwmon10", "hwmon9"]


@pytest.mark.parametrize("files", [{}, SAMPLED, {"powercap/dtpm:0/name": "dtpm\n"}])
def test_where_there_is_none_it_says_what_was_looked_for(machine: Machine, files: dict[str, str]) -> None:
    made = machine(files)
    told = probe([])
    assert "no energy counter" in told["refused"]
    assert all(word in told["refused"] for word in ("energy_uj", "energy*_input", "RAPL"))
    assert ("ina226" in told["refused"]) == (files is SAMPLED)
    assert made.now_ns < 1e6  # at once


def test_a_graphics_card_alone_is_not_the_machine(machine: Machine) -> None:
    machine({name: text for name, text in BOARD.items() if "hwmon1" not in name})
    assert "xe/card, xe/pkg" in probe([])["refused"]
    assert [c["name"] for c in probe(["xe/card"])["counters"]] == ["xe/card"]


def test_an_unknown_name_is_told_with_those_that_there_are(machine: Machine) -> None:
    machine(AMD)
    told = probe(["package-0"])
    assert "'package-0'" in told["refused"]
    assert "intel-rapl:0, intel-rapl:0:0" in told["hint"]


# How they move


@pytest.mark.parametrize("period_s", [1e-3, 0.05, 0.4])
@pytest.mark.parametrize("start_uj", [0, RANGE_UJ - 100_000])
def test_the_probe_finds_period_step_and_power(machine: Machine, period_s: float, start_uj: int) -> None:
    machine(LAPTOP, power_w=20.0, period_s=period_s, start_uj=start_uj)
    told = probe([])
    assert told["period_ns"] == pytest.approx(period_s * 1e9, rel=0.15)
    assert told["step_uj"] == pytest.approx(20.0 * period_s * 1e6, rel=0.01)
    assert told["power_w"] == pytest.approx(40.0, rel=0.1)  # of two counters
    assert told["counters"][1] == {
        "name": "intel-rapl:0:2",
        "domain": "dram",
        "path": str(Path(os.environ["GNOMON_SYSFS"]) / "class/powercap/intel-rapl:0:2/energy_uj"),
    }
    assert "intel-rapl:1 (psys)" in told["others"]


def test_the_slowest_counter_sets_the_period(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(SERVER, period_s=1e-3)
    update, everything, turn = made._update, made.moving, iter(range(1_000_000))

    def uneven() -> None:
        made.moving = everything if next(turn) % 4 == 0 else everything[:-1]
        update()

    monkeypatch.setattr(made, "_update", uneven)
    assert probe([])["period_ns"] == pytest.approx(4e6, rel=0.1)


def test_what_stands_still_is_left_out_or_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "POLL_S", 0.1)
    made = machine(SERVER)
    made.moving = [path for path in made.moving if path.parent.name != "intel-rapl:1:0"]
    told = probe([])
    assert [c["name"] for c in told["counters"]] == ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"]
    assert told["still"] == ["intel-rapl:1:0"]
    assert "s: intel-rapl:1:0" in probe(["intel-rapl:1:0"])["refused"]
    made.moving = []
    assert "not every energy counter changed twice" in probe([])["refused"]


# What a block took


def measured(made: MadeTime, ask: EnergyMeter, seconds: float = 0.1) -> EnergySpent:
    meter = Meter(ask)
    meter.start()
    made.sleep(seconds)
    return meter.stop()


@given(st.integers(0, RANGE_UJ), st.floats(0.5, 400.0), st.floats(0.05, 3.0), st.sampled_from([1e-3, 2e-3]))
def test_a_block_is_what_was_drawn_over_any_wrap(
    start_uj: int, power_w: float, seconds: float, period_s: float
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        made = MadeTime(build(Path(folder), AMD), power_w=power_w, period_s=period_s, start_uj=start_uj)
        patch.setenv("GNOMON_SYSFS", folder)
        patch.setattr(energy, "time", made)
        told = measured(made, wanted(period_ns=int(period_s * 1e9)), seconds)
    assert told["wall_ns"] == pytest.approx(seconds * 1e9, rel=1e-3)
    assert abs(told["spent_uj"] - power_w * seconds * 1e6) <= 2.1 * power_w * period_s * 1e6 + 2


def test_named_and_usual_counters_are_added_up(machine: Machine) -> None:
    made = machine(LAPTOP, power_w=10.0)
    assert measured(made, wanted())["spent_uj"] == pytest.approx(2e6, rel=0.03)
    assert measured(made, wanted("intel-rapl:0:0"))["spent_uj"] == pytest.approx(1e6, rel=0.03)


def test_what_is_too_short_gives_no_number_and_never_a_zero(machine: Machine) -> None:
    made = machine(AMD, power_w=20.0)
    short = measured(made, wanted(), 0.0005)
    assert short.keys() == {"unknown"}
    assert "too short" in short["unknown"]
    assert "too short" in measured(made, wanted(), 0.019)["unknown"]
    assert measured(made, wanted(), 0.021)["spent_uj"] > 0
    assert "too short" in measured(made, wanted(step_uj=200_000))["unknown"]  # ten steps
    made.moving = []
    assert "too short" in measured(made, wanted())["unknown"]  # it stands still


def test_bad_days_of_a_counter_give_a_reason(machine: Machine, tmp_path: Path) -> None:
    made = machine({**AMD, **zone("intel-rapl:1", "package-1", range_uj=None)}, start_uj=500)
    file = tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj"
    one = tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj"

    def after(harm: Callable[[], object]) -> str:
        meter = Meter(wanted())
        meter.start()
        made.sleep(0.1)
        harm()
        told = meter.stop()
        made._update()
        assert told.keys() == {"unknown"}
        return str(told["unknown"])

    made.moving = [file, one]
    assert "went back" in after(lambda: one.write_text("7\n"))  # it does not say where it wraps
    assert "energy counter intel-rapl:0 rose by" in after(lambda: file.write_text("1\n"))  # a reset, no wrap
    assert "went back" in after(lambda: file.with_name("max_energy_range_uj").write_text("9\n") and one.write_text("8"))
    for nonsense in ("", "-5", "1e9", "0x10", "٣", "9" * 40, "\0", "12 13"):
        assert "not an energy" in after(lambda text=nonsense: file.write_text(text))  # type: ignore[misc]
    made.moving = [one]
    assert "No such file" in after(file.unlink)
    file.write_text("0\n")

    def a_folder() -> None:
        file.unlink()
        file.mkdir()

    assert "Is a directory" in after(a_folder)
    assert "Is a directory" in str(measured(made, wanted())["unknown"])
    shutil.rmtree(file.parent)
    assert "no energy counter 'intel-rapl:0'" in measured(made, wanted("intel-rapl:0"))["unknown"]


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(sorted({**LAPTOP, **BOARD})), st.binary(max_size=30), max_size=6))
def test_nonsense_is_refused_and_raises_nothing(nonsense: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        made = MadeTime(build(Path(folder), {**LAPTOP, **BOARD}))
        made.moving = []
        for name, content in nonsense.items():
            (Path(folder) / "class" / name).write_bytes(content)
        patch.setenv("GNOMON_SYSFS", folder)
        patch.setattr(energy, "time", made)
        patch.setattr(energy, "POLL_S", 0.002)
        told = probe([])
        assert json.loads(json.dumps(told)) == told
        assert told["refused"]  # nothing moves
        assert measured(made, wanted()).keys() == {"unknown"}


def test_who_may_not_read_is_told_how_to_permit_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = build(Path(folder) / "sys", AMD)
        for path in root.glob("class/powercap/*/energy_uj"):
            path.chmod(0o400 if os.getuid() == 0 else 0)
        monkeypatch.setenv("GNOMON_SYSFS", str(root))
        if os.getuid() == 0:
            os.chown(folder, 65534, -1)
            os.seteuid(65534)  # the kernel asks root for no permission
        try:
            told = probe([])
            block = Meter(wanted())
            block.start()
        finally:
            os.seteuid(os.getuid())
    assert "may not read the energy counter intel-rapl:0" in told["refused"]
    assert "chmod a+r" in told["hint"]
    assert "root" in told["hint"]
    assert "may not read" in block.stop()["unknown"]


# Through the agent


@pytest.mark.parametrize("there", [True, False])
def test_a_worker_tells_the_energy_of_its_blocks(agent: Path, tmp_path: Path, there: bool) -> None:
    build(tmp_path / "sys", AMD if there else {})
    effort = Effort(
        rounds=3,
        block_s=0.1,
        sample_s=1e-4,
        warm_s=0.001,
        timeout_s=30.0,
        energy=METER,
    )
    entry = {"key": "c", "environment": ROGUE, "calls_least": 5, "open": {"job": job()}, "visits": [0, 1, 2]}
    for _ in range(100):
        with constant_draw(tmp_path / "sys", 40.0) as draw:
            events = answered(
                agent,
                tmp_path,
                {**effort.request(), "seed": 0, "candidates": [entry]},
                GNOMON_SYSFS=str(tmp_path / "sys"),
            )
        if draw.late_s < 0.2 * effort.block_s:  # else the stand-in was none, as others took the machine
            break
    told = [event["energy"] for event in events if event["event"] == "block"]
    assert len(told) == 3
    if not there:
        assert all("no energy counter" in energy["unknown"] for energy in told)
        return
    power_w = sum(e["spent_uj"] for e in told) * 1e3 / sum(e["wall_ns"] for e in told)
    assert power_w == pytest.approx(40.0, rel=0.5)
    taken = [sum(event["wall_ns"]) for event in events if event["event"] == "block"]
    assert all(e["wall_ns"] >= ns for e, ns in zip(told, taken, strict=True))


def test_without_the_wish_no_energy_is_read(agent: Path, tmp_path: Path) -> None:
    build(tmp_path / "sys", AMD)
    effort = Effort(rounds=1, block_s=0.01, warm_s=0.001)
    entry = {"key": "c", "environment": ROGUE, "calls_least": 5, "open": {"job": job()}, "visits": [0]}
    events = answered(
        agent, tmp_path, {**effort.request(), "seed": 0, "candidates": [entry]}, GNOMON_SYSFS=str(tmp_path / "sys")
    )
    assert ["energy" in event for event in events if event["event"] == "block"] == [False]
