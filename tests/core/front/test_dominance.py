"""Dominance against its definition, pair by pair; the hypervolume against inclusion-exclusion and cells of a grid."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.front.dominance import covered, dominates, hypervolume, nondominated, uncovered
from gnomon.errors import ProblemError, UsageError


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


@pytest.mark.parametrize("seed", range(40))
def test_within_groups_of_three_costs_the_filter_is_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 70))
    groups, costs = rng.integers(0, 4, count), rng.integers(0, 6, (3, count)).astype(float)
    order = np.lexsort((*costs[::-1], groups))
    groups, costs = groups[order], costs[:, order]
    kept = [
        i
        for i in range(count)
        if not any(groups[j] == groups[i] and (costs[:, j] <= costs[:, i]).all() for j in range(i))
    ]
    assert uncovered(costs, groups).tolist() == kept


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


def inclusion_exclusion(costs: np.ndarray, reference: np.ndarray) -> float:
    rows = [row for row in costs if (row < reference).all()]
    total = 0.0
    for size in range(1, len(rows) + 1):
        for part in itertools.combinations(rows, size):
            total -= (-1) ** size * float((reference - np.max(part, axis=0)).prod())
    return total


def cells(costs: np.ndarray, side: int) -> int:
    axes = np.indices((side,) * costs.shape[1])
    taken = np.zeros(axes.shape[1:], dtype=bool)
    for row in costs:
        taken |= np.all([axis >= c for axis, c in zip(axes, row, strict=True)], axis=0)
    return int(taken.sum())


@given(st.integers(1, 4), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_small_sets(objectives: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.integers(0, 5, (count, objectives)) if seed % 2 else rng.normal(size=(count, objectives))
    reference = np.full(objectives, 4.0 if seed % 2 else 1.0)
    expected = inclusion_exclusion(costs.astype(float), reference)
    assert hypervolume(costs, reference.tolist()) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("objectives", "side"), [(2, 64), (3, 24), (4, 12)])
@pytest.mark.parametrize("seed", range(2))
def test_larger_sets_count_cells(objectives: int, side: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    on_sphere = np.abs(rng.normal(size=(300, objectives)))
    costs = np.floor(side * on_sphere / np.linalg.norm(on_sphere, axis=1, keepdims=True))
    assert hypervolume(costs, [side] * objectives) == cells(costs, side)


def test_known_values() -> None:
    assert hypervolume([[1, 3], [2, 2], [3, 1]], [4, 4]) == 6.0
    assert hypervolume([[1, 1, 1]], [2, 3, 4]) == 6.0
    assert hypervolume([], [1, 1]) == 0.0
    assert hypervolume([[np.inf, 0], [5, 5]], [1, 1]) == 0.0
    assert hypervolume([[3.0], [2.0]], [10.0]) == 8.0


def test_what_cannot_be_meant() -> None:
    with pytest.raises(UsageError, match="5 objectives"):
        hypervolume(np.zeros((1, 5)), [1.0] * 5)
    for row, reference in (([1, 2], [1]), ([np.nan, 0], [1, 1]), ([0, 0], [np.inf, 1])):
        with pytest.raises(ProblemError):
            hypervolume([row], reference)
