"""ONNX element types and shapes in gnomon's terms, and the lazy import of the onnx package."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from gnomon.core.graph import Tensor
from gnomon.core.installing import install_line
from gnomon.errors import ModelError, RuntimeMissingError

if TYPE_CHECKING:
    import onnx

MAX_SIZE_BYTES = 1 << 62
MAX_RANK = 64

# TensorProto.DataType: name as numpy or ml_dtypes says it, and bits of an element (0: no fixed size).
_TYPES: dict[int, tuple[str, int]] = {
    1: ("float32", 32),
    2: ("uint8", 8),
    3: ("int8", 8),
    4: ("uint16", 16),
    5: ("int16", 16),
    6: ("int32", 32),
    7: ("int64", 64),
    8: ("string", 0),
    9: ("bool", 8),
    10: ("float16", 16),
    11: ("float64", 64),
    12: ("uint32", 32),
    13: ("uint64", 64),
    14: ("complex64", 64),
    15: ("complex128", 128),
    16: ("bfloat16", 16),
    17: ("float8_e4m3fn", 8),
    18: ("float8_e4m3fnuz", 8),
    19: ("float8_e5m2", 8),
    20: ("float8_e5m2fnuz", 8),
    21: ("uint4", 4),
    22: ("int4", 4),
    23: ("float4_e2m1fn", 4),
    24: ("float8_e8m0fnu", 8),
    25: ("uint2", 2),
    26: ("int2", 2),
    27: ("float6_e2m3fn", 6),
    28: ("float6_e3m2fn", 6),
}


def onnx_package() -> Any:
    """The onnx package. Raises RuntimeMissingError where it is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise RuntimeMissingError(
            f"reading an ONNX model needs the package onnx, which cannot be loaded: {error}",
            hint=install_line("onnx", python=sys.executable),
        ) from error
    return onnx


def make_tensor(name: str, element_type: int, shape: tuple[int, ...] | None, *, constant: bool) -> Tensor:
    """A tensor of an ONNX element type; -1 in `shape` is a dimension that is not fixed."""
    dtype, bits = _TYPES.get(element_type, (f"type_{element_type}" if element_type else "unknown", 0))
    size = None
    if bits and shape is not None and -1 not in shape:
        size = -(-math.prod(shape) * bits // 8)
        if size > MAX_SIZE_BYTES:
            raise ModelError(
                f"tensor {name!r} would be larger than any memory", hint="the file is broken: export it again"
            )
    return Tensor(name=name, shape=shape, dtype=dtype, size_bytes=size, constant=constant)


def check_rank(name: str, rank: int) -> None:
    """Raises ModelError for a rank that no tensor has; products over it could take very long."""
    if rank > MAX_RANK:
        raise ModelError(f"tensor {name!r} has {rank} dimensions", hint="the file is broken: export it again")


def value_shape(value: onnx.ValueInfoProto) -> tuple[int, tuple[int, ...] | None]:
    """Element type and shape of a value; type 0 where it is no tensor, shape None where it has no rank."""
    if not value.type.HasField("tensor_type"):
        return 0, None
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    dims = tensor.shape.dim
    check_rank(value.name, len(dims))
    shape = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else -1 for d in dims)
    return tensor.elem_type, shape
