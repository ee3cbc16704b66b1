"""A small Circle model on which a mix of two backends is really faster than either alone.

The model has two large 3x3 convolutions, a pooling, twenty-four tiny 1x1 convolutions and a linear layer. On x86-64,
onert's ``cpu`` backend is better at the large convolutions, and its ``ruy`` backend at the tiny ones.
"""

from __future__ import annotations

import numpy as np
from circle_schema import circle as schema

from zoo.flat import ACTIVATION, OPERATOR, OPTIONS, FlatWriter, convolution, pool, reshape

TINY_CONVOLUTIONS = 24


def mix_circle() -> bytes:
    """The model's bytes: input [1, 64, 64, 3], output [1, 10], 29 operators, fixed random weights."""
    writer = FlatWriter()
    random = np.random.default_rng(0)

    def convolve(x: int, size: int, channels: tuple[int, int], kernel: int, stride: int, name: str) -> int:
        fan_in = kernel * kernel * channels[0]
        weights = random.standard_normal((channels[1], kernel, kernel, channels[0])) * np.sqrt(2 / fan_in)
        w = writer.constant(f"{name}/weights", weights.astype(np.float32))
        b = writer.constant(f"{name}/bias", np.zeros(channels[1], np.float32))
        y = writer.value(name, (1, size, size, channels[1]))
        code, kind, options = convolution(stride, ACTIVATION.RELU, depthwise=False)
        writer.operator(code, [x, w, b], [y], kind, options)
        return y

    source = writer.value("input", (1, 64, 64, 3))
    x = convolve(source, 32, (3, 16), 3, 2, "large0")
    x = convolve(x, 16, (16, 16), 3, 2, "large1")
    pooled = writer.value("pool", (1, 2, 2, 16))
    writer.operator(OPERATOR.MAX_POOL_2D, [x], [pooled], OPTIONS.Pool2DOptions, pool(8, 8))
    x = pooled
    for i in range(TINY_CONVOLUTIONS):
        x = convolve(x, 2, (16, 16), 1, 1, f"tiny{i}")
    shape = writer.constant("flat/shape", np.array([1, 64], np.int32))
    flat = writer.value("flat", (1, 64))
    writer.operator(OPERATOR.RESHAPE, [x, shape], [flat], OPTIONS.ReshapeOptions, reshape([1, 64]))
    w = writer.constant("linear/weights", (random.standard_normal((10, 64)) * 0.1).astype(np.float32))
    b = writer.constant("linear/bias", np.zeros(10, np.float32))
    output = writer.value("output", (1, 10))
    options = schema.FullyConnectedOptions.FullyConnectedOptionsT()
    writer.operator(OPERATOR.FULLY_CONNECTED, [flat, w, b], [output], OPTIONS.FullyConnectedOptions, options)
    return writer.pack([source], [output], b"CIR0")
