"""What gnomon asks of a toolchain, its settings, and finding one by the entry-point group ``gnomon.toolchains``.

An entry is a function that makes a toolchain of its settings, a mapping from names to values or texts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

from gnomon.core.codec import Must, ReadBy, matching, within
from gnomon.core.sample import Failure
from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.plugins import loaded, named

Tell = Callable[[str], None]
"""Is told in a sentence what is being done."""

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}", re.ASCII)
_MOST_TOLD = 20


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
    is invalid, RuntimeMissingError where `check` finds something missing; both before the first job. A model file
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
            told.append(f"{ascii(job.key)[:60]} is not a plain name")
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


def _path(value: Any) -> Path:
    if isinstance(value, Path) or (isinstance(value, str) and value and value.isprintable()):
        return Path(value).expanduser()
    raise ProblemError("a path is wanted")


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise ProblemError(f"a command is wanted ({error})") from error
    if isinstance(value, list | tuple) and value and all(isinstance(one, str) and "\0" not in one for one in value):
        return tuple(value)
    raise ProblemError("a command, as a list of texts, is wanted")


Text = Annotated[str, matching(".+", "a text")]
Seconds = Annotated[float, Must(be="seconds above 0, up to a week", fits=lambda value: 0 < value <= 7 * 86400)]
Words = Annotated[tuple[str, ...], ReadBy(read=_words)]
"""A command: a list of texts, or one text that is split as a shell would (no shell runs it)."""

UserPath = Annotated[Path, ReadBy(read=_path)]
"""A path; a leading ~ is the user's home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting: its name, its type, what it is where none is given, and what it means.

    A text is read as pydantic reads it: "3" as a number, "yes" as a truth value.
    """

    name: str
    type: Any
    default: Any
    meaning: str


def whole(least: int, most: int) -> Any:
    """The type of whole numbers between two."""
    return Annotated[int, within(least, most, f"a whole number from {least} to {most}")]


def read_settings(toolchain: str, known: Sequence[Setting], given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every known setting. UsageError with all that is wrong with the given ones."""
    from pydantic import TypeAdapter, ValidationError

    by_name = {one.name: one for one in known}
    found = {one.name: one.default for one in known}
    told = []
    for name, value in given.items():
        if name not in by_name:
            told.append(f"there is no setting {ascii(name)[:60]}")
            continue
        try:
            found[name] = TypeAdapter(by_name[name].type).validate_python(value, strict=not isinstance(value, str))
        except ValidationError as error:
            wrong = error.errors()[0]["msg"].replace("Input should be", "it must be")
            told.append(f"{name} is {ascii(value)[:60]}: {wrong}")
    if told:
        choices = "; ".join(f"{one.name}: {one.meaning}" for one in known) or "none"
        raise UsageError(f"the toolchain {toolchain} cannot be set so: {'; '.join(told)}", hint=f"Settings: {choices}.")
    return found


COMMON = (
    Setting(name="workers", type=whole(1, 256), default=1, meaning="models at the same time, each in a process"),
    Setting(name="timeout_s", type=Seconds, default=600.0, meaning="seconds that a model may take"),
    Setting(name="memory_gib", type=whole(1, 4096), default=16, meaning="GiB of address space of a process"),
)
"""The settings of every toolchain that starts child programs."""

IMAGES = Setting(
    name="images", type=whole(1, 1 << 20), default=64, meaning="how many calibration images are used at most"
)


GROUP = "gnomon.toolchains"


def toolchain_names() -> tuple[str, ...]:
    """The names of all toolchains that are registered; none is loaded."""
    return tuple(named(GROUP))


def chosen_toolchain(name: str, settings: Mapping[str, Any] | None = None) -> Toolchain:
    """The toolchain of a name with these settings.

    UsageError for an unknown name, with those that there are, for settings that it does not have, and where a third
    party's cannot be loaded.
    """
    known = named(GROUP)
    advice = f"Known: {', '.join(known) or 'none; install gnomon again'}."
    if name not in known:
        raise UsageError(f"there is no toolchain {ascii(name)[:60]}", hint=advice)
    made = loaded(known[name], f"the toolchain {name}")(dict(settings or {}))
    if not isinstance(made, Toolchain):
        raise UsageError(f"what is registered as {name} makes no toolchain", hint=advice)
    return made
