"""PyTorch's exported programs (.pt2) on the device, loaded without running what a hostile file would smuggle in."""

from __future__ import annotations

import operator
import os
from typing import Any

from ..arrays import BFLOAT16, Array
from ..driver import refusing


def load_program(path: str) -> Any:
    """The exported program of a file. Refused where PyTorch cannot load it, ImportError where it is not installed.

    PyTorch loads weights without code first, and with code where that fails; here it fails. Objects of classes of the
    file's own choice are not loaded either.
    """
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    import torch
    from torch.export.pt2_archive import _package

    vars(_package).pop("pickle", None)
    with refusing(f"PyTorch does not load {os.path.basename(path)}: ", most=300):
        return torch.export.load(path)


def tensor_over(torch: Any, array: Array) -> Any:
    """A tensor over an array's memory."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view("i2")).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_over(torch: Any, tensor: Any) -> Array:
    """An array over a tensor's memory. PyTorch makes none of bfloat16 itself."""
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(BFLOAT16)  # type: ignore[no-any-return]
    return tensor.numpy()  # type: ignore[no-any-return]


def operators_of(graph: Any) -> dict[str, int]:
    """Names of the operators of a program's graph, by which PyTorch knows them, and their numbers in the file.

    What takes one of several outputs is not an operator: the file does not have it either.
    """
    names = [node.name for node in graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    return {name: index for index, name in enumerate(names)}
