"""Energy as the host asks for it: counters of a device, blocks that are long enough, and what the events may say."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.sample import Failure, Run, Samples
from gnomon.errors import AgentError, DeviceError
from gnomon.measure.effort import Effort
from gnomon.measure.energy import Counters, find_counters, joules_of, metered, untold
from gnomon.measure.link import event_of

TOLD: dict[str, Any] = {
    "counters": [{"name": "intel-rapl:0", "domain": "package-0", "path": "/sys/class/powercap/intel-rapl:0/energy_uj"}],
    "period_ns": 985_000,
    "step_uj": 15_000,
    "power_w": 17.5,
    "still": [],
    "others": ["intel-rapl:1 (psys)"],
}


def found(answer: Any) -> Counters:
    link: Any = SimpleNamespace(info=SimpleNamespace(name="board"), ask=lambda commands: {"energy": answer})
    return find_counters(link)


def counters(period_s: float) -> Counters:
    return Counters(names=("a:0",), domains=("package-0",), period_s=period_s, step_j=1e-3, power_w=5.0)


def test_what_the_agent_tells_is_read() -> None:
    told = found(TOLD)
    assert (told.names, told.domains) == (("intel-rapl:0",), ("package-0",))
    assert (told.period_s, told.step_j, told.power_w) == pytest.approx((0.985e-3, 0.015, 17.5))


def test_a_refusal_is_an_error_with_the_next_step() -> None:
    with pytest.raises(DeviceError, match="board reports no energy: it may not") as refused:
        found({"refused": "it may not", "hint": "chmod"})
    assert refused.value.hint == "chmod"
    failure = Failure(stage="probe", kind="refused", transient=False, message="no Python")
    with pytest.raises(DeviceError, match="no Python") as failed:
        found(failure)
    assert failed.value.hint


@pytest.mark.parametrize(
    "harm",
    [
        {"counters": []},
        {"counters": [{}]},
        {"period_ns": 0},
        {"period_ns": "soon"},
        {"step_uj": float("nan")},
        {"power_w": -1},
        {"still": None},
    ],
)
def test_a_senseless_answer_is_a_defect(harm: dict[str, Any]) -> None:
    with pytest.raises(AgentError):
        found({**TOLD, **harm})
    with pytest.raises(AgentError):
        found({})


@given(st.floats(1e-5, 0.69))
def test_blocks_hold_enough_updates_and_the_samples_fill_them(period_s: float) -> None:
    effort = Effort()
    made = metered(effort, counters(period_s))
    assert made.block_s >= max(effort.block_s, 20 * period_s)
    assert made.samples_most * made.sample_s >= made.block_s
    assert made.timeout_s >= 3 * made.block_s
    block = made.request()["block"]
    assert block["energy"]["period_ns"] >= period_s * 1e9
    assert block["energy"]["counters"] == ("a:0",)
    assert "energy" not in Effort().request()["block"]


@given(st.floats(0.93, 1.07), st.sampled_from([1e-3, 0.01, 0.1, 0.5, 1.0]))
def test_two_looks_at_a_counter_make_the_same_blocks(luck: float, period_s: float) -> None:
    one, two = metered(Effort(), counters(period_s)), metered(Effort(), counters(period_s * luck))
    assert (one.block_s, one.sample_s, one.timeout_s) == (two.block_s, two.sample_s, two.timeout_s)


def test_a_counter_that_is_too_slow_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"only every 1\.8 s") as refused:
        metered(Effort(), counters(1.8))
    assert "--energy-counter" in refused.value.hint


def run(energy: Any, *, profiled: bool = False) -> Run:
    samples = Samples(wall_ns=(10, 10), cpu_ns=(1, 1), inner=5)
    facts = {} if energy is None else {"energy": energy}
    return Run(candidate="c", process=0, block=0, started_at_s=0.0, samples=samples, profiled=profiled, facts=facts)


def test_joules_are_those_of_a_call() -> None:
    assert joules_of(run({"spent_uj": 5000, "wall_ns": 20})) == pytest.approx(0.0005)
    assert joules_of(run({"spent_uj": 5000, "wall_ns": 20}, profiled=True)) is None
    for nothing in (None, {}, {"unknown": "why"}, {"spent_uj": 0}, {"spent_uj": "5"}, 7):
        assert joules_of(run(nothing)) is None
    assert untold((run({"unknown": "first"}), run({"unknown": "last"}), run({"spent_uj": 5}))) == "last"
    assert untold((run(None),)) == ""


BLOCK = {"event": "block", "candidate": "c", "block": 0, "started_at_s": 1.0, "wall_ns": [1], "cpu_ns": [0]}


@pytest.mark.parametrize("energy", [{"spent_uj": 5, "wall_ns": 7}, {"unknown": "why"}])
def test_an_event_may_tell_energy(energy: dict[str, Any]) -> None:
    line = json.dumps({**BLOCK, "inner": 1, "peak_rss_bytes": None, "energy": energy})
    event = event_of(line)
    assert event["event"] == "block"
    assert event["energy"] == energy


@pytest.mark.parametrize(
    "energy",
    [None, 5, {}, {"spent_uj": 0, "wall_ns": 7}, {"spent_uj": 5}, {"spent_uj": 1.5, "wall_ns": 7}, {"unknown": 3}],
)
def test_an_event_tells_no_nonsense_of_energy(energy: Any) -> None:
    with pytest.raises(AgentError, match="not an event"):
        event_of(json.dumps({**BLOCK, "inner": 1, "peak_rss_bytes": None, "energy": energy}))
