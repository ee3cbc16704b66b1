"""The file of tuning records, which one process at a time holds, and the pooling of a configuration's trials."""

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
"""The largest file of records that is read."""


class RecordFile:
    """A file of tuning records that one process at a time writes, each time as a whole.

    `records` are the file's records when it was opened, None if it is new.
    """

    def __init__(self, path: Path, wanted: TuningRecords, *, fresh: bool = False) -> None:
        """Open the file or create it; `wanted` has the device and the model that its records must have.

        With `fresh` an existing file is renamed. UsageError if the file is of something else, ProblemError if it is
        damaged, RecordError if it cannot be written or another process writes to it.
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
    """Raise RecordError if a record file could not be written, or another process writes to it; nothing is created."""
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
    """Write a record set to a file, which is replaced if it exists. UsageError if it cannot be written."""
    documents = record_lines(records)
    with _written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    save_text("".join(f"{json.dumps(document, allow_nan=False)}\n" for document in documents), path)


def best_of(trials: Iterable[TuningTrial], count: int | None = None) -> list[TuningTrial]:
    """The configurations that were timed, the fastest first, at most `count` of them.

    Each has the samples of all its trials together. Untuned ones and failures are left out.
    """
    timed = [t for t in pooled_trials(trials).values() if t.trace is not None and t.time_s is not None]
    return sorted(timed, key=lambda trial: trial.time_s or 0.0)[:count]


def best_trial(trials: Iterable[TuningTrial]) -> TuningTrial | None:
    """The first of `best_of`."""
    return next(iter(best_of(trials, 1)), None)


def pooled_trials(trials: Iterable[TuningTrial]) -> dict[str, TuningTrial]:
    """One trial for each configuration of a layer, with the samples of all its trials.

    It is a failure only if the configuration never succeeded. If any trial of the layer lacks CPU times, none has them,
    because all are compared by one clock. A configuration whose outputs were wrong once, or that crashed a process for
    good, is left out, whatever its other trials show.
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
    """A trial with the current time."""
    name = configuration_id(layer, trace)
    return TuningTrial(layer=layer, configuration=name, trace=trace, at_s=round(time.time(), 3), **facts)


def measured_trial(layer: TuningLayer, trace: Any, said: Timed | Failure) -> TuningTrial:
    """The outcome of a call of a layer, as a trial with the current time."""
    facts = {"failure": said} if isinstance(said, Failure) else fields_of(TuningTrial, said)
    return made_trial(layer.layer, trace, **facts)


def _wrong(trial: TuningTrial) -> bool:
    failure = trial.failure
    return failure is not None and (failure.stage == "check" or (failure.kind == "crash" and not failure.transient))


def _check(path: Path, records: TuningRecords, wanted: TuningRecords) -> None:
    """Raise UsageError if records of different contexts would be merged."""
    hint = (
        "Give another --out, or --fresh, which puts the old file aside; one device for two targets is two names: "
        "gnomon devices add NAME local --target TARGET"
    )
    pairs = (
        ("of the device", records.device.key, wanted.device.key),
        ("found on", records.host, wanted.host),
        ("for the target", dict(records.device.target), dict(wanted.device.target)),
        ("for so many threads:", records.device.threads, wanted.device.threads),
        ("of the model", records.model.sha256 or records.model.name, wanted.model.sha256 or wanted.model.name),
        ("of the data type", records.model.dtype, wanted.model.dtype),
        ("of the tuner", records.tuner, wanted.tuner),
        ("of the versions", dict(records.versions), dict(wanted.versions)),
    )
    for what, there, here in pairs:
        if there != here:
            raise UsageError(f"{path} holds records {what} {there}, and not {here}", hint=hint)


def _locked(path: Path) -> int:
    """The handle of a locked file, created if missing. OSError, or RecordError if another process has the lock."""
    try:
        return lock_file(path.resolve(), mode=0o666)
    except BlockingIOError as error:
        raise RecordError(
            f"another gnomon writes to {path} at this moment",
            hint="Wait for it to end, then the same command goes on from there; or give another --out.",
        ) from error


def _read(path: Path) -> TuningRecords | None:
    """The records of a file; None if it is empty, or has only the beginning of a header."""
    content = read_regular(path, MOST_BYTES)
    if not content.strip() or (b"\n" not in content.strip() and cut_off(content.decode(errors="replace"))):
        return None
    try:
        return read_tuning_records(content)
    except ProblemError as error:
        hint = "Mend or remove it: what was measured here is in the results database, and is written again."
        raise ProblemError(f"{path}: {error.message}", hint=hint) from error


def _aside(path: Path) -> Path:
    for number in range(1, 10_000):
        other = path.with_name(f"{path.name}.old{number}")  # a name that no pattern of record files matches
        if not other.exists():
            return other
    raise UsageError(f"too many old files beside {path}", hint="Remove some.")


def _written(path: Path) -> AbstractContextManager[None]:
    hint = "Make room, or give --out a folder that can be."
    return system_errors(RecordError, f"{path} cannot be written", hint=hint)
