"""Axes of small charts: all values are inside, ticks are round, and far values make them logarithmic."""

from __future__ import annotations

import math

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
    "values",
    [[], [Value(value=0.0)], [Value(value=5.0), Value(value=5.0)], [Value(value=float("nan"))], [Value(value=1.7e308)]],
)
def test_an_axis_of_nothing_or_of_one_number(values: list[Value]) -> None:
    found = axis(values, 0, 100)
    assert found.high > found.low


ANY = st.none() | st.sampled_from([math.nan, math.inf, -math.inf]) | st.floats(-1e12, 1e12) | NUMBERS


@given(st.lists(st.builds(Value, value=ANY, low=ANY, high=ANY), max_size=8), st.booleans())
def test_what_is_not_known_has_no_place_and_all_else_is_inside(values: list[Value], even: bool) -> None:
    found = axis(values, 100, 500, even=even)
    assert all(100 <= tick.at <= 500 for tick in found.ticks)
    for one in values:
        if one.known:
            drawn = found.drawn(one)
            assert all(100 <= at <= 500 for at in (drawn.at, drawn.low, drawn.high))
        else:
            with pytest.raises(ValueError, match="not known"):
                found.drawn(one)


def test_values_that_are_as_far_apart_as_can_be_are_inside() -> None:
    found = axis([Value(value=2.0, low=1.2e-308)], 100, 500)
    drawn = found.drawn(Value(value=2.0, low=1.2e-308))
    assert 100 <= drawn.low < drawn.at <= 500


def test_an_end_that_is_not_known_is_at_the_value() -> None:
    found = axis([Value(value=1.0), Value(value=2.0, low=math.nan, high=math.inf)], 0, 100)
    drawn = found.drawn(Value(value=2.0, low=math.nan, high=math.inf))
    assert drawn.at == drawn.low == drawn.high
    assert Value(value=2.0, low=None, high=3.0).times(10) == Value(value=20.0, low=None, high=30.0)


@given(st.floats(1e-9, 1e9), st.floats(1.5, 1e12))
def test_ticks_are_few_and_inside(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert len(ticks) <= 8
    assert all(low <= tick <= low * factor for tick in ticks)
    assert len(ticks) >= 2 or factor < 4
