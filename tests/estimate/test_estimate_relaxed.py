"""Expected times of relaxed nets: exact, with the gradient that differences give."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.estimate.nets import columns, counts, measured

from gnomon.errors import UsageError
from gnomon.estimate.columns import Columns
from gnomon.estimate.export import Relaxed
from gnomon.estimate.fit import fit


def relaxed() -> Relaxed:
    x = counts(30)
    choices = tuple(counts(number, 10 + number) for number in (2, 3, 4))
    return Relaxed(estimator=fit(columns(), x, measured(x)), base=np.ones(6), choices=choices)


def some() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.dirichlet(np.ones(number)) for number in (2, 3, 4)]


def test_it_is_the_mean_over_all_nets() -> None:
    space, p = relaxed(), some()
    total = 0.0
    for net in itertools.product(range(2), range(3), range(4)):
        row = space.base + sum(c[i] for c, i in zip(space.choices, net, strict=True))
        total += float(np.prod([q[i] for q, i in zip(p, net, strict=True)])) * space.estimator.mean_s(row)[0]
    assert space.expected(p).time_s == pytest.approx(total, rel=1e-9)


def test_the_gradient_is_that_of_differences() -> None:
    space, p = relaxed(), some()
    told = space.expected(p)
    for slot, values in enumerate(p):
        for choice in range(len(values)):
            moved = [q.copy() for q in p]
            moved[slot][choice] += 1e-3
            change = (space.expected(moved).time_s - told.time_s) / 1e-3
            assert told.gradient_s[slot][choice] == pytest.approx(change, rel=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    space, p = relaxed(), some()
    with pytest.raises(UsageError, match="2 slots"):
        space.expected(p[:2])
    with pytest.raises(UsageError, match="slot 1 has 3 choices"):
        space.expected([p[0], p[0], p[2]])
    with pytest.raises(UsageError, match="6 columns"):
        Relaxed(estimator=space.estimator, base=np.ones(5), choices=space.choices)


def test_a_learner_that_is_not_linear_is_refused() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, (80, 2))
    bent = fit(Columns(names=("a", "b"), kinds=("k", "k")), x, (5 + x @ [1, 2] + 3 * np.sin(3 * x[:, 0])) * 1e-3)
    with pytest.raises(UsageError, match="residual learner"):
        Relaxed(estimator=bent, base=np.zeros(2), choices=(np.eye(2),))
