"""Pruning keeps an optimal assignment."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.solver.placement_problems import random_problem

from gnomon.core.solver.elimination import minimise, weigh
from gnomon.core.solver.prune import propagate, surviving


@pytest.mark.parametrize("block", range(3))
def test_least_cost_survives(block: int) -> None:
    dropped = 0
    for seed in range(block * 100, block * 100 + 100):
        energy = weigh(random_problem(seed), np.ones(1))
        kept = surviving(energy, [np.full(k, -1) for k in energy.sizes])
        whole = minimise(energy)
        assert whole is not None
        best = energy.value(whole.assignment)
        if kept is None:
            assert best == np.inf
            continue
        small = energy.restrict(kept)
        part = minimise(small)
        assert part is not None
        back = [int(k[a]) for k, a in zip(kept, part.assignment, strict=True)]
        assert small.value(part.assignment) == pytest.approx(best)
        assert energy.value(back) == pytest.approx(best)
        dropped += sum(energy.sizes) - sum(small.sizes)
    assert dropped > 100


def test_propagation_names_the_emptied_slot() -> None:
    for seed in range(200):
        energy = weigh(random_problem(seed, impossible=0.5), np.ones(1))
        allowed, empty = propagate(energy)
        assert (empty is None) == all(mask.any() for mask in allowed)
        if empty is not None:
            assert not allowed[empty].any()
