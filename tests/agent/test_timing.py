"""Loops around a call: how long, how often, and what they return."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.agent import timing, worker
from gnomon.agent.timing import inner_loop, take, take_at_once, take_paced, warm_up
from gnomon.agent.worker import Held
from gnomon.wire import Pace


class Clock:
    """Time that passes only in calls."""

    def __init__(self, call_ns: int) -> None:
        self.now_ns = self.cpu_ns = 10
        self.call_ns, self.calls = call_ns, 0

    def call(self) -> None:
        self.calls += 1
        self.now_ns += self.call_ns
        self.cpu_ns += self.call_ns // 2

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def process_time_ns(self) -> int:
        return self.cpu_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock(1000)
    monkeypatch.setattr(timing, "time", made)
    yield made


@given(st.integers(1, 10**10), st.integers(1, 10**8))
def test_a_sample_is_long_enough_and_not_much_longer(call_ns: int, sample_ns: int) -> None:
    inner = inner_loop(call_ns, sample_ns)
    assert inner >= 1
    assert inner * call_ns >= sample_ns
    assert inner == 1 or inner * call_ns < 2 * sample_ns + 2 * call_ns
    assert str(inner).strip("0") in "123456789" or inner == 10 ** (len(str(inner)) - 1)  # a round number


def test_a_call_that_takes_no_time_is_no_division_by_zero() -> None:
    assert inner_loop(0, 1000) == 1000


def test_samples_are_of_inner_calls_each(clock: Clock) -> None:
    wall, cpu = take(clock.call, inner=3, seconds=10e-6, least=1, most=100)
    assert wall == [3000] * 4
    assert cpu == [1500] * 4
    assert clock.calls == 12


@pytest.mark.parametrize(("seconds", "least", "most", "count"), [(0.0, 3, 9, 3), (1.0, 1, 9, 9), (0.0, 0, 9, 0)])
def test_samples_are_at_least_and_at_most_so_many(
    clock: Clock, seconds: float, least: int, most: int, count: int
) -> None:
    assert len(take(clock.call, inner=1, seconds=seconds, least=least, most=most)[0]) == count


def test_warming_up_reaches_both_the_count_and_the_time(clock: Clock) -> None:
    assert warm_up(clock.call, count=5, seconds=0.0) == 1000
    assert clock.calls == 5
    warm_up(clock.call, count=1, seconds=20e-6)
    assert clock.calls == 25


def test_an_error_of_the_call_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        take(lambda: 1 / 0, inner=1, seconds=1.0, least=1, most=1)


class Paced(Clock):
    """A clock whose calls take what is told of each, and which sleeps a little longer than it is asked to."""

    def __init__(self, calls_ns: list[int], oversleep_ns: int = 0) -> None:
        super().__init__(0)
        self.calls_ns, self.oversleep_ns, self.begun_ns = calls_ns, oversleep_ns, list[int]()

    def call(self) -> None:
        self.begun_ns.append(self.now_ns)
        self.call_ns = self.calls_ns[self.calls]
        super().call()

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9) + self.oversleep_ns


def paced(monkeypatch: pytest.MonkeyPatch, clock: Paced, **grid: int) -> tuple[list[int], list[int], Pace]:
    monkeypatch.setattr(timing, "time", clock)
    return take_paced(clock.call, start_ns=10, **grid)


def test_paced_calls_begin_on_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Paced([300, 999, 1000, 1])
    wall, cpu, pace = paced(monkeypatch, clock, every_ns=1000, slots=4)
    assert clock.begun_ns == [10, 1010, 2010, 3010] and wall == [300, 999, 1000, 1] and cpu == [150, 499, 500, 0]
    assert pace == {"delay_ns": [0, 0, 0, 0], "late": 0, "skipped": 0}


def test_a_call_beyond_its_slot_is_late_and_what_it_covers_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Paced([100, 1001, 3500, 100])
    wall, _, pace = paced(monkeypatch, clock, every_ns=1000, slots=8)
    assert clock.begun_ns == [10, 1010, 3010, 7010] and len(wall) == 4
    assert pace == {"delay_ns": [0, 0, 0, 0], "late": 2, "skipped": 1 + 3}


def test_a_call_that_begins_late_has_no_more_time_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Paced([100, 950, 100], oversleep_ns=60)
    _, _, pace = paced(monkeypatch, clock, every_ns=1000, slots=3)
    assert clock.begun_ns == [10, 1070] and pace == {"delay_ns": [0, 60], "late": 1, "skipped": 1}


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=30))
def test_slots_are_called_or_skipped(calls_ns: list[int]) -> None:
    clock = Paced(calls_ns)
    with pytest.MonkeyPatch.context() as patch:
        wall, _, pace = paced(patch, clock, every_ns=1000, slots=len(calls_ns))
    assert all((begun - 10) % 1000 == 0 for begun in clock.begun_ns) and len(set(clock.begun_ns)) == len(wall)
    assert len(wall) + pace["skipped"] >= len(calls_ns)
    assert pace["late"] == sum(took > 1000 for took in wall)


def test_the_grid_goes_on_from_block_to_block(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Paced([])
    monkeypatch.setattr(worker, "time", clock)
    held = Held(cast(Any, None), profiled=False)
    begun = []
    for now_ns in (70, 1070, 1071, 9999):
        clock.now_ns = now_ns
        begun.append(held.next_slot(1000))
    assert begun == [70, 1070, 2070, 10070]


def test_calls_at_once_are_each_a_thread_s_and_their_samples_are_all_kept() -> None:
    met = threading.Barrier(3, timeout=60)  # which lets a call end while two others are under way alone
    wall, cpu, _ = take_at_once([met.wait] * 3, inner=2, seconds=0, least=5, most=5)
    assert len(wall) == len(cpu) == 15 and len(set(cpu)) == 1


def test_calls_a_second_are_those_that_ended_in_the_time(clock: Clock) -> None:
    wall, cpu, per_s = take_at_once([clock.call], inner=3, seconds=10e-6, least=1, most=100)
    assert (wall, cpu) == ([3000] * 4, [1500] * 4) and per_s == pytest.approx(1e6)


def test_an_error_of_one_of_several_calls_is_raised() -> None:
    def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        take_at_once([broken, lambda: None], inner=1, seconds=0, least=1, most=1)
