"""The share of a quantised ONNX model's arithmetic that is done on 8-bit values.

A quantiser may leave operators in floating point without notice. An operator counts if a runtime can compute it in 8
bits: an integer operator (QLinearConv, ConvInteger, ..), or a floating-point operator between DequantizeLinear and
QuantizeLinear. ONNX Runtime's documentation describes this QDQ form, which exists from operator set 10 on ("Quantize
ONNX models").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.models.model import Limits, model_errors
from gnomon.models.onnx.file import read_onnx
from gnomon.models.onnx.graph import Shapes, onnx_graph, tensor_shapes

if TYPE_CHECKING:
    import onnx


_INT8 = {2, 3}  # TensorProto.UINT8 and INT8
_UINT8 = 2
_FLOAT_OPERATORS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
_WHOLE = {"QLinearConv", "QLinearMatMul", "QGemm"}
_HALF = {"ConvInteger", "MatMulInteger"}
_MOVES = {"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "MaxPool"}
"""Operators that commute with a scale: they turn 8-bit values into 8-bit values."""

_FUSED = _MOVES | {
    *("Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Softmax"),
    *("Add", "Mul", "Sub", "Div", "BatchNormalization", "Concat", "AveragePool", "GlobalAveragePool", "ReduceMean"),
}
"""Operators that may come between a convolution and the QuantizeLinear that rounds its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """The part of a model that computes in 8 bits.

    `operators` counts its convolutions and matrix products. `computing_8bit` counts those whose two factors are 8-bit
    values and whose result is rounded to 8 bits or is an output of the model. `macs` are the multiply-accumulates of
    all these operators, and `macs_8bit` those of the operators that compute in 8 bits; each is None if a shape that it
    depends on is not fixed.
    """

    operators: int
    computing_8bit: int
    macs: int | None
    macs_8bit: int | None

    @property
    def share_8bit(self) -> float:
        """The share of multiply-accumulates in 8 bits, or of operators if shapes are not fixed; 0 if there are none."""
        if self.macs and self.macs_8bit is not None:
            return self.macs_8bit / self.macs
        return self.computing_8bit / self.operators if self.operators else 0.0


def read_quantised(path: Path) -> Quantised:
    """The quantised part of the ONNX model in a file. Raises ModelError for a broken file."""
    with model_errors(path):
        file = read_onnx(path, Limits())
        model = file.model
        shapes = tensor_shapes(model, Limits())
        graph = onnx_graph(model, shapes, name=path.stem, digest=file.digest)
        flow = _Flow(model.graph, shapes)
        counted, nodes = _FLOAT_OPERATORS | _WHOLE | _HALF, zip(model.graph.node, graph.operators, strict=True)
        products = [(node, operator) for node, operator in nodes if node.op_type in counted]
        computing = [operator for node, operator in products if flow.reads(node) and flow.gives(node)]
        return Quantised(
            operators=len(products),
            computing_8bit=len(computing),
            macs=_sum([operator.macs for _, operator in products]),
            macs_8bit=_sum([operator.macs for operator in computing]),
        )


class _Flow:
    """The tensors that represent 8-bit values, followed forwards and backwards through the operators."""

    def __init__(self, graph: onnx.GraphProto, shapes: Shapes) -> None:
        self._types = {name: kind for name, (kind, _) in shapes.items()}
        self._from_8bit: set[str] = set()
        for node in graph.node:
            if node.op_type == "QuantizeLinear" and node.output:
                # The type is the zero point's; without a zero point, it is that in an attribute, or else uint8.
                written = next(
                    (entry.i for entry in node.attribute if entry.name == "output_dtype" and entry.i), _UINT8
                )
                zero_point = next(iter(node.input[2:3]), "")
                self._types[node.output[0]] = self._types.get(zero_point, 0) if zero_point else written
            if node.op_type == "DequantizeLinear" and node.input:
                comes = self._types.get(node.input[0]) in _INT8
            else:
                comes = node.op_type in _MOVES and bool(node.input) and node.input[0] in self._from_8bit
            if comes:
                self._from_8bit.update(node.output)
        rounded = {value.name for value in graph.output}
        lost: set[str] = set()
        for node in reversed(graph.node):
            rounds = node.op_type == "QuantizeLinear" and self._types.get(node.output[0]) in _INT8
            passes = node.op_type in _FUSED and all(name in rounded and name not in lost for name in node.output)
            (rounded if rounds or passes else lost).update(node.input[:1] if rounds else node.input)
        self._to_8bit = rounded - lost

    def reads(self, node: onnx.NodeProto) -> bool:
        """Return True if both factors are 8-bit values."""
        if node.op_type in _WHOLE | _HALF:
            return True
        return len(node.input) > 1 and all(name in self._from_8bit for name in node.input[:2])

    def gives(self, node: onnx.NodeProto) -> bool:
        """Return True if a node's result is used only after rounding to 8 bits, or as an output of the model."""
        if node.op_type in _WHOLE:
            return True
        return node.op_type not in _HALF and bool(node.output) and node.output[0] in self._to_8bit


def _sum(counts: Sequence[int | None]) -> int | None:
    whole = [count for count in counts if count is not None]
    return sum(whole) if len(whole) == len(counts) else None
