"""The solver against exhaustive search, Viterbi and the other method."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from tests.core.solver.placement_problems import exhaustive, graph_problem, random_problem

from gnomon.core.cost import Charge, CostModel, Objective, PairCost
from gnomon.core.solver import elimination
from gnomon.core.solver.elimination import minimise, weigh
from gnomon.core.solver.solve import Solution, solve
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError, ProblemError, UsageError

LATENCY = (Objective("latency", "s"),)


def check(model: CostModel, weights: dict[str, float], method: str) -> Solution | None:
    """The solution, compared with exhaustive search and with its own claims; None where both find nothing."""
    best = exhaustive(model, weights)
    try:
        found = solve(model, weights, method=method)
    except InfeasibleError:
        assert best == np.inf
        return None
    assert found.value == pytest.approx(best, abs=1e-9)
    assert found.optimal and found.bound == found.value
    assert model.evaluate([found.assignment])[0].tolist() == list(found.cost)
    assert model.space.encode(found.assignment) == found.code
    assert model.space.names(found.assignment) == found.choices
    return found


@pytest.mark.parametrize("block", range(3))
def test_elimination_is_exhaustive_search(block: int) -> None:
    solved = 0
    for seed in range(block * 100, block * 100 + 100):
        solved += check(random_problem(seed), {"o0": 1.0}, "elimination") is not None
    assert 20 < solved < 100  # both outcomes are met


def test_without_memory_for_elimination_highs_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytoulbar2", None)

    def full(*_: object) -> None:
        raise MemoryError

    model = graph_problem([(a, b) for a in range(8) for b in range(a)], [3] * 8, seed=0)
    least = solve(model).value
    monkeypatch.setattr(elimination, "_eliminate", full)
    found = solve(model)
    assert found.method == "milp" and found.value == pytest.approx(least)


def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elimination, "_BLOCK_ENTRIES", 6)
    test_elimination_is_exhaustive_search(3)


@pytest.mark.parametrize("seed", range(0, 1500, 50))
def test_milp_is_exhaustive_search(seed: int) -> None:
    check(random_problem(seed + seed // 50 % 2), {"o0": 2.0}, "milp")


@pytest.mark.parametrize("seed", range(24))
def test_weighted_objectives(seed: int) -> None:
    weights = {"o0": 1.5, "o1": 0.25} if seed % 3 else {"o1": 1.0}
    check(random_problem(seed, objectives=2, impossible=0.04), weights, "auto")


@pytest.mark.parametrize(("count", "choices"), [(2, 3), (57, 2), (400, 8), (60, 40)])
def test_chain_is_viterbi(count: int, choices: int) -> None:
    rng = np.random.default_rng(count)
    unary, pairs = rng.normal(size=(count, choices)), rng.normal(size=(count - 1, choices, choices))
    ahead = unary[0]
    for step, table in enumerate(pairs, start=1):
        ahead = (ahead[:, None] + table).min(axis=0) + unary[step]
    names = tuple(f"c{c}" for c in range(choices))
    model = CostModel(
        Space(tuple(Slot(f"s{i}", names) for i in range(count))),
        LATENCY,
        tuple(unary[:, :, None]),
        tuple(PairCost(i, i + 1, table[..., None]) for i, table in enumerate(pairs)),
    )
    found = solve(model)
    assert found.value == pytest.approx(float(ahead.min())) and found.width == 1


@pytest.mark.parametrize("seed", range(6))
def test_methods_agree_beyond_exhaustive_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 60
    edges = [(i, i + 1) for i in range(count - 1)]
    edges += [(i, j) for i in range(count) for j in range(i + 2, min(count, i + 6)) if rng.random() < 0.25]
    base = graph_problem(edges, rng.integers(2, 5, count).tolist(), seed)
    charges = tuple(Charge(c, rng.random(1) * 4) for c in "abc")
    model = CostModel(base.space, base.objectives, base.slot_costs, base.pairs, charges)
    one, other = solve(model, method="elimination"), solve(model, method="milp")
    assert one.value == pytest.approx(other.value, rel=1e-7)
    assert (one.method, other.method, other.optimal) == ("elimination", "milp", True)


def test_many_charges_go_to_the_programme_and_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytoulbar2", None)
    rng = np.random.default_rng(3)
    names = [f"c{i}" for i in range(14)]
    slots = tuple(Slot(f"s{i}", tuple(rng.permutation(names)[:4].tolist())) for i in range(8))
    charges = tuple(Charge(name, rng.random(1)) for name in names)
    model = CostModel(Space(slots), LATENCY, tuple(rng.random((4, 1)) for _ in slots), (), charges)
    found = check(model, {"latency": 1.0}, "auto")
    assert found is not None and found.method == "milp"
    assert solve(model, method="elimination").value == pytest.approx(found.value)


def test_wide_problem_goes_to_the_programme() -> None:
    model = graph_problem([(a, b) for a in range(9) for b in range(a)], [2] * 9, 1)
    found = solve(model, method="milp")
    assert found.width == 8
    assert found.value == pytest.approx(exhaustive(model, {"latency": 1.0}))
    with pytest.raises(UsageError, match="too wide"):
        solve(graph_problem([(a, b) for a in range(40) for b in range(a)], [4] * 40, 1), method="elimination")


def test_time_limit_gives_an_honest_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytoulbar2", None)
    model = graph_problem([(a, b) for a in range(40) for b in range(a)], [4] * 40, 2)
    found = solve(model, time_limit_s=0.5)
    assert found.method == "milp" and not found.optimal
    assert found.bound < found.value
    floor = sum(float(c.min()) for c in model.slot_costs) + sum(float(p.cost.min()) for p in model.pairs)
    assert found.bound >= floor


def test_pruning_makes_wide_problems_narrow() -> None:
    count = 40
    base = graph_problem([(a, b) for a in range(count) for b in range(a)], [3] * count, 4)
    unary = tuple(cost + np.array([[0.0], [50.0], [60.0]]) for cost in base.slot_costs)
    found = solve(CostModel(base.space, base.objectives, unary, base.pairs), method="elimination")
    assert found.optimal and found.assignment == (0,) * count


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1e-9])
def test_extreme_units(scale: float) -> None:
    for seed in range(24):
        small = random_problem(seed, impossible=0.05)
        model = CostModel(
            small.space,
            small.objectives,
            tuple(c * scale for c in small.slot_costs),
            tuple(PairCost(p.first, p.second, p.cost * scale) for p in small.pairs),
        )
        best = exhaustive(model, {"o0": 1.0})
        if best < np.inf:
            for method in ("elimination", "milp") if seed % 6 == 0 else ("elimination",):
                assert solve(model, method=method).value == pytest.approx(best, abs=1e-9 * scale)


def test_overflow_is_refused() -> None:
    model = CostModel(Space((Slot("a", ("x",)),)), LATENCY, (np.array([[1e300]]),))
    with pytest.raises(ProblemError, match="overflow"):
        solve(model, {"latency": 1e300})


def test_result_is_deterministic() -> None:
    model = graph_problem([(i, j) for i in range(30) for j in range(i + 1, min(30, i + 4))], [3] * 30, 9)
    flat = CostModel(model.space, LATENCY, tuple(np.zeros((3, 1)) for _ in range(30)), model.pairs[:0])
    assert solve(model) == solve(model)
    assert solve(flat).assignment == (0,) * 30


def test_infinite_charge_forbids() -> None:
    space = Space((Slot("a", ("x", "y")),))
    model = CostModel(space, LATENCY, (np.array([[0.0], [9.0]]),), (), (Charge("x", np.array([np.inf])),))
    assert solve(model).choices == ("y",)


def test_infeasible_names_the_slot() -> None:
    slots = tuple(Slot(f"s{i}", ("x", "y")) for i in range(5))
    free = [np.zeros((2, 1)) for _ in slots]
    blocked = [*free[:3], np.full((2, 1), np.inf), free[4]]
    with pytest.raises(InfeasibleError, match="slot 's3' has no allowed choice"):
        solve(CostModel(Space(slots), LATENCY, tuple(blocked)))
    same = np.array([[[0.0], [np.inf]], [[np.inf], [0.0]]])
    forced = [np.array([[0.0], [np.inf]]), free[1], np.array([[np.inf], [0.0]]), *free[3:]]
    with pytest.raises(InfeasibleError, match=r"slot 's[012]' has no choice left"):
        solve(CostModel(Space(slots), LATENCY, tuple(forced), (PairCost(0, 1, same), PairCost(1, 2, same))))
    unlike = np.array([[[np.inf], [0.0]], [[0.0], [np.inf]]])
    triangle = tuple(PairCost(a, b, unlike) for a, b in [(0, 1), (1, 3), (0, 3), (2, 3), (2, 4)])
    for method in ("elimination", "milp"):
        with pytest.raises(InfeasibleError, match="of the slots 's0', 's1', 's3' is allowed"):
            solve(CostModel(Space(slots), LATENCY, tuple(free), triangle), method=method)


@pytest.mark.parametrize("options", [{"method": "magic"}, {"time_limit_s": 0.0}, {"time_limit_s": float("nan")}])
def test_options_that_cannot_be_meant(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        solve(CostModel(Space(()), LATENCY, ()), **options)  # type: ignore[arg-type]


def test_huge_star_is_not_joined() -> None:
    count = 6000  # joining the two rims over the hub would take count x count entries of 8 bytes
    wide = tuple(f"c{i}" for i in range(count))
    slots = (Slot("hub", ("x", "y")), Slot("left", wide), Slot("right", wide))
    rng = np.random.default_rng(0)
    costs = (np.zeros((2, 1)), rng.random((count, 1)), rng.random((count, 1)))
    pairs = (PairCost(0, 1, rng.random((2, count, 1))), PairCost(0, 2, rng.random((2, count, 1))))
    model = CostModel(Space(slots), LATENCY, costs, pairs)
    found = minimise(weigh(model, np.ones(1)))
    best = min(sum(float((costs[s] + pairs[s - 1].cost[h]).min()) for s in (1, 2)) for h in range(2))
    assert found is not None and model.evaluate([found.assignment])[0, 0] == pytest.approx(best)
