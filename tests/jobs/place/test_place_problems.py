"""`place` goes on where one of several configurations cannot be priced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.livekit import add_circle, matmul_onnx

from gnomon.api import place as api
from gnomon.errors import GnomonError, MeasurementError
from gnomon.jobs.place.inside import InsidePlacer
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import RunSettings
from gnomon.session import model_session
from gnomon.session.request import ModelRequest


def test_a_configuration_that_cannot_be_priced_does_not_end_the_others(
    small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = InsidePlacer.run

    def run(placer: InsidePlacer, *given: Any) -> Any:
        if placer.target.configuration.environment:
            raise MeasurementError("left no trace", hint="none")
        return whole(placer, *given)

    monkeypatch.setattr(InsidePlacer, "run", run)
    (tmp_path / "a.circle").write_bytes(add_circle())
    request = ModelRequest(model=tmp_path / "a.circle", effort=small, settings=RunSettings(environments=({"A": "1"},)))
    found = place(request, tmp_path / "out")
    assert found.verified.ok
    assert "left no trace" in {m.reason for m in found.missing if m.name == "onert[A=1]"}


@pytest.mark.parametrize(
    ("requested", "told"),
    [
        ({"runtimes": ["nope"]}, "unknown runtime 'nope'"),
        ({"package": False}, "--out and --no-package contradict each other"),
        ({"shapes": {"z": (1,)}}, "--shape: the model has no input 'z'"),
        ({"inputs": {"z": Path("z.npy")}}, "--input: the model has no input 'z'"),
        ({"runtimes": ["onnxruntime"]}, "out exists already"),
    ],
)
def test_what_is_wrong_with_the_options_is_told_before_a_folder_that_is_there(
    requested: Any, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_session, "opened", lambda *_, **__: pytest.fail("a device is opened"))
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    (tmp_path / "out").mkdir()
    with pytest.raises(GnomonError, match=told):
        api.place(tmp_path / "m.onnx", out=tmp_path / "out", record=tmp_path / "r.sqlite", **requested)
