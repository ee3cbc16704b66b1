"""What an executor calls in another process, here or on another machine: everything by value, failures as data.

A pool of processes is started with the method "spawn": a fork of a process that has PyTorch's threads may hang.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.core.sample import Failure
from gnomon.errors import RuntimeMissingError
from gnomon.spaces.cell_space import TaggedNet
from gnomon.spaces.weights import State
from gnomon.training.data import Packed, PackedFile
from gnomon.training.evaluation import RECALIBRATE, evaluate
from gnomon.training.job import Trained, TrainJob
from gnomon.training.loop import failure_of, missing_device, threads, train
from gnomon.training.proxies import score
from gnomon.training.supernet import Supernet, SupernetJob, train_supernet


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyJob:
    """A network to be scored; see `gnomon.training.proxies.score`."""

    key: str
    tagged: TaggedNet
    data: Packed | PackedFile
    seed: int = 0
    inits: int = 3
    batch: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The scores of a network by name, None for one that could not be told, or the failure of all."""

    key: str
    scores: dict[str, float | None] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathJob:
    """A network to be evaluated with a supernet's parameters; see `gnomon.training.evaluation.evaluate`.

    `pool` needs the network's own parameters only: `gnomon.spaces.weights.shared` picks them.
    """

    key: str
    tagged: TaggedNet
    pool: State = field(repr=False)
    data: Packed | PackedFile
    seed: int = 0
    recalibrate: int = RECALIBRATE
    device: str = "cpu"
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluated:
    """For each validation image 1 where the network is right, else 0, or the failure."""

    key: str
    correct: NDArray[np.uint8] | None = None
    failure: Failure | None = None


def run_training(job: TrainJob, partial: str | None = None) -> Trained:
    """`gnomon.training.loop.train`; without PyTorch the failure says how to install it.

    `partial` is a path on the machine that trains.
    """
    try:
        return train(job, partial=None if partial is None else Path(partial))
    except RuntimeMissingError as error:
        return Trained(key=job.key, failure=_missing(error))


def run_proxies(job: ProxyJob) -> Scored:
    """`gnomon.training.proxies.score`; without PyTorch the failure says how to install it."""
    try:
        found = score(job.tagged, job.data.open(), seed=job.seed, inits=job.inits, batch=job.batch)
    except RuntimeMissingError as error:
        return Scored(key=job.key, failure=_missing(error))
    return Scored(key=job.key, scores=found)


def run_path(job: PathJob) -> Evaluated:
    """`gnomon.training.evaluation.evaluate`; without PyTorch the failure says how to install it."""
    try:
        missing = missing_device(job.device)
        if missing is not None:
            return Evaluated(key=job.key, failure=missing)
        with threads(job.threads):
            correct = evaluate(
                job.pool,
                job.tagged,
                job.data.open(),
                seed=job.seed,
                recalibrate=job.recalibrate,
                device=job.device,
            )
    except RuntimeMissingError as error:
        return Evaluated(key=job.key, failure=_missing(error))
    except (RuntimeError, MemoryError) as error:
        return Evaluated(key=job.key, failure=failure_of(error))
    return Evaluated(key=job.key, correct=correct)


def run_supernet(job: SupernetJob, partial: str | None = None) -> Supernet:
    """`gnomon.training.supernet.train_supernet`; without PyTorch the failure says how to install it.

    `partial` is a path on the machine that trains.
    """
    try:
        return train_supernet(job, partial=None if partial is None else Path(partial))
    except RuntimeMissingError as error:
        return Supernet(state=None, history=(), failure=_missing(error))


def _missing(error: RuntimeMissingError) -> Failure:
    return Failure(stage="load", kind="refused", transient=False, message=f"{error.message}; {error.hint}")
