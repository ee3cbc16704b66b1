"""What is to be trained, and what came out: values that travel between processes.

A training between two epochs as bytes: plain tensors and numbers, which PyTorch reads without unpickling objects.

Weights as files of safetensors: tensors by name, as `load_state_dict` of a module takes them. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.installing import needed
from gnomon.core.sample import Failure
from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.spaces.cells.space import State, TaggedNet
from gnomon.system.files import read_at_most, write_whole
from gnomon.training.data.dataset import Packed, PackedFile
from gnomon.training.data.streamed import Streamed
from gnomon.training.network import load_state, torch_package
from gnomon.training.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainJob:
    """A training: of a net, by a recipe, on a data set.

    `key` names it for the caller. `init` are parameters to begin with; those it lacks are made of (seed, tag). `device`
    is "cpu" or "cuda", `threads` those of one process on the CPU. `modules` are the origins of the net's blocks that
    are modules (`gnomon.training.modules`), by their names.
    """

    key: str
    tagged: TaggedNet
    recipe: Recipe
    data: Packed | PackedFile | Streamed
    seed: int = 0
    init: State | None = None
    device: str = "cpu"
    threads: int = 1
    modules: Mapping[str, str] = field(default_factory=dict)

    def digest(self) -> str:
        """SHA-256 of what decides the outcome of each epoch: not the name, nor the threads."""
        digest = hashlib.sha256(
            json.dumps(
                [trained_net_digest(self.tagged), self.recipe.canonical(), self.seed, self.data.digest, self.device]
            ).encode()
        )
        for name, array in sorted((self.init or {}).items()):
            digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One epoch: the mean training loss, the accuracy on the validation part after it, what both took."""

    number: int
    loss: float
    accuracy: float
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """What came of a training, since its epoch 0, whichever processes trained it.

    `accuracies` (validation) and `losses` are a value an epoch. `correct` says of each validation image whether the net
    has its class right after the last epoch. `test_accuracy` is taken once, after the recipe's last epoch, and None
    before. `state` and `correct` are None where nothing was trained. `samples` are images that were trained on, `macs`
    multiply-accumulates of one image. `failure` is how it ended where it did: "wrong-output" for a loss that is not
    finite, "memory", "refused" for what PyTorch cannot do.
    """

    key: str
    state: dict[str, NDArray[Any]] | None = field(default=None, repr=False)
    accuracies: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    correct: NDArray[np.uint8] | None = field(default=None, repr=False)
    test_accuracy: float | None = None
    epochs: int = 0
    samples: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    macs: int = 0
    failure: Failure | None = None
    notes: tuple[str, ...] = ()


def trained_net_digest(tagged: TaggedNet) -> str:
    """SHA-256 of a net and its tags."""
    net = tagged.net
    nodes = [[tag, node.unit.canonical(), *node.inputs] for tag, node in zip(tagged.tags, net.nodes, strict=True)]
    return hashlib.sha256(json.dumps([net.inputs, net.output, nodes]).encode()).hexdigest()


_VERSION = 1

MISFITS = (ProblemError, ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError)
"""What a checkpoint that does not fit makes `restore` raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All that the next epoch depends on. `digest` says of which training; `optimizer` is its `state_dict`.

    The scheduler has no state of its own: where it stands follows from the number of epochs.
    """

    digest: str
    state: State = field(repr=False)
    optimizer: Mapping[str, Any] = field(repr=False)
    history: tuple[Epoch, ...]

    @property
    def epochs(self) -> int:
        """How many epochs were trained."""
        return len(self.history)


def checkpoint_bytes(one: Checkpoint) -> bytes:
    """A checkpoint as a file of PyTorch."""
    torch = torch_package()
    stream = BytesIO()
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
        found = torch.load(BytesIO(content), weights_only=True, map_location="cpu")
        if found["version"] != _VERSION:
            raise ValueError(f"version {found['version']!r}")
        state: State = {str(name): tensor.numpy() for name, tensor in found["state"].items()}
        history = tuple(Epoch(**row) for row in found["history"])
        if [row.number for row in history] != list(range(len(history))):
            raise ValueError("its epochs are not 0, 1, ..")
        return Checkpoint(digest=str(found["digest"]), state=state, optimizer=dict(found["optimizer"]), history=history)
    except Exception as error:  # a broken file makes PyTorch raise nearly anything
        raise ValueError(_first_line(error)) from error


def save_bytes(content: bytes, path: Path) -> None:
    """Write a file: all of it, or what was there stays. UsageError if it cannot be written."""
    try:
        write_whole(content, path)
    except OSError as error:
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
        return None, f"{path} cannot be read ({error.strerror or error}), and training began again"
    try:
        found = read_checkpoint(content)
    except ValueError as error:
        return None, f"{path} is broken ({error}), and training began again"
    if found.digest != digest:
        return None, f"{path} is of another training, and was not used"
    return found, ""


def restore(module: Any, optimizer: Any, scheduler: Any, found: Checkpoint) -> None:
    """Makes a net's module, and what is fresh of an optimiser and a scheduler, what they were at a checkpoint.

    Raises nearly anything for a checkpoint that does not fit: see `MISFITS`.
    """
    load_state(module, found.state)
    with warnings.catch_warnings():
        # The optimiser's steps are not repeated, only the scheduler's: its values follow from their number.
        warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*", category=UserWarning)
        for _ in range(found.epochs if scheduler is not None else 0):
            scheduler.step()
    optimizer.load_state_dict(dict(found.optimizer))


_HINT = "Train the network again: the file is one that gnomon space profile writes."
_MOST_BYTES = 8 << 30


def _safetensors() -> Any:
    with needed("weights are files of safetensors, which cannot be loaded", "safetensors", python=sys.executable):
        import safetensors.numpy
    return safetensors.numpy


def write_state(path: Path, state: State) -> None:
    """Write weights, whole or not at all. OSError where that fails, RuntimeMissingError without safetensors."""
    whole = {name: np.asarray(array, order="C") for name, array in state.items()}
    write_whole(_safetensors().save(whole, metadata={"format": "pt"}), path)


def read_state(path: Path) -> dict[str, NDArray[Any]]:
    """The weights of a file; nothing of it is executed.

    UsageError where it cannot be read, ProblemError for anything else than tensors of numbers by name, or more than
    8 GiB.
    """
    try:
        with path.open("rb") as file:
            content = read_at_most(file, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint=_HINT) from error
    if len(content) > _MOST_BYTES:
        raise ProblemError(f"{path} holds more than the {_MOST_BYTES >> 30} GiB that are read", hint=_HINT)
    try:
        found: dict[str, NDArray[Any]] = _safetensors().load(content)
        return found
    except RuntimeMissingError:
        raise
    except Exception as error:  # what a broken file makes it raise is of any kind
        raise ProblemError(f"{path} holds no weights: {_first_line(error)}", hint=_HINT) from error


def _first_line(error: Exception) -> str:
    """What an error of PyTorch's says, whose texts have many lines, or none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
