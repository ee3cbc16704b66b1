"""Merged labels, relaxed passes and what they prove, against exhaustive search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.core.front.test_front import factor_needed, graph, oracle
from tests.core.solver.placement_problems import random_problem

from gnomon.core.cost import Charge, CostModel
from gnomon.core.front import regions as front_regions
from gnomon.core.front import regions as front_relax
from gnomon.core.front.front import exact_front
from gnomon.core.front.labels import Stopped
from gnomon.core.front.plane import PlaneSearch


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


@pytest.mark.parametrize("epsilon", [0.002, 0.03, 0.3])
@pytest.mark.parametrize("seed", range(12))
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
