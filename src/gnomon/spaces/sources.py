"""Blocks that are not written down layer by layer: PyTorch modules, functions that make one, and ONNX files.

Their layers come from the ONNX model that is made from the block for the shape that arrives.
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
"""The prefix of the origin of a choice from a space in Python; the name of the space follows."""

_HINT = "Give a torch.nn.Module, a function that makes one of the channels of its input, or an ONNX file's path."
_READER = "gnomon.session.nets:net_of_source"
"""The function that reads the layers, given by name because it loads PyTorch and onnx, which only such blocks need."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A block from a `torch.nn.Module`, a function of the channels of its input, or an ONNX file.

    The function makes a module for those channels. An ONNX file has one input. Two sources are equal if they have the
    same object. ProblemError for anything else.
    """

    made_of: Any

    def __post_init__(self) -> None:
        """Refuse anything that cannot be made into a block."""
        if not (self.is_file or callable(self.made_of)):
            raise ProblemError(f"{shown(self.made_of)} cannot be a block", hint=_HINT)

    def __call__(self, x: Symbol) -> Symbol:
        """Write the layers of the block down. ProblemError if that fails, or for operators that cannot be layers."""
        read = at(_READER, "what reads modules", callable, "a function")
        return x.trace.written(read(self.made_of, x.shape), x)

    @property
    def is_file(self) -> bool:
        """Whether this is an ONNX file, which nothing can train."""
        return isinstance(self.made_of, str | os.PathLike)


def is_module(target: Any) -> bool:
    """Return True for a PyTorch module, and for a class of modules."""
    torch = sys.modules.get("torch")  # whoever has made a module has imported PyTorch
    if torch is None:
        return False
    base = torch.nn.Module
    return issubclass(target, base) if isinstance(target, type) else isinstance(target, base)
