"""Trains one network: epochs with a validation after each, and one evaluation on the test part at the end.

The outcome depends only on the job; on the CPU it can be reproduced bit for bit, even if the training is resumed from a
file. Jobs and outcomes are values that can be sent between processes. Weights are kept in safetensors files, as tensors
with the names that a module's `load_state_dict` expects. Nothing in a file is executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.sample import Failure
from gnomon.errors import GnomonError, ProblemError, UsageError, system_errors
from gnomon.installing import needed
from gnomon.spaces.cells.space import State, TaggedNet
from gnomon.spaces.work import size_of
from gnomon.system.files import read_file, write_whole
from gnomon.training.data.dataset import Dataset, MappedDataset, Supply, trained_images
from gnomon.training.data.streamed import Streamed
from gnomon.training.data.streamed import Supply as StreamedSupply
from gnomon.training.modules import load_factories
from gnomon.training.network import build, seeded, state_of, torch_package
from gnomon.training.recipe import Recipe, check, make_optimizer

TrainingData = Dataset | MappedDataset | Streamed
"""Images for a training process: passed by value, mapped from a file on this machine, or read as needed."""

_HINT = "Train the network again: gnomon space profile writes this file."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainJob:
    """A net to be trained on a data set by a recipe.

    `init` has initial parameters; missing ones are generated from (seed, tag). `device` is "cpu" or "cuda". `modules`
    has the origins, by name, of those blocks of the net that are PyTorch modules (see `gnomon.training.modules`).
    """

    tagged: TaggedNet
    recipe: Recipe
    data: TrainingData
    seed: int = 0
    init: State | None = None
    device: str = "cpu"
    modules: Mapping[str, str] = field(default_factory=dict)

    def digest(self) -> str:
        """SHA-256 of everything that determines the outcome of each epoch."""
        decisive = [self.recipe.canonical(), self.seed, self.data.digest, self.device]
        return digest_of(self.tagged, decisive, self.init or {})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """The outcome of a training, counted from its first epoch even if it was resumed in other processes.

    `accuracies` (validation) and `losses` have one value per epoch. `correct` says for each validation image whether
    the net classifies it correctly after the last epoch. `test_accuracy` is determined once, after the recipe's last
    epoch, and is None before that. `state` and `correct` are None if the training failed. `samples` is the number of
    images trained on, over all epochs, and `macs` is the number of multiply-accumulates for one image. `failure` says
    why the training failed. Its kind is "wrong-output" for a loss that is not finite, "memory", or "refused" for
    anything that PyTorch cannot do.
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
    """SHA-256 of a net with its tags, of further JSON values that affect the outcome, and of parameters."""
    net = tagged.net
    nodes = [[tag, node.unit.canonical(), *node.inputs] for tag, node in zip(tagged.tags, net.nodes, strict=True)]
    own = hashlib.sha256(json.dumps([net.inputs, net.output, nodes]).encode()).hexdigest()
    digest = hashlib.sha256(json.dumps([own, *decisive]).encode())
    for name, array in sorted(state.items()):
        digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _safetensors() -> Any:
    with needed("weights are stored by safetensors, which cannot be loaded", "safetensors"):
        import safetensors.numpy
    return safetensors.numpy


def write_state(path: Path, state: State) -> None:
    """Write weights, either completely or not at all. OSError if that fails, RuntimeMissingError without
    safetensors.
    """
    whole = {name: np.asarray(array, order="C") for name, array in state.items()}
    write_whole(_safetensors().save(whole, metadata={"format": "pt"}), path)


def read_state(path: Path) -> dict[str, NDArray[Any]]:
    """The weights in a file; nothing in it is executed.

    UsageError if the file cannot be read, ProblemError if it contains anything but named tensors of numbers.
    """
    library = _safetensors()
    content = read_file(path, hint=_HINT, most_bytes=2 << 30)
    try:
        state: dict[str, NDArray[Any]] = library.load(content)
        return state
    except Exception as error:  # the library may raise anything for a broken file
        raise ProblemError(f"{path} holds no weights: {str(error)[:200]}", hint=_HINT) from error


