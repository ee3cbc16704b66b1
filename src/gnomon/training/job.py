"""What is to be trained, and what came out: values that travel between processes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gnomon.core.sample import Failure
from gnomon.spaces.cell_space import TaggedNet
from gnomon.spaces.weights import State
from gnomon.training.data import Packed, PackedFile
from gnomon.training.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainJob:
    """A training: of a net, by a recipe, on a data set.

    `key` names it for the caller. `init` are parameters to begin with; those it lacks are made of (seed, tag). The
    epochs [start, stop) of the recipe's schedule are trained, all of them where `stop` is None; one that does not start
    at 0 goes on from `resume`, which an earlier one's `Trained.resume` is. `device` is "cpu" or "cuda", `threads` those
    of one process on the CPU.
    """

    key: str
    tagged: TaggedNet
    recipe: Recipe
    data: Packed | PackedFile
    seed: int = 0
    init: State | None = None
    device: str = "cpu"
    threads: int = 1
    start: int = 0
    stop: int | None = None
    resume: bytes | None = field(default=None, repr=False)

    @property
    def end(self) -> int:
        """The epoch before which it stops."""
        return self.recipe.epochs if self.stop is None else self.stop

    def digest(self) -> str:
        """SHA-256 of what decides the outcome of each epoch: not the name, the threads, nor which epochs are asked."""
        digest = hashlib.sha256(
            json.dumps(
                [net_digest(self.tagged), self.recipe.canonical(), self.seed, self.data.digest, self.device]
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
    before. `state` and `correct` are None where nothing was trained. `resume` goes on where `stop` is before the
    recipe's end. `samples` are images that were trained on, `macs` multiply-accumulates of one image. `failure` is how
    it ended where it did: "wrong-output" for a loss that is not finite, "memory", "refused" for what PyTorch cannot do.
    """

    key: str
    state: dict[str, NDArray[np.float32]] | None = field(default=None, repr=False)
    resume: bytes | None = field(default=None, repr=False)
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


def net_digest(tagged: TaggedNet) -> str:
    """SHA-256 of a net and its tags."""
    net = tagged.net
    nodes = [[tag, node.unit.canonical(), *node.inputs] for tag, node in zip(tagged.tags, net.nodes, strict=True)]
    return hashlib.sha256(json.dumps([net.inputs, net.output, nodes]).encode()).hexdigest()
