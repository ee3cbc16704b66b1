"""What gnomon asks of a toolchain, and the values that pass between them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from gnomon.core.sample import Failure
from gnomon.errors import RuntimeMissingError, UsageError

Tell = Callable[[str], None]
"""Is told in a sentence what is being done."""

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}", re.ASCII)
_MOST_TOLD = 20
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A program, a package or a file that a toolchain needs and that is not here; `hint` says how to get it."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolJob:
    """A float32 ONNX model to be made into what a runtime measures.

    `folder` gets the result, `logs` the log of each step; both exist. `calibration` is an npz file with an array x,
    float32 (n, channels, height, width): images as the model takes them. `key` names the result and the logs.
    """

    key: str
    model: Path
    folder: Path
    calibration: Path
    logs: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """A step that was done: "convert", "quantize" or "compile".

    `argv` is the command as it was started, `seconds` its wall time (of a step that a running program did: its share),
    `digest_in` and `digest_out` are SHA-256, in hexadecimal digits, of the file that it read and the file that it
    wrote.
    """

    name: str
    argv: tuple[str, ...]
    seconds: float
    log: Path
    digest_in: str
    digest_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """What came of a job: a file, or the failure of one of its steps. `steps` are those that were done."""

    key: str
    path: Path | None
    steps: tuple[StepRecord, ...] = ()
    failure: Failure | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.failure is None):
            raise ValueError(f"{self.key}: an artifact is either a file or a failure")


@runtime_checkable
class Toolchain(Protocol):
    """Makes what a runtime measures from float32 ONNX models.

    Contract: stateless, so that it can be asked again. `make` yields one artifact a job, each as soon as it is ready,
    in any order. What goes wrong with one model is its `Failure`, and the others go on. UsageError for jobs that
    cannot be meant, RuntimeMissingError where `check` finds something missing; both before the first job. A model file
    is never changed, a result appears whole or not at all, and no process outlives the iterator.
    """

    @property
    def name(self) -> str:
        """As it is chosen by."""
        ...

    @property
    def runtime(self) -> str:
        """Who measures the result: "onnxruntime", "openvino" or "http"."""
        ...

    def check(self) -> tuple[Missing, ...]:
        """What is missing here; nothing where it can be used."""
        ...

    def make(self, jobs: Sequence[ToolJob], tell: Tell | None = None) -> Iterator[Artifact]:
        """Do all jobs."""
        ...


def check_ready(toolchain: Toolchain) -> None:
    """RuntimeMissingError with all that a toolchain misses."""
    if missing := toolchain.check():
        raise RuntimeMissingError(
            f"the toolchain {toolchain.name} cannot be used: {'; '.join(one.what for one in missing)}",
            hint=" ".join(dict.fromkeys(one.hint for one in missing)),
        )


def check_jobs(jobs: Sequence[ToolJob], suffix: str | None = None) -> None:
    """UsageError with all that is wrong with jobs: their keys, which become file names, and their folders.

    `suffix` is that of the results, where the toolchain writes any: none of them may be a model that is read.
    """
    told: list[str] = []
    seen: set[str] = set()
    models = {job.model.absolute() for job in jobs}
    for job in jobs:
        if not _KEY.fullmatch(job.key) or job.key.endswith("."):
            told.append(f"{ascii(job.key)[:60]} is no plain name")
            continue
        told += [f"{job.key} stands for two jobs"] * (job.key in seen)
        seen.add(job.key)
        told += [f"there is no folder {folder}" for folder in (job.folder, job.logs) if not folder.is_dir()]
        if suffix is not None and (job.folder / f"{job.key}{suffix}").absolute() in models:
            told.append(f"the result of {job.key} would replace a model")
    if told := list(dict.fromkeys(told)):
        more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
        raise UsageError(
            f"jobs cannot be done: {'; '.join(told[:_MOST_TOLD])}{more}",
            hint="Use letters, digits and ._+- in keys, each key once, and make the folders first.",
        )


def file_digest(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits. OSError where it cannot be read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
