"""Small TFLite models for the tests of LiteRT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flatbuffers
import numpy as np
from circle_schema import circle as schema
from zoo.flat import ACTIVATION, OPERATOR, OPTIONS, FlatWriter, convolution

SHAPE = (1, 4, 4, 8)


def tflite(*kinds: str, shape: tuple[int, ...] = SHAPE, signature: tuple[int, ...] | None = None) -> bytes:
    """A chain of operators over one shape: "conv", "softmax", "floor_mod" (which XNNPACK lacks), "log_softmax" (which
    the GPU lacks), "custom" (unknown).

    `signature` is the shape that the file declares beside it, with -1 for a dimension that it leaves open.
    """
    writer = FlatWriter()
    source = last = writer.value("input", shape)
    for number, kind in enumerate(kinds):
        out = writer.value(f"t{number}", shape)
        if kind == "conv":
            weights = np.random.default_rng(number).standard_normal((shape[-1], 1, 1, shape[-1])).astype(np.float32)
            w = writer.constant(f"w{number}", weights)
            b = writer.constant(f"b{number}", np.full(shape[-1], 0.1, np.float32))
            code, options_kind, options = convolution(1, ACTIVATION.RELU, depthwise=False)
            writer.operator(code, [last, w, b], [out], options_kind, options)
        elif kind == "floor_mod":
            k = writer.constant(f"k{number}", np.full((1, 1, 1, shape[-1]), 0.7, np.float32))
            writer.operator(OPERATOR.FLOOR_MOD, [last, k], [out], OPTIONS.FloorModOptions, _floor_mod())
        elif kind == "softmax":
            options = schema.SoftmaxOptions.SoftmaxOptionsT()
            options.beta = 1.0
            writer.operator(OPERATOR.SOFTMAX, [last], [out], OPTIONS.SoftmaxOptions, options)
        elif kind == "log_softmax":
            writer.operator(OPERATOR.LOG_SOFTMAX, [last], [out], 0, None)
        else:
            writer.operator(OPERATOR.CUSTOM, [last], [out], 0, None)
            writer._codes[-1].customCode = "NoSuchOperator"
        last = out
    for tensor in writer._tensors:
        if signature and tensor.buffer == 0:
            tensor.shapeSignature = list(signature)
    return writer.pack([source], [last], b"TFL3")


def with_signatures(parts: Mapping[str, bytes], *, calls: tuple[int, int] | None = None) -> bytes:
    """One file of several models, each a signature of it by its name.

    With `calls` two more subgraphs follow: the second has an operator IF whose branches have these numbers.
    """
    whole = schema.Model.ModelT()
    whole.version, whole.operatorCodes, whole.subgraphs = 3, [], []
    whole.buffers, whole.signatureDefs = [schema.Buffer.BufferT()], []
    for name, data in parts.items():
        part = schema.Model.ModelT.InitFromObj(schema.Model.Model.GetRootAs(data, 0))
        (graph,) = part.subgraphs
        for tensor in graph.tensors:
            tensor.buffer += len(whole.buffers)
        for operator in graph.operators:
            operator.opcodeIndex += len(whole.operatorCodes)
        made = schema.SignatureDef.SignatureDefT()
        made.signatureKey, made.subgraphIndex = name, len(whole.subgraphs)
        made.inputs = [_named("in", graph.inputs[0])]
        made.outputs = [_named("out", graph.outputs[0])]
        whole.buffers += part.buffers
        whole.operatorCodes += part.operatorCodes
        whole.subgraphs.append(graph)
        whole.signatureDefs.append(made)
    if calls is not None:
        code, operator, options = schema.OperatorCode.OperatorCodeT(), schema.Operator.OperatorT(), _if(*calls)
        code.builtinCode = code.deprecatedBuiltinCode = OPERATOR.IF
        operator.opcodeIndex, operator.inputs, operator.outputs = len(whole.operatorCodes), [], []
        operator.builtinOptionsType, operator.builtinOptions = OPTIONS.IfOptions, options
        whole.operatorCodes.append(code)
        whole.subgraphs += [schema.SubGraph.SubGraphT(), schema.SubGraph.SubGraphT()]
        whole.subgraphs[-1].operators = [operator]
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(whole.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _named(name: str, index: int) -> Any:
    entry = schema.TensorMap.TensorMapT()
    entry.name, entry.tensorIndex = name, index
    return entry


def _if(then: int, otherwise: int) -> Any:
    options = schema.IfOptions.IfOptionsT()
    options.thenSubgraphIndex, options.elseSubgraphIndex = then, otherwise
    return options


def _floor_mod() -> Any:
    return schema.FloorModOptions.FloorModOptionsT()
