"""Times that are learnt from those of like things: laws that are found, doubt that grows, and odd input."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gnomon.errors import UsageError
from gnomon.estimate import like
from gnomon.estimate.like import learn_likeness


def made(count: int, seed: int = 0, noise: float = 0.03) -> tuple[np.ndarray, list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.uniform(2, 12, (count, 3))
    families = [("multiplies:a", "multiplies:b", "moves:c")[k % 3] for k in range(count)]
    slope = np.array([[0.9, 0.1, 0.0], [0.7, 0.2, 0.1], [1.0, 0.0, -0.2]])
    level = np.array([-20.0, -19.0, -21.0])
    kind = np.arange(count) % 3
    logs = level[kind] + (features * slope[kind]).sum(axis=1) + noise * rng.standard_normal(count)
    return features, families, logs


def test_a_power_law_of_each_family_is_found() -> None:
    features, families, logs = made(150)
    learnt = learn_likeness(features[:120], families[:120], logs[:120])
    told, covariance = learnt.predict(features[120:], families[120:])
    error = told - logs[120:]
    assert np.abs(error).mean() < 0.06
    assert 0.5 < math.sqrt((error**2 / np.diag(covariance)).mean()) < 1.5


def test_far_away_it_is_still_a_law() -> None:
    features, families, logs = made(120, noise=0.01)
    learnt = learn_likeness(features, families, logs)
    far = np.array([[16.0, 6.0, 6.0]])
    told, covariance = learnt.predict(far, ["multiplies:a"])
    assert told[0] == pytest.approx(-20 + 0.9 * 16 + 0.6, abs=0.5)
    near = learnt.predict(np.array([[7.0, 6.0, 6.0]]), ["multiplies:a"])[1]
    assert covariance[0, 0] > 1.3 * near[0, 0]


def test_an_unknown_family_is_in_doubt_and_nearest_to_its_sort() -> None:
    features, families, logs = made(120)
    learnt = learn_likeness(features, families, logs)
    at = np.array([[7.0, 6.0, 6.0]])
    known = learnt.predict(at, ["moves:c"])
    strange = learnt.predict(at, ["moves:new"])
    assert strange[1][0, 0] > 4 * known[1][0, 0]
    assert abs(strange[0][0] - known[0][0]) < abs(learnt.predict(at, ["multiplies:new"])[0][0] - known[0][0])


def test_the_order_and_a_feature_that_never_changes_do_not_matter() -> None:
    features, families, logs = made(60)
    learnt = learn_likeness(features, families, logs)
    one, doubt = learnt.predict(features[:4], families[:4])
    other, same = learnt.predict(features[:4][::-1], families[:4][::-1])
    assert one[::-1] == pytest.approx(other)
    assert doubt[::-1, ::-1] == pytest.approx(same)
    turned = learn_likeness(features[::-1], families[::-1], logs[::-1])
    assert turned.predict(features[:4], families[:4])[0] == pytest.approx(one, abs=1e-6)
    wide = np.concatenate([features, np.ones((60, 1))], axis=1)
    assert learn_likeness(wide, families, logs).predict(wide[:4], families[:4])[0] == pytest.approx(one)


def test_few_times_are_refused_and_many_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    features, families, logs = made(60)
    with pytest.raises(UsageError, match="7 measured units are too few"):
        learn_likeness(features[:7], families[:7], logs[:7])
    monkeypatch.setattr(like, "MOST", 20)
    assert len(learn_likeness(features, families, logs).points) == 20
