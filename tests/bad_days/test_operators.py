"""Operators that a backend, or every backend, does not take."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bad_days.livekit import add_circle, prelu_circle

from gnomon.devices.local import LocalDevice
from gnomon.errors import RuntimeMissingError
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink
from gnomon.models.load import load
from gnomon.runtimes.base import Configuration, PlacedModel
from gnomon.runtimes.onert import Onert
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


def test_what_the_default_lacks_another_takes(tmp_path: Path) -> None:
    """ruy really takes no addition and train really crashes here, so that each trial must leave that to cpu."""
    path = tmp_path / "a.circle"
    path.write_bytes(add_circle())
    model = PlacedModel(graph=load(path).graph, path=str(path), inputs=("input",), outputs=("last",))
    configuration = Configuration(
        runtime="onert", name="onert", backends=("ruy", "train", "cpu"), options={"threads": 1}
    )
    with LocalDevice() as device, AgentLink(device, timeout_s=60.0) as link:
        found = Onert().support(link.ask, model, configuration)
    assert found.operators["ruy"] == frozenset({0, 2})
    assert found.operators["cpu"] == frozenset({0, 1, 2})
    assert "takes no ADD, which is operator 1 ('middle')" in found.failures["ruy"].message
