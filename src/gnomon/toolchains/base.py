"""The interface of toolchains, their settings, and their entry-point group ``gnomon.toolchains``.

An entry is a function that creates a toolchain from its settings, a mapping from names to values or texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar, get_type_hints, runtime_checkable

from gnomon.core.codec import Must, ReadBy, matching, whole
from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.installing import Missing
from gnomon.plugins import loaded, named

if TYPE_CHECKING:
    from gnomon.core.sample import Failure
    from gnomon.system.children import Program

GROUP = "gnomon.toolchains"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolJob:
    """A float32 ONNX model to be converted into a file to measure with a runtime.

    `folder` is for the result, and `logs` is for the log of each step; both folders exist. `calibration` is an npz file
    with an array x, float32 (n, channels, height, width): images in the model's input format. `key` names the result
    and the logs.
    """

    key: str
    model: Path
    folder: Path
    calibration: Path
    logs: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """The result of a job: a file or a failure."""

    key: str
    path: Path | None
    failure: Failure | None = None


@runtime_checkable
class Toolchain(Protocol):
    """Converts float32 ONNX models into files to measure with a runtime.

    Contract: a toolchain is stateless, so that it can be called again. `make` yields one artifact per job, each as soon
    as it is ready, in any order. An error with one model becomes that model's `Failure`, and the other jobs continue.
    RuntimeMissingError before the first job if `check` finds something missing. A model file is never changed, a result
    appears completely or not at all, and no process outlives the iterator.
    """

    @property
    def name(self) -> str:
        """The name by which the toolchain is chosen."""

    @property
    def runtime(self) -> str:
        """The runtime with which the result is measured unless a command is named; "onnxruntime" and "openvino" can
        also classify images.
        """

    def check(self) -> tuple[Missing, ...]:
        """The missing packages and programs; none if the toolchain can be used."""

    def make(self, jobs: Sequence[ToolJob]) -> Iterator[Artifact]:
        """Do all jobs."""


def check_ready(toolchain: Toolchain) -> None:
    """Raise RuntimeMissingError, naming everything that is missing, if a toolchain lacks anything."""
    if missing := toolchain.check():
        raise RuntimeMissingError(
            f"the toolchain {toolchain.name} cannot be used: {'; '.join(need.what for need in missing)}",
            hint=" ".join(dict.fromkeys(need.hint for need in missing)),
        )


def _path(value: Any) -> Path:
    if isinstance(value, Path) or (isinstance(value, str) and value and value.isprintable()):
        return Path(value).expanduser()
    raise ProblemError("a path expected")


Text = Annotated[str, matching(".+", "a text")]
Seconds = Annotated[float, Must(be="seconds above 0, up to a week", fits=lambda value: 0 < value <= 7 * 86400)]
UserPath = Annotated[Path, ReadBy(read=_path)]
"""A path; a leading ~ is the user's home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """The common settings of toolchains with a child program, each with its type and meaning."""

    images: Annotated[int, whole(1, 1 << 20), "the most calibration images to use"] = 64
    workers: Annotated[int, whole(1, 256), "models to convert at the same time, each in its own process"] = 1
    timeout_s: Annotated[Seconds, "the most seconds that a model may take"] = 600.0
    memory_gib: Annotated[int, whole(1, 4096), "GiB of address space for each process"] = 16

    def program(self, name: str, *own: str) -> Program:
        """The child program with this name, with its `own` settings."""
        from gnomon.system.children import Program

        return Program(
            name=name,
            settings={setting: getattr(self, setting) for setting in own},
            workers=self.workers,
            job_timeout_s=self.timeout_s,
            memory_bytes=self.memory_gib << 30,
        )


def read_settings(toolchain: str, kind: Callable[..., T], given: Mapping[str, object]) -> T:
    """The settings of a toolchain; a text is read as pydantic reads it: "3" as a number, "yes" as a boolean.

    UsageError with all errors in the given settings.
    """
    from pydantic import TypeAdapter, ValidationError

    types = get_type_hints(kind, include_extras=True)
    values: dict[str, object] = {}
    errors = []
    for name, value in given.items():
        if name not in types:
            errors.append(f"there is no setting {ascii(name)[:60]}")
            continue
        try:
            values[name] = TypeAdapter(types[name]).validate_python(value, strict=not isinstance(value, str))
        except ValidationError as error:
            wrong = error.errors()[0]["msg"].replace("Input should be", "it must be")
            errors.append(f"{name} is {ascii(value)[:60]}: {wrong}")
    if errors:
        choices = "; ".join(f"{name}: {meaning.__metadata__[-1]}" for name, meaning in types.items()) or "none"
        raise UsageError(
            f"wrong settings of the toolchain {toolchain}: {'; '.join(errors)}", hint=f"Settings: {choices}."
        )
    return kind(**values)


def toolchain_names() -> tuple[str, ...]:
    """The names of all registered toolchains; none is loaded."""
    return tuple(named(GROUP))


def chosen_toolchain(name: str, settings: Mapping[str, object] | None = None) -> Toolchain:
    """The toolchain with this name and these settings.

    UsageError for an unknown name (it lists the known ones), for unknown settings, and if a third-party toolchain
    cannot be loaded.
    """
    entries = named(GROUP)
    advice = f"Toolchains: {', '.join(entries) or 'none; install gnomon again'}."
    if name not in entries:
        raise UsageError(f"there is no toolchain {ascii(name)[:60]}", hint=advice)
    toolchain = loaded(entries[name], f"the toolchain {name}")(dict(settings or {}))
    if not isinstance(toolchain, Toolchain):
        raise UsageError(f"the entry point {name} does not create a toolchain", hint=advice)
    return toolchain
