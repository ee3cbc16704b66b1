"""Weights as files of PyTorch: a dictionary of tensors by name, as `torch.save` of a module's state writes it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import ProblemError, UsageError
from gnomon.spaces.weights import State
from gnomon.training.package import torch_package

_HINT = "Train the network again: the file is one that gnomon space profile writes."


def write_state(path: Path, state: State) -> None:
    """Write weights, whole or not at all. OSError where it cannot be written, RuntimeMissingError without PyTorch."""
    torch = torch_package()
    partial = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            torch.save({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()}, file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_state(path: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of a file; only tensors are read, nothing of it is executed.

    UsageError where it cannot be read, ProblemError for anything but float32 tensors by name.
    """
    torch = torch_package()
    try:
        with path.open("rb") as file:
            found = torch.load(file, weights_only=True, map_location="cpu")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=_HINT) from error
    except Exception as error:  # what PyTorch raises for a broken file is of any kind
        raise ProblemError(f"{path} holds no weights: {str(error).splitlines()[0][:200]}", hint=_HINT) from error
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(one, torch.Tensor) and one.dtype == torch.float32
        for name, one in found.items()
    ):
        raise ProblemError(f"{path} holds something else than float32 tensors by name", hint=_HINT)
    return {name: one.numpy() for name, one in found.items()}
