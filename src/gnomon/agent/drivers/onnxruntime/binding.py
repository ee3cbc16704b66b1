"""Calls of an ONNX Runtime session on arrays that stay in place."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import BFLOAT16, Array, Buffers, as_array

if TYPE_CHECKING:
    from gnomon.wire import Segment

_BFLOAT16 = 16
"""bfloat16 in TensorProto.DataType of onnx.proto."""


def bound_call(session: Any, segment: Segment, buffers: Buffers, *, own_memory: bool = False) -> Callable[[], object]:
    """A call that uses the arrays in place; text, sequences and maps cannot be bound and are passed instead.

    With `own_memory`, a provider of the session may have its own memory: binding an input then copies it there, so each
    call binds the inputs again. Outputs are bound in the CPU's memory, and a run waits for them.
    """
    values = (*session.get_inputs(), *session.get_outputs())
    outputs = dict(segment["outputs"])
    if any(not v.type.startswith("tensor(") or v.type == "tensor(string)" for v in values):
        return fed_call(session, segment, buffers)
    binding = session.io_binding()

    def bind() -> None:
        for name, buffer in segment["inputs"]:
            array = buffers[buffer]
            binding.bind_input(name, "cpu", 0, _element(array), array.shape, array.ctypes.data)

    bind()
    unshaped = []
    for number, (name, buffer) in enumerate(outputs.items()):
        if buffer in buffers:
            array = buffers[buffer]
            binding.bind_output(name, "cpu", 0, _element(array), array.shape, array.ctypes.data)
        else:
            binding.bind_output(name, "cpu")
            unshaped.append((number, name, buffer))
    call = functools.partial(session.run_with_iobinding, binding)
    if not unshaped and not own_memory:
        return call

    def call_and_take() -> None:
        if own_memory:
            bind()
        # These are bound again in each call, because ONNX Runtime would otherwise keep the size from the previous call.
        for _, name, _ in unshaped:
            binding.bind_output(name, "cpu")
        call()
        results = binding.get_outputs() if unshaped else ()
        for number, _, buffer in unshaped:
            buffers[buffer] = _array(results[number])

    return call_and_take


def fed_call(session: Any, segment: Segment, buffers: Buffers) -> Callable[[], object]:
    """A call as in most programs: a map of arrays goes in, and new arrays come out.

    Arrays of bfloat16, which `run` does not accept, are passed as ONNX Runtime's own values.
    """
    outputs = dict(segment["outputs"])
    feeds = {name: buffers[buffer] for name, buffer in segment["inputs"]}
    call: Callable[[], list[Any]] = functools.partial(session.run, list(outputs), feeds)
    if any(end.type == "tensor(bfloat16)" for end in (*session.get_inputs(), *session.get_outputs())):
        call = _values_call(session, list(outputs), feeds)

    def run() -> None:
        for buffer, value in zip(outputs.values(), call(), strict=True):
            buffers[buffer] = as_array(value)

    return run


def _values_call(session: Any, outputs: list[str], feeds: Mapping[str, Array]) -> Callable[[], list[Any]]:
    from onnxruntime import OrtValue as make

    given = {
        name: make.ortvalue_from_numpy_with_onnx_type(array["bfloat16"], _BFLOAT16)
        if array.dtype == BFLOAT16
        else make.ortvalue_from_numpy(array)
        for name, array in feeds.items()
    }
    return lambda: [_array(value) for value in session.run_with_ort_values(outputs, given)]


def _element(array: Array) -> Any:
    """The type of an array's elements in the format that a binding accepts."""
    return _BFLOAT16 if array.dtype == BFLOAT16 else array.dtype.type


def _array(value: Any) -> Array:
    """A copy of a value of ONNX Runtime as an array. ONNX Runtime itself does not support this for bfloat16."""
    if value.element_type() != _BFLOAT16:
        array: Array = value.numpy()
        return array
    shape = tuple(value.shape())
    held = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())
    return np.array(held, np.uint16).view(BFLOAT16).reshape(shape)
