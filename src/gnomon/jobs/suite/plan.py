"""The file of a suite, and its cells: what one job does for one model on one device once."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from gnomon.core import codec
from gnomon.core.codec import Must
from gnomon.core.strict_json import Complaints
from gnomon.devices.config import DeviceConfig
from gnomon.errors import UsageError

JobName = Literal["place", "profile", "pareto", "table", "tune"]
REPEATED = ("place", "profile")
"""The jobs that measure again each time; the others go on where they were."""

MOST_CELLS = 100_000
_MOST_BYTES = 1 << 20
_HINT = "docs/jobs/suite.md describes every key."
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SELECTOR = re.compile(rf"(?:(?P<count>[1-9]\d{{0,3}}|{'|'.join(_WORDS)}) of (?:any )?)?@(?P<tag>[A-Za-z0-9][\w.-]*)")


def _above_0(value: float) -> bool:
    return value > 0


def _repeats(value: int) -> bool:
    return 1 <= value <= 1000


Texts = Annotated[tuple[str, ...], Must(be="a list of at least one", fits=bool)]
Seconds = Annotated[float, Must(be="a number of seconds above 0", fits=_above_0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One table `[[cells]]`: every job for every model on every device of it, `repeats` times.

    `models` are files, patterns of files below the suite's folder, or for the job `table` search spaces: names, or
    FILE.py:ATTRIBUTE below the folder.
    `max_time_s` bounds one cell of `place`, `profile` and `pareto`; `options` are those of `gnomon.place` and the
    others by their names.
    """

    jobs: Annotated[tuple[JobName, ...], Must(be="a list of at least one", fits=bool)]
    models: Texts
    devices: Texts
    repeats: Annotated[int, Must(be="a whole number from 1 to 1000", fits=_repeats)] = 1
    max_time_s: Seconds | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What the file says. After `max_time_s` no cell is begun any more. With `probe` devices are probed before use."""

    name: str
    cells: Annotated[tuple[Block, ...], Must(be="at least one table", fits=bool)]
    probe: bool = True
    max_time_s: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is measured once: by a job, of a model, on one of some devices.

    `selector` is how the file names the devices, `slot` which of the devices wanted by it this is: two slots of one
    `group` are never on one device. `repeat` counts from 1.
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
        """How people call it."""
        return f"{self.job} {Path(self.model).name} on {self.selector}" + (
            f", {self.repeat}" if self.repeat > 1 else ""
        )


def read_suite(path: Path) -> Suite:
    """The suite of a file; UsageError with all that is wrong with it at once."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise UsageError(f"{path} has more than {_MOST_BYTES >> 20} MiB", hint="Use patterns and tags.")
        document = tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="Name a suite's file.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {str(error)[:200]}", hint=_HINT) from error
    complaints = Complaints(what=f"suite {path}", hint=_HINT)
    found = codec.decode(Suite, document, complaints)
    if not complaints.told:
        for number, block in enumerate(found.cells):
            for job in block.jobs:
                if block.repeats > 1 and job not in REPEATED:
                    complaints.tell(f"$.cells[{number}]", f"{job} goes on where it was: it has no repeats")
                if block.max_time_s is not None and job in ("table", "tune"):
                    complaints.tell(f"$.cells[{number}]", f"{job} has no max_time_s; bound its options")
    if complaints.told:
        told = "".join(f"\n  {line}" for line in complaints.told[:20])
        raise UsageError(f"{path} is invalid:{told}", hint=_HINT)
    suite: Suite = found
    return suite


def cells_of(suite: Suite, folder: Path, devices: Mapping[str, DeviceConfig]) -> tuple[Cell, ...]:
    """All cells, in the order in which they are begun: each repeat of all before the next one.

    `folder` is that of the suite's file, `devices` the file of devices. UsageError for a pattern or a tag that nothing
    has, fewer devices of a tag than are wanted, or more than 100,000 cells.
    """
    made: list[Cell] = []
    for number, block in enumerate(suite.cells):
        slots = [slot for selector in block.devices for slot in _slots(selector, devices)]
        for job in block.jobs:
            for model in (m for pattern in block.models for m in _models(pattern, folder, job)):
                for selector, slot, able in slots:
                    for repeat in range(1, block.repeats + 1):
                        group = json.dumps([number, job, model, selector, repeat])
                        made.append(
                            Cell(
                                id=hashlib.sha256(f"{group}/{slot}".encode()).hexdigest()[:16],
                                job=job,
                                model=model,
                                selector=selector,
                                slot=slot,
                                repeat=repeat,
                                devices=able,
                                max_time_s=block.max_time_s,
                                options=block.options,
                                group=group,
                            )
                        )
                if len(made) > MOST_CELLS:
                    raise UsageError(f"a suite has at most {MOST_CELLS} cells", hint="Make two of it.")
    unique = {cell.id: cell for cell in made}
    return tuple(sorted(unique.values(), key=lambda cell: cell.repeat))


def _slots(selector: str, devices: Mapping[str, DeviceConfig]) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Each device that a selector wants: the selector, which of them it is, and who can be it."""
    found = _SELECTOR.fullmatch(selector)
    if found is None:
        yield selector, 1, (selector,)
        return
    tagged = tuple(name for name, config in devices.items() if found["tag"] in config.tags)
    if not tagged:
        raise UsageError(
            f"no device has the tag {found['tag']!r}", hint='Give it in the file of devices: tags = ["rk3588"].'
        )
    if found["count"] is None:
        for name in tagged:
            yield name, 1, (name,)
        return
    count = int(found["count"]) if found["count"].isdigit() else 1 + _WORDS.index(found["count"])
    if count > len(tagged):
        raise UsageError(
            f"{selector!r} wants {count} devices, and {len(tagged)} have the tag", hint="Tag more, or want fewer."
        )
    for slot in range(1, count + 1):
        yield selector, slot, tagged


def _models(pattern: str, folder: Path, job: str) -> Sequence[str]:
    if job == "table":
        file, _, attribute = pattern.rpartition(":")
        return [f"{(folder / file).absolute()}:{attribute}" if file.endswith(".py") else pattern]
    path = folder / pattern
    if path.exists() or not any(letter in pattern for letter in "*?["):
        if not path.exists():
            raise UsageError(f"there is no model {path}", hint="Paths are below the folder of the suite's file.")
        return [str(path.absolute())]
    try:
        found = sorted(str(one.absolute()) for one in Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except (ValueError, NotImplementedError) as error:
        raise UsageError(f"{pattern!r} is not a pattern of paths: {error}", hint=_HINT) from error
    if not found:
        raise UsageError(f"no model in {folder} matches {pattern!r}", hint="Correct the pattern, or leave it out.")
    return found
