"""Kendall's tau-b by its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.spaces.cells.ranks import kendall_tau

PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=30)


@given(PAIRS)
def test_it_is_what_pairs_say_with_ties(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, np.float64).T
    a, b = (np.sign(np.subtract.outer(one, one)) for one in (x, y))
    scale = math.sqrt((a * a).sum() * (b * b).sum())
    assert kendall_tau(x, y) == pytest.approx((a * b).sum() / scale if scale else 0.0, abs=1e-12)


def test_infinite_numbers_have_an_order() -> None:
    x = np.array([math.inf, math.inf, 1.0, -math.inf])
    assert kendall_tau(x, np.array([3.0, 3.0, 2.0, 1.0])) == pytest.approx(1.0)
