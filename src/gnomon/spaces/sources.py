"""Blocks that are not written down layer by layer: modules of PyTorch's, functions that make one, and ONNX files.

Their layers are those of the ONNX model that is made of them for the shape that arrives.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from gnomon.plugins import at
from gnomon.spaces.unit import Symbol

_READER = "gnomon.session.nets:net_of_source"
"""What makes the layers. It loads PyTorch and onnx, which no space needs without such a block: so it is named here."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A block by what it is made of: a `torch.nn.Module`, a function of the channels of its input, or an ONNX file.

    The function makes a module of those channels. An ONNX file takes one input. Two sources are equal where they are
    one object.
    """

    made_of: Any

    def __call__(self, x: Symbol) -> Symbol:
        """Writes its layers down. ProblemError for what is none, fails, or has operators that no layer can be."""
        read = at(_READER, "what reads modules", callable, "a function")
        return x.trace.written(read(self.made_of, x.shape), x)

    @property
    def is_file(self) -> bool:
        """Whether it is an ONNX file, which nothing can train."""
        return isinstance(self.made_of, str | os.PathLike)


def is_module(found: Any) -> bool:
    """Whether it is a module of PyTorch's, or a class of such."""
    torch = sys.modules.get("torch")  # what has made a module has imported it
    if torch is None:
        return False
    base = torch.nn.Module
    return issubclass(found, base) if isinstance(found, type) else isinstance(found, base)
