"""Writes TFLite and Circle models: the two formats share one FlatBuffers schema, and Circle's is the larger.

The schema is Samsung ONE's ``nnpackage/schema/circle_schema.fbs``, as packaged in PyPI's circle-schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
from circle_schema import circle as schema
from numpy.typing import NDArray

OPERATOR = schema.BuiltinOperator.BuiltinOperator
OPTIONS = schema.BuiltinOptions.BuiltinOptions
PADDING = schema.Padding.Padding
ACTIVATION = schema.ActivationFunctionType.ActivationFunctionType
TYPES = {"float32": schema.TensorType.TensorType.FLOAT32, "int32": schema.TensorType.TensorType.INT32}


class FlatWriter:
    """Collects tensors and operators of one subgraph, then packs them; shapes are NHWC."""

    def __init__(self) -> None:
        self._buffers: list[Any] = [schema.Buffer.BufferT()]
        self._tensors: list[Any] = []
        self._operators: list[Any] = []
        self._codes: list[Any] = []

    def value(self, name: str, shape: Sequence[int]) -> int:
        """Add a float32 tensor that an operator writes, and return its index."""
        return self._add(name, shape, "float32", 0)

    def constant(self, name: str, data: NDArray[Any]) -> int:
        """Add a constant of float32 or int32, and return its index."""
        buffer = schema.Buffer.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        self._buffers.append(buffer)
        return self._add(name, data.shape, data.dtype.name, len(self._buffers) - 1)

    def operator(self, code: int, inputs: Sequence[int], outputs: Sequence[int], kind: int, options: Any) -> None:
        """Add an operator; `kind` is the member of BuiltinOptions for `options`."""
        entry = schema.Operator.OperatorT()
        entry.opcodeIndex = self._code(code)
        entry.inputs, entry.outputs = list(inputs), list(outputs)
        entry.builtinOptionsType, entry.builtinOptions = kind, options
        self._operators.append(entry)

    def pack(self, inputs: Sequence[int], outputs: Sequence[int], identifier: bytes) -> bytes:
        """The model's bytes; `identifier` is b"TFL3" or b"CIR0"."""
        graph = schema.SubGraph.SubGraphT()
        graph.tensors, graph.operators, graph.name = self._tensors, self._operators, "main"
        graph.inputs, graph.outputs = list(inputs), list(outputs)
        model = schema.Model.ModelT()
        model.version = 3 if identifier == b"TFL3" else 0
        model.operatorCodes, model.subgraphs, model.buffers = self._codes, [graph], self._buffers
        model.description = "gnomon zoo"
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(model.Pack(builder), identifier)
        return bytes(builder.Output())

    def _add(self, name: str, shape: Sequence[int], dtype: str, buffer: int) -> int:
        tensor = schema.Tensor.TensorT()
        tensor.name, tensor.shape, tensor.type = name, [int(n) for n in shape], TYPES[dtype]
        tensor.buffer = buffer
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def _code(self, code: int) -> int:
        for index, known in enumerate(self._codes):
            if known.builtinCode == code:
                return index
        entry = schema.OperatorCode.OperatorCodeT()
        # Readers older than the 32-bit field read the 8-bit field.
        entry.builtinCode, entry.deprecatedBuiltinCode, entry.version = code, min(code, 127), 1
        self._codes.append(entry)
        return len(self._codes) - 1


def convolution(stride: int, activation: int, *, depthwise: bool) -> tuple[int, int, Any]:
    """The operator code, the kind of options and the options of a SAME-padded convolution."""
    if depthwise:
        options = schema.DepthwiseConv2DOptions.DepthwiseConv2DOptionsT()
        options.depthMultiplier = 1
    else:
        options = schema.Conv2DOptions.Conv2DOptionsT()
    options.padding = PADDING.SAME
    options.strideH = options.strideW = stride
    options.dilationHFactor = options.dilationWFactor = 1
    options.fusedActivationFunction = activation
    if depthwise:
        return OPERATOR.DEPTHWISE_CONV_2D, OPTIONS.DepthwiseConv2DOptions, options
    return OPERATOR.CONV_2D, OPTIONS.Conv2DOptions, options


def pool(size: int, stride: int) -> Any:
    """The options of a square pooling with VALID padding."""
    options = schema.Pool2DOptions.Pool2DOptionsT()
    options.padding = PADDING.VALID
    options.strideH = options.strideW = stride
    options.filterHeight = options.filterWidth = size
    return options


def reshape(shape: Sequence[int]) -> Any:
    """The options of a reshape to `shape`."""
    options = schema.ReshapeOptions.ReshapeOptionsT()
    options.newShape = list(shape)
    return options
