"""Trains many networks in other processes or on other machines; each is saved as soon as it is done.

`methods` plans the trainings. `train` runs and records them, and skips recorded trainings when a command is repeated.
`Workers` are processes of this machine or of a Dask cluster, both used through a `concurrent.futures.Executor`.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from gnomon.core.codec import Counted, Whole, fields_of
from gnomon.core.sample import Failure
from gnomon.errors import MeasurementError, RecordError, UsageError, system_errors
from gnomon.jobs.space.profiling.folder import AccuracyRow, ProfileFolder, file_stem
from gnomon.jobs.space.profiling.images import carried
from gnomon.jobs.space.profiling.study import Network, Study
from gnomon.measure.progress import Steps, Watch
from gnomon.report.plain import many
from gnomon.report.units import duration, mebibytes
from gnomon.session.request import MeasureRequest
from gnomon.spaces.cells.space import State, TaggedNet, shared
from gnomon.system.cluster import connected
from gnomon.training.data.dataset import Dataset
from gnomon.training.data.streamed import Streamed
from gnomon.training.loop import Trained, TrainingData, TrainJob, read_state, write_state
from gnomon.training.recipe import Recipe
from gnomon.training.worker import run_training

Output = TypeVar("Output")

_TRIES = 2
"""How many times a job must lose its worker while running alone to count as the cause."""

_GUARD = "In a script, call gnomon only under `if __name__ == '__main__':`."

_FINAL = "wrong-output"  # a training that diverges will diverge again; other failures may have been fixed


class Workers(AbstractContextManager["Workers"]):
    """A context manager for worker processes on this machine or in a Dask cluster.

    The processes are started for the first jobs and kept for all later jobs, because each process has to load PyTorch.
    """

    def __init__(self, count: int, cluster: str | None) -> None:
        self._count = count
        self._cluster = cluster
        self._open = ExitStack()
        self._executor: Executor | None = None

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def run_all(
        self, work: Callable[..., Output], jobs: Mapping[str, tuple[Any, ...]]
    ) -> Iterator[tuple[str, Output | Failure]]:
        """Run `work(*arguments)` for each job, in any order; yields each job's result as soon as it is known.

        `work` must be a module's function, so that a worker can import it. Jobs that were running when a worker died
        are run again one by one to find the cause. A job that ends its worker twice while running alone becomes a
        Failure of the kind "crash". Exceptions of `work` are passed on to the caller. At most twice as many jobs as
        workers are submitted at once.
        """
        suspects: list[str] = []
        todo = list(jobs)
        while todo:
            lost, todo = yield from self._until_broken(work, {key: jobs[key] for key in todo})
            suspects += lost
        for key in suspects:
            for _ in range(_TRIES):
                with Workers(1, self._cluster) as alone:
                    lost, _ = yield from alone._until_broken(work, {key: jobs[key]})
                if not lost:
                    break
            else:
                message = f"the worker process ended {_TRIES} times while it ran this job alone"
                yield key, Failure(stage="run", kind="crash", transient=False, message=message)

    def _until_broken(
        self, work: Callable[..., Output], jobs: Mapping[str, tuple[Any, ...]]
    ) -> Generator[tuple[str, Output], None, tuple[list[str], list[str]]]:
        """Yield results as they come, until all jobs are done or a worker is lost; later work then gets new workers.

        Returns the jobs that were running when a worker was lost, and the jobs that had not begun. UsageError for an
        address without a scheduler, RuntimeMissingError without Dask, DeviceError for a scheduler that does not answer.
        """
        if self._executor is None:
            opened = _pool(self._count) if self._cluster is None else _dask(self._cluster)
            self._executor = self._open.enter_context(opened)
        executor, broken = self._executor, False
        todo, running, suspects = list(jobs), dict[Future[Output], str](), list[str]()
        client = getattr(executor, "_client", None)  # Dask's
        width = self._count if client is None else len(client.scheduler_info(n_workers=-1)["workers"])
        room = 2 * max(1, width)
        while running or (todo and not broken):
            try:
                while todo and not broken and len(running) < room:
                    running[executor.submit(work, *jobs[todo[0]])] = todo[0]
                    todo.pop(0)
            except RuntimeError as failed:
                if not _worker_lost(failed):
                    raise
                broken = True
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                key, error = running.pop(future), future.exception()
                if error is None:
                    yield key, future.result()
                elif _worker_lost(error):
                    if isinstance(executor, _Pool) and not executor.begun.is_set():
                        raise UsageError("no worker process could start", hint=_GUARD) from error
                    suspects.append(key)
                    broken = True
                else:
                    raise error
        if broken:
            self._executor = None
            self._open.close()
        return suspects, todo


def _worker_lost(error: BaseException) -> bool:
    """Return True if an error means that a worker died: a worker of a pool, or of Dask after its own retries.

    If a worker is lost and Dask cancels a future that is about to finish, the future fails with a TypeError.
    """
    frames = traceback.extract_tb(error.__traceback__)
    of_dask = bool(frames) and Path(frames[-1].filename).name == "cfexecutor.py"
    return type(error).__name__ in {"BrokenProcessPool", "KilledWorker"} or (of_dask and isinstance(error, TypeError))


class _Pool(ProcessPoolExecutor):
    """A pool that knows whether any of its processes ever started."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.begun = context.Event()
        super().__init__(workers, mp_context=context, initializer=_begin, initargs=(os.getpid(), self.begun))


