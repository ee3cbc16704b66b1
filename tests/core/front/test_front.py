"""Fronts, and what passes with merged labels prove, against exhaustive search and the exact front."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.solver.placement_problems import every_cost, random_limits, random_problem

from gnomon.core.cost import Charge, CostModel, Objective, OutOfTime, PairCost
from gnomon.core.front import labels as front_labels
from gnomon.core.front import triangles as front_triangles
from gnomon.core.front.dominance import nondominated
from gnomon.core.front.front import Front, exact_front
from gnomon.core.front.search import FrontLimits
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError, UsageError


def oracle(model: CostModel) -> np.ndarray:
    costs = every_cost(model)
    found: np.ndarray = costs[nondominated(costs)]
    return found


def found_by(model: CostModel, **options: float) -> np.ndarray:
    try:
        front = exact_front(model, **options)  # type: ignore[arg-type]
    except InfeasibleError:
        return np.zeros((0, len(model.objectives)))
    assert front.certificate.kind == "exact" or options
    assert np.array_equal(model.evaluate(front.assignments), front.costs)
    return front.costs


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_fronts_under_limits_are_exhaustive_search(objectives: int) -> None:
    for seed in range(40):
        model = random_limits(random_problem(seed, objectives=objectives, impossible=0.03), seed)
        want = oracle(model)
        found = found_by(model)
        assert found.shape == want.shape and np.allclose(found, want)


def graph(seed: int, count: int, choices: int, *, extra: int = 6, top: int = 2000) -> CostModel:
    """A chain with some links across a few slots: whole costs in two objectives, none negative, a few impossible."""
    rng = np.random.default_rng(seed)
    slots = tuple(Slot(f"s{i}", tuple("abcd"[:choices])) for i in range(count))
    costs = rng.integers(1, top, (count, choices, 2)).astype(float)
    costs[:, 1:][rng.random((count, choices - 1)) < 0.1] = np.inf
    ends = [(i, i + 1) for i in range(count - 1)]
    ends += [(int(i), int(i) + int(rng.integers(2, 4))) for i in rng.integers(0, count - 4, extra)]
    pairs = tuple(
        PairCost(i, j, np.stack([(1 - np.eye(choices)) * rng.integers(0, top), np.zeros((choices, choices))], axis=-1))
        for i, j in ends
    )
    return CostModel(Space(slots), (Objective("latency"), Objective("memory")), tuple(costs), pairs)


def factor_needed(model: CostModel, front: Front, exact: np.ndarray) -> float:
    ratios = (front.costs[None] / exact[:, None]).max(axis=2).min(axis=1)
    return float(ratios.max())


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(16))
def test_small_problems_equal_exhaustive_search(seed: int, objectives: int) -> None:
    model = random_problem(seed, objectives=objectives, impossible=0.03)
    expected, found = oracle(model), found_by(model)
    assert found.shape == expected.shape
    assert np.array_equal(found, expected) if seed % 2 else np.allclose(found, expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(5, 12), st.integers(2, 3))
def test_graphs_equal_exhaustive_search(seed: int, count: int, choices: int) -> None:
    model = graph(seed, count if choices == 2 else min(count, 8), choices, top=8 if seed % 3 else 2000)
    assert np.array_equal(found_by(model), oracle(model))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks, batches and label sets so small that every way through the code is taken."""
    monkeypatch.setattr(front_labels, "_CHUNK", 64)
    monkeypatch.setattr(front_triangles, "BATCH_ENTRIES", 256)
    monkeypatch.setattr(front_triangles, "_BOUND_ENTRIES", 1 << 14)
    for limit in ("_LABELS", "_EASY_LABELS", "_PARTED_LABELS"):
        monkeypatch.setattr(front_triangles, limit, 4)
    monkeypatch.setattr(front_triangles, "_PASSES", 2)
    yield


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32 - 1), st.integers(4, 8), st.booleans())
def test_small_sets_of_labels_find_all_ties_the_same(small_chunks: None, seed: int, count: int, charged: bool) -> None:
    model = graph(seed, count, 3, extra=3 if count > 4 else 0, top=(3, 8, 2000)[seed % 3])
    model = with_charges(model, seed, 12) if charged else model
    assert np.array_equal(found_by(model), oracle(model))


def test_costs_of_nothing_do_not_end_the_search(small_chunks: None) -> None:
    drawn = graph(3, 10, 3)
    slots = tuple(cost * [[1, 0], [1, 1], [1, 1]] for cost in drawn.slot_costs)
    model = CostModel(drawn.space, drawn.objectives, slots, drawn.pairs)
    exact = oracle(model)
    assert exact[-1, 1] == 0
    assert np.array_equal(found_by(model), exact)


