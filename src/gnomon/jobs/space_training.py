"""Training many networks: in other processes or on other machines, each kept as soon as it is done.

A method says what is trained and looks at what came out (`space_methods`); here it is done, written down, and found
again when the same command is given once more.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnomon.core.sample import Failure
from gnomon.errors import MeasurementError, RecordError
from gnomon.jobs.space_folder import AccuracyRow, ProfileFolder, file_stem
from gnomon.jobs.space_study import Network, Study
from gnomon.jobs.space_workers import run_all
from gnomon.jobs.steps import Steps
from gnomon.measure.progress import Watch
from gnomon.spaces.cell_space import TaggedNet
from gnomon.spaces.weights import State, shared
from gnomon.training.data import Packed, PackedFile
from gnomon.training.job import Trained, TrainJob
from gnomon.training.recipe import Recipe
from gnomon.training.state_files import read_state, write_state
from gnomon.training.worker import run_training

_FINAL = "wrong-output"  # a training that diverges does so again; what else fails may have been mended


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training that a method wants: of a network, by a recipe.

    It begins with the weights of `begins_with`, another one, where tags are the same; or goes on with the very training
    `goes_on` from its last epoch. `stop` is the epoch before which it ends (None: the recipe's last).
    """

    method: str
    stage: str
    network: Network
    recipe: Recipe
    seed: int
    begins_with: Training | None = None
    goes_on: Training | None = None
    start: int = 0
    stop: int | None = None

    @property
    def key(self) -> str:
        """Names the training in the journal: what is trained, how, for how long, and from which seed."""
        ends = "" if self.stop is None else f"/{self.stop}"
        return f"{self.method}/{self.stage}{ends}/{self.recipe.epochs}/{self.seed}/{self.network.id}"


