"""A campaign that an error ended says so, with the runtime's own words; it goes on where that may help."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from tests.models.modelkit import model, node, save, value

from gnomon.cli.main import run
from gnomon.errors import MeasurementError
from gnomon.jobs.place.job import profile
from gnomon.jobs.runs.job import list_campaigns
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest
from gnomon.store.sqlite import SqliteStore

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")


@pytest.mark.slow
def test_what_a_runtime_says_of_a_model_is_in_the_error_and_in_the_record(
    tmp_path: Path, small: Effort, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = TensorProto.INT32
    nodes = [node("Add", ["x", "zero"], ["a"]), node("Mul", ["a", "zero"], ["b"]), node("Div", ["x", "b"], ["y"])]
    made = model(nodes, [value("x", [4], kind)], [value("y", [4], kind)], {"zero": np.zeros(4, np.int32)})
    record = tmp_path / "record.sqlite"
    request = ModelRequest(
        model=save(made, tmp_path / "m.onnx"), effort=small, runtimes=("onnxruntime",), record=record
    )
    for _ in range(2):
        with pytest.raises(MeasurementError, match="division by zero") as told:
            profile(request)
        assert "--input" in told.value.hint
    with SqliteStore.open(record) as store:
        row, before = list_campaigns(store)  # nothing was left that worked: the same question is measured again
    assert [(r.finished, r.running) for r in (row, before)] == [(False, False)] * 2
    assert row.failed == {"message": told.value.message, "hint": told.value.hint, "closed": True}
    assert run(["runs", "--record", str(record)]) == 0
    assert "failed" in capsys.readouterr().out
    assert run(["runs", "--record", str(record), "show", "last"]) == 0
    assert "division by zero" in " ".join(capsys.readouterr().out.split())
    assert run(["runs", "--record", str(record), "list", "--json"]) == 0
    listed, _ = json.loads(capsys.readouterr().out)["campaigns"]
    assert "division by zero" in listed["failed"]["message"]


@pytest.mark.slow
def test_one_that_goes_on_has_not_failed(tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch) -> None:
    source = save(model([node("Relu", ["x"], ["y"])], [value("x", [4])], [value("y", [4])]), tmp_path / "m.onnx")
    record = tmp_path / "record.sqlite"
    request = ModelRequest(model=source, effort=small, runtimes=("onnxruntime",), record=record)

    def broken(*arguments: object, **options: object) -> None:
        raise MeasurementError("the bench is broken", hint="Mend it.")

    with monkeypatch.context() as patch:
        patch.setattr("gnomon.jobs.place.decide.profile_singles", broken)
        with pytest.raises(MeasurementError):
            profile(request)
    profile(request)
    with SqliteStore.open(record) as store:
        row, before = list_campaigns(store)
    assert (row.finished, row.failed) == (True, None)
    assert before.failed == {"message": "the bench is broken", "hint": "Mend it.", "closed": True}
