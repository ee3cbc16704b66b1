"""Blocks that are not written layer by layer: PyTorch modules, functions that make modules, and ONNX files.

Their layers are read from an ONNX model of the block for the shape of its input.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from gnomon.core.strict_json import shown
from gnomon.errors import ProblemError
from gnomon.plugins import at
from gnomon.spaces.unit import Symbol

OF_PYTHON = "space:"
"""The prefix of the origin of a choice from a space written in Python; the name of the space follows."""

_HINT = "Give a torch.nn.Module, a function from the input channels to a module, or the path of an ONNX file."
_READER = "gnomon.session.nets:net_of_source"
"""The function that reads the layers. It is given by name because it loads PyTorch and onnx, which only such blocks
need.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A block from a `torch.nn.Module`, a function of the number of input channels, or an ONNX file.

    The function makes a module for that number of channels. An ONNX file must have one input. ProblemError for anything
    else.
    """

    made_of: Any

    def __post_init__(self) -> None:
        """Refuse anything that cannot be made into a block."""
        if not (self.is_file or callable(self.made_of)):
            raise ProblemError(f"{shown(self.made_of)} cannot be a block", hint=_HINT)

    def __call__(self, x: Symbol) -> Symbol:
        """The output of the block for `x`. ProblemError if its layers cannot be read, or an operator has no layer."""
        read = at(_READER, "the reader of modules", callable, "a function")
        return x.trace.written(read(self.made_of, x.shape), x)

    @property
    def is_file(self) -> bool:
        """Whether this is an ONNX file, which cannot be trained."""
        return isinstance(self.made_of, str | os.PathLike)


def is_module(target: Any) -> bool:
    """Return True for a PyTorch module, and for a class of modules."""
    torch = sys.modules.get("torch")  # without PyTorch imported, there is no module
    if torch is None:
        return False
    base = torch.nn.Module
    return issubclass(target, base) if isinstance(target, type) else isinstance(target, base)
