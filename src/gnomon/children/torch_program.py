"""Loads a PyTorch exported program without running what a hostile file would smuggle in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def load_program(path: Path) -> Any:
    """The exported program of a .pt2 file. Raises what PyTorch raises, ImportError where it is not installed.

    PyTorch loads weights without code first, and with code where that fails; here it fails. Objects of classes of the
    file's own choice are not loaded either.
    """
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    import torch
    from torch.export.pt2_archive import _package

    vars(_package).pop("pickle", None)
    return torch.export.load(str(path))
