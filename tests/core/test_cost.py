"""Cost models: sums, weights and validation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from tests.core.solver.placement_problems import random_problem

from gnomon.core.cost import Charge, CostModel, Objective, PairCost
from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError, UsageError

TWO = Space((Slot("a", ("cpu", "gpu")), Slot("b", ("cpu", "gpu"))))
COSTS = (np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]]))
LATENCY = (Objective("latency", "s"),)


@pytest.mark.parametrize("seed", range(30))
def test_evaluate_is_the_plain_sum(seed: int) -> None:
    model = random_problem(seed, objectives=2)
    rows = list(itertools.product(*[range(len(s.choices)) for s in model.space.slots]))[:200]
    for row, cost in zip(rows, model.evaluate(np.array(rows, dtype=int).reshape(len(rows), -1)), strict=True):
        plain = np.zeros(2)
        for index, costs in zip(row, model.slot_costs, strict=True):
            plain = plain + costs[index]
        for pair in model.pairs:
            plain = plain + pair.cost[row[pair.first], row[pair.second]]
        for charge in model.charges:
            if charge.choice in model.space.names(row):
                plain = plain + charge.cost
        np.testing.assert_allclose(cost, plain, atol=1e-12)


def test_duplicate_pairs_add_up() -> None:
    pair = np.arange(4.0).reshape(2, 2, 1)
    model = CostModel(TWO, LATENCY, COSTS, (PairCost(0, 1, pair), PairCost(1, 0, pair)))
    assert model.evaluate([[0, 1]]).tolist() == [[1 + 4 + 1 + 2]]


def test_evaluate_nothing() -> None:
    assert CostModel(TWO, LATENCY, COSTS).evaluate(np.zeros((0, 2), dtype=int)).shape == (0, 1)
    assert CostModel(Space(()), LATENCY, ()).evaluate(np.zeros((3, 0), dtype=int)).tolist() == [[0.0]] * 3


@pytest.mark.parametrize("rows", [[[0, 2]], [[-1, 0]], [[0]], [0, 1], [[0.0, 1.0]]])
def test_evaluate_refuses(rows: list[list[int]]) -> None:
    with pytest.raises(ProblemError):
        CostModel(TWO, LATENCY, COSTS).evaluate(rows)


def test_validation() -> None:
    wrong: list[tuple[tuple[np.ndarray, ...], tuple[PairCost, ...], tuple[Charge, ...]]] = [
        (COSTS[:1], (), ()),
        ((np.zeros((3, 1)), COSTS[1]), (), ()),
        ((np.array([[np.nan], [0.0]]), COSTS[1]), (), ()),
        ((np.array([[-np.inf], [0.0]]), COSTS[1]), (), ()),
        ((np.full((2, 1), 1e308), np.full((2, 1), -1e308)), (), ()),
        (COSTS, (PairCost(0, 0, np.zeros((2, 2, 1))),), ()),
        (COSTS, (PairCost(0, 2, np.zeros((2, 2, 1))),), ()),
        (COSTS, (PairCost(0, 1, np.zeros((2, 2))),), ()),
        (COSTS, (PairCost(0, 1, np.full((2, 2, 1), np.nan)),), ()),
        (COSTS, (), (Charge("cpu", np.array([-1.0])),)),
        (COSTS, (), (Charge("cpu", np.array([np.nan])),)),
        (COSTS, (), (Charge("cpu", np.zeros(1)), Charge("cpu", np.zeros(1)))),
    ]
    for costs, pairs, charges in wrong:
        with pytest.raises(ProblemError):
            CostModel(TWO, LATENCY, costs, pairs, charges)
    with pytest.raises(ProblemError):
        CostModel(TWO, (), (np.zeros((2, 0)), np.zeros((2, 0))))


@pytest.mark.parametrize(
    "weights", [None, {}, {"x": 1.0}, {"t": -1.0}, {"t": float("nan")}, {"t": float("inf")}, {"t": 0.0}, {"t": True}]
)
def test_weights_that_cannot_be_meant(weights: Mapping[str, float] | None) -> None:
    model = CostModel(TWO, (Objective("t"), Objective("m")), (np.zeros((2, 2)), np.zeros((2, 2))))
    with pytest.raises(UsageError):
        model.weight_vector(weights)
    assert model.weight_vector({"m": 2}).tolist() == [0.0, 2.0]
