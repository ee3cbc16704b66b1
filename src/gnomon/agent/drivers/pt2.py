"""PyTorch's exported programs (.pt2) on the device."""

from __future__ import annotations

import operator
import os
from typing import Any

from ..arrays import BFLOAT16, Array
from ..driver import refusing
from . import torch_program


def load_program(path: str) -> Any:
    """The exported program in a file. Refused if PyTorch cannot load it, ImportError if PyTorch is not installed."""
    import torch  # noqa: F401 - its absence is not a refusal

    with refusing(f"PyTorch cannot load {os.path.basename(path)}: ", most=300):
        return torch_program.load_program(path)


def tensor_over(torch: Any, array: Array) -> Any:
    """A tensor over an array's memory."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view("i2")).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_over(torch: Any, tensor: Any) -> Array:
    """An array over a tensor's memory. PyTorch itself does not support this for bfloat16."""
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(BFLOAT16)  # type: ignore[no-any-return]
    return tensor.numpy()  # type: ignore[no-any-return]


def operators_of(graph: Any) -> dict[str, int]:
    """PyTorch's names for the operators of a program's graph, with the operators' numbers in the file.

    A node that selects one of several outputs is not an operator, and is not in the file either.
    """
    names = [node.name for node in graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    return {name: index for index, name in enumerate(names)}
