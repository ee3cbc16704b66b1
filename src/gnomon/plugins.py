"""Extensions of gnomon by installed packages: entry points for runtimes, devices, jobs and others."""

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
"""The group of entry points for jobs: each has the name of a command and names a `Job`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job: its commands, documents and functions. Gnomon's own jobs are rows of `gnomon.builtin`; those of packages
    are entry points.

    Everything is given as "module:attribute" and imported when needed. `commands` are given by name, with functions
    whose signatures declare their options (`gnomon.options`); for a package's job, only the command with the job's name
    counts. `documents` maps the part of a JSON document's `format` after "gnomon-" to the document's record class and
    the function that writes its report, report(record, page), or "". `functions` are the Python functions, by name.
    """

    commands: Mapping[str, CommandRow]
    documents: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)


def job(name: str) -> Job:
    """The job that a package adds under this name. KeyError if there is none, UsageError if it cannot be loaded."""
    entry = named(JOBS)[name]
    row = loaded(entry, f"the job {name}")
    if not isinstance(row, Job):
        message = f"the job {name} must be of type gnomon.plugins.Job, not {type(row).__name__}"
    elif not (isinstance(row.documents, Mapping) and isinstance(row.commands, Mapping) and name in row.commands):
        message = f"the job {name} needs a mapping of documents, and a mapping of commands that has {name}"
    else:
        return row
    raise UsageError(message, hint=f"Fix or remove the package that adds it ({entry.value}).")


def jobs() -> dict[str, Job | UsageError]:
    """The jobs that packages add, by name; for an unusable job the error, so that it does not affect other jobs."""
    rows: dict[str, Job | UsageError] = {}
    for name in named(JOBS):
        try:
            rows[name] = job(name)
        except GnomonError as error:
            rows[name] = UsageError(error.message, hint=error.hint)
    return rows


def at(place: str, what: str, kind: Callable[[Any], bool], wanted: str) -> Any:
    """The object that "module:attribute" names in a package that adds `what`; `kind` checks it, and `wanted` names its
    kind.

    UsageError if it is of another kind or cannot be loaded.
    """
    from importlib import metadata  # here and below: gnomon's own commands start without it

    value = loaded(metadata.EntryPoint(name=what, value=place, group=""), what)
    if kind(value):
        return value
    raise UsageError(f"{what} is not {wanted}", hint=f"Fix {place}, or remove its package.")


def entry_points(*, group: str) -> metadata.EntryPoints:
    """The entry points of a group, as `importlib.metadata.entry_points` finds them.

    Finding them reads a file of each installed package, which takes longer than the work of most commands, so it is
    done only once for each state of the package folders.
    """
    return _read_entry_points(group, tuple((path, _changed_ns(path)) for path in sys.path))


def named(group: str) -> dict[str, metadata.EntryPoint]:
    """The entry points of a group by name; no other package can replace one of gnomon's own."""
    entries: dict[str, metadata.EntryPoint] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, not is_own(entry))):
        entries.setdefault(entry.name, entry)
    return entries


def is_own(entry: metadata.EntryPoint) -> bool:
    """Return True if an entry point belongs to gnomon itself."""
    return entry.value.startswith("gnomon.")


def passed_over(group: str) -> list[metadata.EntryPoint]:
    """The entry points of a group that `named` leaves out because another with the same name comes first."""
    chosen = named(group)
    return [entry for entry in entry_points(group=group) if entry.value != chosen[entry.name].value]


def loaded(entry: metadata.EntryPoint, what: str) -> Any:
    """The object that an entry point names. UsageError, which calls the object `what`, if it cannot be loaded;
    GnomonError is passed on.
    """
    try:
        return entry.load()
    except GnomonError:
        raise
    except Exception as error:  # a third party's module may raise anything at import
        raise UsageError(
            f"{what} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"Fix or remove the package that adds it ({entry.value}).",
        ) from error


@functools.lru_cache(maxsize=32)
def _read_entry_points(group: str, where: tuple[tuple[str, int], ...]) -> metadata.EntryPoints:
    from importlib import metadata

    return metadata.entry_points(group=group)


def _changed_ns(path: str) -> int:
    """The time of the last addition to or removal from a folder; 0 if there is no folder."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
