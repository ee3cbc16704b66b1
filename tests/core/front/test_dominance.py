"""Dominance against its definition, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.front.dominance import covered, dominates, nondominated
from gnomon.errors import ProblemError


@st.composite
def tables(draw: st.DrawFn, most: int = 40) -> np.ndarray:
    count, objectives = draw(st.integers(0, most)), draw(st.integers(1, 5))
    numbers = st.one_of(st.integers(-3, 3).map(float), st.just(np.inf), st.floats(-5, 5, width=16))
    rows = draw(st.lists(st.lists(numbers, min_size=objectives, max_size=objectives), min_size=count, max_size=count))
    return np.array(rows, dtype=np.float64).reshape(count, objectives)


def by_definition(costs: np.ndarray) -> list[int]:
    rows = costs.tolist()
    kept = [
        i
        for i, row in enumerate(rows)
        if np.isfinite(row).all()
        and not any(dominates(other, row) for other in rows)
        and not any(other == row for other in rows[:i])
    ]
    return sorted(kept, key=lambda i: rows[i])


@given(tables())
def test_the_filter_is_the_definition(costs: np.ndarray) -> None:
    assert nondominated(costs).tolist() == by_definition(costs)


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_many_rows(objectives: int) -> None:
    rng = np.random.default_rng(objectives)
    costs = rng.integers(0, 60, (400, objectives)).astype(float)
    assert nondominated(costs).tolist() == by_definition(costs)


@given(tables(15), st.integers(0, 15))
def test_covered_is_the_definition(costs: np.ndarray, cut: int) -> None:
    front, rows = costs[:cut], costs[cut:]
    expected = [any(all(f <= r for f, r in zip(a, row, strict=True)) for a in front) for row in rows]
    assert covered(rows, front).tolist() == expected


@pytest.mark.parametrize("costs", [[1.0, 2.0], [[np.nan, 1.0]], np.zeros((2, 0)), np.zeros((1, 1, 1))])
def test_what_is_no_table(costs: object) -> None:
    with pytest.raises(ProblemError):
        nondominated(costs)  # type: ignore[arg-type]


def test_tables_of_unlike_width() -> None:
    with pytest.raises(ProblemError, match="cannot be compared"):
        covered([[1.0, 2.0]], np.zeros((1, 3)))
