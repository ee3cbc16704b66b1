"""Predicting mixed networks: which way is taken, by what error, on truths that are known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.jobs.space.kits.studykit import mixed_networks

from gnomon.jobs.space.profiling.predict import Assignment, fit_predictor, score
from gnomon.spaces.cells.costs import Cells, Latency
from gnomon.spaces.cells.space import swaps

GROUPS, COUNT = 4, 4
CELLS = Cells(
    groups=(0, 0, 1, 2, 3), choices=(tuple(f"VGGblock_{k}" for k in range(COUNT)),) * GROUPS, defaults=(1,) * GROUPS
)
EVERYTHING = list(itertools.product(range(COUNT), repeat=GROUPS))
SWAPS = list(swaps(CELLS.defaults, (COUNT,) * GROUPS))
Truth = dict[Assignment, float]


def truth(seed: int, *, meeting: float = 0.0) -> Truth:
    """Seconds of all networks: a cost a swap, and `meeting` of the level where primitive 0 is followed by 2 or 3."""
    costs = np.random.default_rng(seed).uniform(1e-5, 6e-5, (GROUPS, COUNT))
    found = {}
    for net in EVERYTHING:
        met = sum(a == 0 and b >= 2 for a, b in itertools.pairwise(net))
        found[net] = 2e-5 + sum(costs[g, k] for g, k in enumerate(net)) + met * meeting * 1.5e-4
    return found


def seen(true: Truth, nets: list[Assignment], noise: float, seed: int = 0) -> dict[Assignment, Latency]:
    """What a measurement with this relative error would tell."""
    rng = np.random.default_rng(seed)
    return {net: Latency(call_s=true[net] * math.exp(rng.normal(0, noise)), error_s=true[net] * noise) for net in nets}


def unseen(known: dict[Assignment, Latency]) -> list[Assignment]:
    return [net for net in EVERYTHING if net not in known]


def mean_error(true: Truth, known: dict[Assignment, Latency], predicted: np.ndarray) -> float:
    return float(np.mean(np.abs(predicted / np.array([true[net] for net in unseen(known)]) - 1)))


def test_without_noise_an_additive_truth_is_exact_whatever_way_is_taken() -> None:
    true = truth(0)
    mixed = mixed_networks(CELLS, 12)
    for known in (seen(true, SWAPS, 0.0), seen(true, [*SWAPS, *mixed], 0.0)):
        for way in (None, "additive"):
            made = fit_predictor(CELLS, known, way=way)
            assert mean_error(true, known, made.predict(unseen(known)).mean_s) < 1e-3


def test_noise_of_the_default_network_is_what_the_estimator_is_rid_of() -> None:
    """An additive prediction counts the default's error once for each swap beyond the first."""
    errors = []
    for seed in range(2):
        true = truth(seed)
        known = seen(true, [*SWAPS, *mixed_networks(CELLS, 16, seed=seed)], 0.01, seed)
        default = known[CELLS.defaults]
        known[CELLS.defaults] = Latency(call_s=default.call_s * 1.04, error_s=default.error_s)
        made = fit_predictor(CELLS, known)
        assert made.part.way.startswith("estimator")  # neighbours of the default can tell of its error too
        assert made.part.held_out["estimator"].mean < made.part.held_out["additive"].mean
        nets = unseen(known)
        additive = fit_predictor(CELLS, known, way="additive").predict(nets).mean_s
        errors.append((mean_error(true, known, additive), mean_error(true, known, made.predict(nets).mean_s)))
    additive_error, estimated_error = np.mean(errors, axis=0)
    assert additive_error > 0.05 and estimated_error < 0.012


def test_neighbours_are_taken_where_they_meet_at_a_price() -> None:
    """What one meeting costs is learnt wherever the two primitives meet."""
    better = []
    for seed in range(3):
        true = truth(seed, meeting=0.25)
        known = seen(true, [*SWAPS, *mixed_networks(CELLS, 40, seed=seed)], 0.005, seed)
        made = fit_predictor(CELLS, known)
        assert made.part.way == "estimator with neighbours", made.part.why
        plain = fit_predictor(CELLS, known, way="estimator")
        nets = unseen(known)
        better.append(
            mean_error(true, known, made.predict(nets).mean_s) / mean_error(true, known, plain.predict(nets).mean_s)
        )
    assert np.median(better) < 0.5


