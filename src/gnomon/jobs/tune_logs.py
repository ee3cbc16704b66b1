"""Reads tuning records from files and folders, of any tuner."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gnomon.core.tuning_record import UNTUNED, TunedModel, TuningLayer, TuningRecords, TuningTrial
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.tuning_logs import FOLDER_FILES, NOTHING, Told, read_tuning_log, replay_problem
from gnomon.jobs.record_file import best_trial, pooled_trials
from gnomon.jobs.tune_folder import TuneFolder, file_digest

_MARGIN = 0.98
_MOST_BYTES = 4 << 30
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "xgboost-cpu")


def read_logs(paths: Sequence[Path], told: Told = NOTHING) -> list[TuningRecords]:
    """The record sets of files, or of folders with a database of MetaSchedule. Raises GnomonError."""
    return [_read(path, told) for path in paths]


def replayable(paths: Sequence[Path], records: Sequence[TuningRecords]) -> None:
    """ProblemError, with the reason, for records that no TVM of today can compile."""
    for path, one in zip(paths, records, strict=True):
        if (problem := replay_problem(one)) is not None:
            raise ProblemError(f"{path} cannot be replayed: {problem}", hint="gnomon overlay analyze compares it.")


def one_model(records: Sequence[TuningRecords]) -> TunedModel:
    """The model that all record sets are of. UsageError where they are of several."""
    models = {(one.model.sha256 or one.model.name, one.model.dtype): one.model for one in records}
    if len(models) != 1:
        names = ", ".join(f"{model.name} ({model.dtype})" for model in models.values())
        raise UsageError(f"these records are of several models: {names}", hint="Give records of one at a time.")
    return next(iter(models.values()))


def chosen_layers(layers: Sequence[TuningLayer], names: Sequence[str]) -> tuple[TuningLayer, ...]:
    """The layers that are meant: a text that a layer's name holds, or its number from 0. UsageError for none."""
    made: dict[str, TuningLayer] = {}
    for name in names:
        if name.isdecimal() and int(name) < len(layers):
            found = [layers[int(name)]]
        else:
            found = [layer for layer in layers if name and name in layer.name]
        if not found:
            known = ", ".join(f"{i} {layer.name}" for i, layer in enumerate(layers[:20]))
            raise UsageError(f"there is no layer {name!r}", hint=f"The layers are: {known}.")
        made |= {layer.layer: layer for layer in found}
    return tuple(made.values()) if names else tuple(layers)


def only_layers(records: Sequence[TuningRecords], names: Sequence[str]) -> list[TuningRecords]:
    """Record sets of the layers that are meant (see `chosen_layers`), numbered as they are met in all of the sets."""
    met: dict[str, TuningLayer] = {}
    for one in records:
        for layer in one.layers:
            met.setdefault(layer.layer, layer)
    wanted = {layer.layer for layer in chosen_layers(list(met.values()), names)}
    return [replace(one, layers=tuple(layer for layer in one.layers if layer.layer in wanted)) for one in records]


def model_file(folder: TuneFolder, model: TunedModel, given: Path | None) -> Path:
    """The network's own file: the one given, else the copy that tuning kept. UsageError where there is none."""
    path = given or folder.find_model(model)
    if given is not None and model.sha256 and given.is_file() and file_digest(given) != model.sha256:
        raise UsageError(
            f"{given} is not the network that these records are of",
            hint=f"Its SHA-256 begins with {model.sha256[:16]}.",
        )
    if path is None:
        raise UsageError(
            f"the network {model.name} itself is not in {folder.models}, and records hold layers only",
            hint="Give --model FILE, or --out of the folder that tuning wrote to.",
        )
    return path


def best_of(records: TuningRecords, layer: TuningLayer, count: int | None) -> list[TuningTrial]:
    """The configurations of a layer that were timed, the fastest first, and so many of them at most."""
    pooled = pooled_trials(t for t in records.trials if t.layer == layer.layer and t.trace is not None)
    timed = sorted((t for t in pooled.values() if t.time_s is not None), key=lambda trial: trial.time_s or 0.0)
    return timed[:count]


def best_choice(records: TuningRecords) -> list[tuple[TuningLayer, Any]]:
    """The layers whose best configuration is faster than none, with its trace.

    By 2 % at least: the least of many noisy times is nearly always below one that was taken once.
    """
    made = []
    for layer in records.layers:
        pooled = pooled_trials(t for t in records.trials if t.layer == layer.layer)
        best, untuned = best_trial(pooled.values()), pooled.get(UNTUNED)
        slow = None if untuned is None else untuned.time_s
        if best is not None and best.time_s is not None and (slow is None or best.time_s < _MARGIN * slow):
            made.append((layer, best.trace))
    return made


def tuner_versions() -> dict[str, str]:
    """The versions of the tuner's packages, as records name them; those that are not installed are left out."""
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _read(path: Path, told: Told) -> TuningRecords:
    try:
        if path.is_dir():
            files = {name: _bytes(path / name) for name in FOLDER_FILES if (path / name).is_file()}
            return read_tuning_log(str(path), files, told)
        return read_tuning_log(str(path), _bytes(path), told)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", hint="gnomon view lists the records here.") from error


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > _MOST_BYTES:
        raise ProblemError(f"{path} is larger than {_MOST_BYTES >> 30} GiB", hint="Give a record file.")
    return path.read_bytes()