@contextmanager
def _pool(workers: int) -> Iterator[_Pool]:
    if multiprocessing.parent_process() is not None:
        # A worker imports the script that started it; if the import starts workers too, this never ends.
        raise UsageError("importing this script starts worker processes", hint=_GUARD)
    pool = _Pool(workers)
    try:
        yield pool
    except BaseException:
        # Running work may take minutes; an interruption does not wait for it.
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(parent: int, begun: Any) -> None:
    """Set up a worker process: report that it has begun, and make it end when its parent process is gone."""
    begun.set()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers do not report interrupts
    gc.set_threshold(50_000, 20, 100)  # as on the command line: PyTorch and many small batches create many objects

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    with connected(address) as client:
        executor: Executor = client.get_executor(retries=_TRIES, pure=False)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """The settings for training and measuring networks.

    `request` has the device and the settings for measuring; its command, if any, replaces a toolchain's runtime. `data`
    is a source of images, and `blocks` are the files of the user's primitives; with `trust_config`, a source and blocks
    that the config names are run as well. Each network is trained for `epochs` epochs (None: as the config says) from
    `seeds` seeds, on a `training_device`, by `workers` processes (0: one for a GPU, or one for each processor) or by a
    Dask `cluster`. torchvision may download images into the folder `download`.
    """

    request: MeasureRequest
    data: str | None = None
    blocks: tuple[str, ...] = ()
    trust_config: bool = False
    epochs: Counted | None = None
    seeds: Counted = 1
    workers: Whole = 0
    cluster: str | None = None
    training_device: str = "cpu"
    download: Path | None = None

    def workers_on(self, device: str) -> int:
        """The number of workers: the requested number, or else one for a GPU, or one for each usable processor."""
        return self.workers or (1 if device == "cuda" else len(os.sched_getaffinity(0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenProfile:
    """A profile for which networks are trained and measured according to a request."""

    asked: TrainRequest
    folder: ProfileFolder
    study: Study
    data: Dataset | Streamed
    watch: Watch | None
    tell: Callable[[str], None]


@contextmanager
def open_folder(path: Path, question: Mapping[str, object], study: Study) -> Iterator[ProfileFolder]:
    """The profile of a study, open for adding. ProblemError for lines of networks that the study does not have."""
    with closing(ProfileFolder(path, question, study.text)) as folder:
        study.check([*folder.accuracy.values(), *folder.latency.values()])
        yield folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A planned training of a network by a recipe.

    With `begins_with`, nodes that have the same tags begin with the weights of that training.
    """

    method: str
    stage: str
    network: Network
    recipe: Recipe
    seed: int
    begins_with: Training | None = None

    @property
    def key(self) -> str:
        """The name of the training in the journal: its method, stage, epochs, seed and network."""
        return f"{self.method}/{self.stage}/{self.recipe.epochs}/{self.seed}/{self.network.id}"


def train(profile: OpenProfile, rounds: Sequence[Sequence[Training]], *, models: int = 0) -> None:
    """Run rounds of trainings, each round in parallel; trainings that the journal already has are not repeated.

    Failed trainings are repeated, unless they diverged. After a profile's first training, the expected time and disk
    space are reported, the latter including `models` model files. MeasurementError if no training of a round succeeds.
    """
    asked, partial = profile.asked, profile.folder.path / "checkpoints" / "partial"
    steps, expected = Steps("networks trained", profile.watch), sum(map(len, rounds))
    steps.expect(expected)
    with (
        carried(profile.data, partial, far=asked.cluster is not None) as images,
        Workers(asked.workers_on(asked.training_device), asked.cluster) as workers,
    ):
        trainer = Trainer(profile=profile, images=images, expected=expected, models=models)
        for wanted in rounds:
            trainer.round(wanted, workers, steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """Trains networks for a profile, on its images in the form that workers get."""

    profile: OpenProfile
    images: TrainingData
    expected: int = 1
    models: int = 0

    def round(self, wanted: Sequence[Training], workers: Workers, steps: Steps) -> None:
        """Run trainings in parallel, except those that would begin with the weights of a failed training."""
        folder = self.profile.folder
        by_key = {t.key: t for t in wanted if t.begins_with is None or not folder.accuracy[t.begins_with.key].reason}
        rows = {key: row for key in by_key if (row := _done_row(folder, key)) is not None}
        steps.step(len(rows))
        for key in rows:  # the process that wrote the row may have been killed before it cleaned up
            self._clean(key)
        todo = {key: (self.job(training), self._partial(key)) for key, training in by_key.items() if key not in rows}
        for key, done in workers.run_all(run_training, todo):
            row = self._row(by_key[key], done)
            if isinstance(done, Trained) and not row.reason:
                self._keep(by_key[key], done)
                if not folder.accuracy:
                    self._tell_costs(done)
            folder.add(row)
            self._clean(key)
            rows[key] = row
            steps.step(1)
        if by_key and all(row.reason for row in rows.values()):
            reasons = "; ".join(dict.fromkeys(row.reason for row in rows.values()))
            raise MeasurementError(
                f"no network could be trained ({reasons[:400]})", hint="Correct the cause, then repeat the command."
            )

    def job(self, training: Training) -> TrainJob:
        """A training as a job for a worker."""
        study = self.profile.study
        tagged = study.tagged(training.network)
        init: State | None = None
        if training.begins_with is not None:
            init = shared(read_state(weights_path(self.profile.folder.path, training.begins_with)), tagged)
        return TrainJob(
            tagged=tagged,
            recipe=training.recipe,
            data=self.images,
            seed=training.seed,
            init=init,
            device=self.profile.asked.training_device,
            modules=study.origins(tagged),
        )

    def _keep(self, training: Training, done: Trained) -> None:
        """Save the weights and a description of the network, before the row is written."""
        path = weights_path(self.profile.folder.path, training)
        with system_errors(RecordError, f"{path} cannot be written", hint="Free some disk space."):
            path.parent.mkdir(parents=True, exist_ok=True)
            if done.state is not None:
                write_state(path, done.state)
                text = path.with_name(path.name.replace(".safetensors", ".repr.txt"))
                text.write_text(_network_text(self.profile.study.tagged(training.network)), encoding="utf-8")

    def _row(self, training: Training, done: Trained | Failure) -> AccuracyRow:
        failure = done if isinstance(done, Failure) else done.failure
        row = AccuracyRow(
            **fields_of(AccuracyRow, training) | {"network": training.network.id},
            primitives=training.network.primitives,
            at_s=time.time(),
            reason=f"{failure.kind}: {failure.message}" if failure else "",
        )
        if isinstance(done, Failure):
            return row
        return replace(
            row,
            validation=done.accuracies[-1] if done.accuracies else None,
            images=0 if done.correct is None else len(done.correct),
            test=done.test_accuracy,
            curve=done.accuracies,
            **fields_of(AccuracyRow, done),
        )

    def _tell_costs(self, first: Trained) -> None:
        """Report the time of all trainings, and the disk space of weights and models, estimated from the first one."""
        asked, count = self.profile.asked, self.expected
        workers = min(asked.workers_on(asked.training_device), count)
        size_bytes = sum(values.nbytes for values in (first.state or {}).values())
        whole = "" if asked.cluster else f" on {many(workers, 'worker')}: {duration(count * first.seconds / workers)}"
        models = f" and {many(self.models, 'model')}" if self.models else ""
        self.profile.tell(
            f"{many(count, 'training')} of about {duration(first.seconds)} each{whole}; "
            f"the weights{models} take about {mebibytes((count + self.models) * size_bytes)} of disk space"
        )

    def _partial(self, key: str) -> str | None:
        """The path where a training saves its state after each epoch; None on a cluster, which lacks this folder."""
        name = hashlib.sha256(key.encode()).hexdigest()[:24]
        path = self.profile.folder.path / "checkpoints" / "partial" / f"{name}.pt"
        return None if self.profile.asked.cluster else str(path.absolute())

    def _clean(self, key: str) -> None:
        if partial := self._partial(key):
            Path(partial).unlink(missing_ok=True)


def _done_row(folder: ProfileFolder, key: str) -> AccuracyRow | None:
    """The row of a training that need not be repeated; None if there is no such row."""
    row = folder.accuracy.get(key)
    return None if row is None or (row.reason and not row.reason.startswith(_FINAL)) else row


def best_weights(rows: Iterable[AccuracyRow], folder: Path, network: Network) -> State | None:
    """The weights of a network's best training, judged by validation accuracy; None if none were kept."""
    own = [row for row in rows if row.network == network.id and row.validation is not None and not row.reason]
    for row in sorted(own, key=lambda row: -(row.validation or 0.0)):
        if weights_path(folder, row).is_file():
            return read_state(weights_path(folder, row))
    return None


def weights_path(folder: Path, training: Training | AccuracyRow) -> Path:
    """The path of a training's weights; those of methods other than "published" are in folders of their own."""
    where = folder / "checkpoints"
    if training.method != "published":
        where = where / training.method / f"{training.stage}-{training.seed}"
    name = training.network if isinstance(training, AccuracyRow) else training.network.id
    return where / f"{file_stem(name)}.safetensors"


def _network_text(tagged: TaggedNet) -> str:
    """A network as text: a line for each node, with its tag, its kind and its inputs."""
    lines = []
    for index, (node, tag) in enumerate(zip(tagged.net.nodes, tagged.tags, strict=True)):
        reads = ", ".join("the image" if ref < 0 else str(ref) for ref in node.inputs)
        lines.append(f"{index:>4}  {tag:<28} {node.unit.label}  <- {reads}\n")
    return "".join(lines)
