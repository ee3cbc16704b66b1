"""Portfolios against exhaustive search, and against HiGHS on the p-median programme where that is too long."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.cost import Floats
from gnomon.core.overlay.portfolio import Portfolio, best_portfolio
from gnomon.core.solver.milp import Programme, run_highs
from gnomon.errors import InfeasibleError, UsageError

TOLERANCE = 2e-9


def exhaustive(costs: Floats, size: int) -> float:
    """The least value of all sets of rows."""
    size = min(size, len(costs))
    return min(float(costs[list(rows)].min(axis=0).sum()) for rows in itertools.combinations(range(len(costs)), size))


def by_highs(costs: Floats, size: int) -> float:
    """The classic programme: a binary a row, and a column for each row and device, at most that row's."""
    count, devices = costs.shape
    programme = Programme()
    programme.columns(np.zeros(count), np.zeros(count))
    programme.row(range(count), [1.0] * count, 0.0, float(size))
    served = [programme.columns(costs[:, i], np.zeros(count)) for i in range(devices)]
    for first in served:
        programme.row(range(first, first + count), [1.0] * count, 1.0, 1.0)
        for row in range(count):
            programme.row([row, first + row], [1.0, -1.0], 0.0, np.inf)
    status, values, _ = run_highs(programme, count, None, started=False)
    assert status == "optimal" and values is not None
    chosen = np.flatnonzero(values[:count] > 0.5)
    return float(costs[chosen].min(axis=0).sum())


def uniform(generator: np.random.Generator, count: int, devices: int) -> Floats:
    return generator.random((count, devices))


def clusters(generator: np.random.Generator, count: int, devices: int) -> Floats:
    member = generator.integers(0, 3, devices)
    times = np.exp(generator.normal(0, 0.5, (count, 3))[:, member] + generator.normal(0, 0.1, (count, devices)))
    return np.asarray(times / times.min(axis=0) - 1)


def whole(generator: np.random.Generator, count: int, devices: int) -> Floats:
    return generator.integers(0, 4, (count, devices)).astype(float)


def equal(generator: np.random.Generator, count: int, devices: int) -> Floats:
    return np.full((count, devices), float(generator.integers(0, 3)))


