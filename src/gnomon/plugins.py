"""What installed packages add to gnomon: their entry points, which tell of runtimes, devices, jobs and others."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.errors import GnomonError, UsageError
from gnomon.options import CommandRow

if TYPE_CHECKING:
    from importlib import metadata

JOBS = "gnomon.jobs"
"""The group of the entry points that name a `Job` each, by the name of its command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job: its commands, documents and functions. Gnomon's own are rows of `gnomon.builtin`, others entry points.

    All of it is "module:attribute", and is imported when it is needed. `commands` are by name, of functions whose
    signatures declare their options (`gnomon.options`); of a package's job it is the one that has the job's own name.
    `documents` are the record of a JSON document, by the part of its `format` after "gnomon-", and what writes its
    report: report(record, page), or "". `functions` are those of Python, by name.
    """

    commands: Mapping[str, CommandRow]
    documents: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)


def job(name: str) -> Job:
    """The job that a package adds under this name. KeyError where none does, UsageError where it cannot be loaded."""
    entry = named(JOBS)[name]
    row = loaded(entry, f"the job {name}")
    if not isinstance(row, Job):
        message = f"the job {name} is not a gnomon.plugins.Job, but of type {type(row).__name__}"
    elif not (isinstance(row.documents, Mapping) and isinstance(row.commands, Mapping) and name in row.commands):
        message = f"the job {name} has no mapping of documents, or none of commands with one of its name"
    else:
        return row
    raise UsageError(message, hint=f"Mend or remove the package that adds it ({entry.value}).")


def jobs() -> dict[str, Job | UsageError]:
    """The jobs that packages add, by name, or why one cannot be used: it stands in nobody else's way."""
    rows: dict[str, Job | UsageError] = {}
    for name in named(JOBS):
        try:
            rows[name] = job(name)
        except GnomonError as error:
            rows[name] = UsageError(error.message, hint=error.hint)
    return rows


def at(place: str, what: str, kind: Callable[[Any], bool], wanted: str) -> Any:
    """What "module:attribute" names in a package that adds `what`, which is of a `kind` that is called `wanted`.

    UsageError where it is not, or cannot be loaded.
    """
    from importlib import metadata  # here and below: a command of gnomon's own starts without it

    value = loaded(metadata.EntryPoint(name=what, value=place, group=""), what)
    if kind(value):
        return value
    raise UsageError(f"{what} is not {wanted}", hint=f"Mend {place}, or remove its package.")


def entry_points(*, group: str) -> metadata.EntryPoints:
    """The entry points of a group, as `importlib.metadata.entry_points` finds them.

    That reads a file of each installed package, which takes longer than most commands have to do: it is done once for
    each state of the folders of packages.
    """
    return _read_entry_points(group, tuple((path, _changed_ns(path)) for path in sys.path))


def named(group: str) -> dict[str, metadata.EntryPoint]:
    """The entry points of a group by name; nobody else's package can take the place of one of gnomon's own."""
    entries: dict[str, metadata.EntryPoint] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, not is_own(entry))):
        entries.setdefault(entry.name, entry)
    return entries


def is_own(entry: metadata.EntryPoint) -> bool:
    """Whether an entry point is one of gnomon itself."""
    return entry.value.startswith("gnomon.")


def passed_over(group: str) -> list[metadata.EntryPoint]:
    """The entry points of a group that `named` leaves out, as another's of the same name comes first."""
    chosen = named(group)
    return [entry for entry in entry_points(group=group) if entry.value != chosen[entry.name].value]


def loaded(entry: metadata.EntryPoint, what: str) -> Any:
    """What an entry point names. UsageError that tells `what` it is where it cannot be loaded; GnomonError as it is."""
    try:
        return entry.load()
    except GnomonError:
        raise
    except Exception as error:  # a third party's module may raise anything at import
        raise UsageError(
            f"{what} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"Mend or remove the package that adds it ({entry.value}).",
        ) from error


@functools.lru_cache(maxsize=32)
def _read_entry_points(group: str, where: tuple[tuple[str, int], ...]) -> metadata.EntryPoints:
    from importlib import metadata

    return metadata.entry_points(group=group)


def _changed_ns(path: str) -> int:
    """When something was last added to a folder or removed from it; 0 without a folder."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
