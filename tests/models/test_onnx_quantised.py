"""What a quantised model really is, on models made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gnomon.errors import ModelError
from gnomon.models.onnx.quantised import Quantised, read_quantised

WEIGHTS = np.ones((4, 4, 1, 1), np.float32)


class Made:
    """A model that grows by a node at a time: a 1 x 4 x 8 x 8 image, convolutions of 1 x 1 of 1024 operations."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights = {
            "w": numpy_helper.from_array(WEIGHTS, "w"),
            "w8": numpy_helper.from_array(WEIGHTS.astype(np.int8), "w8"),
        }
        self.at = "x0"

    def scale(self, *values: float) -> str:
        name = f"s{len(self.weights)}"
        array = np.array(values if len(values) > 1 else values[0], np.float32)
        self.weights[name] = numpy_helper.from_array(array, name)
        return name

    def zero(self, kind: type = np.uint8) -> str:
        name = f"z{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(np.array(0, kind), name)
        return name

    def node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def rounded(self, scale: float = 0.1, kind: type = np.uint8) -> Made:
        """Quantised and dequantised at once."""
        s, z = self.scale(scale), self.zero(kind)
        self.at = self.node("DequantizeLinear", [self.node("QuantizeLinear", [self.at, s, z]), s, z])
        return self

    def conv(self, quantised: bool = True, scale: float = 0.25) -> Made:
        w = self.node("DequantizeLinear", ["w8", self.scale(scale), self.zero(np.int8)]) if quantised else "w"
        self.at = self.node("Conv", [self.at, w])
        return self

    def then(self, kind: str, *more: str, **attributes: Any) -> Made:
        self.at = self.node(kind, [self.at, *more], **attributes)
        return self

    def read(self, folder: Path, shape: Sequence[int | str] = (1, 4, 8, 8), opset: int = 17) -> Quantised:
        graph = helper.make_graph(
            [*self.nodes, helper.make_node("Identity", [self.at], ["y"])],
            "g",
            [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            list(self.weights.values()),
        )
        path = folder / "m.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
        return read_quantised(path)


def two_ways() -> Made:
    """A result that one reader quantises and another does not."""
    made = Made().rounded().conv()
    branch = made.at
    made.rounded()
    made.at = made.node("Add", [made.at, made.node("Conv", [branch, "w"])])
    return made


@pytest.mark.parametrize(
    ("made", "operators", "computing"),
    [
        pytest.param(Made().conv(quantised=False).then("Relu").conv(quantised=False), 2, 0, id="floats"),
        pytest.param(Made().conv().then("Relu").conv(), 2, 0, id="weights alone"),
        pytest.param(Made().rounded().conv().rounded().conv(quantised=False), 2, 1, id="one of two"),
        pytest.param(Made().rounded().conv().conv(quantised=False), 2, 0, id="into floats"),
        pytest.param(Made().rounded().conv().then("Relu"), 1, 1, id="the result of the model"),
        pytest.param(two_ways(), 2, 0, id="two readers"),
        pytest.param(Made().rounded().then("Relu"), 0, 0, id="no products"),
    ],
)
def test_8bit_is_what_lies_between_quantised_values(made: Made, operators: int, computing: int, tmp_path: Path) -> None:
    found = made.read(tmp_path)
    assert (found.operators, found.computing_8bit) == (operators, computing)
    assert (found.macs, found.macs_8bit) == (1024 * operators, 1024 * computing)
    assert found.share_8bit == (computing / operators if operators else 0)


@pytest.mark.parametrize("kind", [np.int16, np.uint16])
def test_16_bits_are_not_8(kind: type, tmp_path: Path) -> None:
    found = Made().rounded(kind=kind).conv().rounded(kind=kind).read(tmp_path, opset=21)
    assert found.operators == 1 and found.computing_8bit == 0


@pytest.mark.parametrize("kind", ["MaxPool", "Transpose", "Identity"])
def test_what_commutes_with_a_scale_passes(kind: str, tmp_path: Path) -> None:
    more: dict[str, Any] = (
        {"kernel_shape": [1, 1]} if kind == "MaxPool" else {"perm": [0, 1, 3, 2]} if kind == "Transpose" else {}
    )
    found = Made().rounded().then(kind, **more).conv().then(kind, **more).rounded().read(tmp_path)
    assert found.computing_8bit == 1


def test_integer_operators_count(tmp_path: Path) -> None:
    made = Made()
    s, z, zi = made.scale(0.5), made.zero(), made.zero(np.int8)
    q = made.node("QuantizeLinear", ["x0", s, z])
    q = made.node("QLinearConv", [q, s, z, "w8", made.scale(0.25, 0.5, 1.0, 3.0), zi, s, z])
    half = made.node("ConvInteger", [q, "w8"])
    made.at = made.node("Cast", [half], to=TensorProto.FLOAT)
    found = made.read(tmp_path)
    assert (found.operators, found.computing_8bit) == (2, 1)


def test_free_shapes_are_counted_by_operators(tmp_path: Path) -> None:
    found = Made().rounded().conv().rounded().conv().read(tmp_path, ("n", 4, "h", 8))
    assert found.macs is None and found.share_8bit == 1.0


@pytest.mark.parametrize("content", [b"", b"no model", bytes(range(256)) * 10])
def test_broken_files_are_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelError):
        read_quantised(tmp_path / "m.onnx")
