"""Operators that a backend, or every backend, does not take."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bad_days.livekit import add_circle, prelu_circle

from gnomon.errors import RuntimeMissingError
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest


def test_an_operator_that_no_backend_takes_is_named(tmp_path: Path, small: Effort) -> None:
    model = tmp_path / "p.circle"
    model.write_bytes(prelu_circle())
    with pytest.raises(RuntimeMissingError) as refused:
        place(ModelRequest(model=model, effort=small), tmp_path / "out")
    assert "PRELU" in refused.value.message
    assert "operator 1" in refused.value.message
    assert "NYI for operation 'PReLU'" in refused.value.message  # onert's own words
    assert refused.value.hint
    assert not (tmp_path / "out").exists()


def test_what_one_backend_lacks_another_takes(tmp_path: Path, small: Effort) -> None:
    model = tmp_path / "a.circle"
    model.write_bytes(add_circle())
    found = profile(ModelRequest(model=model, effort=small))
    assert [c.label for c in found.columns] == ["onert:cpu", "onert:ruy (+cpu for 1 of 3)"]
    ran_on = {i: k.backend for k in found.columns[1].kernels for i in k.operators}
    assert ran_on == {0: "ruy", 1: "cpu", 2: "ruy"}
