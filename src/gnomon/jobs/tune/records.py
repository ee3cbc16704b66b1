"""The file of tuning records, which only one process can have open at a time, and the pooling of repeated trials."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.core.codec import fields_of
from gnomon.core.overlay.records import TuningLayer, TuningRecords, TuningTrial, configuration_id
from gnomon.core.sample import Failure
from gnomon.core.strict_json import cut_off
from gnomon.errors import ProblemError, RecordError, UsageError, system_errors
from gnomon.formats.tuning.records import read_tuning_records, record_lines
from gnomon.system.files import in_place_of, read_regular, save_text
from gnomon.system.locks import lock_file
from gnomon.tuning.bench import Timed

MOST_BYTES = 4 << 30
"""The size of the largest record file that is read."""


class RecordFile:
    """A file of tuning records that only one process can have open at a time; each write replaces the whole file.

    `records` are the records that the file had when it was opened; None for a new file.
    """

    def __init__(self, path: Path, wanted: TuningRecords, *, fresh: bool = False) -> None:
        """Open the file or create it; `wanted` has the context that its records must have: device, model, and so on.

        With `fresh` an existing file is renamed. UsageError if its records have another context, ProblemError if the
        file is damaged, RecordError if it cannot be written or another process has it open.
        """
        self.path, self._lock = path, -1
        try:
            with _written(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = _locked(path)
                if fresh and path.stat().st_size:
                    path.rename(_aside(path))
                    self.close()
                    self._lock = _locked(path)
                self.records = _read(path)
            if self.records is not None:
                _check(path, self.records, wanted)
        except BaseException:
            self.close()
            raise

    def write(self, lines: Iterable[str]) -> None:
        """Replace all lines; the new file is locked before it replaces the old one.

        RecordError if the lines cannot be written; then the file is unchanged.
        """
        lock = -1
        try:
            with _written(self.path), in_place_of(self.path.resolve()) as partial:
                lock = lock_file(partial, mode=0o666)
                os.fchmod(lock, stat.S_IMODE(os.fstat(self._lock).st_mode))
                partial.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
                os.fsync(lock)
        except RecordError:
            if lock >= 0:
                os.close(lock)
            raise
        self.close()
        self._lock = lock

    def close(self) -> None:
        """Release the file, so that another process may write to it. A second call does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def check_record(path: Path) -> None:
    """Raise RecordError if a record file cannot be written or another process has it open; nothing is created."""
    folder = next(place for place in (path, *path.parents) if place.exists())
    with _written(path):
        if folder == path:
            os.close(_locked(path))
            folder = path.resolve().parent  # each write replaces the file
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_records(path: Path, records: TuningRecords) -> None:
    """Write a record set to a file, which is replaced if it exists. RecordError or UsageError if this fails."""
    documents = record_lines(records)
    with _written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    save_text("".join(f"{json.dumps(document, allow_nan=False)}\n" for document in documents), path)


def best_of(trials: Iterable[TuningTrial], count: int | None = None) -> list[TuningTrial]:
    """The configurations that were timed, the fastest first, at most `count` of them.

    Each has the samples of all its trials. The untuned layer and failures are left out.
    """
    timed = [t for t in pooled_trials(trials).values() if t.trace is not None and t.time_s is not None]
    return sorted(timed, key=lambda trial: trial.time_s or 0.0)[:count]


def best_trial(trials: Iterable[TuningTrial]) -> TuningTrial | None:
    """The fastest configuration, with the samples of all its trials; None if no configuration was timed."""
    return next(iter(best_of(trials, 1)), None)


