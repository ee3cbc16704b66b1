"""Limits against exhaustive search, and what is said where nothing keeps them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.solver.placement_problems import exhaustive, graph_problem, random_limits, random_problem

from gnomon.core.cost import CostModel, Limit, Objective, limit_on
from gnomon.core.solver.solve import solve
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError, ProblemError, UsageError


def check(model: CostModel, method: str) -> bool:
    """Compare with exhaustive search; whether anything is allowed."""
    best = exhaustive(model, {"o0": 1.0})
    if best == np.inf:
        with pytest.raises(InfeasibleError):
            solve(model, {"o0": 1.0}, method=method)
        return False
    found = solve(model, {"o0": 1.0}, method=method)
    assert found.optimal and found.value == pytest.approx(best, abs=1e-9) and found.bound <= best + 1e-9
    assert all(model.used(limit, found.assignment) <= limit.at_most for limit in model.limits)
    return True


@pytest.mark.parametrize("method", ["auto", "milp"])
def test_limits_are_exhaustive_search(method: str) -> None:
    allowed = [check(random_limits(random_problem(seed, impossible=0.03), seed), method) for seed in range(150)]
    assert 30 < sum(allowed) < 120  # both outcomes are met


def limited(*most: float) -> CostModel:
    """Two slots that cost nothing on b alone, which uses 5 of x and 7 of y where a uses 3 of y."""
    slots = tuple(Slot(name, ("a", "b")) for name in "pq")
    costs = tuple(np.array([[1.0], [0.0]]) for _ in slots)
    uses = (np.array([0.0, 5.0]), np.array([7.0, 3.0]))
    limits = [
        Limit(name=name, unit="B", at_most=amount, slots=(use, use))
        for name, use, amount in zip("xy", uses, most, strict=False)
    ]
    return CostModel(Space(slots), (Objective("o0"),), costs, limits=tuple(limits))


def test_one_limit_that_nothing_keeps_says_what_is_needed() -> None:
    with pytest.raises(InfeasibleError, match="the limit 'x': at least 0 B of x is needed"):
        solve(limited(-1.0))
    with pytest.raises(InfeasibleError, match="the limit 'y': at least 6 B of y is needed"):
        solve(limited(100.0, 5.0))


def test_limits_that_conflict_are_named_together() -> None:
    message = "'x' and 'y': at least 10 B of x or at least 14 B of y is needed if the other limits are kept"
    with pytest.raises(InfeasibleError, match=message):
        solve(limited(4.0, 9.0))


def test_a_limit_that_binds_is_not_for_elimination() -> None:
    assert solve(limited(10.0), method="elimination").method == "elimination"
    with pytest.raises(UsageError, match="elimination alone cannot keep the limits"):
        solve(limited(9.0), method="elimination")


def test_limits_on_objectives_switches_and_operators() -> None:
    model = graph_problem([(0, 1), (1, 2)], [2, 2, 2], 0)
    assert model.used(limit_on(model, "switches", (), 1), (0, 1, 1)) == 1
    assert model.used(limit_on(model, "operators", ["b"], 1), (0, 1, 1)) == 2
    assert model.used(limit_on(model, "latency", (), 1), (0, 1, 1)) == pytest.approx(model.evaluate([[0, 1, 1]])[0, 0])
    for name, choices in (("speed", ()), ("latency", ["z"]), ("switches", ["a"])):
        with pytest.raises(UsageError):
            limit_on(model, name, choices, 1)


@pytest.mark.parametrize("slots", [(), (np.zeros(2), np.full(2, np.nan)), (np.zeros(2), np.zeros(3))])
def test_uses_that_do_not_fit(slots: tuple[np.ndarray, ...]) -> None:
    with pytest.raises(ProblemError, match="limit 'x'"):
        CostModel(
            Space((Slot("p", ("a", "b")), Slot("q", ("a", "b")))),
            (Objective("o0"),),
            (np.zeros((2, 1)), np.zeros((2, 1))),
            limits=(Limit(name="x", at_most=1.0, slots=slots),),
        )