def test_what_it_says_of_its_error_is_what_unseen_networks_show() -> None:
    said, shown, held = [], [], []
    for seed in range(4):
        true = truth(seed, meeting=0.05)
        known = seen(true, [*SWAPS, *mixed_networks(CELLS, 24, seed=seed)], 0.02, seed)
        made = fit_predictor(CELLS, known)
        nets = unseen(known)
        fresh = seen(true, nets, 0.02, seed + 1000)
        y = np.array([fresh[net].call_s for net in nets])
        told = made.predict(nets)
        said.append(made.part.held_out[made.part.way].mean)
        shown.append(score(told.mean_s, y).mean)
        held.append(np.mean((told.low_s <= y) & (y <= told.high_s)))
    assert np.mean(said) == pytest.approx(np.mean(shown), rel=0.25)
    assert 0.8 <= np.mean(held) <= 0.98


def test_the_interval_of_the_additive_way_holds_as_often_as_it_says() -> None:
    held = []
    for seed in range(4):
        true = truth(seed, meeting=0.1)
        known = seen(true, [*SWAPS, *mixed_networks(CELLS, 20, seed=seed)], 0.01, seed)
        told = fit_predictor(CELLS, known, way="additive").predict(unseen(known))
        y = np.array([true[net] for net in unseen(known)])
        held.append(np.mean((told.low_s <= y) & (y <= told.high_s)))
    assert 0.85 <= np.mean(held) <= 1.0


def test_without_mixed_networks_it_is_additive_and_knows_no_error() -> None:
    known = seen(truth(0), SWAPS, 0.0)
    made = fit_predictor(CELLS, known)
    assert (made.part.way, dict(made.part.held_out), made.fitted, made.part.noise) == (
        "additive",
        {},
        tuple(SWAPS),
        None,
    )
    assert "no mixed network" in made.part.why
    told = made.predict([(0, 2, 3, 0)])
    assert np.isfinite(told.mean_s).all() and np.isinf(told.high_s).all() and told.low_s.tolist() == [0.0]
    few = fit_predictor(CELLS, seen(truth(0), [*SWAPS, *mixed_networks(CELLS, 3)], 0.0))
    assert few.part.way == "additive" and "too few" in few.part.why
    assert (made.part.noise, made.part.width) == (None, None)


def test_a_primitive_that_failed_is_nan_and_all_else_is_predicted() -> None:
    true = truth(3)
    nets = [net for net in (*SWAPS, *mixed_networks(CELLS, 30)) if net[2] != 3]
    known = seen(true, nets, 0.005)
    for way in ("additive", "estimator", "estimator with neighbours"):
        made = fit_predictor(CELLS, known, way=way)
        assert set(made.part.held_out) == {"additive", "estimator", "estimator with neighbours"}
        told = made.predict([(0, 0, 3, 0), (0, 0, 2, 0)])
        assert np.isnan([told.mean_s[0], told.low_s[0], told.high_s[0]]).all()
        assert told.mean_s[1] == pytest.approx(true[(0, 0, 2, 0)], rel=0.05)


def test_a_swap_that_failed_alone_is_known_from_mixed_networks() -> None:
    """Where only the one-change variant is missing, the additive way knows nothing and the estimator does."""
    true = truth(4)
    known = seen(true, [*SWAPS, *mixed_networks(CELLS, 30)], 0.002)
    del known[(1, 1, 3, 1)]
    made = fit_predictor(CELLS, known)
    assert "additive" not in made.part.held_out and made.part.way.startswith("estimator")
    assert made.predict([(0, 0, 3, 0)]).mean_s[0] == pytest.approx(true[(0, 0, 3, 0)], rel=0.03)


def test_the_score_is_what_is_known_of_small_cases() -> None:
    told = score(np.array([1.1, 2.0, 2.7]), np.array([1.0, 2.0, 3.0]))
    assert (told.networks, told.tau) == (3, 1.0)
    assert told.mean == pytest.approx(0.2 / 3) and told.median == pytest.approx(0.1)
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(1, 6, (2, 12)).astype(float)
        assert score(a, b).tau == pytest.approx(stats.kendalltau(a, b).statistic)
    assert score(np.array([1.0]), np.array([1.0])).tau is None
