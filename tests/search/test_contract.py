"""Every built-in strategy keeps the contract that ships."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.core.space import Space
from gnomon.search.driver import make_strategy
from gnomon.search.hlps import Hlps, grouped
from gnomon.testing.strategy import Make, StrategyContract


def named(name: str, **options: Any) -> Make:
    return lambda space, seed: make_strategy(name, space, seed=seed, **options)


class TestExhaustive(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        return named("exhaustive")


class TestRandom(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        return named("random")


class TestHlps(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        return named("hlps")


class TestHlpsInBatches(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        return named("hlps", batch=5)


def in_two_phases(space: Space, seed: int) -> Hlps:
    return Hlps(space, seed=seed, coarse=grouped(space, ["a" if len(s.choices) > 1 else "b" for s in space.slots]))


class TestHlpsInTwoPhases(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        return in_two_phases


class TestNsga2(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        pytest.importorskip("pymoo", reason="pymoo is not installed")
        return named("nsga2", population=8)
