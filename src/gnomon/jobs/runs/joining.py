"""Runs of other files brought into a record, and records joined to a new one."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from gnomon.core import codec
from gnomon.core.sample import Event
from gnomon.errors import RecordError
from gnomon.report.answer import Answer
from gnomon.store.base import COMMAND, FILES
from gnomon.store.join import Told, join_records, opened
from gnomon.store.sqlite import SqliteStore, default_path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BroughtPart:
    """How many campaigns, runs and events of a file were not in the record before."""

    path: str
    campaigns: int
    runs: int
    events: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BroughtDocument:
    """What `gnomon runs import` and `merge` did, by their files."""

    format: Literal["gnomon-brought"]
    version: Literal[1]
    record: str
    files: tuple[BroughtPart, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Brought(Answer):
    """What came of each file into the record at `record`."""

    record: Path
    files: tuple[BroughtPart, ...]

    __repr__ = Answer.__repr__

    def headline(self) -> tuple[str, str]:
        """Where to, and how many."""
        campaigns, runs = (sum(getattr(file, name) for file in self.files) for name in ("campaigns", "runs"))
        return str(self.record), f"{campaigns} campaigns and {runs} runs were not there before."

    def document(self) -> dict[str, Any]:
        """It as JSON values."""
        return codec.document(
            BroughtDocument(format="gnomon-brought", version=1, record=str(self.record), files=self.files)
        )


def import_runs(paths: Sequence[Path], record: Path | None) -> Brought:
    """Add what a record lacks of files: SQLite records, or JSON lines of `gnomon runs export`; None: the user's own.

    Each file comes whole, or not at all. How its campaigns were asked for and which files they wrote stays behind: it
    is of the machine that they come from, and nobody gave those commands here. RecordError or ProblemError for a file
    that is damaged or not there; those before it stay.
    """
    into = default_path() if record is None else record
    return Brought(record=into, files=tuple(_brought(path, into, _without_commands) for path in paths))


def merge_runs(paths: Sequence[Path], out: Path) -> Brought:
    """Write a new record of all that several hold, in their order; the files as for `import_runs`.

    RecordError where it is there already or cannot be written: then there is none.
    """
    if out.exists():
        raise RecordError(f"{out} is there already", hint=f"To add to it: gnomon runs import FILE --record {out}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{out.name[:64]}-", dir=out.parent))
        try:
            made = staging / "record.sqlite"
            files = tuple(_brought(path, made, lambda event: event) for path in paths)
            made.rename(out)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise RecordError(f"{out} cannot be written: {error.strerror}", hint="Give --out another file.") from error
    return Brought(record=out, files=files)


def _brought(path: Path, into: Path, told: Told) -> BroughtPart:
    if not path.exists():
        raise RecordError(f"there is no file {path}", hint="Give a record, or what gnomon runs export wrote.")
    if into.exists() and path.samefile(into):
        raise RecordError(f"{path} is the record itself", hint="Give another file.")
    with opened(path) as source, SqliteStore.open(into) as target:
        joined = join_records(source, target, told)
    return BroughtPart(path=str(path), campaigns=joined.campaigns, runs=joined.runs, events=joined.events)


def _without_commands(event: Event) -> Event | None:
    return None if event.name in (COMMAND, FILES) else event
