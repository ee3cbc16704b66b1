"""Change points on simulated series: few where there are none, and those that are there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gnomon.core.changes import LEAST, change_points

Array = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Array]


def remembering(memory: float, spread: float) -> Noise:
    """A stationary series of normal values, each of which keeps so much of the one before."""

    def noise(random: np.random.Generator, n: int) -> Array:
        drawn = random.standard_normal(n)
        made = np.empty(n)
        made[0] = drawn[0]
        for k in range(1, n):
            made[k] = memory * made[k - 1] + np.sqrt(1 - memory**2) * drawn[k]
        return made * spread

    return noise


QUIET: dict[str, Noise] = {
    "normal, 1 %": lambda random, n: random.standard_normal(n) * 0.01,
    "normal, 3 %": lambda random, n: random.standard_normal(n) * 0.03,
    "Student, 3 degrees": lambda random, n: random.standard_t(3, n) * 0.01,
    "skew": lambda random, n: np.exp(random.standard_normal(n)) * 0.01,
    "single blocks far off": lambda random, n: random.standard_normal(n) * 0.01 + (random.random(n) < 0.03) * 0.5,
    "two levels that take turns": lambda random, n: (random.random(n) < 0.3) * 0.05 + random.standard_normal(n) * 0.002,
    "a coarse clock": lambda random, n: np.round(random.standard_normal(n) * 0.004, 2),
    "memory 0.3": remembering(0.3, 0.02),
    "memory 0.6": remembering(0.6, 0.02),
    "memory 0.8": remembering(0.8, 0.02),
    "a moving mean of 5": lambda random, n: np.convolve(random.standard_normal(n + 4), np.ones(5) / 5, "valid") * 0.03,
}
COUNT, BLOCKS = 100, 300


def series(noise: Noise, seed: int, steps: tuple[tuple[int, float], ...] = ()) -> list[float]:
    logs = noise(np.random.default_rng(seed), BLOCKS)
    for at, factor in steps:
        logs[at:] += np.log(factor)
    return [float(value) for value in 5e-3 * np.exp(logs)]


@pytest.mark.parametrize("name", QUIET)
def test_a_series_that_stays_has_no_change_in_98_per_cent(name: str) -> None:
    alarms = sum(bool(change_points(series(QUIET[name], seed))) for seed in range(COUNT))
    assert alarms <= 0.02 * COUNT


@pytest.mark.parametrize(
    "name",
    ["normal, 1 %", "Student, 3 degrees", "skew", "single blocks far off", "two levels that take turns", "memory 0.3"],
)
def test_a_step_of_5_per_cent_is_found_where_it_is(name: str) -> None:
    found = 0
    for seed in range(COUNT):
        at = int(np.random.default_rng([seed, 1]).integers(30, BLOCKS - 30))
        points = change_points(series(QUIET[name], seed, ((at, 1.05),)))
        found += len(points) == 1 and abs(points[0] - at) <= LEAST
    assert found >= 0.95 * COUNT


def test_what_comes_and_goes_is_found_both_times() -> None:
    steps = ((100, 1.3), (130, 1 / 1.3), (200, 1.1))
    points = [change_points(series(QUIET["normal, 1 %"], seed, steps)) for seed in range(20)]
    assert all(len(p) == 3 and all(abs(a - b) <= 1 for a, (b, _) in zip(p, steps, strict=True)) for p in points)


def test_a_level_that_goes_to_and_fro_is_followed() -> None:
    steps = tuple((20 * k, 1.3 if k % 2 else 1 / 1.3) for k in range(1, 15))
    assert [len(change_points(series(QUIET["normal, 1 %"], seed, steps))) for seed in range(10)] == [14] * 10


def test_levels_that_are_too_near_are_one() -> None:
    quiet: Noise = lambda random, n: random.standard_normal(n) * 1e-3  # noqa: E731
    assert change_points(series(quiet, 1, ((150, 1.01),))) == ()
    assert change_points(series(quiet, 1, ((150, 1.01),)), relevant=0.005) == (150,)


def test_a_series_without_noise() -> None:
    assert change_points([2e-3] * 100) == ()
    assert change_points([2e-3] * 50 + [3e-3] * 50) == (50,)


def test_too_short_a_series_has_no_change() -> None:
    assert change_points([1.0] * 9 + [2.0] * 10) == ()
    assert change_points([]) == ()


def test_a_time_that_is_none() -> None:
    with pytest.raises(ValueError, match="above 0"):
        change_points([1.0, 0.0])
