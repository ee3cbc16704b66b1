"""A training between two epochs as bytes: plain tensors and numbers, which PyTorch reads without unpickling objects."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import ProblemError, UsageError
from gnomon.spaces.weights import State
from gnomon.training.job import Epoch
from gnomon.training.package import torch_package
from gnomon.training.torch_net import load_state

_VERSION = 1

MISFITS = (ProblemError, ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError)
"""What a checkpoint that does not fit makes `restore` raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All that the next epoch depends on. `digest` says of which training; `optimizer` is its `state_dict`.

    The scheduler has no state of its own: where it stands follows from the number of epochs.
    """

    digest: str
    state: Mapping[str, NDArray[np.float32]] = field(repr=False)
    optimizer: Mapping[str, Any] = field(repr=False)
    history: tuple[Epoch, ...]

    @property
    def epochs(self) -> int:
        """How many epochs were trained."""
        return len(self.history)


def checkpoint_bytes(one: Checkpoint) -> bytes:
    """A checkpoint as a file of PyTorch."""
    torch = torch_package()
    stream = io.BytesIO()
    document = {
        "version": _VERSION,
        "digest": one.digest,
        "state": {name: torch.from_numpy(array) for name, array in one.state.items()},
        "optimizer": dict(one.optimizer),
        "history": [asdict(epoch) for epoch in one.history],
    }
    torch.save(document, stream)
    return stream.getvalue()


def read_checkpoint(content: bytes) -> Checkpoint:
    """The checkpoint that `checkpoint_bytes` wrote. ValueError for anything else; nothing of it is executed."""
    torch = torch_package()
    try:
        found = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
        if found["version"] != _VERSION:
            raise ValueError(f"version {found['version']!r}")
        state: State = {str(name): tensor.numpy() for name, tensor in found["state"].items()}
        history = tuple(Epoch(**row) for row in found["history"])
        if [row.number for row in history] != list(range(len(history))):
            raise ValueError("its epochs are not 0, 1, ..")
        return Checkpoint(digest=str(found["digest"]), state=state, optimizer=dict(found["optimizer"]), history=history)
    except Exception as error:  # a broken file makes PyTorch raise nearly anything
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(said[:200]) from error


def save_bytes(content: bytes, path: Path) -> None:
    """Write a file: all of it, or what was there stays. UsageError if it cannot be written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="Give a folder that can be written and has room.",
        ) from error


def load_partial(path: Path, digest: str) -> tuple[Checkpoint | None, str]:
    """The checkpoint in a file, and a note where there is a file that is of no use for this training."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"{path} cannot be read ({error.strerror or error}), and training began anew"
    try:
        found = read_checkpoint(content)
    except ValueError as error:
        return None, f"{path} is broken ({error}), and training began anew"
    if found.digest != digest:
        return None, f"{path} is of another training, and was not used"
    return found, ""


def restore(layers: Mapping[str, Any], optimizer: Any, scheduler: Any, found: Checkpoint) -> None:
    """Makes layers by tag, and what is fresh of an optimiser and a scheduler, what they were at a checkpoint.

    Raises nearly anything for a checkpoint that does not fit: see `MISFITS`.
    """
    load_state(layers, found.state)
    with warnings.catch_warnings():
        # The optimiser's steps are not repeated, only the scheduler's: its values follow from their number.
        warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*", category=UserWarning)
        for _ in range(found.epochs if scheduler is not None else 0):
            scheduler.step()
    optimizer.load_state_dict(dict(found.optimizer))
