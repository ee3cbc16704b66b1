"""Prices from traced runs and from segments: exact on what was seen, near the truth on synthetic data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, nnls

from gnomon.core.pricing.price import (
    Observation,
    SegmentTime,
    bounded_least_squares,
    operator_prices,
    segment_prices,
)

Array = NDArray[np.float64]


def observe(truth: Array, assignment: tuple[int, ...], overhead: Array, weight: float = 1.0) -> Observation:
    """What a run of that assignment shows if tracing an operator costs `overhead` of its backend."""
    chosen = truth[np.arange(len(assignment)), list(assignment)]
    traced = chosen + overhead[list(assignment)]
    return Observation(assignment=assignment, operator_s=tuple(traced), total_s=float(chosen.sum()), weight=weight)


def total(prices: Array, assignment: tuple[int, ...]) -> float:
    return float(sum(prices[i, b] for i, b in enumerate(assignment)))


positive = st.floats(1e-7, 1e-1)


@given(st.data(), st.integers(1, 12), st.integers(1, 3))
def test_prices_of_an_observed_assignment_add_up_to_its_total(data: st.DataObject, count: int, backends: int) -> None:
    times = st.lists(positive, min_size=count, max_size=count)
    seen = [
        Observation(assignment=(b,) * count, operator_s=tuple(data.draw(times)), total_s=data.draw(positive))
        for b in range(backends)
    ]
    prices = operator_prices(seen, backends)
    assert prices.shape == (count, backends)
    assert (prices > 0).all()
    for run in seen:
        assert total(prices, run.assignment) == pytest.approx(run.total_s, rel=1e-9)


def test_what_was_never_seen_has_no_price() -> None:
    seen = Observation(assignment=(0, 1), operator_s=(1.0, 2.0), total_s=3.0)
    prices = operator_prices([seen], 3)
    assert np.isfinite(prices).tolist() == [[True, False, False], [False, True, False]]
    with pytest.raises(ValueError, match="no observation"):
        operator_prices([], 2)


@pytest.mark.parametrize("seed", range(10))
def test_one_cost_of_tracing_is_taken_out_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.lognormal(-9, 1, (20, 2))
    overhead = np.full(2, rng.uniform(0, 3e-6))
    found = operator_prices([observe(truth, (b,) * 20, overhead) for b in (0, 1)], 2)
    assert found == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_costs_of_tracing_that_differ_are_told_apart_by_mixed_runs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.lognormal(-9, 0.5, (30, 2))
    overhead = np.asarray([2e-5, 6e-5])
    mixed = [tuple(int(b) for b in rng.integers(0, 2, 30)) for _ in range(6)]
    seen = [observe(truth, a, overhead) for a in [(0,) * 30, (1,) * 30, *mixed]]
    found = operator_prices(seen, 2)
    naive = np.where(np.isfinite(found), truth + overhead, np.inf)
    assert np.abs(found - truth).mean() < 0.35 * np.abs(naive - truth).mean()
    fresh = tuple(int(b) for b in rng.integers(0, 2, 30))
    assert total(found, fresh) == pytest.approx(total(truth, fresh), rel=0.05)


def test_a_heavier_observation_counts_more() -> None:
    one = Observation(assignment=(0,), operator_s=(1.0,), total_s=1.0, weight=1.0)
    two = Observation(assignment=(0,), operator_s=(2.0,), total_s=2.0, weight=3.0)
    assert operator_prices([one, two], 1)[0, 0] == pytest.approx(1.75)


def synthetic(seed: int, blocks: int = 6) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    block = rng.uniform(0.5e-3, 2e-3, (blocks, 2))
    enter, leave = rng.uniform(0, 2e-4, (2, blocks + 1, 2))
    enter[[0, blocks]] = leave[[0, blocks]] = 0.0
    return block, enter, leave


def segments(truth: tuple[Array, Array, Array], *, length: int = 99) -> list[SegmentTime]:
    block, enter, leave = truth
    blocks = len(block)
    return [
        SegmentTime(
            first=a,
            last=b,
            backend=k,
            time_s=float(block[a:b, k].sum() + enter[a, k] + leave[b, k]),
        )
        for a in range(blocks)
        for b in range(a + 1, min(blocks, a + length) + 1)
        for k in (0, 1)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_segment_prices_recover_an_additive_truth(seed: int) -> None:
    truth = synthetic(seed)
    times = segments(truth)
    prior = truth[0] * np.random.default_rng(seed).uniform(0.9, 1.1, truth[0].shape)
    found = segment_prices(prior, times)
    errors = [found.segment_s(t.first, t.last, t.backend) / t.time_s - 1 for t in times]
    assert np.abs(errors).max() < 0.05  # the ridge keeps a little of the prior, which is 10 % off
    assert np.abs(errors).mean() < 0.015
    assert not found.enter_s[[0, -1]].any()
    assert not found.leave_s[[0, -1]].any()


@pytest.mark.parametrize("seed", range(4))
def test_segments_that_were_not_seen_are_predicted(seed: int) -> None:
    truth = synthetic(seed)
    prior = truth[0] * np.random.default_rng(seed).uniform(0.95, 1.05, truth[0].shape)
    found = segment_prices(prior, segments(truth, length=3))
    for time in segments(truth):
        assert found.segment_s(time.first, time.last, time.backend) == pytest.approx(time.time_s, rel=0.06)


def test_without_times_the_prior_stands_and_cuts_are_free() -> None:
    prior = np.asarray([[1e-3, 2e-3], [3e-3, 1e-3], [2e-3, 2e-3]])
    found = segment_prices(prior, [])
    assert found.block_s == pytest.approx(prior)
    assert found.enter_s == pytest.approx(0.0, abs=1e-12)
    assert found.segment_s(0, 2, 1) == pytest.approx(3e-3)


@given(
    st.lists(st.lists(st.floats(0, 1e-2), min_size=2, max_size=2), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(0, 1), st.floats(1e-7, 1.0)), max_size=12),
)
def test_no_price_is_negative_or_no_number(prior: list[list[float]], seen: list[tuple[int, int, int, float]]) -> None:
    blocks = len(prior)
    times = [SegmentTime(first=a, last=b, backend=k, time_s=t) for a, b, k, t in seen if a < b <= blocks]
    found = segment_prices(np.asarray(prior), times)
    for part in (found.block_s, found.enter_s, found.leave_s):
        assert np.isfinite(part).all()
        assert (part >= -1e-15).all()


def problem(data: st.DataObject) -> tuple[Array, Array, Array]:
    """A random problem of full column rank: the identity below it makes it so."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    unknowns, rows = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 20))
    left = np.vstack([rng.standard_normal((rows, unknowns)), data.draw(st.floats(0.01, 1.0)) * np.eye(unknowns)])
    right = rng.standard_normal(len(left)) * data.draw(st.sampled_from([1e-6, 1.0, 1e3]))
    return left, right, rng.uniform(-1, 0.5, unknowns) * data.draw(st.sampled_from([0.0, 1.0]))


@given(st.data())
def test_bounded_least_squares_equals_scipy(data: st.DataObject) -> None:
    left, right, low = problem(data)
    found = bounded_least_squares(left, right, low)
    oracle = lsq_linear(left, right, bounds=(low, np.inf), method="bvls", tol=1e-14, max_iter=2000)
    scale = max(1e-12, float(np.abs(right).max()))
    assert (found >= low - 1e-12 * scale).all()
    ours = float(((left @ found - right) ** 2).sum())
    assert ours <= 2 * oracle.cost * (1 + 1e-8) + 1e-12 * scale**2
    if not low.any():
        assert found == pytest.approx(nnls(left, right)[0], rel=1e-5, abs=1e-7 * scale)
