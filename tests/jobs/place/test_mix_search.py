"""The search for a mix across runtimes, in made-up worlds whose best mix is known."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.place.mix_search import BLOCKS, MadeUp

from gnomon.core.pricing.price import SegmentTime, segment_prices
from gnomon.core.solver.solve import solve


@pytest.mark.parametrize(("cut", "spread"), [(0.01, 0.5), (0.05, 0.1)], ids=["mixes pay", "cuts cost too much"])
def test_the_choice_is_near_the_best_and_the_search_ends_when_none_can_pay(cut: float, spread: float) -> None:
    longer, processes = [], []
    for seed in range(1000, 1012):
        world = MadeUp(seed, runtimes=3, cut=cut, spread=spread)
        alone_s = float(world.totals_s.min())
        best_s = min(solve(world._model(world.truth)).value, alone_s)
        longer.append(min(world.true_s(world.choice()), alone_s) / best_s - 1)
        processes.append(world.processes)
    assert np.mean(longer) < 0.02
    assert np.median(processes) <= 3 * BLOCKS, "it ran as many chains as if nothing had been learned"


def test_chains_that_promise_are_new_and_by_what_is_known_fast_enough() -> None:
    world = MadeUp(7, runtimes=3, cut=0.01, spread=0.5)
    alone = [SegmentTime(first=0, last=BLOCKS, backend=b, time_s=float(t)) for b, t in enumerate(world.totals_s)]
    prices = segment_prices(world.truth.block_s, alone)
    enough_s = 0.98 * float(world.totals_s.min())
    first = world._promising(prices, enough_s, (), 3)
    second = world._promising(prices, enough_s, first, 3)
    assert len(first) == 3 and not set(first) & set(second)
    assert all(prices.chain_s(chain) <= enough_s for chain in (*first, *second))
    assert prices.chain_s(first[0]) == pytest.approx(solve(world._model(prices)).value)
    assert world._promising(prices, 0.0, (), 3) == []
    assert world._promising(prices, enough_s, (), 0) == []
