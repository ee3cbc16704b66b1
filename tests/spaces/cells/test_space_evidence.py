"""Evidence about spaces: right on what is known, fooled by latency no more than chance allows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gnomon.errors import ProblemError
from gnomon.spaces.cells.evidence import DrawnNetworks, compare_spaces

Floats = NDArray[np.float64]


def drawn(seed: int, count: int, *, better: float = 0.0, faster: float = 0.0) -> DrawnNetworks:
    """Networks whose error falls with latency; `better` is a gain at equal latency."""
    rng = np.random.default_rng(seed)
    latency = np.exp(rng.normal(-faster, 0.3, count))
    return DrawnNetworks(errors=0.3 - 0.1 * np.log(latency) - better + rng.normal(0, 0.02, count), latencies=latency)


def by_hand(full: DrawnNetworks, reduced: DrawnNetworks) -> tuple[float, float]:
    """Lead and lag of the reduced space in one bin, without weights."""
    leads = [
        float(np.mean(reduced.errors <= x) - np.mean(full.errors <= x))
        for x in np.concatenate([full.errors, reduced.errors])
    ]
    return max(0.0, *leads), max(0.0, *(-one for one in leads))


@pytest.mark.parametrize("seed", range(5))
def test_one_bin_is_the_plain_statistic(seed: int) -> None:
    full, reduced = drawn(seed, 40), drawn(seed + 50, 25, better=0.02)
    full = DrawnNetworks(errors=full.errors.round(2), latencies=full.latencies)  # with ties
    found = compare_spaces(full, reduced, bins=1, rounds=20)
    lead, lag = by_hand(full, reduced)
    assert found.ahead == pytest.approx(lead) and found.behind == pytest.approx(lag)
    assert found.statistic == pytest.approx(max(lead, lag))
    assert found.full[-1] == pytest.approx(1) and found.reduced[-1] == pytest.approx(1)
    assert (np.diff(found.thresholds) > 0).all() and (np.diff(found.full) >= 0).all()
    assert found.compared == (40, 25) and found.bins == 1


def test_a_better_space_is_told_and_so_is_its_median() -> None:
    found = compare_spaces(drawn(1, 200), drawn(2, 200, better=0.03), rounds=500)
    assert found.p_value <= 0.01 and found.p_ahead <= 0.01
    assert found.ahead > 0.3 > found.behind
    assert found.reduced_median.high < found.full_median.low
    assert found.full_median.value - found.reduced_median.value == pytest.approx(0.03, abs=0.015)


def test_a_space_that_is_merely_slower_is_not_taken_for_a_better_one() -> None:
    """Slower networks err less here; without bins the test would call that a better space."""
    full, slower = drawn(3, 400), drawn(4, 400, faster=-0.2)
    assert compare_spaces(full, slower, bins=1, rounds=200).p_value < 0.01
    assert compare_spaces(full, slower, bins=40, rounds=200).p_value > 0.01


def test_equal_spaces_are_told_apart_as_rarely_as_the_level_says() -> None:
    below = [compare_spaces(drawn(k, 40), drawn(1000 + k, 60), rounds=99).p_value <= 0.1 for k in range(150)]
    assert 0.03 <= np.mean(below) <= 0.19  # 0.1 with a standard error of 0.025, and a few of them


def test_bootstrap_intervals_hold_the_median_as_often_as_they_say() -> None:
    """One bin, errors without latency: the median of the population is 0.3."""
    inside = []
    for k in range(150):
        rng = np.random.default_rng(k)
        one = DrawnNetworks(errors=rng.normal(0.3, 0.05, 60), latencies=np.ones(60))
        median = compare_spaces(one, one, bins=1, rounds=200, seed=k).full_median
        inside.append(median.low <= 0.3 <= median.high)
    assert np.mean(inside) >= 0.88


def test_networks_at_latencies_that_the_other_space_has_not_are_left_out() -> None:
    full = DrawnNetworks(errors=np.linspace(0.1, 0.5, 80), latencies=np.linspace(1, 8, 80))
    reduced = DrawnNetworks(errors=np.linspace(0.1, 0.5, 20), latencies=np.linspace(1, 2, 20))
    found = compare_spaces(full, reduced, bins=5, rounds=50)
    assert found.bins < 5
    assert found.compared[0] < 80 and found.compared[1] == 20


def test_neither_unit_nor_order_matters() -> None:
    full, reduced = drawn(5, 60), drawn(6, 60, better=0.01)
    again = np.random.default_rng(0).permutation(60)
    moved = DrawnNetworks(errors=full.errors[again], latencies=full.latencies[again] * 1024)
    other = DrawnNetworks(errors=reduced.errors, latencies=reduced.latencies * 1024)
    first, second = compare_spaces(full, reduced, rounds=50), compare_spaces(moved, other, rounds=50)
    assert first.statistic == pytest.approx(second.statistic)
    assert first.full_median.value == second.full_median.value


def test_spaces_without_a_common_latency_are_refused() -> None:
    slow = DrawnNetworks(errors=np.full(20, 0.1), latencies=np.linspace(10, 11, 20))
    fast = DrawnNetworks(errors=np.full(20, 0.1), latencies=np.linspace(1, 2, 20))
    with pytest.raises(ProblemError, match="no latencies in common"):
        compare_spaces(slow, fast, bins=2)


@pytest.mark.parametrize(
    ("errors", "latencies"),
    [
        (np.zeros(7), np.ones(7)),
        (np.zeros(9), np.ones(8)),
        (np.full(9, np.nan), np.ones(9)),
        (np.zeros(9), np.zeros(9)),
        (np.zeros((9, 1)), np.ones((9, 1))),
    ],
)
def test_what_tells_no_distribution_is_refused(errors: Floats, latencies: Floats) -> None:
    with pytest.raises(ProblemError):
        DrawnNetworks(errors=errors, latencies=latencies)


def test_bins_and_rounds_start_at_1() -> None:
    with pytest.raises(ProblemError):
        compare_spaces(drawn(1, 20), drawn(2, 20), bins=0)
    with pytest.raises(ProblemError):
        compare_spaces(drawn(1, 20), drawn(2, 20), rounds=0)
