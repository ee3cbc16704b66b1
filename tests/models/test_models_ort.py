"""ONNX Runtime's own files are read as graphs, and whatever is wrong with one is one error."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="needs onnx")

from gnomon.errors import ModelError
from gnomon.models.load import files_beside, load
from gnomon.models.model import dynamic_inputs

SMALL = Path(__file__).with_name("golden") / "small.ort"


def test_inputs_nodes_and_names_are_those_of_the_file() -> None:
    read = load(SMALL)
    graph = read.graph
    assert (read.kind, graph.format, graph.name, read.subgraphs) == ("ort", "ort", "small", 1)
    assert graph.digest == hashlib.sha256(SMALL.read_bytes()).hexdigest()
    names = [tensor.name for tensor in graph.tensors]
    assert [names[index] for index in graph.inputs] == ["x", "c"]
    assert [names[index] for index in graph.outputs] == ["y"]
    rows = [(op.name, op.type, [names[index] for index in op.inputs]) for op in graph.operators]
    assert rows == [
        ("product", "MatMul", ["x", "w"]),
        ("choice", "If", ["c", "a"]),  # the second is what its branches read
        ("Relu_2", "Relu", ["b"]),  # as ONNX Runtime's profiler calls one without a name
    ]
    (x,) = dynamic_inputs(graph)
    assert (x.shape, x.dims, x.dtype) == ((-1, 4), ("batch", ""), "float32")
    assert [(t.name, t.shape) for t in graph.tensors if t.constant] == [("w", (4, 3))]
    assert files_beside(SMALL) == {}


def test_a_file_that_is_cut_or_damaged_is_one_error(tmp_path: Path) -> None:
    data, path = SMALL.read_bytes(), tmp_path / "m.ort"
    for size in range(8, len(data), 97):
        path.write_bytes(data[:size])
        with pytest.raises(ModelError) as caught:
            load(path)
        assert caught.value.hint
    for place in range(8, len(data), 13):
        path.write_bytes(data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :])
        try:
            load(path)
        except ModelError as error:
            assert error.hint


def test_onnx_runtime_tells_its_files_by_their_names(tmp_path: Path) -> None:
    shutil.copyfile(SMALL, tmp_path / "m.bin")
    with pytest.raises(ModelError, match=r"by the ending \.ort") as caught:
        load(tmp_path / "m.bin")
    assert caught.value.hint.startswith("Rename it: mv -- ") and caught.value.hint.endswith("m.ort")
