"""Training one network: epochs, validation after each, one look at the test part at the end.

The outcome depends on the job alone; on the CPU, with as many threads, bit for bit, in one go or from a file of it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.sample import Failure
from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.spaces.layers import Shape
from gnomon.training import network as counts
from gnomon.training.data.dataset import Dataset, Supply, trained_images
from gnomon.training.data.streamed import Streamed
from gnomon.training.data.streamed import Supply as StreamedSupply
from gnomon.training.job import (
    MISFITS,
    Checkpoint,
    Epoch,
    Trained,
    TrainJob,
    checkpoint_bytes,
    load_partial,
    restore,
    save_bytes,
)
from gnomon.training.modules import load_factories
from gnomon.training.network import build, seeded, state_of, torch_package
from gnomon.training.recipe import check, make_optimizer

OnEpoch = Callable[[Epoch], None]


@dataclass(slots=True, kw_only=True, eq=False)
class _Run:
    """A training that is under way."""

    job: TrainJob
    digest: str
    dataset: Dataset | Streamed
    supply: Supply | StreamedSupply
    module: Any
    optimizer: Any
    scheduler: Any
    history: list[Epoch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    correct: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    failure: Failure | None = None


def train(job: TrainJob, *, partial: Path | None = None, on_epoch: OnEpoch | None = None) -> Trained:
    """Trains a network and returns what came of it; that a training fails is part of the result.

    After each epoch all that the next one depends on is written to the file `partial`, from which the same job goes
    on; a file of another job, or a broken one, is told of in the notes and overwritten. `on_epoch` is called after each
    epoch. ProblemError for a recipe, a net, parameters, or data that are invalid; UsageError for epochs or a device
    that cannot, and where the file cannot be written; RuntimeMissingError without PyTorch.
    """
    check(job.recipe)
    _check_job(job)
    if partial is not None and not partial.parent.is_dir():
        raise UsageError(f"there is no folder {partial.parent}", hint="Make it first.")
    missing = missing_device(job.device)
    if missing is not None:
        return Trained(key=job.key, failure=missing)
    with threads(job.threads), _repeatable(job.device):
        try:
            run = _begin(job, partial)
        except (RuntimeError, MemoryError) as error:
            return Trained(key=job.key, failure=failure_of(error))
        try:
            _epochs(run, partial, on_epoch)
            return _result(run)
        finally:
            run.supply.close()


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads for PyTorch's operators meanwhile."""
    torch = torch_package()
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _repeatable(device: str) -> contextlib.AbstractContextManager[None]:
    """cuDNN chooses no kernels by their times meanwhile, and none that sum in any order."""
    if device == "cpu":
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[None] = torch_package().backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True
    )
    return found


def check_device(device: str) -> None:
    """UsageError where this machine has no such device to train on."""
    if (missing := missing_device(device)) is not None:
        raise UsageError(
            f"no network can be trained on {device}: {missing.message}",
            hint="Leave --train-on out to train on the processor; `nvidia-smi` lists the GPUs that the driver has.",
        )


def missing_device(device: str) -> Failure | None:
    """The failure where this machine has no such device to train on. UsageError for an unknown name."""
    if device not in {"cpu", "cuda"}:
        raise UsageError(f"there is no device {device!r} to train on", hint="Known: cpu, cuda.")
    if device == "cpu" or torch_package().cuda.is_available():
        return None
    return Failure(stage="load", kind="refused", transient=False, message="PyTorch finds no CUDA device here")


def check_fit(inputs: Sequence[Shape], output: Shape, dataset: Dataset | Streamed) -> None:
    """ProblemError where a net cannot take a data set's images, or has no output for one of its classes."""
    if len(inputs) != 1 or tuple(inputs[0][1:]) != dataset.shape:
        raise ProblemError(
            f"the net's inputs are {tuple(inputs)}, and an image is {dataset.shape}",
            hint="Make the space for the data set's images.",
        )
    if len(output) != 2 or output[1] < dataset.classes:
        raise ProblemError(
            f"the net makes {output}, and the data set has {dataset.classes} classes",
            hint="Make the space for the data set's classes.",
        )


def failure_of(error: BaseException) -> Failure:
    """An error of PyTorch as data."""
    said = str(error) or type(error).__name__
    memory = isinstance(error, MemoryError) or any(
        word in said.lower() for word in ("out of memory", "can't allocate memory", "not enough memory")
    )
    return Failure(
        stage="run", kind="memory" if memory else "refused", transient=memory, message=said.splitlines()[0][:500]
    )


def divergence(loss: float, epoch: int) -> Failure | None:
    """The failure that a loss tells of, if it is not finite."""
    if math.isfinite(loss):
        return None
    message = f"the training diverged: the loss of epoch {epoch} is {loss}"
    return Failure(stage="run", kind="wrong-output", transient=False, message=message)


