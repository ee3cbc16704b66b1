"""The resampling of a choice: against resampling everything, exact probabilities, and what must not change it."""

from __future__ import annotations

import itertools
import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.overlay.samplekit import Samples, table

from gnomon.core.overlay import confidence as overlay_confidence
from gnomon.core.overlay.choice import LayerTimes, choose
from gnomon.core.overlay.confidence import ChoiceConfidence, choice_confidence
from gnomon.core.overlay.samples import Blocks
from gnomon.core.stats import median
from gnomon.errors import UsageError


def layer(samples: Samples, count: int, devices: int) -> LayerTimes:
    times_s = np.full((count, devices), np.nan)
    for place, blocks in samples.items():
        times_s[place] = median([t for block in blocks for t in block])
    return LayerTimes(
        name="conv",
        layer="1",
        weight=1,
        devices=tuple(f"d{i}" for i in range(devices)),
        configurations=tuple(f"c{i}" for i in range(count)),
        hosts=tuple(() for _ in range(count)),
        times_s=times_s,
    )


def noisy(seed: int, count: int, devices: int, spread: float, holes: float = 0.0) -> dict[tuple[int, int], Blocks]:
    generator = np.random.default_rng(seed)
    made: dict[tuple[int, int], Blocks] = {}
    for place in itertools.product(range(count), range(devices)):
        if generator.random() >= holes:
            level = math.exp(generator.normal(0, 0.3))
            blocks = [
                np.exp(generator.normal(math.log(level), spread, generator.integers(1, 5))).tolist()
                for _ in range(generator.integers(1, 4))
            ]
            made[place] = tuple(tuple(block) for block in blocks)
    return made


def confidence(
    samples: Samples, count: int, devices: int, *, resamples: int = 400, seed: int = 0
) -> ChoiceConfidence | None:
    choice = choose(layer(samples, count, devices))
    return choice_confidence(choice, table(samples, devices), resamples=resamples, seed=seed)


@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 4), st.sampled_from([0.01, 0.1, 0.5]))
def test_what_is_not_drawn_changes_nothing(seed: int, count: int, devices: int, spread: float) -> None:
    samples = noisy(seed, count, devices, spread, holes=0.1)
    found = confidence(samples, count, devices, resamples=60)
    times = layer(samples, count, devices)
    choice = choose(times)
    if found is None:
        assert choice.chosen is None
        return
    # Everything drawn, with the seeds of the times.
    drawn = np.full((count, devices, 60), np.inf)
    for (row, device), blocks in samples.items():
        generator = np.random.default_rng([0, row, device])
        way = overlay_confidence._medians_by_block if len(blocks) > 1 else overlay_confidence._medians
        drawn[row, device] = way(blocks, 60, generator)
    theta = drawn.min(axis=0)
    metric = ((drawn - theta) / theta).sum(axis=1)
    least = metric.min(axis=0)
    wins = (metric <= least + 1e-12 * (1 + devices)).mean(axis=1)
    chosen = choice.chosen
    assert chosen is not None and found.share == pytest.approx(wins[chosen], abs=1e-12)
    assert found.low == pytest.approx(np.quantile(metric[chosen], 0.025, method="lower"))
    assert found.high == pytest.approx(np.quantile(metric[chosen], 0.975, method="higher"))
    others = np.delete(wins, chosen)
    if found.runner_up:
        assert wins[times.configurations.index(found.runner_up)] == pytest.approx(others.max())
    assert 0 <= found.low <= found.high
    # Close are those between which a choice is not sure.
    if found.share >= 0.9 or not found.runner_up:
        assert found.close == ()
    else:
        assert {choice.configuration, found.runner_up} <= set(found.close)
        assert all(
            wins[times.configurations.index(name)] >= 0.05
            for name in {*found.close} - {choice.configuration, found.runner_up}
        )


