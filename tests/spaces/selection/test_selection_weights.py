"""What a weighting counts for the hypervolume."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.core.front.dominance import hypervolume
from gnomon.spaces.cells.effects import expit
from gnomon.spaces.selection.reduce import Resamples, hypervolume_weights

ANGLES = (np.arange(16) + 0.5) / 16 * np.pi / 2
SCALE = np.ones(2)


def one_group(latency: list[float], logit: list[float], reference: tuple[float, float]) -> Resamples:
    """A space of one group, known exactly."""
    return Resamples(latencies=(np.array([latency]),), logits=(np.array([logit]),), reference=reference)


@pytest.mark.parametrize("seed", range(20))
def test_weights_are_of_mean_1_and_know_no_unit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    latencies, logits = rng.uniform(0.5, 2, (2, 30, 4)), rng.normal(1, 1, (2, 30, 4))
    scale = np.array([1.3, 0.7])
    told = hypervolume_weights(
        Resamples(latencies=tuple(latencies), logits=tuple(logits), reference=(4, 1)), scale, ANGLES
    )
    assert told.mean() == pytest.approx(1) and (told >= 0).all()
    other = Resamples(latencies=tuple(latencies * 1e3), logits=tuple(logits), reference=(4e3, 1))
    assert hypervolume_weights(other, scale * [1e3, 1], ANGLES) == pytest.approx(told)


def test_weights_are_the_slope_of_the_hypervolume_for_a_move_of_all() -> None:
    # On a straight front of many networks a move along its normal costs what the weights say.
    steps = np.linspace(0, 1, 400)
    latency, logit = 1 + steps, 1 + steps
    reference = (5.0, 0.6)
    told = hypervolume_weights(
        one_group(latency.tolist(), logit.tolist(), reference), SCALE, np.array([0, np.pi / 4, np.pi / 2])
    )

    def volume(faster: float, better: float) -> float:
        return hypervolume(np.column_stack([latency - faster, expit(-(logit + better))]), reference)

    step = 1e-4
    ends = [0.6 - expit(np.array([-1.0]))[0], 3 * expit(np.array([-2.0]))[0] * expit(np.array([2.0]))[0]]
    both = (volume(step, step) - volume(0, 0)) / step  # a normal of length sqrt(2), and both ends
    middle = (both - sum(ends)) / np.sqrt(2)
    assert told[1] / told[0] == pytest.approx(middle / ends[0], rel=0.02)
    assert told[2] / told[0] == pytest.approx(ends[1] / ends[0], rel=1e-6)


def test_no_network_inside_the_reference_counts_all_alike() -> None:
    assert (hypervolume_weights(one_group([1.0], [0.0], (1.0, 0.5)), SCALE, ANGLES) == 1).all()
