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


def test_indicators_name_each_choice() -> None:
    rows = list(itertools.product(range(2), range(3)))
    made = indicators(rows, (2, 3))
    assert made.shape == (6, 5)
    assert (made.sum(axis=1) == 2).all()
    assert list(zip(made[:, :2].argmax(1), made[:, 2:].argmax(1), strict=True)) == rows
