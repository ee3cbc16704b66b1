"""Write the choice in the format of its logs, so that it can be used without gnomon.

For AutoTVM and Ansor the files contain unchanged lines of the logs; for MetaSchedule they are databases and gnomon's
own records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnomon.core.overlay.records import UNTUNED, TunedDevice, TuningRecords, TuningTrial
from gnomon.core.overlay.trials import Name, by_layer, columns_of
from gnomon.core.stats import median
from gnomon.errors import ProblemError, RecordError, system_errors
from gnomon.formats.tuning.logs import FOLDER_FILES, LoggedLine, logged_lines
from gnomon.formats.tuning.metaschedule import write_metaschedule_database
from gnomon.jobs.overlay.document import WrittenPart
from gnomon.jobs.overlay.job import Analysis
from gnomon.jobs.tune.folder import TuneFolder
from gnomon.jobs.tune.records import MOST_BYTES, pooled_trials, write_records
from gnomon.system.files import read_regular, save_text, write_whole

OVERLAY = "overlay"
_ALL = "all-devices"
_SUFFIXES = {"autotvm": ".atvm", "ansor": ".ansor"}

Chosen = Mapping[str, Mapping[str, str]]
"""The configuration of each layer, by device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenChoice:
    """The written files; the AutoTVM index of the choice by layer and device; the file or folder of each build."""

    written: WrittenPart
    indices: Mapping[str, Mapping[str, int]]
    builds: tuple[Path, ...]


def carry(analysis: Analysis, folder: TuneFolder) -> WrittenChoice:
    """Write the choice for each device and for all together, and each build of a portfolio.

    UsageError or RecordError if a file cannot be written, ProblemError if a log has changed since it was read.
    """
    model = analysis.document.model
    choice: Chosen = dict.fromkeys(analysis.document.devices, analysis.chosen())
    sets: list[Chosen] = [choice, *(dict.fromkeys(build.devices, build.configurations) for build in analysis.builds)]
    devices = devices_of(analysis)
    alone: list[Chosen] = [{key: choice[key]} for key in devices]
    own = {key: folder.overlay(device, model) for key, device in devices.items()}
    whole = folder.overlay(replace(devices[next(iter(devices))], key=_ALL), model)
    places = [whole, *(folder.portfolio(model) / f"{number}.json" for number in range(1, len(sets)))]
    suffix = _SUFFIXES.get(analysis.records[0].tuner)
    if suffix is not None:
        lines = _lines(analysis, sets)
        paths = {key: path.with_suffix(f"{suffix}.json") for key, path in own.items()}
        logs = tuple(path.with_suffix(f"{suffix}.log") for path in places)
        for chosen, path in zip([*alone, *sets], [*paths.values(), *logs], strict=True):
            _save_lines(lines, chosen, path)
        indices: dict[str, dict[str, int]] = {}
        for layer, configuration in analysis.chosen().items():
            by_device = {key: lines[key, (layer, configuration)].index for key in devices}
            indices[layer] = {key: index for key, index in by_device.items() if index is not None}
        written = WrittenPart(lines=_texts(paths), whole=str(logs[0]))
        return WrittenChoice(written=written, indices=indices, builds=logs[1:])
    for key, path in own.items():
        write_records(path, _records(analysis, devices[key], choice[key]))
    written = WrittenPart(records=_texts(own))
    if not all(layer.workload for layer in analysis.described):
        return WrittenChoice(written=written, indices={}, builds=())
    databases = {key: path.with_suffix(".metaschedule") for key, path in own.items()}
    folders = tuple(path.with_suffix(".metaschedule") for path in places)
    for chosen, path in zip([*alone, *sets], [*databases.values(), *folders], strict=True):
        _save_database(path, [_records(analysis, devices[key], names) for key, names in chosen.items()])
    written = replace(written, databases=_texts(databases), whole=str(folders[0]))
    return WrittenChoice(written=written, indices={}, builds=folders[1:])