@pytest.mark.parametrize("epsilon", [0.001, 0.02, 0.2])
@pytest.mark.parametrize("seed", range(2))
def test_an_epsilon_is_kept_and_proved(seed: int, epsilon: float, small_chunks: None) -> None:
    model = graph(seed, 30, 2)
    exact = found_by(model)
    front = exact_front(model, epsilon=epsilon)
    proved = front.certificate.epsilon or 0.0
    assert proved <= epsilon
    assert factor_needed(model, front, exact) <= 1 + proved + 1e-12
    assert np.array_equal(model.evaluate(front.assignments), front.costs)


@pytest.mark.parametrize("epsilon", [-0.1, float("nan"), float("inf")])
def test_epsilons_that_cannot_be_meant(epsilon: float) -> None:
    with pytest.raises(UsageError):
        exact_front(graph(0, 6, 2), epsilon=epsilon)


def test_an_epsilon_and_negative_costs() -> None:
    costs = (np.array([[-1.0, 2.0], [2.0, 1.0]]),)
    model = CostModel(Space((Slot("a", ("x", "y")),)), (Objective("t"), Objective("m")), costs)
    assert len(exact_front(model)) == 2
    with pytest.raises(UsageError, match="negative"):
        exact_front(model, epsilon=0.1)


def assert_true(model: CostModel, front: Front, exact: np.ndarray) -> None:
    """What the certificate claims holds against the exact front (N, objectives), which is not negative."""
    kind, epsilon = front.certificate.kind, front.certificate.epsilon or 0.0
    if kind != "heuristic":
        held: np.ndarray = np.all(front.costs[None] <= exact[:, None] * (1 + epsilon) + 1e-9, axis=2)
        assert np.all(np.any(held, axis=1)), (kind, epsilon, front.costs, exact)


def with_charges(model: CostModel, seed: int, top: int) -> CostModel:
    paid = np.random.default_rng(seed).integers(0, top, (2, 2)).astype(float)
    charges = tuple(Charge(choice, cost) for choice, cost in zip("ab", paid, strict=True))
    return CostModel(model.space, model.objectives, model.slot_costs, model.pairs, charges)


def with_objectives(model: CostModel, count: int) -> CostModel:
    """The model with so many objectives, up to 3: the third is the first of the other choices."""
    slots = [np.concatenate([c, np.where(np.isinf(c), 9.0, c)[::-1, :1]], axis=1) for c in model.slot_costs]
    pairs = [PairCost(p.first, p.second, p.cost[..., [0, 1, 0][:count]]) for p in model.pairs]
    names = tuple(Objective(str(k)) for k in range(count))
    return CostModel(model.space, names, tuple(slot[:, :count] for slot in slots), tuple(pairs))


MADE: dict[str, Callable[[int], CostModel]] = {
    "1": lambda seed: with_objectives(graph(seed, 8, 2, top=9), 1),
    "2": lambda seed: graph(seed, 10, 2),
    "3": lambda seed: with_objectives(graph(seed, 9, 2), 3),
    "charges": lambda seed: with_charges(graph(seed, 8, 3), seed, 3000),
    "small charges": lambda seed: with_charges(graph(seed, 5 + seed % 3, 2, extra=1, top=9), seed, 12),
}


@pytest.mark.parametrize("way", ["epsilon", "early", "wide", "whole"])
@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("seed", range(5))
def test_no_front_on_the_way_or_at_the_end_claims_more_than_is_true(seed: int, kind: str, way: str) -> None:
    model, seen, left = MADE[kind](seed), list[Front](), iter(range(2 * seed))
    options: dict[str, dict[str, Any]] = {
        "epsilon": {"epsilon": 0.1},
        "early": {"left_s": lambda: float(next(left, None) is not None)},
        "wide": {"limits": FrontLimits(table_entries=4)},
        "whole": {},
    }
    seen.append(exact_front(model, watch=seen.append, **options[way]))
    exact = oracle(model)
    for front in seen:
        assert_true(model, front, exact)
    certificate = seen[-1].certificate
    assert way != "whole" or certificate.kind == "exact"
    assert way != "wide" or certificate.kind == "epsilon"
    assert way != "epsilon" or (certificate.epsilon or 0.0) <= 0.1


