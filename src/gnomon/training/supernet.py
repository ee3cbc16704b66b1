"""Networks that share their weights: one set of layers by tag, trained by drawing networks from it.

Strict fairness (Chu et al., "FairNAS", ICCV 2021): in a step every primitive of every cell group is trained once on the
same batch, by as many networks as the largest group has primitives. A parameter's gradient is the mean over the
networks of the step that have it, so that what all of them share is not moved further than what one of them has.
`gnomon.training.evaluation.evaluate` tells what a network of it is worth.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.sample import Failure
from gnomon.errors import ProblemError, UsageError
from gnomon.spaces.cell_space import CellSpace, TaggedNet
from gnomon.spaces.primitives import Primitive
from gnomon.training.batches import Feed, border_of, feed, trained_images, training_batches
from gnomon.training.checkpoint import MISFITS, Checkpoint, checkpoint_bytes, load_partial, restore, save_bytes
from gnomon.training.data import Dataset, Packed, PackedFile
from gnomon.training.evaluation import evaluate
from gnomon.training.job import Epoch, net_digest
from gnomon.training.loop import (
    OnEpoch,
    check_fit,
    divergence,
    failure_of,
    missing_device,
    threads,
)
from gnomon.training.package import torch_package
from gnomon.training.paths import PathSpace, path_space
from gnomon.training.recipe import Recipe, check, make_optimizer
from gnomon.training.torch_net import assemble, generator, make_layers, state_of_layers

_MODULES = 256  # networks that are kept wired, for small spaces draw one often


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SupernetJob:
    """A supernet of spaces of one layout, in which one name stands for one primitive: networks share what has one tag.

    A network of one space has no primitive of another. The spaces become values that travel to other processes.
    ProblemError where they do not fit together. `device` is "cpu" or "cuda".
    """

    spaces: tuple[CellSpace | PathSpace, ...]
    recipe: Recipe
    data: Packed | PackedFile
    seed: int = 0
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        _check_spaces(self.spaces)
        object.__setattr__(self, "spaces", tuple(path_space(one) for one in self.spaces))

    @property
    def paths(self) -> tuple[PathSpace, ...]:
        """The spaces, in the form in which they travel."""
        return tuple(path_space(one) for one in self.spaces)

    def covers(self) -> list[TaggedNet]:
        """A few networks of each space which together have all of its primitives at all of their places."""
        return [tagged for one in self.paths for tagged in one.covers]

    def digest(self) -> str:
        """SHA-256 of what decides the outcome of each epoch."""
        nets = [net_digest(tagged) for tagged in self.covers()]
        words = [nets, self.recipe.canonical(), self.seed, self.data.digest, self.device, "supernet"]
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Supernet:
    """What came of it: the parameters of all networks by tag, None where it failed, and its epochs.

    An epoch's accuracy is that of one network, another each time; its loss the mean over the networks that were drawn.
    """

    state: dict[str, NDArray[np.float32]] | None = field(repr=False)
    history: tuple[Epoch, ...]
    failure: Failure | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class _Run:
    """A supernet that is being trained. `modules` are the networks that were drawn, by space and assignment."""

    job: SupernetJob
    digest: str
    dataset: Dataset
    layers: dict[str, Any]
    optimizer: Any
    scheduler: Any
    history: list[Epoch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    modules: dict[tuple[int, tuple[int, ...]], Any] = field(default_factory=dict)

    def module(self, space: int, path: tuple[int, ...]) -> Any:
        """The network of an assignment, of the shared layers."""
        if (space, path) not in self.modules:
            while len(self.modules) >= _MODULES:
                del self.modules[next(iter(self.modules))]
            self.modules[space, path] = assemble(self.job.paths[space].tagged(path), self.layers)
        return self.modules[space, path]


def train_supernet(job: SupernetJob, *, partial: Path | None = None, on_epoch: OnEpoch | None = None) -> Supernet:
    """Trains a supernet; that it diverges, or memory ends, is part of the result.

    After each epoch all that the next one depends on is written to `partial`, from which the same job goes on; a
    file of another job, or a broken one, is told of in the notes and overwritten. `on_epoch` is called after each
    epoch. ProblemError for spaces that do not fit together, a recipe, or data; UsageError for a device that cannot be
    meant, and where the file cannot be written; RuntimeMissingError without PyTorch.
    """
    check(job.recipe)
    layout = job.spaces[0].layout
    check_fit((layout.input_shape,), (1, layout.classes), job.data.open())
    if partial is not None and not partial.parent.is_dir():
        raise UsageError(f"there is no folder {partial.parent}", hint="Make it first.")
    missing = missing_device(job.device)
    if missing is not None:
        return Supernet(state=None, history=(), failure=missing)
    with threads(job.threads):
        run = _begin(job, partial)
        border = border_of(job.recipe, run.dataset.shape[1])
        source = feed(run.dataset, run.dataset.train, job.device, border=border)
        failure = None
        while failure is None and len(run.history) < job.recipe.epochs:
            try:
                failure = _one_more(run, source)
            except (RuntimeError, MemoryError, ValueError) as error:
                failure = failure_of(error)
            if failure is None and partial is not None:
                save_bytes(_checkpoint(run), partial)
            if failure is None and on_epoch is not None:
                on_epoch(run.history[-1])
    return Supernet(
        state=state_of_layers(run.layers) if failure is None else None,
        history=tuple(run.history),
        failure=failure,
        notes=tuple(run.notes),
    )


def fair_paths(counts: Sequence[int], random: Any) -> list[tuple[int, ...]]:
    """Assignments in which each choice of each slot occurs once; of slots with fewer choices, as evenly as may be.

    `counts` are the numbers of choices. Drawn with a generator of PyTorch, uniformly.
    """
    torch, most = torch_package(), max(counts)
    columns = []
    for count in counts:
        rounds = [torch.randperm(count, generator=random).tolist() for _ in range(-(-most // count))]
        columns.append(list(itertools.chain(*rounds))[:most])
    return list(zip(*columns, strict=True))


def _check_spaces(spaces: tuple[CellSpace | PathSpace, ...]) -> None:
    if not spaces or any(space.layout != spaces[0].layout for space in spaces):
        raise ProblemError("a supernet is of spaces of one layout", hint="Give at least one, all of one layout.")
    known: dict[str, Primitive] = {}
    for space in (space for space in spaces if isinstance(space, CellSpace)):
        for one in (one for ones in space.choices for one in ones):
            if known.setdefault(one.name, one).digest != one.digest:
                raise ProblemError(f"{one.name} stands for two primitives", hint="Give one of them another number.")


def _begin(job: SupernetJob, partial: Path | None) -> _Run:
    digest = job.digest()
    found, note = load_partial(partial, digest) if partial is not None else (None, "")
    if found is not None and found.epochs <= job.recipe.epochs:
        run = _fresh(job, digest)
        try:
            restore(run.layers, run.optimizer, run.scheduler, found)
            run.history = list(found.history)
            return run
        except MISFITS as error:
            note = f"{partial} does not fit this training ({error}), and was not used"
    run = _fresh(job, digest)
    run.notes += [note] * bool(note)
    return run


def _fresh(job: SupernetJob, digest: str) -> _Run:
    torch = torch_package()
    layers = {
        tag: one.to(job.device, memory_format=torch.channels_last)
        for tag, one in make_layers(job.covers(), None, seed=job.seed).items()
    }
    parameters = [parameter for one in layers.values() for parameter in one.parameters()]
    optimizer, scheduler = make_optimizer(job.recipe, parameters)
    return _Run(
        job=job, digest=digest, dataset=job.data.open(), layers=layers, optimizer=optimizer, scheduler=scheduler
    )


def _one_more(run: _Run, source: Feed) -> Failure | None:
    """Trains an epoch, and adds it to the history unless it diverged."""
    torch, job, number = torch_package(), run.job, len(run.history)
    began, cpu_began = time.perf_counter(), time.process_time()
    random = generator("paths", job.seed, number)
    total, paths = torch.zeros((), device=job.device), 0
    for one in run.layers.values():
        one.train()
    for x, y in training_batches(source, job.recipe, seed=job.seed, epoch=number):
        loss, paths = _step(run, x, y, random)
        total += loss
    if run.scheduler is not None:
        run.scheduler.step()
    loss = float(total.item()) / trained_images(len(source), job.recipe.batch_size) / max(paths, 1)
    failure = divergence(loss, number)
    if failure is None:
        k = number % len(job.paths)
        path = fair_paths(job.paths[k].counts, random)[0]
        pool = state_of_layers(run.module(k, path).by_tag)
        correct = evaluate(pool, job.paths[k].tagged(path), run.dataset, seed=job.seed, device=job.device)
        took, cpu_took = time.perf_counter() - began, time.process_time() - cpu_began
        run.history.append(
            Epoch(number=number, loss=loss, accuracy=float(correct.mean()), seconds=took, cpu_seconds=cpu_took)
        )
    return failure


def _step(run: _Run, x: Any, y: Any, random: Any) -> tuple[Any, int]:
    """One step of the optimiser; the loss summed over images and networks, and the number of networks."""
    functional = torch_package().nn.functional
    run.optimizer.zero_grad(set_to_none=True)
    total, used, paths = 0.0, Counter[str](), 0
    for k, space in enumerate(run.job.paths):
        for path in fair_paths(space.counts, random):
            module = run.module(k, path)
            loss = functional.cross_entropy(module(x), y)
            loss.backward()
            total = total + loss.detach() * len(y)
            used.update(module.by_tag.keys())
            paths += 1
    for tag, times in used.items():
        if times > 1:
            for parameter in run.layers[tag].parameters():
                parameter.grad.div_(times)
    run.optimizer.step()
    return total, paths


def _checkpoint(run: _Run) -> bytes:
    return checkpoint_bytes(
        Checkpoint(
            digest=run.digest,
            state=state_of_layers(run.layers),
            optimizer=run.optimizer.state_dict(),
            history=tuple(run.history),
        )
    )
