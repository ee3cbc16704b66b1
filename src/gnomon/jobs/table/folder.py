"""Tables on disk: a directory with `manifest.json` and `rows.jsonl`, one row a line, only ever appended to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from gnomon.core.codec import Must, decode
from gnomon.core.strict_json import Complaints, Strict, shown
from gnomon.errors import ProblemError, RecordError, UsageError
from gnomon.spaces.latency_table import Manifest, Row, Table
from gnomon.spaces.unit import unit_of
from gnomon.system.files import Journal, read_journal, write_whole

SCHEMA = 1
MANIFEST, ROWS = "manifest.json", "rows.jsonl"
_STRICT = Strict(what="table", hint="Build it again with `gnomon table build`.", most_letters=1 << 28)
_MOST = 1e15
"""Times of calls, and seconds since 1970, are below it."""

_STATUSES = ("ok", "unstable", "failed")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST


Figures = Annotated[Mapping[str, Any], Must(be="numbers", fits=lambda value: all(map(_is_time, value.values())))]
Seconds = Annotated[float, Must(be="seconds", fits=lambda value: 0 <= value < _MOST)]
Above0 = Annotated[float, Must(be="a number above 0", fits=lambda value: 0 < value < _MOST)]
Whole = Annotated[int, Must(be="a whole number from 0", fits=lambda value: value >= 0)]
Schema = Annotated[int, Must(be=f"schema {SCHEMA}", fits=lambda value: value == SCHEMA)]
Clock = Annotated[str, Must(be="cpu or wall", fits=lambda value: value in ("cpu", "wall"))]
Status = Annotated[str, Must(be=f"one of {', '.join(_STATUSES)}", fits=lambda value: value in _STATUSES)]


class TableFolder:
    """A table's directory, open for appending. Not safe for several processes at once."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Make the directory, or open one of the same context. UsageError for anything else that lies there."""
        self.path = path
        if path.exists() and not is_table(path) and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{path} is there and is not a table", hint="Give --out another path.")
        try:
            path.mkdir(parents=True, exist_ok=True)
            text = json.dumps(_manifest_document(manifest), indent=1, allow_nan=False) + "\n"
            write_whole(text.encode(), path / MANIFEST)
            self._rows = Journal(path / ROWS)
        except OSError as error:
            raise _refused(path, error) from error

    def append(self, *rows: Row) -> None:
        """Add rows, kept even if the next moment ends everything."""
        try:
            self._rows.append(*map(_row_document, rows))
        except OSError as error:
            raise _refused(self.path, error) from error

    def close(self) -> None:
        """Close the file of rows."""
        self._rows.close()


def is_table(path: Path) -> bool:
    """Whether a directory looks like a table."""
    return (path / MANIFEST).is_file()


def read_table(path: Path) -> Table:
    """The table of a directory. A last line that was cut off is left out: its unit was never complete.

    UsageError where there is none, ProblemError with all that is wrong in a malformed one.
    """
    if not is_table(path):
        raise UsageError(f"{path} is not a latency table", hint="Give the directory that `gnomon table build` made.")
    try:
        told = Complaints(what=_STRICT.what, hint=_STRICT.hint)
        manifest = _manifest_of(_STRICT.parse((path / MANIFEST).read_bytes()), told)
        rows = [_row_of(document, f"line {number}", told) for number, document in read_journal(path / ROWS, _STRICT)]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="Give a readable table.") from error
    told.raise_any()
    assert manifest is not None  # noqa: S101  # what is missing was told
    return Table(manifest=manifest, rows=tuple(row for row in rows if row is not None))


def write_table(table: Table, path: Path) -> None:
    """Write a whole table into a new directory. UsageError if something lies there."""
    check_unused(path)
    folder = TableFolder(path, table.manifest)
    try:
        folder.append(*table.rows)
    finally:
        folder.close()


def check_unused(path: Path) -> None:
    """UsageError where something lies at a path; an empty directory is nothing."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is there already", hint="Give --out another path.")


def _manifest_document(manifest: Manifest) -> dict[str, Any]:
    return {"schema": SCHEMA, **asdict(manifest)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ManifestFile:
    """`Manifest` as its file has it; see docs/jobs/table.md."""

    schema: Schema
    space: str
    context: Mapping[str, Any]
    clock: Clock
    overhead_s: Seconds
    anchor: str = ""
    anchor_calls_s: tuple[Above0, ...] = ()
    rules: tuple[str, ...] = ()
    evidence: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    created_at_s: Seconds = 0.0
    gnomon_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowFile:
    """`Row` as its line has it; `reported` figures stay as they are written."""

    id: str
    unit: Mapping[str, Any]
    status: Status
    at_s: Seconds
    call_s: Seconds | None = None
    low_s: Seconds | None = None
    high_s: Seconds | None = None
    drift: Above0 = 1.0
    processes: Whole = 0
    samples: Mapping[str, tuple[Seconds, ...]] = field(default_factory=dict)
    reported: Figures = field(default_factory=dict)
    reason: str = ""


def _manifest_of(document: Any, told: Complaints) -> Manifest | None:
    found = decode(_ManifestFile, document, told)
    if found is None:
        return None
    for name in ("device", "options", "settings"):
        if not isinstance(found.context.get(name) or {}, dict):
            told.tell(f"$.context.{name}", f"an object expected, {shown(found.context[name])} found")
    values = {one.name: getattr(found, one.name) for one in fields(found)}
    values.pop("schema")
    return Manifest(**values)


def _row_document(row: Row) -> dict[str, Any]:
    return {"id": row.unit.id, **asdict(row), "unit": row.unit.document()}


def _row_of(document: Any, where: str, told: Complaints) -> Row | None:
    found = decode(_RowFile, document, told, where)
    if found is None:
        return None
    values = {one.name: getattr(found, one.name) for one in fields(found)}
    values["samples"] = {block: list(seconds) for block, seconds in found.samples.items()}
    try:
        unit = unit_of(values.pop("unit"))
        if values.pop("id") != unit.id:
            told.tell(f"{where}.id", "it is not the unit's")
        return Row(unit=unit, **values)
    except ProblemError as error:
        told.tell(where, error.message)
        return None


def _refused(path: Path, error: OSError) -> RecordError:
    return RecordError(f"the table {path} cannot be written: {error.strerror}", hint="Make room, or give --out.")


def context_document(context: Mapping[str, Any]) -> dict[str, Any]:
    """A context as plain JSON values, so that one that was read equals one that was made."""
    made: dict[str, Any] = json.loads(json.dumps(context, allow_nan=False, default=str, sort_keys=True))
    return made