def step(module: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """One step of the optimiser on a batch; returns the loss, summed over the batch, without waiting for it."""
    optimizer.zero_grad(set_to_none=True)
    loss = torch_package().nn.functional.cross_entropy(module(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach() * len(y)


def _check_job(job: TrainJob) -> None:
    if job.threads < 1:
        raise UsageError(f"{job.threads} threads cannot train", hint="Give a whole number from 1.")


def _begin(job: TrainJob, partial: Path | None) -> _Run:
    """The network, optimiser and scheduler as they are at the job's first epoch, or later by the partial file."""
    dataset = job.data.open()
    net = job.tagged.net
    check_fit(net.inputs, net.shape(net.output), dataset)
    digest = job.digest()
    found, note = load_partial(partial, digest) if partial is not None else (None, "")
    if found is not None and found.epochs > job.recipe.epochs:
        note = f"{partial} is of epoch {found.epochs}, behind {job.recipe.epochs}, and was not used"
    elif found is not None:
        run = _fresh(job, dataset, digest)
        try:
            _take_over(run, found)
            return run
        except MISFITS as error:
            note = f"{partial} does not fit this training ({error}), and was not used"
    run = _fresh(job, dataset, digest)
    run.notes += [note] * bool(note)
    return run


def _fresh(job: TrainJob, dataset: Dataset | Streamed, digest: str) -> _Run:
    torch = torch_package()
    factories = load_factories(job.modules, job.tagged)
    # Faster for convolutions; but other people's blocks may ask for a view of what they take as it usually lies.
    order = torch.contiguous_format if factories else torch.channels_last
    module = build(job.tagged, job.init, seed=job.seed, factories=factories).to(job.device, memory_format=order)
    optimizer, scheduler = make_optimizer(job.recipe, module.parameters())
    return _Run(
        job=job,
        digest=digest,
        dataset=dataset,
        supply=dataset.supply(job.device, job.recipe, seed=job.seed),
        module=module,
        optimizer=optimizer,
        scheduler=scheduler,
    )


def _take_over(run: _Run, found: Checkpoint) -> None:
    restore(run.module, run.optimizer, run.scheduler, found)
    run.history = list(found.history)


def _epochs(run: _Run, partial: Path | None, on_epoch: OnEpoch | None) -> None:
    """Trains until the recipe's end, or until it fails."""
    job = run.job
    while run.failure is None and len(run.history) < job.recipe.epochs:
        began, cpu_began, number = time.perf_counter(), time.process_time(), len(run.history)
        # Blocks that drop at random draw the same in an epoch, whatever was before.
        with _told(run), seeded(job.seed, "epoch", number) if job.modules else contextlib.nullcontext():
            loss = _epoch(run, number)
            run.failure = divergence(loss, number)
            if run.failure is None:
                run.correct = right(run.module, run.supply.evaluation("validation"))
        if run.failure is not None:
            return
        took, cpu_took = time.perf_counter() - began, time.process_time() - cpu_began
        accuracy = float(run.correct.mean())
        run.history.append(Epoch(number=number, loss=loss, accuracy=accuracy, seconds=took, cpu_seconds=cpu_took))
        if partial is not None:
            save_bytes(_checkpoint(run), partial)
        if on_epoch is not None:
            on_epoch(run.history[-1])
    with _told(run):
        if not len(run.correct):  # all epochs were trained before
            run.correct = right(run.module, run.supply.evaluation("validation"))


@contextlib.contextmanager
def _told(run: _Run) -> Iterator[None]:
    """What PyTorch raises meanwhile ends the training, as data."""
    try:
        yield
    except GnomonError:
        raise
    except Exception as error:  # PyTorch's, and whatever a user's block raises
        run.failure = failure_of(error)


def _epoch(run: _Run, number: int) -> float:
    """One pass over the training part; returns the mean loss."""
    torch = torch_package()
    recipe = run.job.recipe
    run.module.train()
    total = torch.zeros((), device=run.job.device)
    for x, y in run.supply.training(number):
        total += step(run.module, run.optimizer, x, y)
    if run.scheduler is not None:
        run.scheduler.step()
    return float(total.item()) / trained_images(run.dataset.count("train"), recipe.batch_size)


def _checkpoint(run: _Run) -> bytes:
    return checkpoint_bytes(
        Checkpoint(
            digest=run.digest,
            state=state_of(run.module),
            optimizer=run.optimizer.state_dict(),
            history=tuple(run.history),
        )
    )


def _result(run: _Run) -> Trained:
    job, dataset, epochs = run.job, run.dataset, len(run.history)
    finished, test = epochs == job.recipe.epochs, None
    if run.failure is None and finished:
        with _told(run):
            test = float(right(run.module, run.supply.evaluation("test")).mean())
    whole = run.failure is None
    return Trained(
        key=job.key,
        state=state_of(run.module) if whole else None,
        accuracies=tuple(row.accuracy for row in run.history),
        losses=tuple(row.loss for row in run.history),
        correct=run.correct if whole else None,
        test_accuracy=test,
        epochs=epochs,
        samples=epochs * trained_images(dataset.count("train"), job.recipe.batch_size),
        seconds=sum(row.seconds for row in run.history),
        cpu_seconds=sum(row.cpu_seconds for row in run.history),
        macs=counts.macs(job.tagged.net) // job.tagged.net.inputs[0][0],
        failure=run.failure,
        notes=tuple(run.notes),
    )


def right(module: Any, batches: Iterable[tuple[Any, Any]]) -> NDArray[np.uint8]:
    """For each image of the batches 1 where the module, in evaluation mode, has its class right, else 0."""
    torch = torch_package()
    module.eval()
    with torch.no_grad():
        found = [(module(x).argmax(1) == y) for x, y in batches]
    return np.asarray(torch.cat(found).to(torch.uint8).cpu().numpy())
