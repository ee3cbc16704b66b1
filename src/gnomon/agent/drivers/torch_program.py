"""Loads a PyTorch exported program without running code hidden in a hostile file.

TVM's child program uses this file through a link.
"""

from __future__ import annotations

import os
from typing import Any


def load_program(path: str) -> Any:
    """The exported program in a .pt2 file. Raises PyTorch's own errors, and ImportError if PyTorch is not installed.

    PyTorch first tries to load weights without running code and, if that fails, in a way that may run code; the second
    attempt is disabled here. Objects of classes that the file names are not loaded either.
    """
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    import torch
    from torch.export.pt2_archive import _package

    vars(_package).pop("pickle", None)
    return torch.export.load(path)
