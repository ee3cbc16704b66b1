"""The numbers of types and the multiply-accumulates of operators, for both readers of PyTorch's exported files."""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = tuple[int, ...]

TYPES = dict(enumerate(["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]))
TYPES |= {9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16", 27: "uint16", 28: "uint32", 29: "uint64"}
"""numpy's name for each type, by its number in c10, PyTorch's core library."""

_PRODUCTS = {"addmm": 1, "mm": 0, "bmm": 0, "matmul": 0, "linear": 0}
"""For each product: the place of the left factor among its inputs. The product sums over this factor's last axis."""


def macs(name: str, shapes: Sequence[Shape], result: Shape | None, *, transposed: bool = False) -> int | None:
    """Multiply-accumulates of an operator ("conv2d") from the shapes of its tensors; None if a shape is not fixed."""
    convolution = name == "convolution" or name.startswith(("conv1d", "conv2d", "conv3d"))
    side = 1 if convolution else _PRODUCTS.get(name)
    if side is None:
        return 0
    if result is None or len(shapes) <= side or any(-1 in shape for shape in (*shapes[: side + 1], result)):
        return None
    if convolution:
        # Weights are [outputs, inputs of a group, ..]; for a transposed convolution [inputs, outputs of a group, ..].
        return math.prod(shapes[0] if transposed else result) * math.prod(shapes[1][1:])
    return math.prod(result) * (shapes[side][-1] if shapes[side] else 1)
