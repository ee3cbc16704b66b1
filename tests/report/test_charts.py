"""Axes of small charts: all values are inside, ticks are round, and far values make them logarithmic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.report.charts import Value, axis
from gnomon.report.units import log_ticks

NUMBERS = st.floats(1e-9, 1e9)


@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_all_values_are_inside(numbers: list[float]) -> None:
    values = [Value(value=n, low=n / 2, high=n * 3) for n in numbers]
    found = axis(values, 100, 500)
    for one in map(found.drawn, values):
        assert 100 <= one.low <= one.at <= one.high <= 500
    assert all(100 <= tick.at <= 500 for tick in found.ticks)
    assert len(found.ticks) <= 8


def test_ticks_are_round() -> None:
    assert [tick.text for tick in axis([Value(value=1.0), Value(value=3.0)], 0, 100).ticks] == [
        "1",
        "1.5",
        "2",
        "2.5",
        "3",
    ]
    far = axis([Value(value=1.0), Value(value=900.0)], 0, 100)
    assert far.logarithmic
    assert [tick.text for tick in far.ticks] == ["1", "10", "100", "1000"]


def test_an_axis_may_go_up() -> None:
    found = axis([Value(value=1.0), Value(value=2.0)], 300, 20)
    assert found.place(1.0) > found.place(2.0)


@pytest.mark.parametrize(
    "values", [[], [Value(value=0.0)], [Value(value=5.0), Value(value=5.0)], [Value(value=float("nan"))]]
)
def test_an_axis_of_nothing_or_of_one_number(values: list[Value]) -> None:
    found = axis(values, 0, 100)
    assert found.high > found.low


@given(st.floats(1e-9, 1e9), st.floats(1.5, 1e12))
def test_ticks_are_few_and_inside(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert len(ticks) <= 8
    assert all(low <= tick <= low * factor for tick in ticks)
    assert len(ticks) >= 2 or factor < 4