@pytest.mark.parametrize("sizes", [(1,), (2,), (5,), (6,), (1, 1), (2, 1), (3, 3, 3), (1, 4, 2), (5, 1, 1, 2)])
def test_medians_have_the_right_probabilities(sizes: tuple[int, ...]) -> None:
    values = iter(np.random.default_rng(1).permutation(sum(sizes)).tolist())
    blocks = tuple(tuple(2.0 ** next(values) for _ in range(size)) for size in sizes)  # all means of two differ
    draw_medians = overlay_confidence._medians_by_block if len(blocks) > 1 else overlay_confidence._medians
    drawn = draw_medians(blocks, 40_000, np.random.default_rng(2))
    parts = blocks if len(blocks) > 1 else tuple((value,) for value in blocks[0])
    expected: dict[float, float] = {}
    for draw in itertools.product(parts, repeat=len(parts)):
        value = median([t for part in draw for t in part])
        expected[value] = expected.get(value, 0.0) + len(parts) ** -len(parts)
    assert set(drawn.tolist()) <= set(expected)
    for value, probability in expected.items():
        share = float((drawn == value).mean())
        assert abs(share - probability) < 5 * math.sqrt(probability * (1 - probability) / 40_000) + 1e-3


def test_sure_where_samples_do_not_overlap() -> None:
    samples = {(c, d): ((1.0 + c, 1.1 + c, 1.05 + c),) for c in range(4) for d in range(3)}
    with patch.object(overlay_confidence, "_medians", wraps=overlay_confidence._medians) as drawn:
        found = confidence(samples, 4, 3)
    assert found is not None and found.share == 1.0 and found.low == found.high == 0.0 and found.runner_up == "c1"
    assert drawn.call_count == 3  # those of the chosen one alone: no other configuration can win


def test_blocks_of_other_levels_make_less_sure() -> None:
    # Within a session samples hardly differ; between sessions they do.
    levels = {0: (1.0, 1.3, 1.05), 1: (1.1, 1.02, 1.31)}
    samples: dict[tuple[int, int], Blocks] = {
        (c, 0): tuple(tuple(level + 1e-4 * k for k in range(20)) for level in levels[c]) for c in levels
    }
    as_one = {place: (tuple(itertools.chain(*blocks)),) for place, blocks in samples.items()}
    by_sample = confidence(as_one, 2, 1, resamples=2000)
    by_block = confidence(samples, 2, 1, resamples=2000)
    assert by_sample is not None and by_block is not None
    assert by_block.share < by_sample.share and by_block.high > by_sample.high


def test_deterministic_by_seed() -> None:
    samples = noisy(5, 8, 3, 0.4)
    assert confidence(samples, 8, 3, seed=1) == confidence(samples, 8, 3, seed=1)
    shares = {confidence(samples, 8, 3, seed=seed) for seed in range(5)}
    assert len(shares) > 1


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.lists(st.integers(-30, 30), min_size=3, max_size=3))
def test_the_unit_of_a_device_changes_nothing(seed: int, powers: list[int]) -> None:
    samples = noisy(seed, 6, 3, 0.2)
    scaled: dict[tuple[int, int], Blocks] = {
        (c, d): tuple(tuple(t * 2.0 ** powers[d] for t in block) for block in blocks)
        for (c, d), blocks in samples.items()
    }
    assert confidence(samples, 6, 3) == confidence(scaled, 6, 3)


def test_nothing_chosen_and_a_single_configuration() -> None:
    assert confidence({(0, 0): ((1.0,),)}, 1, 2) is None
    found = confidence({(0, 0): ((1.0, 2.0),)}, 1, 1)
    assert found is not None and found.share == 1.0 and found.runner_up == "" and found.high == 0.0


def test_what_cannot_be_meant() -> None:
    choice = choose(layer({(0, 0): ((1.0,),)}, 1, 1))
    for resamples, seed in ((0, 0), (10, -1)):
        with pytest.raises(UsageError):
            choice_confidence(choice, table({(0, 0): ((1.0,),)}, 1), resamples=resamples, seed=seed)