@dataclass(slots=True, kw_only=True, eq=False)
class _Run:
    """A training in progress.

    For each epoch, `history` has the mean training `loss`, the `accuracy` on the validation part afterwards, and the
    `seconds` and `cpu_seconds` that training and validation took together.
    """

    job: TrainJob
    digest: str
    dataset: Dataset | Streamed
    supply: Supply | StreamedSupply
    module: Any
    optimizer: Any
    scheduler: Any
    history: list[dict[str, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    correct: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    failure: Failure | None = None


def train(job: TrainJob, *, partial: Path | None = None) -> Trained:
    """Train a network and return the outcome, which may be a failure.

    After each epoch, everything that the next one depends on is written to the file `partial`, from which the same job
    can be resumed. A file that belongs to another job, or is broken, is named in the notes and overwritten.
    ProblemError for an invalid recipe, invalid parameters or invalid data; UsageError for an unknown device, and if the
    file cannot be written; RuntimeMissingError without PyTorch.
    """
    check(job.recipe)
    missing = _missing_device(job.device)
    if missing is not None:
        return Trained(failure=missing)
    # Here cuDNN must neither choose kernels by timing them nor use kernels that sum in a varying order.
    exact = torch_package().backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
    with one_thread(), exact:
        try:
            run = _begin(job, partial)
        except (RuntimeError, MemoryError) as error:
            return Trained(failure=_failure(error))
        try:
            _train(run, partial)
            return _result(run)
        finally:
            run.supply.close()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch's operators use only one thread within the block."""
    torch = torch_package()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_device(device: str) -> None:
    """Raise UsageError if this machine does not have this device for training."""
    if (missing := _missing_device(device)) is not None:
        raise UsageError(
            f"no network can be trained on {device}: {missing.message}",
            hint="Leave --train-on out to train on the processor; `nvidia-smi` lists the GPUs that the driver has.",
        )


def _missing_device(device: str) -> Failure | None:
    """The failure if this machine does not have this device for training, otherwise None. UsageError for an unknown
    name.
    """
    if device not in {"cpu", "cuda"}:
        raise UsageError(f"there is no device {device!r} to train on", hint="Known: cpu, cuda.")
    if device == "cpu" or torch_package().cuda.is_available():
        return None
    return Failure(stage="load", kind="refused", transient=False, message="PyTorch finds no CUDA device here")


def _begin(job: TrainJob, partial: Path | None) -> _Run:
    """A run that starts at the job's first epoch, or after the last epoch in the partial file."""
    dataset = job.data.open()
    run = _fresh(job, dataset)
    if partial is None or not partial.exists():
        return run
    try:
        _resume(run, partial)
    except Exception as error:  # PyTorch may raise nearly anything for a broken or unsuitable file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        run = _fresh(job, dataset)  # a part of the file may already have been loaded
        run.notes.append(f"{partial} was not used ({reason}), so training started again")
    return run


def _fresh(job: TrainJob, dataset: Dataset | Streamed) -> _Run:
    torch = torch_package()
    factories = load_factories(job.modules, job.tagged)
    # channels_last is faster for convolutions, but users' blocks may need the usual layout to create views.
    order = torch.contiguous_format if factories else torch.channels_last
    module = build(job.tagged, job.init, seed=job.seed, factories=factories).to(job.device, memory_format=order)
    optimizer, scheduler = make_optimizer(job.recipe, module.parameters())
    return _Run(
        job=job,
        digest=job.digest(),
        dataset=dataset,
        supply=dataset.supply(job.device, job.recipe, seed=job.seed),
        module=module,
        optimizer=optimizer,
        scheduler=scheduler,
    )


def _resume(run: _Run, partial: Path) -> None:
    """Resume from a file, without executing anything in it. May raise nearly any exception for an unsuitable file.

    The scheduler's state is not stored, because it follows from the number of epochs.
    """
    kept = torch_package().load(partial, weights_only=True, map_location="cpu")
    if kept["digest"] != run.digest:
        raise ValueError("it belongs to another training")
    run.module.load_state_dict(kept["state"])
    run.history = kept["history"]
    with warnings.catch_warnings():
        # Only the scheduler's steps are repeated, not the optimiser's.
        warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*", category=UserWarning)
        for _ in run.history if run.scheduler is not None else ():
            run.scheduler.step()
    run.optimizer.load_state_dict(kept["optimizer"])


def _keep(run: _Run, partial: Path) -> None:
    """Write everything that the next epoch depends on. UsageError if that fails."""
    stream = BytesIO()
    kept = {
        "digest": run.digest,
        "state": run.module.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "history": run.history,
    }
    torch_package().save(kept, stream)
    with system_errors(UsageError, f"{partial} cannot be written", hint="Give a writable folder with free space."):
        write_whole(stream.getvalue(), partial)


def _train(run: _Run, partial: Path | None) -> None:
    """Train until the recipe's end, or until the training fails."""
    job = run.job
    while run.failure is None and len(run.history) < job.recipe.epochs:
        began, cpu_began, number = time.perf_counter(), time.process_time(), len(run.history)
        # Blocks with dropout draw the same random numbers in an epoch, whatever happened before it.
        with _failing(run), seeded(job.seed, "epoch", number) if job.modules else contextlib.nullcontext():
            loss = _train_epoch(run, number)
            if math.isfinite(loss):
                run.correct = _right(run, "validation")
            else:
                message = f"the training diverged: the loss of epoch {number} is {loss}"
                run.failure = Failure(stage="run", kind="wrong-output", transient=False, message=message)
        if run.failure is not None:
            return
        took, cpu_took = time.perf_counter() - began, time.process_time() - cpu_began
        epoch = {"loss": loss, "accuracy": float(run.correct.mean()), "seconds": took, "cpu_seconds": cpu_took}
        run.history.append(epoch)
        if partial is not None:
            _keep(run, partial)
    with _failing(run):
        if not len(run.correct):  # all epochs were already trained
            run.correct = _right(run, "validation")


@contextlib.contextmanager
def _failing(run: _Run) -> Iterator[None]:
    """Turn an exception in the block into the training's failure."""
    try:
        yield
    except GnomonError:
        raise
    except Exception as error:  # from PyTorch or a user's block
        run.failure = _failure(error)


def _failure(error: BaseException) -> Failure:
    """The failure that describes an error raised during training."""
    message = str(error) or type(error).__name__
    memory = isinstance(error, MemoryError) or any(
        words in message.lower() for words in ("out of memory", "can't allocate memory", "not enough memory")
    )
    return Failure(
        stage="run", kind="memory" if memory else "refused", transient=memory, message=message.splitlines()[0][:500]
    )


def _train_epoch(run: _Run, number: int) -> float:
    """One pass over the training part; returns the mean loss."""
    torch, recipe = torch_package(), run.job.recipe
    run.module.train()
    total = torch.zeros((), device=run.job.device)
    for x, y in run.supply.training(number):
        run.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(run.module(_sized(run, x)), y)
        loss.backward()
        run.optimizer.step()
        total += loss.detach() * len(y)  # does not wait for the device
    if run.scheduler is not None:
        run.scheduler.step()
    return float(total.item()) / trained_images(run.dataset.count("train"), recipe.batch_size)


def _sized(run: _Run, x: Any) -> Any:
    """Images at the size of the network's input; larger images are scaled down by averaging."""
    size = run.job.tagged.net.inputs[0][2:]
    return x if x.shape[2:] == size else torch_package().nn.functional.adaptive_avg_pool2d(x, size)


def _right(run: _Run, part: str) -> NDArray[np.uint8]:
    """For each image of a part, 1 if the module in evaluation mode classifies it correctly, otherwise 0."""
    torch = torch_package()
    run.module.eval()
    with torch.no_grad():
        right = [(run.module(_sized(run, x)).argmax(1) == y) for x, y in run.supply.evaluation(part)]
    return np.asarray(torch.cat(right).to(torch.uint8).cpu().numpy())


def _result(run: _Run) -> Trained:
    job, epochs, test = run.job, len(run.history), None
    if run.failure is None:
        with _failing(run):
            test = float(_right(run, "test").mean())
    whole = run.failure is None
    return Trained(
        state=state_of(run.module) if whole else None,
        accuracies=tuple(epoch["accuracy"] for epoch in run.history),
        losses=tuple(epoch["loss"] for epoch in run.history),
        correct=run.correct if whole else None,
        test_accuracy=test,
        epochs=epochs,
        samples=epochs * trained_images(run.dataset.count("train"), job.recipe.batch_size),
        seconds=sum(epoch["seconds"] for epoch in run.history),
        cpu_seconds=sum(epoch["cpu_seconds"] for epoch in run.history),
        macs=(size_of(job.tagged.net).macs or 0) // job.tagged.net.inputs[0][0],
        failure=run.failure,
        notes=tuple(run.notes),
    )
