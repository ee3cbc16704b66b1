"""Functions that an executor calls in another process, on this machine or another one. Arguments are passed by value,
and failures are returned as data.

A pool of such processes is started with the method "spawn", because forking a process that has PyTorch's threads may
hang.
"""

from __future__ import annotations

from pathlib import Path

from gnomon.core.sample import Failure
from gnomon.errors import RuntimeMissingError
from gnomon.training.export import ExportJob, export
from gnomon.training.loop import Trained, TrainJob, one_thread, train


def run_training(job: TrainJob, partial: str | None = None) -> Trained:
    """Call `gnomon.training.loop.train`; without PyTorch, return a failure that says how to install it.

    `partial` is a path on the machine that trains.
    """
    try:
        return train(job, partial=None if partial is None else Path(partial))
    except RuntimeMissingError as error:
        return Trained(failure=_missing(error))


def run_export(job: ExportJob, path: str) -> Failure | None:
    """Call `gnomon.training.export.export` with one thread; without PyTorch, return a failure that says how to install
    it.
    """
    try:
        with one_thread():
            return export(job, Path(path))
    except RuntimeMissingError as error:
        return _missing(error)


def _missing(error: RuntimeMissingError) -> Failure:
    return Failure(stage="load", kind="refused", transient=False, message=f"{error.message}; {error.hint}")