def test_charges_that_only_the_dearest_end_pays_leave_that_end_open() -> None:
    # Without its charge "x" is the least of both objectives, and there is no corner; with it, "y" is on the front.
    costs = (np.array([[1.0, 1.0], [2.0, 3.0]]),)
    objectives = (Objective("t"), Objective("m"))
    model = CostModel(Space((Slot("a", ("x", "y")),)), objectives, costs, charges=(Charge("x", np.array([5.0, 0.0])),))
    seen: list[Front] = []
    front = exact_front(model, left_s=lambda: 0.0, watch=seen.append)
    for early in (*seen, front):
        assert early.costs.tolist() == [[6.0, 1.0]]
        assert early.certificate.epsilon == pytest.approx(5.0)
    assert exact_front(model).costs.tolist() == [[2.0, 3.0], [6.0, 1.0]]


@pytest.mark.parametrize("limits", [FrontLimits(), FrontLimits(table_entries=1)])
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_factor_is_not_claimed_of_negative_costs(calls: int, limits: FrontLimits) -> None:
    costs = (np.array([[-1.0, 10.0], [10.0, 1.0]]), np.array([[0.0, 0.0], [1.0, -1.0]]))
    space = Space((Slot("a", ("x", "y")), Slot("b", ("x", "y"))))
    model = CostModel(space, (Objective("t"), Objective("m")), costs)
    left, seen = iter(range(calls)), list[Front]()
    last = exact_front(model, left_s=lambda: float(next(left, None) is not None), limits=limits, watch=seen.append)
    assert "heuristic" in {front.certificate.kind for front in (*seen, last)}
    assert all(front.certificate.kind != "epsilon" for front in (*seen, last))


def test_three_objectives_that_run_out_of_room_keep_what_was_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    slots = tuple(Slot(f"s{i}", ("a", "b")) for i in range(8))
    costs = tuple(rng.random((2, 3)) + 0.1 for _ in slots)
    model = CostModel(Space(slots), tuple(Objective(n) for n in "tme"), costs)
    passes, run = [0], front_labels.LabelPass.run

    def once(self: front_labels.LabelPass) -> None:
        passes[0] += 1
        if passes[0] > 1:
            raise OutOfTime
        run(self)

    monkeypatch.setattr(front_labels.LabelPass, "run", once)
    front = exact_front(model)
    assert front.certificate.kind == "epsilon"
    assert (front.certificate.epsilon or 1.0) <= 0.05 + 1e-12
    assert_true(model, front, oracle(model))


def test_many_slots_begin_with_a_front_before_any_plan() -> None:
    model = graph(3, 320, 2)
    seen: list[Front] = []
    front = exact_front(model, epsilon=0.05, watch=seen.append)
    assert seen[0].certificate.kind == "heuristic"
    assert len(seen[0]) >= 2
    assert 0 < (front.certificate.epsilon or 0.0) <= 0.05


@pytest.fixture
def much_merged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Little room for labels, and much that is merged."""
    monkeypatch.setattr(front_triangles, "_LABELS", 12)
    monkeypatch.setattr(front_labels, "_SUMS", 4)
    monkeypatch.setattr(front_triangles, "_WIDTH", 4.0)
    yield


@pytest.mark.parametrize("epsilon", [0.002, 0.03, 0.3])
@pytest.mark.parametrize("seed", range(12))
def test_merged_labels_prove_no_more_than_is_true(seed: int, epsilon: float, much_merged: None) -> None:
    model = graph(seed, 10, 2) if seed % 2 else random_problem(seed, objectives=2, impossible=0.02)
    if seed % 3 == 0:
        names = sorted({choice for slot in model.space.slots for choice in slot.choices})
        paid = np.random.default_rng(seed).integers(0, 2000, (2, 2)).astype(float)
        charges = tuple(Charge(name, cost) for name, cost in zip(names[:2], paid, strict=False))
        model = CostModel(model.space, model.objectives, model.slot_costs, model.pairs, charges)
    exact = oracle(model)
    if not len(exact) or bool((exact <= 0).any()):
        return
    front = exact_front(model, epsilon=epsilon)
    assert factor_needed(model, front, exact) <= 1 + (front.certificate.epsilon or 0.0) + 1e-12


def test_merged_labels_close_what_half_planes_cannot(much_merged: None) -> None:
    model = graph(4, 12, 2)
    seen: list[float] = []
    front = exact_front(model, epsilon=0.02, watch=lambda f: seen.append(f.certificate.epsilon or 0.0))
    assert seen[0] > 0.02
    assert (front.certificate.epsilon or 0.0) <= 0.02


@pytest.mark.parametrize("calls", [5, 20, 40, 60, 100, 200])
def test_an_early_end_between_passes(calls: int, much_merged: None) -> None:
    model = graph(7, 30, 2)
    exact = exact_front(model).costs
    left = iter(range(calls))
    front = exact_front(model, epsilon=0.0001, left_s=lambda: float(next(left, None) is not None))
    assert factor_needed(model, front, exact) <= 1 + (front.certificate.epsilon or 0.0) + 1e-12
