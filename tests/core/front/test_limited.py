"""Limits by prices, labels and branching, against exhaustive search and HiGHS."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.core.solver.placement_problems import exhaustive, graph_problem, random_limits, random_problem

from gnomon.core.cost import CostModel, Limit, limit_on
from gnomon.core.front import limited
from gnomon.core.front.limited import solve_within
from gnomon.core.front.plan import beyond, joint_pairs, minimise_weighted, plan_of
from gnomon.core.solver.ordering import Limits
from gnomon.core.solver.solve import solve
from gnomon.errors import InfeasibleError


def uncharged(seed: int) -> CostModel:
    model = random_limits(replace(random_problem(seed, largest=7, impossible=0.03), charges=()), seed)
    return replace(model, limits=tuple(replace(limit, charges=()) for limit in model.limits))


@pytest.mark.parametrize("most", [2, 4000])  # labels of a bucket: with so few nearly all is branching
def test_limits_are_exhaustive_search(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "_MOST", most)
    allowed, methods = 0, set()
    for seed in range(200):
        model = uncharged(seed)
        best = exhaustive(model, {"o0": 1.0}) if model.space.size <= 4000 else None
        if best is None:
            continue
        if best == np.inf:
            with pytest.raises(InfeasibleError):
                solve_within(model)
            continue
        found = solve_within(model)
        assert found.optimal and found.bound == found.value == pytest.approx(best, abs=1e-9)
        assert all(model.used(limit, found.assignment) <= limit.at_most for limit in model.limits)
        allowed += 1
        methods.add(found.method)
    assert allowed > 40 and methods >= {"elimination", "branching"}


def placement(seed: int, count: int = 40) -> CostModel:
    """A chain with links across, two limits of heavy-tailed bytes, and sometimes one of switches."""
    rng = np.random.default_rng(seed)
    edges = [(i, i + 1) for i in range(count - 1)] + [(i, i + 4) for i in range(0, count - 4, 5)]
    model = graph_problem(edges, [3] * count, seed)
    sizes = np.round(rng.lognormal(9, 2, count))
    limits = [
        Limit(
            name=f"m{c}", unit="B", at_most=float(int(0.2 * sizes.sum())), slots=tuple(s * np.eye(3)[c] for s in sizes)
        )
        for c in (0, 1)
    ]
    if seed % 2:
        limits.append(limit_on(model, "switches", (), 12.0))
    return replace(model, limits=tuple(limits))


@pytest.mark.parametrize("most", [30, 4000])
@pytest.mark.parametrize("seed", range(4))
def test_limits_beyond_exhaustive_search_are_those_of_highs(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "_MOST", most)
    model = placement(seed)
    found, other = solve_within(model), solve(model, method="milp")
    assert found.optimal and found.value == pytest.approx(other.value, rel=1e-6)
    assert found.method == "branching" and found.free is not None and found.free <= found.value
    assert len(found.prices) == len(model.limits) and min(found.prices) >= 0 < max(found.prices)


def clock(each_s: float) -> Callable[[], float]:
    count = itertools.count()
    return lambda: each_s * next(count)


@pytest.mark.parametrize("each_s", [0.001, 0.02, 0.3])
def test_what_ends_early_is_allowed_and_has_an_honest_bound(each_s: float) -> None:
    model = placement(1)
    least = solve_within(model).value
    found = solve_within(model, time_limit_s=1.0, clock_s=clock(each_s))
    assert found.bound <= least + 1e-9 <= found.value + 2e-9
    assert all(model.used(limit, found.assignment) <= limit.at_most for limit in model.limits)


def test_a_price_bounds_what_more_saves() -> None:
    """The bound is the relaxed problem's, which is convex in its limits: its slope promises no less than it gives."""
    model = placement(0)
    found = solve_within(model)
    limit = model.limits[0]
    more = replace(limit, at_most=limit.at_most * 1.2)
    better = solve_within(replace(model, limits=(more, *model.limits[1:])))
    uses = [model.used(one, better.assignment) - one.at_most for one in model.limits]
    assert found.free is not None and found.free <= better.value <= found.value
    assert better.value + float(np.dot(found.prices, uses)) >= found.free


@pytest.mark.parametrize("seed", range(6))
def test_a_wide_plan_has_the_same_minima(seed: int) -> None:
    model = placement(seed, 30)
    narrow = plan_of(model.slot_costs, joint_pairs(model), Limits())
    pairs = {(pair.first, pair.second): pair.cost for pair in model.pairs}
    wide = plan_of(model.slot_costs, pairs, Limits(), wide=True)
    assert narrow is not None and wide is not None and len(wide.buckets) < len(narrow.buckets)
    ones = np.ones((1, 1))
    (one, x), (other, y) = minimise_weighted(narrow, ones), minimise_weighted(wide, ones)
    assert one.value == pytest.approx(other.value) and (x == y).all()
    least = [(rest + up).min() for plan, m in ((wide, other),) for rest, up in zip(beyond(plan, m), m.up, strict=True)]
    assert least == pytest.approx([float(one.value[0])] * len(least))


def test_without_time_for_a_price_none_is_named() -> None:
    found = solve_within(placement(0), time_limit_s=1.0, clock_s=clock(10.0))
    assert not found.optimal and found.prices == () and found.free is None
