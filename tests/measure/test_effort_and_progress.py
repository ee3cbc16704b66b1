"""The protocol that goes to the agent, the clock by which calls are compared, and the meter of steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.sample import Run, Samples
from gnomon.measure.effort import Effort, cpu_tells, levels
from gnomon.measure.progress import Meter, Progress, Steps


def test_the_request_is_json_in_the_agents_units() -> None:
    effort = Effort(rounds=7, sample_s=2e-3, block_s=0.5, samples_least=3, timeout_s=9.0)
    asked = json.loads(json.dumps(effort.request()))
    assert asked["block"]["sample_ns"] == 2_000_000
    assert (asked["rounds"], asked["timeout_s"], asked["block"]["least"]) == (7, 9.0, 3)
    assert asked["profile"]["seconds"] == 3.5  # as long as all visits of an unprofiled run together


@given(
    st.lists(st.one_of(st.tuples(st.just("step"), st.integers(0, 5)), st.tuples(st.just("left"), st.integers(0, 9))))
)
def test_the_meter_counts_and_never_tells_a_negative_time(acts: list[tuple[str, int]]) -> None:
    seen: list[Progress] = []
    meter = Meter("stage", 5, seen.append)
    done = 0
    for act, number in acts:
        if act == "step":
            meter.step(number)
            done += number
        else:
            meter.expect(number)
    meter.finish()
    assert seen[0].left_s is None
    assert seen[-1].done == seen[-1].total == done
    assert all(p.done <= p.total and (p.left_s is None or p.left_s >= 0) for p in seen)


def test_what_is_still_to_come_adds_to_what_is_done() -> None:
    seen: list[Progress] = []
    meter = Meter("stage", 30, seen.append)
    meter.step(10)
    meter.expect(20)
    meter.step(1)
    assert (seen[-1].done, seen[-1].total) == (11, 30)


def test_steps_stand_in_place_of_the_stages_of_each_until_they_end() -> None:
    seen: list[Progress] = []
    steps = Steps("all", seen.append)
    one = Progress(stage="one", done=0, total=1, left_s=None)
    steps(one)
    steps.expect(1)
    steps(one)
    steps.step(3)  # how many are expected may be a guess
    steps.end()
    steps(one)
    assert [(p.stage, p.done, p.total) for p in seen] == [("one", 0, 1), ("all", 0, 1), ("all", 3, 3), ("one", 0, 1)]
    assert seen[2].left_s == 0


def test_nobody_watching_is_no_error() -> None:
    meter = Meter("stage", 1, None)
    meter.step()
    meter.finish()


MS = 1_000_000


def run(
    ratios: list[float],
    *,
    waits: int | None = 0,
    inner: int = 1,
    profiled: bool = False,
    slower: list[float] | None = None,
    process: int = 0,
) -> Run:
    """Calls of a millisecond each by the wall, or `slower` by these factors, with this much CPU time over it."""
    wall = [factor * MS for factor in slower or [1.0] * len(ratios)]
    cpu = tuple(int(one * took) for one, took in zip(ratios, wall, strict=True))
    samples = Samples(wall_ns=tuple(map(int, wall)), cpu_ns=cpu, inner=inner)
    facts: dict[str, Any] = {"waits": waits}
    return Run(
        candidate="a", process=process, block=0, started_at_s=0.0, samples=samples, profiled=profiled, facts=facts
    )


def test_one_thread_is_told_by_its_cpu_time() -> None:
    assert cpu_tells([run([1.0, 0.99, 1.001, 0.7])])


def test_a_host_that_takes_the_core_away_now_and_then_changes_nothing() -> None:
    # As seen on a virtual machine: the middle at 1.001, a tenth of the calls beyond 1.9, the worst at 12.
    assert cpu_tells([run([1.001] * 35 + [1.46, 1.9, 1.9, 9.7, 12.2])])


@pytest.mark.parametrize("share", [1.05, 1.5, 1.98])
def test_several_threads_have_more_than_the_wall_in_every_call(share: float) -> None:
    assert not cpu_tells([run([share] * 40)])
    assert not cpu_tells([run([share] * 25), run([1.0] * 15)])


def test_waiting_is_not_told_by_cpu_time() -> None:
    assert not cpu_tells([run([0.4] * 10, waits=10)])
    assert cpu_tells([run([0.9] * 10, waits=10, inner=200)])


def test_a_program_that_does_not_tell_its_cpu_time_has_none() -> None:
    assert not cpu_tells([run([0.0] * 10, waits=None)])
    assert not cpu_tells([])
    assert not cpu_tells([run([1.0] * 10, profiled=True)])


def test_work_that_a_thread_of_the_process_does_is_told_where_nothing_disturbs() -> None:
    """As seen of a backend that waits 2.4 times a call for its own thread: CPU time equals wall time all the same."""
    assert cpu_tells([run([1.001] * 10, waits=24)])
    # Neighbours make most calls longer than their CPU time; the fastest fifth stands.
    disturbed = [1.0] * 10 + [2.5] * 30
    assert cpu_tells([run([1.0] * 10 + [0.4] * 30, waits=96, slower=disturbed)])


def test_one_disturbed_process_of_three_does_not_choose_the_clock() -> None:
    quiet = [run([1.0] * 10, waits=24, process=process) for process in range(2)]
    assert cpu_tells([*quiet, run([0.3] * 10, waits=24, slower=[3.0] * 10, process=2)])


def test_an_accelerator_that_is_waited_for_is_not_told() -> None:
    assert not cpu_tells([run([0.9] * 10, waits=10)])
    assert not cpu_tells([run([0.9] * 10 + [1.0] * 30, waits=40, slower=[1.0] * 10 + [2.0] * 30)])


def test_neighbours_do_not_hide_that_threads_are_several() -> None:
    assert not cpu_tells([run([1.9] * 10 + [0.8] * 30, slower=[1.0] * 10 + [3.0] * 30)])


def test_a_clock_that_seldom_moves_tells_nothing() -> None:
    assert not cpu_tells([run(([0.0] * 9 + [10.0]) * 4)])


def test_what_is_compared_is_the_median_of_cpu_time_and_the_fastest_fifth_of_wall_time() -> None:
    taken = run([1.0, 0.5, 0.5, 0.5, 0.5, 0.5], slower=[1.0, 1.0, 4.0, 4.0, 4.0, 4.0])
    assert [b.values_s for b in levels([taken], "wall")] == [pytest.approx((1e-3,))]
    assert [b.values_s for b in levels([taken], "cpu")] == [pytest.approx((2e-3,))]
