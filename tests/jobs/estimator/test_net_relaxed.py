"""Relaxed nets of a space: the mean over all nets, states and all, with the gradient that differences give."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from tests.jobs.estimator.estimator_kit import kit, measured

from gnomon.core.space import Slot, Space
from gnomon.errors import UsageError
from gnomon.estimate.columns import Columns
from gnomon.estimate.fit import fit
from gnomon.jobs.estimator.job import fit_estimator
from gnomon.jobs.estimator.relaxed import RelaxedSpace
from gnomon.spaces.features import CountTables, Step
from gnomon.spaces.layers import layer
from gnomon.spaces.unit import Unit


def probabilities(space: Space, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(len(slot.choices))) for slot in space.slots]


def by_hand(seed: int = 0) -> RelaxedSpace:
    """Steps of no, one and two slots, with states that later ones depend on."""
    rng = np.random.default_rng(seed)
    units = tuple(Unit(layers=(layer("Relu"),), inputs=((1, 1, 1, n + 1),)) for n in range(4))
    slots = tuple(Slot(name, tuple(f"c{k}" for k in range(n))) for name, n in (("a", 2), ("b", 3), ("c", 2), ("d", 4)))
    shapes = [((0,), 1, 2), ((), 2, 1), ((2, 1), 3, 6), ((3,), 4, 4)]
    states = [2, 3, 4, 1]
    steps = []
    for (own, before, choices), after in zip(shapes, states, strict=True):
        row = rng.integers(0, 9, (before, choices))
        steps.append(Step(slots=own, row=row, next_state=rng.integers(0, after, (before, choices))))
    tables = CountTables(
        space=Space(slots), units=units, steps=tuple(steps), rows=rng.integers(0, 4, (9, 4)).astype(np.float32)
    )
    columns = Columns(names=("overhead", *(u.id for u in units)), kinds=("overhead", *("unit",) * 4))
    nets = np.array(list(itertools.product(*(range(len(s.choices)) for s in slots))))
    x = np.concatenate([np.ones((len(nets), 1)), tables.counts(nets)], axis=1)[::3]
    return RelaxedSpace(tables=tables, estimator=fit(columns, x, 1e-3 + x @ [1e-4, 1e-4, 2e-4, 3e-4, 5e-4]))


def mean_of_all(space: RelaxedSpace, p: list[np.ndarray]) -> float:
    slots = space.tables.space.slots
    nets = np.array(list(itertools.product(*(range(len(s.choices)) for s in slots))))
    weights = np.prod([q[nets[:, k]] for k, q in enumerate(p)], axis=0)
    mean = space.estimator.coefficients.mean
    return float(weights @ (mean[:2].sum() + space.tables.counts(nets) @ mean[2:]))


@pytest.mark.parametrize("seed", range(2))
def test_it_is_the_mean_over_all_nets(tmp_path: Path, seed: int) -> None:
    found, _, _ = kit(tmp_path)
    for space in (fit_estimator(found, measured(found, 12)).relaxed(), by_hand(seed)):
        p = probabilities(space.tables.space, seed)
        assert space.expected(p).time_s == pytest.approx(mean_of_all(space, p), rel=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_the_gradient_is_that_of_differences(tmp_path: Path, seed: int) -> None:
    found, _, _ = kit(tmp_path)
    for space in (fit_estimator(found, measured(found, 12)).relaxed(), by_hand(seed)):
        p = probabilities(space.tables.space, seed)
        told = space.expected(p)
        for slot, values in enumerate(p):
            assert told.gradient_s[slot].shape == values.shape
            for choice in range(len(values)):
                ends = []
                for step in (1e-4, -1e-4):
                    moved = [q.copy() for q in p]
                    moved[slot][choice] += step
                    ends.append(space.expected(moved).time_s)
                change = (ends[0] - ends[1]) / 2e-4
                assert told.gradient_s[slot][choice] == pytest.approx(change, rel=1e-6, abs=1e-12)


def test_what_does_not_fit_is_refused() -> None:
    space = by_hand()
    p = probabilities(space.tables.space)
    with pytest.raises(UsageError, match="3 arrays of probabilities are given for 4"):
        space.expected(p[:3])
    with pytest.raises(UsageError, match="slot 'b' has 3 choices, but 2"):
        space.expected([p[0], p[0], *p[2:]])
    with pytest.raises(UsageError, match="slot 'a'"):
        space.expected([np.array([np.nan, 1.0]), *p[1:]])
