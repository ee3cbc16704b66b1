"""A profile that is open for adding, and how its networks are trained and measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gnomon.jobs.space.profiling.folder import ProfileFolder
from gnomon.jobs.space.profiling.study import Study
from gnomon.measure.progress import Watch
from gnomon.session.request import MeasureRequest
from gnomon.training.data.dataset import Dataset
from gnomon.training.data.streamed import Streamed


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """How networks are trained and measured.

    `request` says where and with what is measured; a command of it takes the place of a toolchain's runtime.
    `data` is a source of images, `blocks` are files of own primitives; with `trust_config` what the config names of
    both is run as well. Networks are trained for `epochs` (None: as the config says) from `seeds` seeds each, by
    `workers` processes (0: as many as processors) or on a Dask `cluster`, on a `training_device`; `download` is where
    torchvision may fetch images to.
    """

    request: MeasureRequest
    data: str | None = None
    blocks: tuple[str, ...] = ()
    trust_config: bool = False
    epochs: int | None = None
    seeds: int = 1
    workers: int = 0
    cluster: str | None = None
    training_device: str = "cpu"
    download: Path | None = None

    def workers_on(self, device: str) -> int:
        """As many workers as are asked for, or as processors may be used; of those that share a GPU one."""
        return self.workers or (1 if device == "cuda" else len(os.sched_getaffinity(0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenProfile:
    """A profile for which networks are trained and measured, as a request says."""

    asked: TrainRequest
    folder: ProfileFolder
    study: Study
    data: Dataset | Streamed
    watch: Watch | None
    tell: Callable[[str], None]


@contextmanager
def open_folder(path: Path, question: Mapping[str, object], study: Study) -> Iterator[ProfileFolder]:
    """The profile of a study, open for adding. ProblemError for lines of networks that the study does not have."""
    folder = ProfileFolder(path, question, study.text)
    try:
        study.check([*folder.accuracy.values(), *folder.latency.values()])
        yield folder
    finally:
        folder.close()
