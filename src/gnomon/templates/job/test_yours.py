"""The command and its document."""

import json
from pathlib import Path

import pytest

import gnomon
from gnomon.cli.main import run


def test_the_command_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command measures a model of one Relu, with a separate results database."""
    onnx = pytest.importorskip("onnx")
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")], "small", [x], [y])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "small.onnx")
    monkeypatch.setenv("GNOMON_RECORD", str(tmp_path / "record.sqlite"))
    assert run(["yours", str(tmp_path / "small.onnx"), "--json"]) == 0
    document = gnomon.read_document(json.loads(capsys.readouterr().out))
    assert all(row.wait_s > 0 for row in document.configurations)
