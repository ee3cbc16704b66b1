"""EfficientNet-Lite0 as an NHWC FlatBuffers model (Circle or TFLite)."""

from __future__ import annotations

import numpy as np
from circle_schema import circle as schema

from zoo.efficientnet import IMAGE_SIZE, Convolution, Network
from zoo.flat import ACTIVATION, OPERATOR, OPTIONS, FlatWriter, convolution, pool, reshape


def as_flat(network: Network, identifier: bytes) -> bytes:
    """The model's bytes: input "input" [1, 224, 224, 3], output "probabilities" [1, 1000]."""
    writer = FlatWriter()
    source = x = writer.value("input", (1, IMAGE_SIZE, IMAGE_SIZE, 3))
    size, channels = IMAGE_SIZE, 3
    for block in network.blocks:
        shortcut = x
        for row in block.convolutions:
            size, channels = -(-size // row.stride), row.weights.shape[0]
            x = _convolve(writer, row, x, size)
        if block.residual:
            total = writer.value(f"{block.name}/add", (1, size, size, channels))
            options = schema.AddOptions.AddOptionsT()
            writer.operator(OPERATOR.ADD, [x, shortcut], [total], OPTIONS.AddOptions, options)
            x = total
    pooled = writer.value("pool", (1, 1, 1, channels))
    writer.operator(OPERATOR.AVERAGE_POOL_2D, [x], [pooled], OPTIONS.Pool2DOptions, pool(size, 1))
    shape = writer.constant("flat/shape", np.array([1, channels], np.int32))
    flat = writer.value("flat", (1, channels))
    writer.operator(OPERATOR.RESHAPE, [pooled, shape], [flat], OPTIONS.ReshapeOptions, reshape([1, channels]))
    classes = len(network.linear_bias)
    w = writer.constant("linear/weights", network.linear_weights)
    b = writer.constant("linear/bias", network.linear_bias)
    logits = writer.value("logits", (1, classes))
    linear = schema.FullyConnectedOptions.FullyConnectedOptionsT()
    writer.operator(OPERATOR.FULLY_CONNECTED, [flat, w, b], [logits], OPTIONS.FullyConnectedOptions, linear)
    output = writer.value("probabilities", (1, classes))
    softmax = schema.SoftmaxOptions.SoftmaxOptionsT()
    softmax.beta = 1.0
    writer.operator(OPERATOR.SOFTMAX, [logits], [output], OPTIONS.SoftmaxOptions, softmax)
    return writer.pack([source], [output], identifier)


def _convolve(writer: FlatWriter, row: Convolution, x: int, size: int) -> int:
    if row.depthwise:
        kernel = row.weights[:, 0].transpose(1, 2, 0)[None]
    else:
        kernel = row.weights.transpose(0, 2, 3, 1)
    w = writer.constant(f"{row.name}/weights", kernel)
    b = writer.constant(f"{row.name}/bias", row.bias)
    y = writer.value(row.name, (1, size, size, row.weights.shape[0]))
    activation = ACTIVATION.RELU6 if row.relu6 else ACTIVATION.NONE
    code, kind, options = convolution(row.stride, activation, depthwise=row.depthwise)
    writer.operator(code, [x, w, b], [y], kind, options)
    return y
