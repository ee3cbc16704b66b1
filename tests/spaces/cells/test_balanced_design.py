"""Balanced designs: every primitive equally often in each group, no network twice before all are there."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.spaces.cells.effects import balanced_design, indicators

COUNTS = st.lists(st.integers(1, 6), min_size=1, max_size=5)


@settings(max_examples=15)
@given(COUNTS, st.integers(1, 40), st.integers(0, 2**32))
def test_each_choice_is_there_as_often_as_any_other_and_no_network_twice(
    counts: list[int], networks: int, seed: int
) -> None:
    design = balanced_design(counts, networks, seed=seed)
    assert design.shape == (networks, len(counts))
    for slot, count in enumerate(counts):
        often = np.bincount(design[:, slot], minlength=count)
        assert len(often) == count
        assert np.ptp(often) <= 1
    _, often = np.unique(design, axis=0, return_counts=True)
    assert len(often) == min(networks, math.prod(counts))
    assert np.ptp(often) <= 1
    assert (design == balanced_design(counts, networks, seed=seed)).all()


@pytest.mark.parametrize("counts", [(5, 5), (4, 4, 2), (2, 2, 2, 2)])
@pytest.mark.parametrize("less", [0, 1, 2])
def test_nearly_all_networks_of_a_space_are_all_different(counts: tuple[int, ...], less: int) -> None:
    design = balanced_design(counts, math.prod(counts) - less)
    assert len({tuple(row) for row in design.tolist()}) == math.prod(counts) - less


def test_it_tells_more_of_each_difference_than_single_swaps() -> None:
    """The mean variance of the difference of two choices of a group, by least squares, for errors of variance 1."""
    counts = (4, 4, 4, 4)
    swaps: list[tuple[int, ...]] = [(0, 0, 0, 0)]
    swaps += [(*(0,) * group, k, *(0,) * (3 - group)) for group in range(4) for k in (1, 2, 3)]

    def variance(rows: object) -> float:
        x = np.concatenate([np.ones((len(np.array(rows)), 1)), indicators(np.array(rows), counts)], axis=1)
        known = np.linalg.pinv(x.T @ x)
        pairs = [(1 + 4 * g + a, 1 + 4 * g + b) for g in range(4) for a in range(4) for b in range(a)]
        return float(np.mean([known[a, a] + known[b, b] - 2 * known[a, b] for a, b in pairs]))

    assert variance(swaps) == pytest.approx(2.0)
    assert variance(balanced_design(counts, 16)) < 1.2


def test_indicators_name_each_choice() -> None:
    rows = list(itertools.product(range(2), range(3)))
    made = indicators(rows, (2, 3))
    assert made.shape == (6, 5)
    assert (made.sum(axis=1) == 2).all()
    assert list(zip(made[:, :2].argmax(1), made[:, 2:].argmax(1), strict=True)) == rows
