"""Rounds of tuning without TVM: what is built and measured of a layer, and when that ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gnomon.core.overlay.records import TuningLayer, TuningTrial
from gnomon.jobs.tune import job
from gnomon.jobs.tune.records import best_trial
from gnomon.tuning.bench import LayerCall, Loop, Timed

LAYER = TuningLayer(layer="7", name="conv")


class Fake:
    """Builders, a bench and a campaign: a configuration of number n takes n us, once twice as long where it is odd."""

    count = 2

    def __init__(self, folder: Path, lasts: int = 1000) -> None:
        self._folder, self._lasts = folder, lasts
        self.built: list[int] = []
        self.made: list[TuningTrial] = []

    def build(self, wanted: Sequence[tuple[TuningLayer, Any]]) -> list[LayerCall]:
        self.built += [trace[0][0] for _, trace in wanted]
        return [LayerCall(library=self._folder / str(trace[0][0]), arguments=(), outputs=()) for _, trace in wanted]

    def call(self, what: LayerCall, loop: Loop) -> Timed:
        number = int(what.library.name)
        again = any(trial.trace == [[number], []] for trial in self.made)
        time_s = number * 1e-6 * (1 if again or number % 2 == 0 else 2)
        return Timed(times_s=(9.0,), cpu_s=(time_s,), error=0.0, server="")

    def add(self, trial: TuningTrial) -> None:
        self.made.append(trial)

    def trials(self, layer: str) -> list[TuningTrial]:
        return self.made

    @property
    def over(self) -> bool:
        return len(self.made) >= self._lasts


class FakeTools(SimpleNamespace):
    @property
    def over(self) -> bool:
        found: bool = self.bench.over
        return found


def measured(fake: Fake, *numbers: int) -> int:
    tools = FakeTools(campaign=fake, builders=fake, bench=fake, loop=Loop(), references={})
    return job._measure(cast("job.Tools", tools), LAYER, [[[number], []] for number in numbers], lambda: None)


def test_the_best_so_far_is_measured_once_more_with_each_round(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    assert measured(fake, 3, 8) == 2
    assert [trial.time_s for trial in fake.made] == [pytest.approx(6e-6), pytest.approx(8e-6)], "by CPU time"
    assert measured(fake, 10, 12) == 2, "only what is new counts"
    assert fake.built == [3, 8, 10, 12, 3]
    best = best_trial(fake.made)
    assert best is not None and best.time_s == pytest.approx(4.5e-6), "both of its times count"


def test_where_the_time_is_up_no_further_build_begins(tmp_path: Path) -> None:
    fake = Fake(tmp_path, lasts=1)
    assert measured(fake, *range(2, 18)) == 2
    assert fake.built == [2, 3]
