"""The file of a suite, and its cells: each cell is one run of one job for one model on one device."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from gnomon.core import codec
from gnomon.core.codec import Must, within
from gnomon.core.strict_json import Complaints, shown
from gnomon.devices.config import DeviceConfig
from gnomon.errors import RecordError, UsageError
from gnomon.formats.toml import MOST_BYTES, read_toml
from gnomon.system.files import read_file

JobName = Literal["place", "profile", "pareto", "table", "tune"]
REPEATED = ("place", "profile")
"""The jobs that measure again in each run; other jobs continue their earlier results."""

LIKENESSES = 6
MOST_CELLS = 100_000
_HINT = "docs/jobs/suite.md describes every key."
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SELECTOR = re.compile(rf"(?:(?P<count>[1-9]\d{{0,3}}|{'|'.join(_WORDS)}) of (?:any )?)?@(?P<tag>[A-Za-z0-9][\w.-]*)")


Texts = Annotated[tuple[str, ...], Must(be="a non-empty list", fits=bool)]
Seconds = Annotated[float, Must(be="a number of seconds above 0", fits=lambda value: value > 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One `[[cells]]` table: each of its jobs for each of its models on each of its devices, `repeats` times.

    `models` are files, patterns of files below the suite's folder or, for the job `table`, search spaces, given by name
    or as FILE.py:ATTRIBUTE below the folder. `max_time_s` limits each cell of `place`, `profile` or `pareto`. `options`
    are those of `gnomon.place` and the other functions, by name.
    """

    jobs: Annotated[tuple[JobName, ...], Must(be="a non-empty list", fits=bool)]
    models: Texts
    devices: Texts
    repeats: Annotated[int, within(1, 1000, "a whole number from 1 to 1000")] = 1
    max_time_s: Seconds | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The content of a suite's file. No cell begins after `max_time_s`. With `probe`, devices are probed before use."""

    name: str
    cells: Annotated[tuple[Block, ...], Must(be="at least one table", fits=bool)]
    probe: bool = True
    max_time_s: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A single measurement: a job for a model on one of several devices.

    `selector` is the file's expression for the devices, such as "2 of @phone", and `slot` counts these devices from 1.
    Two cells of the same `group` never run on the same device. `repeat` counts from 1.
    """

    id: str
    job: JobName
    model: str
    selector: str
    slot: int
    repeat: int
    devices: tuple[str, ...]
    max_time_s: float | None
    options: Mapping[str, Any]
    group: str

    @property
    def label(self) -> str:
        """The label of the cell for people."""
        more = f", repeat {self.repeat}" if self.repeat > 1 else ""
        return f"{self.job} {Path(self.model).name} on {self.selector}{more}"


def read_suite(path: Path) -> Suite:
    """The suite in a file. UsageError lists all errors in the file."""
    content = read_file(path, hint="Give a suite's file; docs/jobs/suite.md has an example.", most_bytes=MOST_BYTES)
    try:
        document = read_toml(content.decode("utf-8-sig"))
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {str(error)[:200]}", hint=_HINT) from error
    complaints = Complaints(what=str(path), hint=_HINT)
    suite: Suite = codec.decode(Suite, document, complaints)
    for number, block in enumerate(suite.cells if suite else ()):
        try:
            codec.to_json(block.options, "options")  # options must be JSON, because they identify cells
        except RecordError as error:
            complaints.tell(f"$.cells[{number}]", error.message)
        for job in block.jobs:
            if block.repeats > 1 and job not in REPEATED:
                complaints.tell(f"$.cells[{number}]", f"{job} cannot be repeated, because it continues earlier results")
            if block.max_time_s is not None and job in ("table", "tune"):
                complaints.tell(f"$.cells[{number}]", f"{job} has no max_time_s; limit it with its options")
    complaints.raise_usage()
    return suite


def cells_of(suite: Suite, folder: Path, devices: Mapping[str, DeviceConfig]) -> tuple[Cell, ...]:
    """All cells in the order in which they begin: each repeat of all cells before the next repeat.

    `folder` is the folder of the suite's file, and `devices` are all devices in the file of devices. A cell that two
    blocks request occurs once. UsageError for a pattern or a tag without matches, for a tag with fewer devices than
    requested, and for more than 100,000 cells.
    """
    by_id: dict[str, Cell] = {}
    planned = 0
    for block in suite.cells:
        slots: dict[tuple[str, int], tuple[str, tuple[str, ...]]] = {}
        for selector in dict.fromkeys(block.devices):
            for named, slot, able in _slots(selector, devices):
                slots.setdefault((_wanted(named), slot), (named, able))
                _few(planned + len(slots) * block.repeats)
        settings = _settings(block.max_time_s, block.options)
        for job in dict.fromkeys(block.jobs):
            models = dict.fromkeys(m for pattern in dict.fromkeys(block.models) for m in _models(pattern, folder, job))
            planned += len(models) * len(slots) * block.repeats
            _few(planned)
            for model in models:
                for (wanted, slot), (named, able) in slots.items():
                    for repeat in range(1, block.repeats + 1):
                        group = _group(job, model, wanted, repeat, settings)
                        cell = Cell(
                            id=_id(group, slot),
                            job=job,
                            model=model,
                            selector=named,
                            slot=slot,
                            repeat=repeat,
                            devices=able,
                            max_time_s=block.max_time_s,
                            options=block.options,
                            group=group,
                        )
                        by_id.setdefault(cell.id, cell)
    return tuple(sorted(by_id.values(), key=lambda cell: cell.repeat))


def _few(cells: int) -> None:
    if cells > MOST_CELLS:
        raise UsageError(f"the suite has more than {MOST_CELLS} cells", hint="Split it into several suites.")


def identity(cell: Cell) -> str:
    """The id that `cells_of` gives a cell: cells of the same measurement have the same id, whatever their devices.

    A recorded cell has another id if it had to be measured again; its identity still follows from its content.
    """
    settings = _settings(cell.max_time_s, cell.options)
    return _id(_group(cell.job, cell.model, _wanted(cell.selector), cell.repeat, settings), cell.slot)


def likeness(cell: Cell, folder: str | None) -> tuple[Hashable, ...]:
    """The `LIKENESSES` keys for matching cells of two runs, from the surest to the least sure.

    `folder` is the folder of the suite's file, which may differ between the runs; None if it is not known.
    """
    same = cell.job, _wanted(cell.selector), cell.slot, cell.repeat
    path, name, settings = path_within(cell, folder), Path(cell.model).name, _settings(cell.max_time_s, cell.options)
    return identity(cell), cell.id, (*same, path, settings), (*same, path), (*same, name, settings), (*same, name)


def path_within(cell: Cell, folder: str | None) -> str:
    """The path of the cell's model, relative to the folder of the suite's file if the model is below it."""
    path = Path(cell.model)
    return path.relative_to(folder).as_posix() if folder and path.is_relative_to(folder) else cell.model


def _settings(max_time_s: float | None, options: Mapping[str, Any]) -> str:
    """The settings that change the measurement, besides model and device, as text."""
    return json.dumps([None if max_time_s is None else float(max_time_s), codec.to_json(options)], sort_keys=True)


def _group(job: str, model: str, wanted: str, repeat: int, settings: str) -> str:
    return hashlib.sha256(json.dumps([job, model, wanted, repeat, settings]).encode()).hexdigest()[:16]


def _id(group: str, slot: int) -> str:
    return hashlib.sha256(f"{group}/{slot}".encode()).hexdigest()[:16]


def _wanted(selector: str) -> str:
    """A selector without the number of devices, so that requesting more devices with a tag only adds slots."""
    match = _SELECTOR.fullmatch(selector)
    return selector if match is None else f"@{match['tag']}"


def _slots(selector: str, devices: Mapping[str, DeviceConfig]) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """For each device that a selector requests: the selector, the number of the slot, and the candidate devices."""
    match = _SELECTOR.fullmatch(selector)
    if match is None:
        yield selector, 1, (selector,)
        return
    tagged = tuple(name for name, config in devices.items() if match["tag"] in config.tags)
    if not tagged:
        raise UsageError(
            f"no device has the tag {match['tag']!r}",
            hint=f'Tag devices in the file of devices: tags = ["{match["tag"]}"]',
        )
    if match["count"] is None:
        for name in tagged:
            yield name, 1, (name,)
        return
    count = int(match["count"]) if match["count"].isdigit() else 1 + _WORDS.index(match["count"])
    if count > len(tagged):
        raise UsageError(f"{selector!r} needs {count} devices, but the tag has {len(tagged)}", hint="Tag more devices.")
    for slot in range(1, count + 1):
        yield selector, slot, tagged


def _models(pattern: str, folder: Path, job: str) -> Sequence[str]:
    if job == "table":
        file, _, attribute = pattern.rpartition(":")
        return [f"{(folder / file).absolute()}:{attribute}" if file.endswith(".py") else pattern]
    path = folder / pattern
    below = "Paths are relative to the folder of the suite's file."
    try:
        if path.exists():
            return [str(path.absolute())]
        if not any(letter in pattern for letter in "*?["):
            raise UsageError(f"there is no model {path}", hint=below)
        paths = sorted(str(entry.absolute()) for entry in Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except OSError as error:
        raise UsageError(f"the path of the model {shown(pattern)} is unusable: {error.strerror}", hint=below) from error
    except (ValueError, NotImplementedError, RecursionError) as error:
        raise UsageError(f"{shown(pattern)} is not a valid path pattern: {error}", hint=_HINT) from error
    if not paths:
        raise UsageError(f"no model in {folder} matches {pattern!r}", hint="Correct the pattern, or leave it out.")
    return paths
