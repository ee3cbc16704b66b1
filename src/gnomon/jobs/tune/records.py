"""A file of tuning records that is only ever appended to: what is in it is never measured again."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.core.overlay.records import TuningLayer, TuningRecords, TuningTrial, configuration_id
from gnomon.core.overlay.trials import Name
from gnomon.core.sample import Failure
from gnomon.core.strict_json import cut_off
from gnomon.errors import RecordError, UsageError
from gnomon.formats.tuning.records import header_line, layer_line, read_tuning_records, record_lines, trial_line
from gnomon.system.files import Journal, save_text
from gnomon.system.locks import lock_file
from gnomon.tuning.bench import Timed


class RecordFile:
    """The records of one campaign, open for appending by one at a time. A context manager."""

    def __init__(self, path: Path, wanted: TuningRecords, *, fresh: bool = False) -> None:
        """Open the file or make it; `wanted` says of which device and model its records must be.

        With `fresh` one that is there is put aside under another name. UsageError where it is of something else,
        ProblemError where it is damaged, RecordError where it cannot be written, or another process writes to it.
        """
        self.path = path
        self.on_add: Callable[[Sequence[TuningTrial]], None] | None = None
        self._lock = -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(path)
            if fresh and path.stat().st_size:
                path.rename(_aside(path))
                os.close(self._lock)
                self._lock = _locked(path)
            records = _read(path)
            if records is not None:
                _check(path, records, wanted)
            self._journal = Journal(path)
        except BaseException as error:
            if self._lock >= 0:
                os.close(self._lock)
            if isinstance(error, OSError):
                raise _unwritten(path, error) from error
            raise
        self.records = records or wanted
        self._layers = {layer.layer: layer for layer in self.records.layers}
        self._trials: dict[str, list[TuningTrial]] = {}
        self._written: set[Name] = set()
        for trial in self.records.trials:
            self._trials.setdefault(trial.layer, []).append(trial)
            self._written.add((trial.layer, trial.configuration))
        if records is None:
            try:
                self._append([header_line(wanted)])
            except RecordError:
                self.close()
                raise

    def add_layers(self, layers: Iterable[TuningLayer]) -> None:
        """Write layers that are not there yet."""
        new = [layer for layer in layers if layer.layer not in self._layers]
        self._layers |= {layer.layer: layer for layer in new}
        self._append([layer_line(layer) for layer in new])

    def add(self, trials: Sequence[TuningTrial]) -> None:
        """Write trials, before anybody is told of them."""
        documents, new = [], set(self._written)
        for trial in trials:
            name = (trial.layer, trial.configuration)
            documents.append(trial_line(trial, known=name in new))
            new.add(name)
        self._append(documents)
        self._written = new
        for trial in trials:
            self._trials.setdefault(trial.layer, []).append(trial)
        if self.on_add is not None:
            self.on_add(trials)

    def trials(self, layer: str) -> Sequence[TuningTrial]:
        """All trials of a layer, in the order in which they were made."""
        return self._trials.get(layer, [])

    @property
    def count(self) -> int:
        """How many trials there are."""
        return sum(len(trials) for trials in self._trials.values())

    def content(self) -> TuningRecords:
        """Everything, also what was added."""
        trials = tuple(trial for layer in self._trials.values() for trial in layer)
        return replace(self.records, layers=tuple(self._layers.values()), trials=trials)

    def close(self) -> None:
        """Close the file; another may write to it then. Does nothing the second time."""
        self._journal.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _append(self, documents: Sequence[Mapping[str, Any]]) -> None:
        try:
            if documents:
                self._journal.append(*documents)
        except OSError as error:
            raise _unwritten(self.path, error) from error


def check_record(path: Path) -> None:
    """RecordError where a record file could not be written, or another process writes to it; nothing is made."""
    place = next(one for one in (path, *path.parents) if one.exists())
    try:
        if place == path:
            os.close(_locked(path))
        elif not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        elif not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unwritten(path, error) from error


def write_records(path: Path, records: TuningRecords) -> None:
    """Write a record set as a file of its own, in place of what was there. UsageError where it cannot be written."""
    documents = record_lines(records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritten(path, error) from error
    save_text("".join(json.dumps(document, allow_nan=False) + "\n" for document in documents), path)


def best_trial(trials: Iterable[TuningTrial]) -> TuningTrial | None:
    """The configuration of least time, the samples of all its trials together; untuned ones and failures left out."""
    pooled = pooled_trials(trials)
    timed = [trial for trial in pooled.values() if trial.trace is not None and trial.time_s is not None]
    return min(timed, key=lambda trial: trial.time_s or 0.0, default=None)


def pooled_trials(trials: Iterable[TuningTrial]) -> dict[str, TuningTrial]:
    """One trial a configuration, with the samples of all its trials; a failure only where it never succeeded.

    A configuration whose outputs were wrong once, or that ended a process for good, is left out, whatever its other
    trials say.
    """
    made: dict[str, TuningTrial] = {}
    for trial in trials:
        known = made.get(trial.configuration)
        if (
            known is None
            or _wrong(trial)
            or (known.failure is not None and trial.failure is None and not _wrong(known))
        ):
            made[trial.configuration] = trial
        elif trial.failure is None and known.failure is None:
            made[trial.configuration] = replace(known, times_s=(*known.times_s, *trial.times_s))
    return made


def made_trial(layer: str, trace: Any, **facts: Any) -> TuningTrial:
    """A trial of this moment."""
    return TuningTrial(
        layer=layer, configuration=configuration_id(layer, trace), trace=trace, at_s=round(time.time(), 3), **facts
    )


def measured_trial(layer: TuningLayer, trace: Any, said: Timed | Failure) -> TuningTrial:
    """What a call of a layer came to, as a trial of this moment."""
    if isinstance(said, Failure):
        return made_trial(layer.layer, trace, failure=said)
    return made_trial(layer.layer, trace, times_s=said.times_s, error=said.error, server=said.server)


def _wrong(trial: TuningTrial) -> bool:
    failure = trial.failure
    return failure is not None and (failure.stage == "check" or (failure.kind == "crash" and not failure.transient))


def _check(path: Path, found: TuningRecords, wanted: TuningRecords) -> None:
    """Records of unlike context are not merged."""
    hint = (
        "Give another --out, or --fresh, which puts the old file aside; one device for two targets is two names: "
        "gnomon devices add NAME local --target TARGET"
    )
    pairs = (
        ("of the device", found.device.key, wanted.device.key),
        ("found on", found.host, wanted.host),
        ("for the target", dict(found.device.target), dict(wanted.device.target)),
        ("for so many threads:", found.device.threads, wanted.device.threads),
        ("of the model", found.model.sha256 or found.model.name, wanted.model.sha256 or wanted.model.name),
        ("of the data type", found.model.dtype, wanted.model.dtype),
        ("of the tuner", found.tuner, wanted.tuner),
        ("of the versions", dict(found.versions), dict(wanted.versions)),
    )
    for what, there, here in pairs:
        if there != here:
            raise UsageError(f"{path} holds records {what} {there}, and not {here}", hint=hint)


def _locked(path: Path) -> int:
    """The handle of a file, made if it is not there, that no other process has. OSError, or RecordError if one has."""
    try:
        return lock_file(path.resolve(), mode=0o666)
    except BlockingIOError as error:
        raise RecordError(
            f"another gnomon writes to {path} at this moment",
            hint="Wait for it to end, then the same command goes on from there; or give another --out.",
        ) from error


def _read(path: Path) -> TuningRecords | None:
    """What a file holds; None where it holds nothing, or only the begin of a header."""
    content = path.read_bytes()
    if not content.strip() or (b"\n" not in content.strip() and cut_off(content.decode(errors="replace"))):
        return None
    return read_tuning_records(content)


def _aside(path: Path) -> Path:
    for number in range(1, 10_000):
        other = path.with_name(f"{path.name}.old{number}")  # which no pattern of record files finds
        if not other.exists():
            return other
    raise UsageError(f"too many old files beside {path}", hint="Remove some.")


def _unwritten(path: Path, error: OSError) -> RecordError:
    return RecordError(
        f"{path} cannot be written: {error.strerror or error}", hint="Make room, or give --out a folder that can be."
    )
