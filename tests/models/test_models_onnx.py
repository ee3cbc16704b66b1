"""ONNX reading: names, shapes, constants, multiply-accumulates, external data."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from tests.models.modelkit import model, node, save, value  # noqa: E402

from gnomon.errors import ModelError, RuntimeMissingError  # noqa: E402
from gnomon.models import Limits, dynamic_inputs, load  # noqa: E402
from gnomon.models.model import unique_names  # noqa: E402
from gnomon.models.onnx.graph import make_tensor  # noqa: E402


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_names_are_unique_and_a_files_own_names_come_first() -> None:
    names = ["a", "", "a", "Add_2", "", "Add_4", "Add_4_"]
    found = unique_names(names, ["Add"] * 7)
    assert found == ("a", "Add_1", "Add_2_", "Add_2", "Add_4__", "Add_4", "Add_4_")
    assert len(set(found)) == 7


@pytest.mark.parametrize(
    ("made", "shape", "constants", "expected"),
    [
        (node("Conv", "xw", "y", group=2), [1, 4, 6, 6], {"w": ones(6, 2, 3, 3)}, 6 * 16 * 18),
        (node("Conv", "xw", "y", group=4), [1, 4, 6, 6], {"w": ones(4, 1, 3, 3)}, 4 * 16 * 9),
        (node("ConvTranspose", "xw", "y", strides=[2, 2]), [1, 4, 5, 5], {"w": ones(4, 3, 2, 2)}, 100 * 12),
        (node("Gemm", "xw", "y", transB=1), [5, 4], {"w": ones(3, 4)}, 5 * 3 * 4),
        (node("Gemm", "xw", "y", transA=1), [4, 5], {"w": ones(4, 3)}, 5 * 3 * 4),
        (node("MatMul", "xw", "y"), [2, 5, 4], {"w": ones(4, 3)}, 2 * 5 * 3 * 4),
        (node("MatMul", "xw", "y"), [4], {"w": ones(4)}, 4),
        (node("MatMul", "xw", "y"), ["n", 4], {"w": ones(4, 3)}, None),
        (node("LSTM", "xwr", "y", hidden_size=3), [7, 2, 5], {"w": ones(1, 12, 5), "r": ones(1, 12, 3)}, 14 * 12 * 8),
        (node("Softmax", "x", "y"), [5, 4], {}, 0),
    ],
)
def test_macs_by_hand(made: Any, shape: Any, constants: Any, expected: int | None, tmp_path: Path) -> None:
    proto = model([made], [value("x", shape)], [value("y", None)], constants)
    assert load(save(proto, tmp_path / "m.onnx")).graph.macs == expected


def test_graph_of_a_small_model(tmp_path: Path) -> None:
    nodes = [
        node("Constant", [], ["k"], "twin", value_floats=[1.0, 2.0]),
        node("Add", ["x", "k"], ["a"], "twin"),
        node("Clip", ["a", "", "high"], ["y"]),
    ]
    inputs = [value("x", ["batch", 2]), value("high", [])]
    path = save(model(nodes, inputs, [value("y", None)], {"high": np.float32(6)}), tmp_path / "m.onnx")
    read = load(path)
    graph = read.graph
    assert (read.kind, graph.format, graph.name) == ("onnx", "onnx", "g")
    assert graph.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [(op.name, op.type) for op in graph.operators] == [
        ("twin", "Constant"),
        ("Add_1", "Add"),
        ("Clip_2", "Clip"),
    ]
    by_name = {t.name: t for t in graph.tensors}
    assert [graph.tensors[i].name for i in graph.inputs] == ["x"], "an initializer is not an input"
    assert {n for n, t in by_name.items() if t.constant} == {"high", "k"}
    assert by_name["a"].shape == (-1, 2)
    assert by_name["a"].size_bytes is None
    assert by_name["k"].size_bytes == 8
    assert [graph.tensors[i].name for i in graph.operators[2].inputs] == ["a", "high"]
    assert [t.name for t in dynamic_inputs(graph)] == ["x"]
    assert {(e.producer, e.consumer) for e in graph.edges()} == {(0, 1), (1, 2)}


def test_nodes_out_of_order_are_read_in_one_and_those_in_order_in_the_files_own(tmp_path: Path) -> None:
    inner = helper.make_graph([node("Relu", "q", "r"), node("Neg", "a", "q")], "then", [], [value("r", [2])])
    other = helper.make_graph([node("Neg", "b", "s")], "else", [], [value("s", [2])])
    rows = [
        node("If", "c", "y", "choice", then_branch=inner, else_branch=other),
        node("Neg", "x", "b", "second"),
        node("Relu", "x", "a", "first"),
    ]
    inputs, outputs = [value("x", [2]), value("c", [], TensorProto.BOOL)], [value("y", [2])]
    graph = load(save(model(rows, inputs, outputs), tmp_path / "m.onnx")).graph
    assert graph.operators[-1].name == "choice" and {op.name for op in graph.operators[:2]} == {"first", "second"}
    reads = [graph.tensors[index].name for index in graph.operators[-1].inputs]
    assert reads == ["c", "b", "a"], "what a subgraph has in any order is not taken from outside"
    assert graph.macs is None, "what the branches compute is not known"
    sorted_rows = [rows[1], rows[2], rows[0]]
    graph = load(save(model(sorted_rows, inputs, outputs), tmp_path / "m.onnx")).graph
    assert [op.name for op in graph.operators] == ["second", "first", "choice"]


def test_products_of_weights_in_four_bits_count_and_functions_are_not_known(tmp_path: Path) -> None:
    few: dict[str, Any] = {"K": 128, "N": 64, "bits": 4, "block_size": 32}
    rows = [
        node("MatMulNBits", ["x", "w", "s"], ["a"], domain="com.microsoft", **few),
        node("Twice", ["a"], ["y"], domain="own"),
    ]
    constants = {"w": np.zeros((64, 4, 16), np.uint8), "s": np.ones((64, 4), np.float32)}
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 17), ("own", 1), ("com.microsoft", 1))]
    twice = helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", "aa", "b")], opsets[:1])
    made = model(
        rows, [value("x", [8, 128])], [value("y", [8, 64])], constants, functions=[twice], opset_imports=opsets
    )
    made.graph.value_info.append(value("a", [8, 64]))
    graph = load(save(made, tmp_path / "m.onnx")).graph
    assert [op.macs for op in graph.operators] == [8 * 128 * 64, None]
    assert graph.macs is None


def test_recorded_shapes_and_inferred_ones_are_the_same(zoo_model: Callable[[str], Path], tmp_path: Path) -> None:
    path = zoo_model("ppocr-cls")
    bare = onnx.load(path)
    del bare.graph.value_info[:]
    again = load(save(bare, tmp_path / "bare.onnx")).graph
    assert again.tensors == load(path).graph.tensors


def test_element_types_and_their_sizes() -> None:
    for number in TensorProto.DataType.values():
        tensor = make_tensor("t", {"t": (number, (3, 5))}, False, ())
        if number in {TensorProto.UNDEFINED, TensorProto.STRING}:
            assert tensor.size_bytes is None
            continue
        assert tensor.dtype == helper.tensor_dtype_to_np_dtype(number).name
        narrow = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
        bits = {**narrow, "float6_e2m3fn": 6, "float6_e3m2fn": 6}.get(tensor.dtype)
        bits = bits or helper.tensor_dtype_to_np_dtype(number).itemsize * 8
        assert tensor.size_bytes == -(-15 * bits // 8)
    assert make_tensor("t", {"t": (99, None)}, False, ()).dtype == "type_99"


def external(folder: Path, location: str, length: int = 16) -> Path:
    proto = model([node("Add", "xw", "y")], [value("x", [4])], [value("y", [4])], {"w": ones(4)})
    (tensor,) = proto.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, content in {"location": location, "offset": "0", "length": str(length)}.items():
        tensor.external_data.add(key=key, value=content)
    return save(proto, folder / "m.onnx")


def test_external_data_counts_for_size_and_digest(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin")
    (tmp_path / "w.bin").write_bytes(bytes(16))
    first = load(path)
    assert first.size_bytes == path.stat().st_size + 16
    (tmp_path / "w.bin").write_bytes(bytes(15) + b"1")
    assert load(path).graph.digest != first.graph.digest


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "", "link", "a\0b", "missing"])
def test_external_data_elsewhere_is_refused(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (folder / "link").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ModelError) as caught:
        load(external(folder, location))
    assert caught.value.hint


def test_external_data_that_is_too_short_or_odd_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(15))
    with pytest.raises(ModelError, match="15 bytes"):
        load(external(tmp_path, "w.bin"))
    with pytest.raises(ModelError, match="length: '-1'"):
        load(external(tmp_path, "w.bin", length=-1))


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "Git LFS", "git lfs pull"),
        (b"\x18\0\0\0ORTM" + bytes(40), "own format", "m.ort"),
    ],
)
def test_what_is_often_given_in_its_place_is_named(content: bytes, message: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as told:
        load(path)
    assert hint in told.value.hint


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    x, y = value("x", [2]), value("y", [2])
    cases = {
        "cycle": model([node("Add", "xb", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")], [x], [y]),
        "no earlier node or input defines": model([node("Relu", "q", "y")], [x], [y]),
        "defined twice": model([node("Relu", "x", "y"), node("Neg", "x", "y")], [x], [y]),
        "no node computes its output": model([node("Relu", "x", "z")], [x], [y]),
        "dimensions": model([node("Relu", "x", "y")], [value("x", [1] * 65)], [y]),
        "neither nodes nor outputs": model([], [x], []),
        "larger than any": model([node("Relu", "x", "y")], [value("x", [2**40, 2**40])], [value("y", [2])]),
    }
    for message, proto in cases.items():
        with pytest.raises(ModelError, match=message) as caught:
            load(save(proto, tmp_path / "m.onnx"))
        assert caught.value.hint


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    good = model([node("Relu", ["x"], ["yy"])], [value("x", [2])], [value("yy", [2])]).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(good.replace(b"yy", b"\xff\xfe"))
    with pytest.raises(ModelError, match="UTF-8"):
        load(path)


def test_a_crash_or_a_hang_of_inference_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(
        model([node("Relu", "x", "a"), node("Relu", "a", "y")], [value("x", [2])], [value("y", [2])]), tmp_path / "m"
    )
    child = tmp_path / "child.py"
    monkeypatch.setattr("gnomon.models.onnx.graph._CHILD", child)
    child.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    with pytest.raises(ModelError, match="-11"):
        load(path)
    child.write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(ModelError, match="longer than"):
        load(path, Limits(max_infer_s=0.3))
    child.write_text("print('nonsense')\n")
    with pytest.raises(ModelError):
        load(path)


def test_without_onnx_the_hint_is_the_install_line(
    zoo_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = zoo_model("minilm-layer")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(RuntimeMissingError) as caught:
        load(path)
    assert caught.value.hint == f"{sys.executable} -m pip install 'onnx>=1.17'"
