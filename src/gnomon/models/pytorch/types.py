"""Shared by the readers of PyTorch's exported files: numbers of types, and multiply-accumulates of operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = tuple[int, ...]

TYPES = {
    0: ("uint8", 1),
    1: ("int8", 1),
    2: ("int16", 2),
    3: ("int32", 4),
    4: ("int64", 8),
    5: ("float16", 2),
    6: ("float32", 4),
    7: ("float64", 8),
    9: ("complex64", 8),
    10: ("complex128", 16),
    11: ("bool", 1),
    15: ("bfloat16", 2),
    27: ("uint16", 2),
    28: ("uint32", 4),
    29: ("uint64", 8),
}
"""numpy's name of a type and the bytes of an element, by c10's number of the type."""

_PRODUCTS = {"addmm": 1, "mm": 0, "bmm": 0, "matmul": 0, "linear": 0}
"""The input of a product that is its left side, whose last axis is summed up."""


def macs(name: str, shapes: Sequence[Shape], result: Shape | None, *, transposed: bool = False) -> int | None:
    """Multiply-accumulates of an operator ("conv2d") by the shapes of its tensors; None where one is not fixed."""
    convolution = name == "convolution" or name.startswith(("conv1d", "conv2d", "conv3d"))
    side = 1 if convolution else _PRODUCTS.get(name)
    if side is None:
        return 0
    if result is None or len(shapes) <= side or any(-1 in shape for shape in (*shapes[: side + 1], result)):
        return None
    if convolution:
        # Weights are [outputs, inputs of a group, ..]; of a transposed convolution [inputs, outputs of a group, ..].
        return math.prod(shapes[0] if transposed else result) * math.prod(shapes[1][1:])
    return math.prod(result) * (shapes[side][-1] if shapes[side] else 1)