Method = Generator[Sequence[Training], Mapping[str, AccuracyRow], None]
"""Yields trainings that can be done side by side, and is sent their rows by key, until it has enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """Where and with what is trained: the folder, the study, images, and how many workers or which cluster."""

    folder: ProfileFolder
    study: Study
    data: Packed | PackedFile
    workers: int = 1
    cluster: str | None = None
    device: str = "cpu"
    watch: Watch | None = None
    tell: Callable[[str], None] = lambda sentence: None

    def run(self, method: Method, expected: int) -> list[AccuracyRow]:
        """Do all that a method wants, in its order; rows that the journal has already are not trained again.

        What failed is, unless it diverged: who calls again may have mended what was wrong. `expected` is about how many
        trainings there will be. MeasurementError where none of a round succeeds.
        """
        steps = Steps("networks trained", self.watch)
        steps.expect(expected)
        found: list[AccuracyRow] = []
        try:
            wanted = next(method)
            while True:
                rows = self._round(wanted, steps)
                found += rows.values()
                wanted = method.send(rows)
        except StopIteration:
            for row in found:
                self._resume_path(row.key).unlink(missing_ok=True)
            return found

    def _round(self, wanted: Sequence[Training], steps: Steps) -> dict[str, AccuracyRow]:
        by_key = {one.key: one for one in wanted}
        known = {key: row for key in by_key if (row := done_row(self.folder, key)) is not None}
        steps.step(len(known))
        todo = {key: (self._job(one), self._partial(key)) for key, one in by_key.items() if key not in known}
        for key, done in run_all(self.workers, self.cluster, run_training, todo):
            row = self._row(by_key[key], done)
            if isinstance(done, Trained) and not row.reason:
                self._keep(by_key[key], done)
            self.folder.add(row)
            self._clean(key)
            known[key] = row
            steps.step(1)
        if by_key and all(row.reason for row in known.values()):
            reasons = "; ".join(dict.fromkeys(row.reason for row in known.values()))
            raise MeasurementError(f"no network could be trained ({reasons[:400]})", hint="Correct what is told.")
        return {key: known[key] for key in by_key}

    def _job(self, one: Training) -> TrainJob:
        tagged = self.study.tagged(one.network)
        init: State | None = None
        if one.begins_with is not None:
            init = shared(read_state(weights_path(self.folder.path, one.begins_with)), tagged)
        resume = None if one.goes_on is None else self._resume(one.goes_on.key)
        return TrainJob(
            key=one.key,
            tagged=tagged,
            recipe=one.recipe,
            data=self.data,
            seed=one.seed,
            init=init,
            device=self.device,
            start=0 if resume is None else one.start,  # where that is lost, from the beginning: it ends up the same
            stop=one.stop,
            resume=resume,
        )

    def _keep(self, one: Training, done: Trained) -> None:
        """The weights, a text of the network, and what a later stage goes on from; before the row that tells of it."""
        path = weights_path(self.folder.path, one)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if done.state is not None:
                write_state(path, done.state)
                text = path.with_name(path.name.replace(".state_dict.pth", ".repr.txt"))
                text.write_text(network_text(self.study.tagged(one.network)), encoding="utf-8")
            if done.resume is not None:
                self._resume_path(one.key).write_bytes(done.resume)
        except OSError as error:
            raise RecordError(f"{path} cannot be written: {error.strerror}", hint="Make room.") from error

    def _row(self, one: Training, done: Trained | Failure) -> AccuracyRow:
        """What the journal keeps of it."""
        failure = done if isinstance(done, Failure) else done.failure
        row = AccuracyRow(
            key=one.key,
            network=one.network.id,
            primitives=one.network.primitives,
            method=one.method,
            stage=one.stage,
            seed=one.seed,
            at_s=time.time(),
            reason=f"{failure.kind}: {failure.message}" if failure else "",
        )
        if isinstance(done, Failure):
            return row
        return replace(
            row,
            epochs=done.epochs,
            validation=done.accuracies[-1] if done.accuracies else None,
            images=0 if done.correct is None else len(done.correct),
            test=done.test_accuracy,
            curve=done.accuracies,
            samples=done.samples,
            macs=done.macs,
            seconds=done.seconds,
            cpu_seconds=done.cpu_seconds,
            notes=done.notes,
        )

    def _partial(self, key: str) -> str | None:
        """Where a training leaves what it goes on from after each epoch; another machine has no such folder."""
        name = hashlib.sha256(key.encode()).hexdigest()[:24]
        return None if self.cluster else str((self.folder.path / "checkpoints" / "partial" / f"{name}.pt").absolute())

    def _clean(self, key: str) -> None:
        if partial := self._partial(key):
            Path(partial).unlink(missing_ok=True)

    def _resume(self, key: str) -> bytes | None:
        path = self._resume_path(key)
        return path.read_bytes() if path.is_file() else None

    def _resume_path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()[:24]
        return self.folder.path / "checkpoints" / "partial" / f"{name}.resume"


def done_row(folder: ProfileFolder, key: str) -> AccuracyRow | None:
    """The row of a training that need not be done any more, None without one."""
    row = folder.accuracy.get(key)
    return None if row is None or (row.reason and not row.reason.startswith(_FINAL)) else row


def weights_path(folder: Path, one: Training | AccuracyRow) -> Path:
    """Where the weights of a training are: as published for the published method, else in a folder of its own."""
    where = folder / "checkpoints"
    if one.method != "published":
        where = where / one.method / f"{one.stage}-{one.seed}"
    name = one.network if isinstance(one, AccuracyRow) else one.network.id
    return where / f"{file_stem(name)}.state_dict.pth"


def network_text(tagged: TaggedNet) -> str:
    """A network for people: a line a node, with its tag, what it is, and what it reads."""
    lines = []
    for index, (node, tag) in enumerate(zip(tagged.net.nodes, tagged.tags, strict=True)):
        reads = ", ".join("the image" if ref < 0 else str(ref) for ref in node.inputs)
        lines.append(f"{index:>4}  {tag:<28} {node.unit.label}  <- {reads}\n")
    return "".join(lines)
