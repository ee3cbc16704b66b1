"""Balanced designs: every primitive equally often in each group, no network twice before all are there."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.spaces.cells.effects import balanced_design

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
