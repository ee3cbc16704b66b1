"""Multiply-accumulates of ONNX operators, from the shapes of their tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gnomon.core.graph import Tensor

Shape = tuple[int, ...]


def macs(kind: str, inputs: Sequence[Tensor | None], output: Tensor | None) -> int | None:
    """Multiply-accumulates of one operator; None where a shape that counts is not fixed.

    `inputs` are in the operator's order, None for an absent one; `output` is the first result.
    """
    if kind not in _RULES:
        return 0
    places, rule = _RULES[kind]
    if len(inputs) <= max(places):
        return None
    shapes = [inputs[place] for place in places] + [output]
    found = [None if t is None else t.shape for t in shapes]
    known = [shape for shape in found if shape is not None and -1 not in shape]
    return rule(known[0], known[1], known[2]) if len(known) == 3 else None


def _convolution(data: Shape, weights: Shape, result: Shape) -> int:
    """Weights [outputs, inputs of a group, kernel..]."""
    return math.prod(result) * math.prod(weights[1:])


def _transposed(data: Shape, weights: Shape, result: Shape) -> int:
    """Weights [inputs, outputs of a group, kernel..]: each input pixel meets all of its channel's."""
    return math.prod(data) * math.prod(weights[1:])


def _matmul(left: Shape, right: Shape, result: Shape) -> int:
    return math.prod(result) * (left[-1] if left else 1)


def _gemm(left: Shape, right: Shape, result: Shape) -> int:
    """Left is [m, k] or [k, m]; the result [m, n] says which."""
    if len(left) != 2 or not result or result[0] == 0:
        return 0
    return math.prod(result) * (math.prod(left) // result[0])


_Rule = Callable[[Shape, Shape, Shape], int]
_RULES: dict[str, tuple[tuple[int, int], _Rule]] = {
    "Conv": ((0, 1), _convolution),
    "FusedConv": ((0, 1), _convolution),
    "ConvInteger": ((0, 1), _convolution),
    "QLinearConv": ((0, 3), _convolution),
    "ConvTranspose": ((0, 1), _transposed),
    "MatMul": ((0, 1), _matmul),
    "MatMulInteger": ((0, 1), _matmul),
    "QLinearMatMul": ((0, 3), _matmul),
    "Gemm": ((0, 1), _gemm),
}
"""Of each operator with multiply-accumulates: the places of its two factors, and the count."""
