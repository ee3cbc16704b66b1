"""Every built-in strategy keeps the contract that ships."""

from __future__ import annotations

from functools import partial

import pytest

from gnomon.core.space import Space
from gnomon.search.base import Strategy
from gnomon.search.driver import make_strategy
from gnomon.search.hlps import Hlps, grouped
from gnomon.testing.strategy import Make, StrategyContract


def in_two_phases(space: Space, seed: int) -> Hlps:
    return Hlps(space, seed=seed, coarse=grouped(space, ["a" if len(s.choices) > 1 else "b" for s in space.slots]))


def named(name: str, space: Space, seed: int) -> Strategy:
    return make_strategy(name, space, seed=seed)


class TestEachStrategy(StrategyContract):
    @pytest.fixture(params=["exhaustive", "random", "hlps", "hlps in two phases", "nsga2"])
    def make(self, request: pytest.FixtureRequest) -> Make:
        if request.param == "nsga2":
            pytest.importorskip("pymoo", reason="pymoo is not installed")
        return in_two_phases if request.param == "hlps in two phases" else partial(named, request.param)
