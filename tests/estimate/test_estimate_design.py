"""Which nets are suggested: near the best determinant, without times, near a bound where there is one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.estimate.nets import columns, counts, measured

from gnomon.errors import UsageError
from gnomon.estimate import design
from gnomon.estimate.design import RIDGE, d_optimal, i_optimal, suggest
from gnomon.estimate.fit import fit, source


def log_det(z: np.ndarray, rows: object) -> float:
    picked = z[list(rows)]  # type: ignore[call-overload]
    return float(np.linalg.slogdet(RIDGE * np.eye(z.shape[1]) + picked.T @ picked)[1])


@pytest.mark.parametrize("seed", range(6))
def test_it_is_near_the_best_of_all_choices(seed: int) -> None:
    z = 5 * np.random.default_rng(seed).standard_normal((10, 3))
    best = max(log_det(z, rows) for rows in itertools.combinations(range(10), 4))
    found = d_optimal(z, 4, np.zeros((0, 3)))
    assert len(set(found)) == 4
    assert log_det(z, found) > best - 0.1


def test_suggested_nets_teach_more_than_random_ones() -> None:
    pool, held = counts(300), counts(400, 8)
    truth = measured(held, noise=0.0)
    y = measured(pool)
    errors: dict[str, list[float]] = {"suggested": [], "random": []}
    for seed in range(10):
        for name, nets in (("suggested", suggest(columns(), pool, 9, seed=seed)),
                           ("random", np.random.default_rng(seed).choice(300, 9, replace=False))):  # fmt: skip
            error = np.abs(fit(columns(), pool[nets], y[nets]).mean_s(held) / truth - 1)
            errors[name].append(float(error.mean()))
    assert np.mean(errors["suggested"]) < np.mean(errors["random"])


def test_each_net_once_the_same_for_one_seed_and_only_from_the_pool() -> None:
    pool = counts(50)
    found = suggest(columns(), pool, 30, seed=4)
    assert sorted(set(found)) == sorted(found)
    assert 0 <= found.min() <= found.max() < 50
    assert np.array_equal(found, suggest(columns(), pool, 30, seed=4))
    assert not np.array_equal(found, suggest(columns(), pool, 30, seed=5))
    assert sorted(suggest(columns(), pool, 50)) == list(range(50))


def test_other_devices_say_where_devices_differ() -> None:
    pool = counts(200)
    rng = np.random.default_rng(0)
    devices = []
    for number in range(4):  # they differ in unit 2 alone
        price = np.full(6, 1e-3)
        price[2] = 10.0 ** rng.uniform(-4, -2)
        devices.append(source(f"d{number}", columns(), pool, 1e-3 + pool @ price))
    found = suggest(columns(), pool, 4, sources=devices)
    ratio = pool[:, 2] / pool.sum(axis=1).clip(1)
    assert ratio[found].max() > np.quantile(ratio, 0.9)


@pytest.mark.parametrize("count", [0, 51])
def test_a_count_that_the_pool_cannot_give_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="of 50 nets"):
        suggest(columns(), counts(50), count)


@pytest.mark.parametrize("before", [0, 3])
def test_a_choice_is_that_of_the_explicit_covariance(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The covariance is kept as outer products, for thousands of columns: each pick must be what the matrix says."""
    rng = np.random.default_rng(before)
    z, given = 3 * rng.standard_normal((40, 70)), 3 * rng.standard_normal((before, 70))
    seen = list(given)
    monkeypatch.setattr(design, "_EXCHANGES", 0)
    for pick in d_optimal(z, 12, given):
        covariance = np.linalg.inv(RIDGE * np.eye(70) + sum((np.outer(row, row) for row in seen), np.zeros((70, 70))))
        leverage = np.einsum("ij,ij->i", z @ covariance, z)
        assert leverage[pick] == pytest.approx(leverage.max(), rel=1e-9)
        seen.append(z[pick])


@pytest.mark.parametrize("before", [0, 3])
def test_more_nets_are_those_after_which_the_pool_is_surest(before: int) -> None:
    rng = np.random.default_rng(before)
    z, given = 0.5 * rng.standard_normal((40, 20)), 0.5 * rng.standard_normal((before, 20))
    seen = list(given)

    def doubt(rows: list[np.ndarray]) -> float:
        known = RIDGE * np.eye(20) + sum((np.outer(row, row) for row in rows), np.zeros((20, 20)))
        return float(np.einsum("ij,ij->", z @ np.linalg.inv(known), z))

    free = set(range(40))
    for pick in i_optimal(z, 12, given):
        assert pick in free
        assert doubt([*seen, z[pick]]) == pytest.approx(min(doubt([*seen, z[row]]) for row in free), rel=1e-9)
        free.remove(pick)
        seen.append(z[pick])
