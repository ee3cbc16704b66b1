"""`pareto --objective energy`: values, comparisons and refusals, and a real model over a stand-in for a counter."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.energykit import AMD, RAILS, SAMPLED, build, constant_draw
from tests.bad_days.livekit import add_circle
from tests.report.picture_kit import words_of

from gnomon.core.sample import Run, Samples
from gnomon.errors import DeviceError, UsageError
from gnomon.jobs.devices.job import check_devices
from gnomon.jobs.pareto.document import ObjectivePart
from gnomon.jobs.pareto.job import pareto
from gnomon.jobs.pareto.picture import front_charts
from gnomon.jobs.pareto.report import pareto_report, value
from gnomon.jobs.pareto.search import ParetoRequest, Plan
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import Effort
from gnomon.report.page import Page
from gnomon.session.objectives import GOALS, against, energy_source, estimate
from gnomon.session.request import THIS_MACHINE, ModelRequest
from gnomon.session.targets import protocol_of
from gnomon.store.base import CampaignQuery, EventQuery, RunQuery
from gnomon.store.sqlite import SqliteStore
from gnomon.wire import EnergyMeter

ENERGY = GOALS["energy"]


def runs(blocks: list[list[int | None]]) -> Measured:
    """Microjoules of ten calls, a list a process; None where a block does not tell."""
    made = [
        Run(
            candidate="k",
            process=process,
            block=block,
            started_at_s=0.0,
            samples=Samples(wall_ns=(9,) * 5, cpu_ns=(9,) * 5, inner=2),
            facts={"energy": {"unknown": "too short"} if uj is None else {"spent_uj": uj, "wall_ns": 45}},
        )
        for process, row in enumerate(blocks)
        for block, uj in enumerate(row)
    ]
    return Measured(key="k", runs=tuple(made), failure=None)


def test_the_value_is_the_mean_over_processes_and_blocks_that_do_not_tell_are_left_out() -> None:
    found = runs([[10, 20, 30], [None, 40, None], [50, 60, 70]])
    assert ENERGY.value(found, "wall") == pytest.approx((2e-6 * 4e-6 * 6e-6) ** (1 / 3))
    told = estimate(ENERGY, found, "cpu")
    assert told.low is not None
    assert told.high is not None
    assert told.low < told.value < told.high
    assert ENERGY.value(runs([[None], [None]]), "wall") is None


def test_points_are_compared_by_blocks_that_stood_side_by_side() -> None:
    noise = [[100, 101, 99], [130, 131, 128], [90, 91, 90]]
    less = runs([[round(0.8 * uj) for uj in row] for row in noise])
    compared = against(ENERGY, less, runs([list(row) for row in noise]), "wall")
    assert compared.verdict == "better"
    assert compared.ratio == pytest.approx(0.8, rel=0.02)
    apart = against(ENERGY, runs([[5, None], [None, 6]]), runs([[None, 5], [6, None]]), "wall")
    assert (apart.verdict, apart.low) == ("unknown", 0.0)


def test_the_protocol_does_not_depend_on_how_fast_a_counter_looked() -> None:
    one = replace(Effort(), energy=EnergyMeter(counters=("a:0",), period_ns=980_000, step_uj=7))
    two = replace(Effort(), energy=EnergyMeter(counters=("a:0",), period_ns=1_030_000, step_uj=9))
    assert (
        protocol_of(one)
        == protocol_of(two)
        != protocol_of(replace(two, energy=EnergyMeter(counters=("b:0",), period_ns=0, step_uj=0)))
    )
    assert "energy" not in protocol_of(Effort())


def test_the_source_names_the_counters() -> None:
    told = energy_source({"names": ["intel-rapl:0", "xe/card"], "domains": ["package-0", "card"], "period_s": 0.001})
    assert "package-0 (intel-rapl:0), xe/card" in told
    assert "every 1 ms" in told
    assert "idle power" in told
    assert energy_source(None)


@pytest.mark.parametrize(
    ("joules", "shown"), [(2e-3, "2.00 mJ"), (1.234e-5, "12.3 uJ"), (5.5e-8, "55.0 nJ"), (1.5, "1.50 J"), (None, "-")]
)
def test_an_energy_is_shown_in_a_fitting_unit(joules: float | None, shown: str) -> None:
    assert value(joules, ObjectivePart(name="energy", unit="J", price="")) == shown


# For real, on a made-up /sys


@pytest.fixture
def request_on(tmp_path: Path, small: Effort) -> Any:
    model = tmp_path / "add.circle"
    model.write_bytes(add_circle())

    def make(files: dict[str, str]) -> ModelRequest:
        root = build(tmp_path / "sys", files)
        device = replace(THIS_MACHINE, environment={"GNOMON_SYSFS": str(root)})
        effort = replace(small, rounds=1, processes_least=2, processes_most=2)
        record = tmp_path / "record.sqlite"
        return ModelRequest(model=model, runtimes=("onert",), device=device, effort=effort, record=record)

    return make


def test_a_machine_without_a_counter_is_told_before_anything_is_measured(request_on: Any, tmp_path: Path) -> None:
    asked = ParetoRequest(request=request_on(SAMPLED), objectives=("latency", "energy"))
    with pytest.raises(DeviceError, match=r"no energy counter: gnomon looked for.*ina226") as told:
        pareto(asked)
    assert told.value.hint
    with SqliteStore.open(tmp_path / "record.sqlite") as store:
        assert list(store.query(CampaignQuery())) == []
    with pytest.raises(DeviceError, match="ltc2947/energy1#2"):
        pareto(replace(asked, request=request_on(RAILS)))
    with pytest.raises(DeviceError, match="there is no energy counter 'psys'"):
        pareto(replace(asked, counters=("psys",)))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (
            {"objectives": ("latency", "energy"), "plan": Plan(name="exact")},
            "needs additive prices, and energy has none",
        ),
        ({"counters": ("intel-rapl:0",)}, "needs the objective energy"),
        ({"under": {"energy": 2e-3}}, "not among the objectives"),
    ],
)
def test_what_cannot_be_meant_is_told_without_a_look_at_the_device(
    request_on: Any, change: dict[str, Any], word: str
) -> None:
    nowhere = replace(request_on({}), device=replace(THIS_MACHINE, python="/no/python"))
    with pytest.raises(UsageError, match=word):
        pareto(replace(ParetoRequest(request=nowhere), **change))


def test_the_front_of_a_machine_that_draws_the_same_always(request_on: Any, tmp_path: Path) -> None:
    """Whatever runs, the stand-in draws 4 W: a call's energy over its time is that."""
    request = request_on(AMD)
    asked = ParetoRequest(request=request, objectives=("latency", "energy"), plan=Plan(name="brute"))
    with constant_draw(tmp_path / "sys", 4.0):
        found = pareto(asked)
    assert found.proved
    assert [o.unit for o in found.objectives] == ["s", "J"]
    assert "package-0 (intel-rapl:0)" in found.objectives[1].price
    page = io.StringIO()
    pareto_report(found, Page(page))
    assert re.search(r"\d (uJ|mJ) ", page.getvalue())
    assert any(words.startswith("energy, ") for words in words_of(front_charts(found)))
    assert found.campaign is not None
    with SqliteStore.open(tmp_path / "record.sqlite") as store:
        (event,) = store.query(EventQuery(campaign=found.campaign, name="energy"))
    assert event.data["names"] == ["intel-rapl:0"]
    for point in found.front:
        _, joules = [e.value for e in point.estimates or ()]
        assert joules > 0
    check_power(tmp_path, found.campaign, 4.0)
    # From the record alone it says the same, without a counter.
    recorded = pareto(replace(asked, request=replace(request, measure=False)))
    assert [p.estimates for p in recorded.front] == [p.estimates for p in found.front]
    assert recorded.objectives == found.objectives


