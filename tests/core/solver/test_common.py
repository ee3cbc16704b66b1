"""The plan for several devices against exhaustive search, by the least total."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnomon.core.cost import Charge, CostModel, Objective, PairCost
from gnomon.core.solver.common import CommonProblem, common_problem, least_total, over_choices
from gnomon.core.solver.solve import solve
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError, ProblemError, UsageError

Floats = NDArray[np.float64]
LATENCY = (Objective("latency", "s"),)


def random_models(seed: int, *, devices: int, slots: int, impossible: float = 0.1) -> dict[str, CostModel]:
    """One space, and for each device its own costs, pairs (general ones and such that charge for unlike), charges."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, slots)
    space = Space(tuple(Slot(f"s{i}", tuple("abc"[:k])) for i, k in enumerate(sizes)))
    unlike = rng.random() < 0.4

    def costs(*shape: int) -> Floats:
        drawn = rng.integers(1, 9, size=shape).astype(float) if seed % 2 else rng.random(shape) + 0.01
        drawn[rng.random(shape) < impossible] = np.inf
        return drawn

    def pair(a: int, b: int) -> PairCost:
        shape = (int(sizes[a]), int(sizes[b]))
        if unlike and shape[0] == shape[1]:
            return PairCost(a, b, ((1 - np.eye(shape[0])) * rng.random())[..., None])
        return PairCost(a, b, costs(*shape)[..., None] - 0.005)

    made = {}
    for number in range(devices):
        ends = [(i, j) for i in range(slots) for j in range(i) if rng.random() < 0.4]
        made[f"d{number}"] = CostModel(
            space,
            LATENCY,
            tuple(costs(k, 1) for k in sizes),
            tuple(pair(i, j) for i, j in ends),
            tuple(Charge(c, rng.integers(0, 4, 1).astype(float)) for c in "abz" if rng.random() < 0.5),
        )
    return made


def exhaustive(models: dict[str, CostModel]) -> Floats:
    """Relative costs of every assignment, shape (assignments, devices); each model is evaluated by itself."""
    slots = next(iter(models.values())).space.slots
    rows = np.array(list(itertools.product(*(range(len(s.choices)) for s in slots))), dtype=np.intp)
    costs = np.concatenate([m.evaluate(rows.reshape(-1, len(slots))) for m in models.values()], axis=1)
    return np.asarray(costs / np.where(np.isinf(costs.min(axis=0)), 1.0, costs.min(axis=0)))


def problem_of(models: dict[str, CostModel]) -> CommonProblem | None:
    try:
        return common_problem(models)
    except InfeasibleError:
        return None


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 6))
def test_the_least_total_is_that_of_exhaustive_search(seed: int, devices: int, slots: int) -> None:
    models = random_models(seed, devices=devices, slots=slots)
    problem = problem_of(models)
    if problem is None:
        assert np.isinf(exhaustive(models)).all(axis=0).any()  # some device allows nothing at all
        return
    relative = exhaustive(models)
    allowed = relative[np.isfinite(relative).all(axis=1)]
    if not len(allowed):
        with pytest.raises(InfeasibleError):
            least_total(problem)
        return
    plan = least_total(problem)
    assert plan.optimal and plan.total == pytest.approx(allowed.sum(axis=1).min(), rel=1e-9)
    for name, model in models.items():
        assert plan.costs[name] == pytest.approx(model.evaluate([plan.assignment])[0, 0])
    assert tuple(plan.regrets.values()) == problem.regrets(plan.assignment)
    assert min(plan.regrets.values()) >= -1e-12 and plan.worst == max(plan.regrets.values())


@given(st.integers(0, 2**32), st.lists(st.floats(0.5, 5), min_size=2, max_size=2))
@settings(max_examples=30)
def test_regret_against_something_better_than_any_assignment(seed: int, best: list[float]) -> None:
    """Another way to run the model, that is not an assignment of these slots, may be a device's best."""
    models = random_models(seed, devices=2, slots=4, impossible=0.0)
    problem = common_problem(models, dict(zip(models, best, strict=True)))
    own = np.array([solution.value for solution in problem.own])
    relative = exhaustive(models) * own / np.array(best)
    assert least_total(problem).total == pytest.approx(relative.sum(axis=1).min())


def test_what_one_device_cannot_run_is_no_choice_for_all() -> None:
    space = Space((Slot("s", ("cpu", "npu")),))
    board = CostModel(space, LATENCY, (np.array([[5.0], [1.0]]),))
    laptop = CostModel(space, LATENCY, (np.array([[2.0], [np.inf]]),))
    found = least_total(common_problem({"board": board, "laptop": laptop}))
    assert found.choices == ("cpu",) and found.regrets == pytest.approx({"board": 4.0, "laptop": 0.0})


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_other_choices_of_a_device_change_nothing_of_its_own(seed: int) -> None:
    (model,) = random_models(seed, devices=1, slots=4, impossible=0.0).values()
    wider = over_choices(model, ("z", "c", "a", "b"))
    assert all(slot.choices == ("z", "c", "a", "b") for slot in wider.space.slots)
    found, own = solve(wider), solve(model)
    assert found.value == pytest.approx(own.value)
    assert model.evaluate([model.space.indices(found.choices)])[0, 0] == pytest.approx(own.value)
    fewer = over_choices(model, ("a",))
    assert solve(fewer).value == pytest.approx(model.evaluate([[0] * 4])[0, 0])


def test_a_problem_that_cannot_be_meant() -> None:
    one = CostModel(Space((Slot("s", ("a",)),)), LATENCY, (np.array([[1.0]]),))
    other = CostModel(Space((Slot("t", ("a",)),)), LATENCY, (np.array([[1.0]]),))
    nothing = CostModel(one.space, LATENCY, (np.array([[0.0]]),))
    two = CostModel(one.space, (Objective("x"), Objective("y")), (np.array([[1.0, 1.0]]),))
    with pytest.raises(UsageError, match="no device"):
        common_problem({})
    with pytest.raises(ProblemError, match="space of 'b'"):
        common_problem({"a": one, "b": other})
    with pytest.raises(ProblemError, match="nothing can be relative"):
        common_problem({"a": nothing})
    with pytest.raises(ProblemError, match="2 objectives"):
        common_problem({"a": two})
