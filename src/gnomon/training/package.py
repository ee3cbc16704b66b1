"""The lazy import of PyTorch: nothing of gnomon loads it before a network is trained."""

from __future__ import annotations

import sys
from typing import Any

from gnomon.core.installing import install_line
from gnomon.errors import RuntimeMissingError


def torch_package() -> Any:
    """The torch package. RuntimeMissingError where it is not installed, or cannot be loaded."""
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: one of its shared libraries is missing
        raise RuntimeMissingError(
            f"training a network needs the package torch, which cannot be loaded: {error}",
            hint=install_line("torch", python=sys.executable),
        ) from error
    return torch