def twins(generator: np.random.Generator, count: int, devices: int) -> Floats:
    return np.repeat(generator.random((count // 2 + 1, devices)), 2, axis=0)[:count]


def nearly_equal(generator: np.random.Generator, count: int, devices: int) -> Floats:
    return np.asarray(1.0 + 1e-7 * generator.random((count, devices)))


def heavy(generator: np.random.Generator, count: int, devices: int) -> Floats:
    return np.asarray(np.exp(generator.normal(0, 8, (count, devices))))


def holes(generator: np.random.Generator, count: int, devices: int) -> Floats:
    costs = generator.random((count, devices))
    costs[generator.random((count, devices)) < 0.5] = np.inf
    return costs


KINDS: tuple[Callable[[np.random.Generator, int, int], Floats], ...] = (
    uniform,
    clusters,
    whole,
    equal,
    twins,
    nearly_equal,
    heavy,
    holes,
)


def check(found: Portfolio, costs: Floats, size: int) -> None:
    """What holds for every answer."""
    assert 1 <= len(found.chosen) <= size and list(found.chosen) == sorted(set(found.chosen))
    served = costs[list(found.serves), range(costs.shape[1])]
    assert set(found.serves) == set(found.chosen)
    assert served.tolist() == costs[list(found.chosen)].min(axis=0).tolist()
    assert found.value == pytest.approx(served.sum(), rel=1e-12)
    assert 0 <= found.bound <= found.value
    if found.proven:
        assert found.value - found.bound <= 1.0001e-9 * found.value


@given(st.sampled_from(KINDS), st.integers(1, 12), st.integers(1, 7), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_equals_exhaustive_search(
    kind: Callable[[np.random.Generator, int, int], Floats], count: int, devices: int, size: int, seed: int
) -> None:
    costs = kind(np.random.default_rng(seed), count, devices)
    least = exhaustive(costs, size)
    if np.isinf(least):
        with pytest.raises(InfeasibleError):
            best_portfolio(costs, size)
        return
    found = best_portfolio(costs, size)
    check(found, costs, size)
    assert found.proven
    assert found.value == pytest.approx(least, rel=TOLERANCE, abs=0)
    assert found.bound <= least * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("count", "devices", "size"), [(40, 12, 3), (30, 16, 4), (25, 15, 6)])
def test_equals_highs(
    kind: Callable[[np.random.Generator, int, int], Floats], count: int, devices: int, size: int
) -> None:
    costs = kind(np.random.default_rng(count), count, devices)
    found = best_portfolio(costs, size)
    check(found, costs, size)
    assert found.proven
    # HiGHS itself stops at tolerances of 1e-9 in absolute terms; large costs make that coarse.
    assert found.value <= by_highs(costs, size) * (1 + TOLERANCE)
    if kind is not heavy:
        assert found.value == pytest.approx(by_highs(costs, size), rel=1e-7)


@pytest.mark.parametrize("kind", [uniform, heavy, holes])
def test_large_triples_equal_all_triples(kind: Callable[[np.random.Generator, int, int], Floats]) -> None:
    costs = kind(np.random.default_rng(5), 90, 40 if kind is holes else 100)
    least = np.inf
    for first in range(88):
        for second in range(first + 1, 89):
            pair = np.minimum(costs[first], costs[second])
            least = min(least, float(np.minimum(costs[second + 1 :], pair).sum(axis=1).min()))
    found = best_portfolio(costs, 3)
    check(found, costs, 3)
    assert found.proven and found.value == pytest.approx(least, rel=TOLERANCE)


@given(st.sampled_from(KINDS), st.integers(0, 30), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_stopped_early_the_bound_still_holds(
    kind: Callable[[np.random.Generator, int, int], Floats], asked: int, size: int, seed: int
) -> None:
    costs = kind(np.random.default_rng(seed), 14, 9)
    left = iter(range(asked))
    try:
        found = best_portfolio(costs, size, out_of_time=lambda: next(left, None) is None)
    except InfeasibleError:
        assert np.isinf(exhaustive(costs, size))
        return
    least = exhaustive(costs, size)
    assert found.bound <= least * (1 + 1e-12)
    if found.chosen:
        check(found, costs, size)
        assert found.value >= least * (1 - 1e-12)
    else:
        assert found.value == np.inf and not found.proven


@given(st.sampled_from(KINDS), st.integers(-300, 280), st.integers(0, 2**32 - 1))
def test_scale_and_order_change_nothing(
    kind: Callable[[np.random.Generator, int, int], Floats], power: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    costs = kind(generator, 10, 6)
    try:
        found = best_portfolio(costs, 2)
    except InfeasibleError:
        return
    rows, columns = generator.permutation(10), generator.permutation(6)
    other = best_portfolio(costs[rows][:, columns] * 10.0**power, 2)
    assert other.proven
    assert other.value == pytest.approx(found.value * 10.0**power, rel=TOLERANCE, abs=0)


@pytest.mark.parametrize("unit", [1e3, 1e7, 1e8, 1e12])
def test_large_integers(unit: float) -> None:
    generator = np.random.default_rng(int(unit))
    costs = generator.integers(0, int(unit), (30, 10)).astype(float)
    found = best_portfolio(costs, 3)
    least = exhaustive(costs, 3)
    assert found.proven and found.bound <= least <= found.value <= least * (1 + TOLERANCE)


def test_nothing_serves_a_device() -> None:
    costs = np.array([[0.0, np.nan, 1.0], [1.0, np.inf, 0.0]])
    with pytest.raises(InfeasibleError, match="phone"):
        best_portfolio(costs, 2, devices=("board", "phone", "watch"))
    with pytest.raises(InfeasibleError, match="serves device 1"):
        best_portfolio(costs, 2)


def test_a_cover_that_greed_misses_is_found() -> None:
    # Greed takes the row that serves most, after which two more do not suffice.
    serves = np.array(
        [
            [1, 1, 1, 0, 1, 1, 1, 0],
            [1, 1, 1, 1, 0, 0, 0, 0],
            [0, 0, 0, 0, 1, 1, 1, 1],
            [0, 0, 0, 1, 0, 0, 0, 0],
        ]
    )
    costs = np.where(serves == 1, np.array([[0.1], [5.0], [5.0], [0.1]]), np.inf)
    assert best_portfolio(costs, 2).chosen == (1, 2)


@pytest.mark.parametrize(
    ("regrets", "size"),
    [
        ([[1.0]], 0),
        ([[1e308, 1e308]], 1),
    ],
)
def test_what_cannot_be_meant(regrets: list[list[float]], size: int) -> None:
    with pytest.raises(UsageError):
        best_portfolio(np.asarray(regrets), size)
