"""The protocol that goes to the agent, and the meter that counts its steps."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gnomon.measure.effort import Effort
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
