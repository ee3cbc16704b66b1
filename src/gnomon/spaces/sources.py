"""Blocks that are not written down layer by layer: modules of PyTorch's, functions that make one, and ONNX files.

Their layers are those of the ONNX model that is made of them for the shape that arrives.
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
"""The prefix of the origin of a choice of a space in Python; the name of the space follows."""

_HINT = "Give a torch.nn.Module, a function that makes one of the channels of its input, or an ONNX file's path."
_READER = "gnomon.session.nets:net_of_source"
"""The function that reads the layers, by name: it loads PyTorch and onnx, which only such blocks need."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A block of a `torch.nn.Module`, of a function of the channels of its input, or of an ONNX file.

    The function makes a module of those channels. An ONNX file takes one input. Two sources are equal where they are
    one object. ProblemError for anything else.
    """

    made_of: Any

    def __post_init__(self) -> None:
        """Refuse what no block can be made of."""
        if not (self.is_file or callable(self.made_of)):
            raise ProblemError(f"{shown(self.made_of)} cannot be a block", hint=_HINT)

    def __call__(self, x: Symbol) -> Symbol:
        """Writes its layers down. ProblemError for what fails, or has operators that no layer can be."""
        read = at(_READER, "what reads modules", callable, "a function")
        return x.trace.written(read(self.made_of, x.shape), x)

    @property
    def is_file(self) -> bool:
        """Whether it is an ONNX file, which nothing can train."""
        return isinstance(self.made_of, str | os.PathLike)


def is_module(target: Any) -> bool:
    """Whether it is a module of PyTorch's, or a class of such."""
    torch = sys.modules.get("torch")  # what has made a module has imported it
    if torch is None:
        return False
    base = torch.nn.Module
    return issubclass(target, base) if isinstance(target, type) else isinstance(target, base)
