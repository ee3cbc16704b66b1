"""What is to be trained, and what came out: values that travel between processes.

Weights are files of safetensors: tensors by name, as `load_state_dict` of a module takes them. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.sample import Failure
from gnomon.errors import ProblemError
from gnomon.installing import needed
from gnomon.spaces.cells.space import State, TaggedNet
from gnomon.system.files import read_file, write_whole
from gnomon.training.data.dataset import Dataset, MappedDataset
from gnomon.training.data.streamed import Streamed
from gnomon.training.recipe import Recipe

TrainingData = Dataset | MappedDataset | Streamed
"""Images as a process that trains gets them: by value, in a file of this machine, or to be read as they are needed."""

_HINT = "Train the network again: the file is one that gnomon space profile writes."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainJob:
    """A training: of a net, by a recipe, on a data set.

    `init` are parameters to begin with; those it lacks are made of (seed, tag). `device` is "cpu" or "cuda". `modules`
    are the origins of the net's blocks that are modules (`gnomon.training.modules`), by their names.
    """

    tagged: TaggedNet
    recipe: Recipe
    data: TrainingData
    seed: int = 0
    init: State | None = None
    device: str = "cpu"
    modules: Mapping[str, str] = field(default_factory=dict)

    def digest(self) -> str:
        """SHA-256 of what decides the outcome of each epoch."""
        decisive = [self.recipe.canonical(), self.seed, self.data.digest, self.device]
        return digest_of(self.tagged, decisive, self.init or {})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """What came of a training, since its epoch 0, whichever processes trained it.

    `accuracies` (validation) and `losses` are a value an epoch. `correct` says of each validation image whether the net
    has its class right after the last epoch. `test_accuracy` is taken once, after the recipe's last epoch, and None
    before. `state` and `correct` are None where nothing was trained. `samples` are images that were trained on, `macs`
    multiply-accumulates of one image. `failure` is how it ended where it did: "wrong-output" for a loss that is not
    finite, "memory", "refused" for what PyTorch cannot do.
    """

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


def digest_of(tagged: TaggedNet, decisive: Sequence[object], state: State) -> str:
    """SHA-256 of a net and its tags, of what else decides, as JSON values, and of parameters."""
    net = tagged.net
    nodes = [[tag, node.unit.canonical(), *node.inputs] for tag, node in zip(tagged.tags, net.nodes, strict=True)]
    own = hashlib.sha256(json.dumps([net.inputs, net.output, nodes]).encode()).hexdigest()
    digest = hashlib.sha256(json.dumps([own, *decisive]).encode())
    for name, array in sorted(state.items()):
        digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _safetensors() -> Any:
    with needed("weights are files of safetensors, which cannot be loaded", "safetensors"):
        import safetensors.numpy
    return safetensors.numpy


def write_state(path: Path, state: State) -> None:
    """Write weights, whole or not at all. OSError where that fails, RuntimeMissingError without safetensors."""
    whole = {name: np.asarray(array, order="C") for name, array in state.items()}
    write_whole(_safetensors().save(whole, metadata={"format": "pt"}), path)


def read_state(path: Path) -> dict[str, NDArray[Any]]:
    """The weights of a file; nothing of it is executed.

    UsageError where it cannot be read, ProblemError for anything else than tensors of numbers by name.
    """
    library = _safetensors()
    content = read_file(path, hint=_HINT, most_bytes=2 << 30)
    try:
        state: dict[str, NDArray[Any]] = library.load(content)
        return state
    except Exception as error:  # what a broken file makes it raise is of any kind
        raise ProblemError(f"{path} holds no weights: {str(error)[:200]}", hint=_HINT) from error
