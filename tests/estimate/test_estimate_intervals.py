"""Intervals hold what they promise on simulated devices; their quantiles are quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from tests.estimate.nets import columns, counts, measured

from gnomon.estimate.columns import Columns, FitOptions
from gnomon.estimate.estimator import coverage, relative_error, spearman, within
from gnomon.estimate.fit import factor, fit, smooth_quantile


@pytest.mark.parametrize(("nominal", "samples"), [(0.8, 60), (0.9, 20)])
def test_intervals_cover_what_they_say(nominal: float, samples: int) -> None:
    held = counts(500, 99)
    truth = measured(held, noise=0.05, seed=98)
    found = []
    for seed in range(25):
        x = counts(samples, seed)
        told = fit(columns(), x, measured(x, noise=0.05, seed=seed), options=FitOptions(coverage=nominal)).predict(held)
        found.append(coverage(told.low_s, told.high_s, truth))
    assert nominal - 0.04 < np.mean(found) < nominal + 0.07


def test_the_probability_of_a_bound_is_even_at_the_expected_time_and_agrees_with_the_interval() -> None:
    x = counts(30)
    estimator = fit(columns(), x, measured(x))
    told = estimator.predict(x[:3])
    for i in range(3):
        assert estimator.probability(x[i], told.mean_s[i])[0] == pytest.approx(0.5)
        assert estimator.probability(x[i], told.high_s[i])[0] == pytest.approx(0.95)
        assert estimator.probability(x[i], 0.0)[0] < 0.01


def test_the_smooth_quantile_is_near_the_quantile_and_between_the_extremes() -> None:
    values = np.random.default_rng(0).standard_normal(20_000)
    assert smooth_quantile(values, 0.9) == pytest.approx(np.quantile(values, 0.9), abs=0.01)
    few = np.array([3.0, 1.0, 2.0])
    assert 2.0 < smooth_quantile(few, 0.9) <= 3.0
    assert smooth_quantile(few, 0.5) == pytest.approx(2.0, abs=1e-3)


def test_the_factor_follows_many_scores_and_doubts_few() -> None:
    rng = np.random.default_rng(0)
    many = factor(3 * rng.standard_normal(4000), 0.9, 3990)
    assert many == pytest.approx(3 * 1.645, rel=0.05)
    scores = rng.standard_normal(12)
    assert factor(scores, 0.9, 3) > factor(scores, 0.9, 10) > 1
    assert factor(np.zeros(0), 0.9, 0) == pytest.approx(1.645, rel=1e-3)
    assert factor(np.zeros(5), 0.9, 3) > 1.645


def test_scores_of_predictions() -> None:
    y = np.array([1.0, 2.0, 3.0, 4.0])
    p = np.array([1.05, 2.5, 3.0, 3.9])
    assert within(p, y) == 0.75
    assert np.array(relative_error(p, y)) == pytest.approx([0.08125, 0.0375])
    assert spearman(p, y) == pytest.approx(1)
    assert spearman(np.array([1.0, 1, 2, 2]), y) == pytest.approx(0.894427, rel=1e-5)
    assert spearman(np.ones(4), y) == 0
    assert coverage(y - 1, y, y + 0.5) == 0
    assert coverage(y - 1, y + 1, y) == 1


@pytest.mark.parametrize(("overhead_s", "unit_s"), [(0.0, 1e-4), (5e-5, 1e-7), (5e-5, 0.1)])
def test_a_table_alone_is_as_sure_as_tables_are_with_and_without_an_overhead(overhead_s: float, unit_s: float) -> None:
    """A price of 0 for what each call costs says nothing of how long a net takes."""
    prices = np.array([overhead_s * unit_s / 1e-4, *(unit_s * np.arange(1, 9))])
    table = Columns(names=("overhead", *(f"u{i}" for i in range(8))), kinds=("overhead", *["conv"] * 8), prior_s=prices)
    nets = np.concatenate([np.ones((50, 1)), np.random.default_rng(0).integers(0, 4, (50, 8))], axis=1)
    estimator = fit(table, np.zeros((0, 9)), [])
    told = estimator.predict(nets)
    assert told.mean_s == pytest.approx(nets @ prices)
    half = (told.high_s - told.low_s) / 2 / told.mean_s
    assert half.min() > 0.15
    assert half.max() < 0.3
    bound_s = float(np.median(told.mean_s))
    below = estimator.probability(nets, bound_s)
    assert below[told.mean_s < 0.7 * bound_s].min() > 0.9
    assert below[told.mean_s > 1.4 * bound_s].max() < 0.1