def save_selection(analysis: Analysis, folder: TuneFolder, builds: Sequence[Path], libraries: Mapping[str, str]) -> str:
    """Write a file that names the build of each device, with paths relative to the file; returns the file's path."""
    path = folder.portfolio(analysis.document.model) / "select.json"
    devices: dict[str, dict[str, object]] = {}
    for number, build in enumerate(analysis.builds):
        for key in build.devices:
            devices[key] = {"build": number + 1}
            if builds:
                devices[key]["tuned"] = os.path.relpath(builds[number], path.parent)
            if key in libraries:
                devices[key]["library"] = os.path.relpath(libraries[key], path.parent)
    with system_errors(RecordError, str(path.parent), hint="Give another --out."):
        path.parent.mkdir(parents=True, exist_ok=True)
    save_text(json.dumps({"gnomon": "overlay portfolio", "version": 1, "devices": devices}, indent=2) + "\n", path)
    return str(path)


def devices_of(analysis: Analysis) -> dict[str, TunedDevice]:
    """The devices by their keys."""
    devices: dict[str, TunedDevice] = {}
    for log in analysis.records:
        devices.setdefault(log.device.key, log.device)
    return devices


def _texts(paths: Mapping[str, Path]) -> dict[str, str]:
    return {key: str(path) for key, path in paths.items()}


def _lines(analysis: Analysis, sets: Sequence[Chosen]) -> dict[tuple[str, Name], LoggedLine]:
    """The log line of each chosen configuration on each device; if there are several, the one with the least time.

    Collected times take precedence over times of a search, as they do in the choice.
    """
    wanted = {(key, name) for chosen in sets for key, names in chosen.items() for name in names.items()}
    best: dict[tuple[str, Name], tuple[tuple[bool, float, bytes], LoggedLine]] = {}
    for path, records in zip(analysis.logs, analysis.records, strict=True):
        key, columns = records.device.key, columns_of(records.trials)
        mine = np.array([(key, name) in wanted for name in columns.names], dtype=np.bool_)[columns.which]
        trials = {int(columns.lines[k]): columns[k] for k in np.flatnonzero(mine & columns.sound()).tolist()}
        with system_errors(ProblemError, f"{path} cannot be read again", hint="Keep the file while gnomon reads it."):
            lines = logged_lines(read_regular(path, MOST_BYTES), records.tuner, trials)
        if lines.keys() != trials.keys():
            raise ProblemError(f"{path} has changed since it was read", hint="Repeat the command.")
        for number, trial in trials.items():
            place = key, (trial.layer, trial.configuration)
            ranked = (not records.found_on, median(trial.samples_s), lines[number].line), lines[number]
            best[place] = min(ranked, best.get(place, ranked), key=lambda entry: entry[0])
    return {name: line for name, (_, line) in best.items()}


def _save_lines(lines: Mapping[tuple[str, Name], LoggedLine], chosen: Chosen, path: Path) -> None:
    """Write the lines unchanged, each only once; a line without a line end gets one."""
    texts = [lines[key, name].line for key, names in chosen.items() for name in names.items()]
    with system_errors(RecordError, str(path), hint="Give another --out."):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(b"".join(text if text.endswith(b"\n") else text + b"\n" for text in dict.fromkeys(texts)), path)


def _records(analysis: Analysis, device: TunedDevice, chosen: Mapping[str, str]) -> TuningRecords:
    """The chosen configurations with their times on a device."""
    trials: list[TuningTrial] = []
    mine = by_layer([t for log in analysis.records if log.device.key == device.key for t in log.trials])
    for layer in analysis.described:
        trial = pooled_trials(mine.get(layer.layer, ())).get(chosen.get(layer.layer, UNTUNED))
        if trial is not None and trial.failure is None:
            trials.append(trial)
    first = analysis.records[0]
    return replace(first, device=device, found_on=OVERLAY, layers=analysis.described, trials=tuple(trials))


def _save_database(folder: Path, records: Sequence[TuningRecords]) -> None:
    """Write record sets of the same layers as one database, in which each record has its device's target."""
    texts = [write_metaschedule_database(part) for part in records]
    with system_errors(RecordError, str(folder), hint="Give another --out."):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(FOLDER_FILES, (texts[0][0], "".join(rows for _, rows in texts)), strict=True):
        save_text(text, folder / name)
