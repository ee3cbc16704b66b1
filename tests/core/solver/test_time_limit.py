"""Time limits of the solver: a clock that counts looks stands for time, so that nothing depends on the machine."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from gnomon.core.cost import Charge, CostModel, Objective, OutOfTime, PairCost
from gnomon.core.front.dominance import nondominated
from gnomon.core.solver.elimination import minimise, weigh
from gnomon.core.solver.ordering import Limits, best_order
from gnomon.core.solver.solve import solve
from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError


def tree(count: int, width: int, choices: int, *, charged: int = 0, objectives: int = 1, seed: int = 0) -> CostModel:
    """A k-tree, each slot joined to a clique of others; its choices are some of the charged ones, where there are."""
    rng = np.random.default_rng(seed)
    cliques = [list(range(width + 1))]
    edges = set(itertools.combinations(range(min(count, width + 1)), 2))
    for slot in range(width + 1, count):
        kept = rng.choice(cliques[rng.integers(len(cliques))], width, replace=False).tolist()
        edges.update((min(u, slot), max(u, slot)) for u in kept)
        cliques.append([*kept, slot])
    names = [f"b{i}" for i in range(max(choices, charged))]
    slots = [
        Slot(f"s{i}", tuple(names[c] for c in rng.choice(len(names), choices, replace=False))) for i in range(count)
    ]
    return CostModel(
        Space(tuple(slots)),
        tuple(Objective(f"o{i}") for i in range(objectives)),
        tuple(rng.uniform(0, 10, (choices, objectives)) for _ in slots),
        tuple(PairCost(a, b, rng.uniform(0, 5, (choices, choices, objectives))) for a, b in sorted(edges)),
        tuple(Charge(name, np.full(objectives, 2.0)) for name in names[:charged]),
    )


def looks(each_s: float) -> Callable[[], float]:
    """A clock that goes on by so much whenever it is looked at."""
    count = itertools.count()
    return lambda: each_s * next(count)


def least(model: CostModel) -> float:
    """The least sum by looking at everything."""
    every = np.array(list(itertools.product(*(range(len(slot.choices)) for slot in model.space.slots))))
    return float(model.evaluate(every).sum(axis=1).min())


@pytest.mark.parametrize("each_s", [0.001, 0.01, 0.02, 0.05, 0.1, 0.3, 2.0])
@pytest.mark.parametrize("charged", [0, 5])
def test_what_ends_early_has_its_best_and_an_honest_bound(each_s: float, charged: int) -> None:
    model = tree(9, 5, 3, charged=charged, seed=3)
    found = solve(model, time_limit_s=1.0, clock_s=looks(each_s))
    true = least(model)
    assert found.bound <= true + 1e-9 <= found.value + 2e-9
    assert found.value == pytest.approx(model.evaluate([found.assignment]).sum())
    if found.optimal:
        assert found.value == pytest.approx(true)


def test_without_a_clock_the_limit_is_not_elimination_s() -> None:
    model = tree(9, 5, 3, seed=3)
    assert solve(model, time_limit_s=1e-9).optimal


def test_branches_over_charges_keep_what_they_found() -> None:
    """Half of the time goes to elimination: its best is what HiGHS begins with, and its bound counts."""
    model = tree(14, 5, 4, charged=9, seed=1)
    true = solve(model, method="elimination").value
    values = []
    for each_s in (0.002, 0.004, 0.008):
        found = solve(model, time_limit_s=1.0, clock_s=looks(each_s))
        assert found.bound <= true + 1e-9 <= found.value + 2e-9
        values.append(found.value)
    assert values[0] <= values[-1] + 1e-9


def test_a_single_elimination_looks_at_the_clock_at_each_slot() -> None:
    model = tree(30, 5, 3)
    energy = weigh(model, np.ones(1))
    shares: list[float] = []

    def stop(share: float) -> bool:
        shares.append(share)
        return False

    assert minimise(energy, stop=stop) is not None
    later = [share for share in shares if share]
    assert later == sorted(later) and later[0] > 0 and later[-1] <= 1 and len(shares) >= 30
    for call in (5, 20, len(shares) - 1):
        left = iter(range(call))

        def stop_then(_: float, left: Iterator[int] = left) -> bool:
            return next(left, None) is None

        with pytest.raises(OutOfTime):
            minimise(energy, stop=stop_then)


def test_elimination_that_would_not_end_is_left_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a tenth of the time less than a tenth is done: the rest of the time is for another method."""
    monkeypatch.setitem(sys.modules, "pytoulbar2", None)
    model = tree(60, 12, 3, seed=2)
    made = looks(0.004)
    found = solve(model, time_limit_s=1.0, clock_s=made)
    assert found.method == "milp"
    assert made() < 2.0


def test_what_is_held_counts_and_not_what_is_summed() -> None:
    around: dict[int, set[int]] = {v: set() for v in range(40)}
    for v in range(40):
        for u in range(max(0, v - 4), v):
            around[v].add(u)
            around[u].add(v)
    order = best_order(around, [4] * 40)
    assert order is not None
    choices = order.entries / 4 * 2 / 8  # two bits each; one table of 8 bytes an entry waits beside the next
    held = choices + 2 * 8 * 4**4
    assert best_order(around, [4] * 40, Limits(held_bytes=held * 1.01)) is not None
    assert best_order(around, [4] * 40, Limits(held_bytes=held * 0.9)) is None
    assert best_order(around, [4] * 40, Limits(total_entries=order.entries * 0.5)) is None


def test_no_assignment_in_no_time_is_told() -> None:
    """Each slot's own best choices, and each common one, are forbidden together by a pair."""
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(4)]
    slots = tuple(Slot(f"s{i}", tuple(names)) for i in range(12))
    pairs = []
    for a, b in itertools.combinations(range(12), 2):
        cost = rng.uniform(0, 1, (4, 4, 1))
        cost[rng.random((4, 4)) < 0.55] = np.inf
        pairs.append(PairCost(a, b, cost))
    model = CostModel(Space(slots), (Objective("o"),), tuple(rng.uniform(0, 1, (4, 1)) for _ in slots), tuple(pairs))
    with pytest.raises(ProblemError):
        solve(model, time_limit_s=1.0, clock_s=looks(0.5))


def test_filters_of_many_vectors_look_at_the_clock() -> None:
    vectors = np.random.default_rng(0).dirichlet(np.ones(4), 3000)
    shares: list[float] = []

    def stop(share: float) -> bool:
        shares.append(share)
        return len(shares) == 5

    with pytest.raises(OutOfTime):
        nondominated(vectors, stop)
    assert len(nondominated(vectors)) == 3000 and shares == sorted(shares)
