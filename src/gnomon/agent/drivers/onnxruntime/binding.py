"""Calls of an ONNX Runtime session on arrays that stay in place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...arrays import Buffers, as_array


def bound_call(
    session: Any, segment: dict[str, Any], buffers: Buffers, *, own_memory: bool = False
) -> Callable[[], object]:
    """A call on the arrays in place; text, sequences and maps, which cannot be bound, are handed over.

    With `own_memory` a provider of the session may have one: an input is copied there when it is bound, so that it is
    bound again in each call. Outputs are bound in the CPU's memory, which a run waits for.
    """
    values = (*session.get_inputs(), *session.get_outputs())
    outputs = dict(segment["outputs"])
    if any(not v.type.startswith("tensor(") or v.type == "tensor(string)" for v in values):
        feeds = {name: buffers[buffer] for name, buffer in segment["inputs"]}

        def run() -> None:
            for buffer, value in zip(outputs.values(), session.run(list(outputs), feeds), strict=True):
                buffers[buffer] = as_array(value)

        return run
    binding = session.io_binding()

    def bind() -> None:
        for name, buffer in segment["inputs"]:
            array = buffers[buffer]
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    bind()
    made = []
    for number, (name, buffer) in enumerate(outputs.items()):
        if buffer in buffers:
            array = buffers[buffer]
            binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        else:
            binding.bind_output(name, "cpu")
            made.append((number, name, buffer))
    call = functools.partial(session.run_with_iobinding, binding)
    if not made and not own_memory:
        return call

    def call_and_take() -> None:
        if own_memory:
            bind()
        # Bound again in each call: ONNX Runtime would keep the size that the call before found out.
        for _, name, _ in made:
            binding.bind_output(name, "cpu")
        call()
        results = binding.get_outputs() if made else ()
        for number, _, buffer in made:
            buffers[buffer] = results[number].numpy()

    return call_and_take
