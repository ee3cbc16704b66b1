"""EfficientNet-Lite0 as an NCHW ONNX model, opset 17."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from zoo.efficientnet import IMAGE_SIZE, Convolution, Network


def as_onnx(network: Network) -> bytes:
    """The model's bytes: input "input" [1, 3, 224, 224], output "probabilities" [1, 1000]."""
    zero, six = (numpy_helper.from_array(np.array(v, np.float32), f"relu6/{n}") for v, n in ((0, "low"), (6, "high")))
    initializers = [zero, six]
    nodes: list[onnx.NodeProto] = []
    x, size = "input", IMAGE_SIZE
    for block in network.blocks:
        shortcut = x
        for row in block.convolutions:
            initializers += [
                numpy_helper.from_array(row.weights, f"{row.name}/weights"),
                numpy_helper.from_array(row.bias, f"{row.name}/bias"),
            ]
            nodes += _convolve(row, x, size)
            x, size = row.name, -(-size // row.stride)
        if block.residual:
            nodes.append(helper.make_node("Add", [x, shortcut], [f"{block.name}/add"], f"{block.name}/add"))
            x = f"{block.name}/add"
    initializers += [
        numpy_helper.from_array(network.linear_weights, "linear/weights"),
        numpy_helper.from_array(network.linear_bias, "linear/bias"),
    ]
    nodes += [
        helper.make_node("GlobalAveragePool", [x], ["pool"], "pool"),
        helper.make_node("Flatten", ["pool"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "linear/weights", "linear/bias"], ["logits"], "linear", transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "efficientnet-lite0",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, IMAGE_SIZE, IMAGE_SIZE])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, len(network.linear_bias)])],
        initializers,
    )
    return finish(graph, opset=17)


def finish(graph: onnx.GraphProto, *, opset: int) -> bytes:
    """Wrap a graph as a model with every shape inferred, and return its bytes."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="zoo")
    model.ir_version = 8
    inferred: Any = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    return bytes(inferred.SerializeToString())


def _convolve(row: Convolution, x: str, size: int) -> list[onnx.NodeProto]:
    kernel = row.weights.shape[2]
    # TensorFlow's SAME puts the odd pixel of padding at the end.
    total = max((-(-size // row.stride) - 1) * row.stride + kernel - size, 0)
    before, after = total // 2, total - total // 2
    result = f"{row.name}/linear" if row.relu6 else row.name
    convolution = helper.make_node(
        "Conv",
        [x, f"{row.name}/weights", f"{row.name}/bias"],
        [result],
        row.name,
        kernel_shape=[kernel, kernel],
        strides=[row.stride, row.stride],
        pads=[before, before, after, after],
        group=row.weights.shape[0] if row.depthwise else 1,
    )
    if not row.relu6:
        return [convolution]
    clip = helper.make_node("Clip", [result, "relu6/low", "relu6/high"], [row.name], f"{row.name}/relu6")
    return [convolution, clip]
