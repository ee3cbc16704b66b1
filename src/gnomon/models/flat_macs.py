"""Multiply-accumulates of TFLite and Circle operators, from the shapes of their tensors alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnomon.core.graph import Tensor

Shape = tuple[int, ...]


def macs(kind: str, inputs: Sequence[Tensor | None], tensors: Sequence[Tensor], outputs: Sequence[int]) -> int | None:
    """Multiply-accumulates of one operator; None where a shape that counts is not fixed.

    `inputs` are in the operator's order, None for an absent one; `outputs` index into `tensors`.
    """
    rule = _RULES.get(kind)
    if rule is None:
        return 0
    shapes = [None if t is None else t.shape for t in inputs]
    result = tensors[outputs[0]].shape if outputs else None
    data, weights = _data_and_weights(kind, shapes)
    if not _fixed(data) or not _fixed(weights) or not _fixed(result):
        return None
    return rule(data or (), weights or (), result or ())


def _data_and_weights(kind: str, shapes: Sequence[Shape | None]) -> tuple[Shape | None, Shape | None]:
    if kind in {"TRANSPOSE_CONV", "CONV_3D_TRANSPOSE"}:  # (output shape, weights, data)
        return (shapes[2], shapes[1]) if len(shapes) > 2 else (None, None)
    return (shapes[0], shapes[1]) if len(shapes) > 1 else (None, None)


def _fixed(shape: Shape | None) -> bool:
    return shape is not None and -1 not in shape


def _convolution(data: Shape, weights: Shape, result: Shape) -> int:
    """Weights [outputs, height, width, inputs of a group]."""
    return math.prod(result) * math.prod(weights[1:])


def _depthwise(data: Shape, weights: Shape, result: Shape) -> int:
    """Weights [1, height, width, channels]."""
    return math.prod(result) * math.prod(weights[1:-1])


def _transposed(data: Shape, weights: Shape, result: Shape) -> int:
    """Weights [outputs, height, width, inputs]."""
    return math.prod(data) * math.prod(weights[:-1])


def _convolution_3d(data: Shape, weights: Shape, result: Shape) -> int:
    """Weights [depth, height, width, inputs, outputs]."""
    return math.prod(result) * math.prod(weights[:-1])


def _transposed_3d(data: Shape, weights: Shape, result: Shape) -> int:
    """Weights [depth, height, width, outputs, inputs]."""
    return math.prod(data) * math.prod(weights[:-1])


def _linear(data: Shape, weights: Shape, result: Shape) -> int:
    """Weights [outputs, inputs]."""
    return math.prod(result) * (weights[-1] if weights else 1)


def _batch_matmul(data: Shape, weights: Shape, result: Shape) -> int:
    """Left [.., m, k] or [.., k, m]; the result [.., m, n] says which of the two is k."""
    if len(data) < 2 or len(result) < 2 or result[-2] == 0:
        return 0
    return math.prod(result) * (data[-1] * data[-2] // result[-2])


_RULES = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "TRANSPOSE_CONV": _transposed,
    "CONV_3D": _convolution_3d,
    "CONV_3D_TRANSPOSE": _transposed_3d,
    "FULLY_CONNECTED": _linear,
    "BATCH_MATMUL": _batch_matmul,
}
