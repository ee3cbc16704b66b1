"""Merged labels, relaxed passes and what they prove, against exhaustive search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.front.test_front import factor_needed, graph, oracle
from tests.core.solver.placement_problems import random_problem

from gnomon.core.cost import Charge, CostModel
from gnomon.core.front import regions as front_regions
from gnomon.core.front import regions as front_relax
from gnomon.core.front.front import exact_front
from gnomon.core.front.labels import Stopped
from gnomon.core.front.plan import make_plan
from gnomon.core.front.plane import PlaneSearch
from gnomon.core.front.regions import Proofs, Region, Regions, RelaxedPass, corners, open_regions, thin


def every_cost(model: CostModel) -> np.ndarray:
    sizes = [len(slot.choices) for slot in model.space.slots]
    costs = model.evaluate(np.indices(sizes).reshape(len(sizes), -1).T)
    allowed: np.ndarray = costs[np.isfinite(costs).all(axis=1)]
    return allowed


@pytest.fixture
def regions_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No exact and no thinned passes, little room for labels, and much that is merged."""

    def give_up(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(PlaneSearch, "_near", give_up)
    monkeypatch.setattr(front_relax, "_LABELS", 12)
    monkeypatch.setattr(front_relax, "_SUMS", 40)
    monkeypatch.setattr(front_regions, "_FIRST_WIDTH", 4.0)
    yield


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 30), st.sampled_from([0.01, 0.3, 3.0]))
def test_a_merged_label_is_below_all_that_it_stands_for(seed: int, count: int, most: int, width: float) -> None:
    rng = np.random.default_rng(seed)
    bounds = rng.integers(0, 9, (5, count)) / (1.0 if seed % 2 else 7.0)
    groups = rng.integers(0, 4, count)
    place, merged = thin(bounds, groups, np.full(count, width), most)
    assert np.array_equal(groups[place], np.sort(groups[place]))
    assert np.array_equal(bounds[0, place], merged[0])
    below = (merged[:, :, None] <= bounds[:, None, :]).all(axis=0)
    assert (below & (groups[place][:, None] == groups)).any(axis=0).all()
    # A few rounds reach the number asked for, or two a group.
    assert len(place) <= max(most, 2 * len(np.unique(groups))) + len(np.unique(groups))


@pytest.mark.parametrize("width", [1e-9, 0.02, 0.5])
@pytest.mark.parametrize("seed", range(15))
def test_what_a_pass_leaves_bounds_all_that_is_sought(seed: int, width: float) -> None:
    model = graph(seed, 9, 2)
    costs = every_cost(model)
    plan = make_plan(model)
    assert plan is not None
    rng = np.random.default_rng(seed)
    spots = 1.05 * costs[rng.integers(0, len(costs), 4)]
    share = rng.uniform(0.1, 0.9, (4, 3))
    weights = np.stack([share, 1 - share], axis=-1)
    thresholds = (weights * spots[:, None]).sum(axis=2)
    regions = Regions(weights=weights, thresholds=thresholds, width=width * thresholds[:, 0])
    relaxed = RelaxedPass(plan, regions, 1e-9, lambda: False)
    relaxed.run()
    for own, limits, left in zip(weights, thresholds, relaxed.left(), strict=True):
        reached = costs @ own.T
        sought = reached[(reached < limits).all(axis=1)]
        assert len(sought)
        assert (left[None] <= sought[:, None] + 1e-9).all(axis=2).any(axis=1).all()
        if width < 1e-6:  # nothing that costs differently is merged, so that nothing is lost
            assert np.allclose(left.min(axis=0), sought.min(axis=0), rtol=1e-12)
    found = relaxed.assignments(np.arange(len(relaxed.costs())))
    assert np.allclose(model.evaluate(found), relaxed.costs(), rtol=1e-12)


@pytest.mark.parametrize("epsilon", [0.002, 0.03, 0.3])
@pytest.mark.parametrize("seed", range(30))
def test_regions_alone_prove_no_more_than_is_true(seed: int, epsilon: float, regions_alone: None) -> None:
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


def test_regions_close_what_half_planes_cannot(regions_alone: None) -> None:
    model = graph(4, 12, 2)
    seen: list[float] = []
    front = exact_front(model, epsilon=0.02, watch=lambda f: seen.append(f.certificate.epsilon or 0.0))
    assert seen[0] > 0.02
    assert (front.certificate.epsilon or 0.0) <= 0.02


@pytest.mark.parametrize("calls", [5, 20, 40, 60, 100, 200])
def test_an_early_end_between_passes(calls: int, regions_alone: None) -> None:
    model = graph(7, 30, 2)
    exact = exact_front(model).costs
    left = iter(range(calls))
    front = exact_front(model, epsilon=0.0001, out_of_time=lambda: next(left, None) is None)
    assert factor_needed(model, front, exact) <= 1 + (front.certificate.epsilon or 0.0) + 1e-12


def test_corners_that_are_close_make_one_region_and_older_ones_are_merged_less() -> None:
    costs = np.array([[1.0, 9.0], [1.1, 8.9], [1.2, 8.8], [4.0, 1.0]])
    spots = corners(costs)
    weights, bounds = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.5, 0.5])
    proofs = Proofs(weights, bounds, [])
    query = open_regions(proofs, spots, 2.0, np.ones(2))
    assert query.corners.tolist() == [[1.2, 9.0], [4.0, 8.8]]
    assert query.ages.tolist() == [0, 0]
    left = np.full((1, query.regions.weights.shape[1]), 1e-3)
    for corner, own in zip(query.corners, query.regions.weights, strict=True):
        proofs.regions.append(Region(corner=corner, factor=2.0, weights=own, left=left, age=0))
    again = open_regions(proofs, spots, 2.0, np.ones(2))
    assert again.ages.tolist() == [1, 1]
    assert (again.regions.width < query.regions.width).all()
    for region in proofs.regions:
        closed = Region(corner=region.corner, factor=2.0, weights=region.weights, left=region.left[:0], age=1)
        proofs.regions.append(closed) if len(proofs.regions) < 4 else None
    assert len(open_regions(proofs, spots, 2.0, np.ones(2))) == 0
