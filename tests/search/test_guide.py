from __future__ import annotations

import numpy as np
import pytest
from tests.search.searchkit import Priced, space_of

from gnomon.core.front.dominance import hypervolume
from gnomon.search.base import Assignment, Cost
from gnomon.search.surrogate import MOST_RESULTS, Forecast, Guide, Surrogate, expected_gain


def learned(priced: Priced, count: int, seed: int = 0) -> tuple[dict[Assignment, Cost | None], list[Assignment]]:
    order = np.random.default_rng(seed).permutation(priced.space.size)
    known = [priced.space.decode(int(code)) for code in order[:count]]
    return {a: priced(a) for a in known}, [priced.space.decode(int(code)) for code in order[count:]]


@pytest.mark.parametrize("seed", range(3))
def test_what_it_has_not_seen_is_forecast_in_about_the_right_order(seed: int) -> None:
    priced = Priced(space_of(3, 3, 2, 2, 4), seed)
    results, rest = learned(priced, 40, seed)
    model = Surrogate(priced.space)
    model.fit(results)
    forecast = model.forecast(rest)
    told = np.array([priced(a) for a in rest])
    assert forecast.logarithmic
    for j in range(2):
        assert np.corrcoef(forecast.middle[:, j], np.log(told[:, j]))[0, 1] > 0.8
    within = np.abs(np.log(told) - forecast.middle) < 3 * forecast.spread
    assert within.mean() > 0.9


def test_what_was_told_is_forecast_with_little_doubt() -> None:
    priced = Priced(space_of(*[2] * 6), 1)
    results, rest = learned(priced, 30)
    model = Surrogate(priced.space)
    model.fit(results)
    known, unknown = model.forecast(list(results)), model.forecast(rest)
    assert known.spread.mean() < 0.5 * unknown.spread.mean()
    told = np.log(np.array(list(results.values()), dtype=float))
    assert np.abs(known.middle - told).mean() < 0.1 * told.std()


def test_costs_below_zero_are_learned_as_they_are() -> None:
    space = space_of(2, 2, 2)
    model = Surrogate(space)
    model.fit({space.decode(code): (float(code) - 3.0,) for code in range(8)})
    forecast = model.forecast([space.decode(code) for code in range(8)])
    assert not forecast.logarithmic
    assert forecast.at(np.zeros(1))[:, 0] == pytest.approx(np.arange(8) - 3.0, abs=0.5)


def test_what_fails_as_others_did_is_hopeless() -> None:
    space = space_of(*[3] * 4)
    results = {a: None if a[0] == 2 else (1.0 + sum(a),) for a in map(space.decode, range(0, 81, 2))}
    model = Surrogate(space)
    model.fit(results)
    rest = [space.decode(code) for code in range(1, 81, 2)]
    fails = np.array([a[0] == 2 for a in rest])
    chance = model.forecast(rest).chance
    assert chance[fails].max() < 0.3 < 0.7 < chance[~fails].min()


def test_of_many_results_the_best_are_learned() -> None:
    priced = Priced(space_of(*[2] * 9), 0)
    results, rest = learned(priced, 500)
    assert len(results) > MOST_RESULTS
    model = Surrogate(priced.space)
    model.fit(results)
    assert np.isfinite(model.forecast(rest).middle).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_certain_gain_is_what_the_hypervolume_grows_by(seed: int) -> None:
    rng = np.random.default_rng(seed)
    front = np.stack([np.sort(rng.random(5)), np.sort(rng.random(5))[::-1]], axis=1)
    front = (front - front.min(axis=0)) / np.ptp(front, axis=0)
    points = rng.uniform(-0.2, 1.2, (40, 2))
    forecast = Forecast(middle=points, spread=np.zeros((40, 2)), logarithmic=False, chance=np.ones(40))
    corner = [1.1, 1.1]
    grown = [hypervolume(np.vstack([front, p]), corner) - hypervolume(front, corner) for p in points]
    assert expected_gain(front, np.ones(2), forecast) == pytest.approx(grown, abs=1e-9)


@pytest.mark.parametrize("objectives", [1, 2, 3, 5])
def test_where_nothing_gains_the_nearest_to_the_front_comes_first(objectives: int) -> None:
    front = np.vstack([np.eye(objectives), np.full(objectives, 0.4)])[: objectives + (objectives > 1)]
    middle = front.max(axis=0) + np.array([3.0, 1.0, 2.0])[:, None] * np.ones(objectives)
    forecast = Forecast(middle=middle, spread=np.zeros_like(middle), logarithmic=False, chance=np.ones(3))
    gains = expected_gain(front, np.ones(objectives), forecast)
    assert np.argsort(-gains).tolist() == [1, 2, 0]
    assert gains.max() < 0


def test_each_choice_reckons_with_those_before_it() -> None:
    priced = Priced(space_of(*[2] * 6), 3)
    results, rest = learned(priced, 20)
    guide = Guide(priced.space)
    assert not guide.ready
    for assignment, cost in results.items():
        guide.learn(assignment, cost)
    assert guide.ready
    front = [c for c in results.values() if c is not None]
    chosen = guide.best(rest, front, 5)
    assert len(set(chosen)) == 5
    assert chosen[:1] == guide.best(rest, front, 1)
    assert guide.best(rest[:3], front, 9) != []
    assert set(guide.best(rest[:3], front, 9)) == set(rest[:3])
