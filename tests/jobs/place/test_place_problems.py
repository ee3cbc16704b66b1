"""`place` goes on where one of several configurations cannot be priced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnomon.errors import MeasurementError
from gnomon.jobs.place.inside import InsidePlacer
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import Wish
from gnomon.session.request import Request


def test_a_configuration_that_cannot_be_priced_does_not_end_the_others(
    zoo_model: Callable[[str], Path], small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = InsidePlacer.run

    def run(placer: InsidePlacer, *given: Any) -> Any:
        if placer.target.configuration.environment:
            raise MeasurementError("left no trace", hint="none")
        return whole(placer, *given)

    monkeypatch.setattr(InsidePlacer, "run", run)
    request = Request(model=zoo_model("mix.circle"), effort=small, wish=Wish(environments=({"A": "1"},)))
    found = place(request, tmp_path / "out")
    assert found.verified.ok
    assert "left no trace" in {m.reason for m in found.missing if m.name == "onert[A=1]"}
