"""Kendall's tau-b against SciPy's, with ties, and its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from gnomon.errors import ProblemError
from gnomon.spaces.cells.costs import kendall_tau, tau_interval

PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=30)


@given(PAIRS)
def test_it_is_scipys_with_ties(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, np.float64).T
    expected = 0.0 if len(set(x)) < 2 or len(set(y)) < 2 else float(kendalltau(x, y, variant="b").statistic)
    assert kendall_tau(x, y) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=12, unique=True))
def test_an_order_agrees_with_itself_and_not_with_its_reverse_whatever_the_numbers(values: list[float]) -> None:
    x = np.array(values)
    ranks = np.argsort(np.argsort(x)).astype(np.float64)
    assert kendall_tau(x, ranks) == pytest.approx(1.0)
    assert kendall_tau(x, -ranks) == pytest.approx(-1.0)
    assert -1 <= kendall_tau(x, x[::-1]) <= 1


def test_infinite_numbers_have_an_order() -> None:
    x = np.array([math.inf, math.inf, 1.0, -math.inf])
    assert kendall_tau(x, np.array([3.0, 3.0, 2.0, 1.0])) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("x", "y"), [([1.0], [1.0]), ([], []), ([1.0, 2.0], [1.0]), ([1.0, math.nan], [1.0, 2.0]), ([[1.0, 2.0]],) * 2]
)
def test_what_cannot_be_compared_is_told(x: list[float], y: list[float]) -> None:
    for compare in (kendall_tau, tau_interval):
        with pytest.raises(ProblemError, match="at least two"):
            compare(np.array(x), np.array(y))


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_the_interval_holds_tau_and_narrows_with_more_items(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(120)
    y = x + rng.standard_normal(120)
    ends = [tau_interval(x[:n], y[:n], seed=seed) for n in (15, 120)]
    assert ends[1][0] <= kendall_tau(x, y) <= ends[1][1]
    assert ends[1][1] - ends[1][0] < ends[0][1] - ends[0][0]
    assert tau_interval(x, y, seed=seed) == ends[1]


def test_a_perfect_agreement_of_few_is_not_doubted_by_resampling() -> None:
    x = np.arange(8.0)
    assert tau_interval(x, x) == (1.0, 1.0)