def check_power(folder: Path, campaign: str, power_w: float) -> None:
    with SqliteStore.open(folder / "record.sqlite") as store:
        told = [run.facts["energy"] for run in store.query(RunQuery(campaign=campaign)) if run.samples is not None]
    known = [energy for energy in told if "spent_uj" in energy]
    assert known
    mean_w = sum(e["spent_uj"] for e in known) * 1e3 / sum(e["wall_ns"] for e in known)
    assert mean_w == pytest.approx(power_w, rel=0.5)  # the stand-in may come late on a busy machine


def test_devices_check_tells_of_counters(tmp_path: Path) -> None:
    file = tmp_path / "devices.toml"
    environment = f'environment = {{ GNOMON_SYSFS = "{build(tmp_path / "sys", AMD)}" }}'
    file.write_text(f'[devices.boxed]\naddress = "local"\nruntimes = ["onert"]\n{environment}\n')
    with constant_draw(tmp_path / "sys", 4.0):
        (row,) = check_devices(["boxed"], file)
    assert row.check is not None, row.reason
    assert dict(row.check.energy.counters) == {"intel-rapl:0": "package-0"}
    assert row.check.energy.others == ("intel-rapl:0:0 (core)",)
    assert row.document()["check"]["energy"]["counters"] == {"intel-rapl:0": "package-0"}
    for path in (tmp_path / "sys/class/powercap").rglob("energy_uj"):
        path.unlink()
    (row,) = check_devices(["boxed"], file)
    assert row.check is not None
    assert "no energy counter" in row.check.energy.reason
    assert row.check.energy.hint == ""
