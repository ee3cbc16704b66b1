"""Loops around a call: how long, how often, and what they return."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.agent import timing
from gnomon.agent.timing import inner_loop, take, warm_up


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