def pooled_trials(trials: Iterable[TuningTrial]) -> dict[str, TuningTrial]:
    """One trial for each configuration of a layer, with the samples of all its trials.

    The pooled trial is a failure if the configuration never succeeded, if its outputs were wrong in any trial, or if
    any trial crashed and the crash was not transient. If any successful trial lacks CPU times, all CPU times are left
    out, so that all configurations are compared by the same clock.
    """
    pooled: dict[str, TuningTrial] = {}
    given = list(trials)
    if not all(trial.cpu_s for trial in given if trial.failure is None):
        given = [replace(trial, cpu_s=()) for trial in given]
    for trial in given:
        before = pooled.get(trial.configuration)
        if (
            before is None
            or _wrong(trial)
            or (before.failure is not None and trial.failure is None and not _wrong(before))
        ):
            pooled[trial.configuration] = trial
        elif trial.failure is None and before.failure is None:
            times_s, cpu_s = before.times_s + trial.times_s, before.cpu_s + trial.cpu_s
            pooled[trial.configuration] = replace(before, times_s=times_s, cpu_s=cpu_s)
    return pooled


def made_trial(layer: str, trace: Any, **facts: Any) -> TuningTrial:
    """A layer's trial with these facts and the current time."""
    name = configuration_id(layer, trace)
    return TuningTrial(layer=layer, configuration=name, trace=trace, at_s=round(time.time(), 3), **facts)


def measured_trial(layer: TuningLayer, trace: Any, said: Timed | Failure) -> TuningTrial:
    """The outcome of a layer's call, as a trial with the current time."""
    facts = {"failure": said} if isinstance(said, Failure) else fields_of(TuningTrial, said)
    return made_trial(layer.layer, trace, **facts)


def _wrong(trial: TuningTrial) -> bool:
    failure = trial.failure
    return failure is not None and (failure.stage == "check" or (failure.kind == "crash" and not failure.transient))


def _check(path: Path, records: TuningRecords, wanted: TuningRecords) -> None:
    """Raise UsageError if records of different contexts would be merged."""
    hint = (
        "Give another --out, or --fresh, which renames the old file. To use a device with two targets, give it a "
        "second name: gnomon devices add NAME local --target TARGET"
    )
    pairs = (
        ("the device", records.device.key, wanted.device.key),
        ("configurations found on", records.host, wanted.host),
        ("the target", dict(records.device.target), dict(wanted.device.target)),
        ("the number of threads", records.device.threads, wanted.device.threads),
        ("the model", records.model.sha256 or records.model.name, wanted.model.sha256 or wanted.model.name),
        ("the data type", records.model.dtype, wanted.model.dtype),
        ("the tuner", records.tuner, wanted.tuner),
        ("the versions", dict(records.versions), dict(wanted.versions)),
    )
    for what, there, here in pairs:
        if there != here:
            raise UsageError(f"the records in {path} have {what} {there}, not {here}", hint=hint)


def _locked(path: Path) -> int:
    """Lock a file, which is created if missing; returns its handle. OSError, or RecordError if another process has the
    lock.
    """
    try:
        return lock_file(path.resolve(), mode=0o666)
    except BlockingIOError as error:
        raise RecordError(
            f"another gnomon process is writing to {path}",
            hint="Wait for the other process to end, then repeat the command; or give another --out.",
        ) from error


def _read(path: Path) -> TuningRecords | None:
    """The records of a file; None if it is empty or has only the beginning of a header."""
    content = read_regular(path, MOST_BYTES)
    if not content.strip() or (b"\n" not in content.strip() and cut_off(content.decode(errors="replace"))):
        return None
    try:
        return read_tuning_records(content)
    except ProblemError as error:
        hint = "Correct or remove the file: trials of this machine are also in the results database."
        raise ProblemError(f"{path}: {error.message}", hint=hint) from error


def _aside(path: Path) -> Path:
    for number in range(1, 10_000):
        other = path.with_name(f"{path.name}.old{number}")  # no pattern for record files matches this name
        if not other.exists():
            return other
    raise UsageError(f"there are too many old files next to {path}", hint=f"Remove some of {path.name}.old*.")


def _written(path: Path) -> AbstractContextManager[None]:
    hint = "Free some disk space, or give --out a folder that can be written."
    return system_errors(RecordError, f"{path} cannot be written", hint=hint)
