"""Tables on disk: a directory with `manifest.json` and `rows.jsonl`, one row a line, only ever appended to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from gnomon.core.strict_json import Strict, shown
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

    UsageError where there is none, ProblemError for a malformed one.
    """
    if not is_table(path):
        raise UsageError(f"{path} is not a latency table", hint="Give the directory that `gnomon table build` made.")
    try:
        manifest = _manifest_of(_STRICT.parse((path / MANIFEST).read_bytes()))
        rows = tuple(_row_of(document, f"line {number}") for number, document in read_journal(path / ROWS, _STRICT))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="Give a readable table.") from error
    return Table(manifest=manifest, rows=rows)


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


def _manifest_of(document: Any) -> Manifest:
    found = dict(_STRICT.object(document, "$"))
    if found.pop("schema", None) != SCHEMA:
        _STRICT.fail("$.schema", f"schema {SCHEMA} expected")
    missing = {"space", "context", "clock", "overhead_s"} - found.keys()
    known = {field.name for field in fields(Manifest)}
    if missing or found.keys() - known:
        _STRICT.fail("$", f"{', '.join(sorted(missing or found.keys() - known))}: missing or not known")
    if found["clock"] not in ("cpu", "wall") or not isinstance(found["space"], str):
        _STRICT.fail("$", "the clock is cpu or wall, the space a text")
    for name in ("overhead_s", "created_at_s"):
        if not _is_time(found.get(name, 0.0)):
            _STRICT.fail(f"$.{name}", "seconds expected")
    for name in ("anchor", "gnomon_version"):
        if not isinstance(found.get(name, ""), str):
            _STRICT.fail(f"$.{name}", "a text expected")
    lists: dict[str, Callable[[object], bool]] = {
        "rules": _is_text,
        "notes": _is_text,
        "evidence": lambda value: isinstance(value, dict),
        "anchor_calls_s": lambda value: _is_time(value) and value != 0,
    }
    for name, fits in lists.items():
        values = found.get(name, [])
        if not isinstance(values, list) or not all(map(fits, values)):
            _STRICT.fail(f"$.{name}", "a list expected, of what docs/jobs/table.md says")
        found[name] = tuple(values)
    context = _STRICT.object(found["context"], "$.context")
    for name in ("device", "options", "settings"):
        _STRICT.object(context.get(name) or {}, f"$.context.{name}")
    return Manifest(**found)


def _row_document(row: Row) -> dict[str, Any]:
    return {"id": row.unit.id, **asdict(row), "unit": row.unit.document()}


def _row_of(document: Any, where: str) -> Row:
    found = dict(_STRICT.object(document, where))
    unit = unit_of(found.pop("unit", None))
    if found.pop("id", None) != unit.id:
        _STRICT.fail(f"{where}.id", "it is not the unit's")
    if found.get("status") not in _STATUSES:
        _STRICT.fail(f"{where}.status", f"one of {', '.join(_STATUSES)} expected")
    for name in ("call_s", "low_s", "high_s"):
        if found.get(name) is not None and not _is_time(found[name]):
            _STRICT.fail(f"{where}.{name}", "seconds expected")
    for name in ("at_s", "drift"):
        if not _is_time(found.get(name, 1.0)) or (name, found.get(name)) == ("drift", 0):
            _STRICT.fail(f"{where}.{name}", "a number expected")
    _STRICT.whole(found.get("processes", 0), f"{where}.processes", "a whole number")
    if not isinstance(found.get("reason", ""), str):
        _STRICT.fail(f"{where}.reason", "a text expected")
    for block, values in _STRICT.object(found.get("samples", {}), f"{where}.samples").items():
        if not isinstance(values, list) or not all(map(_is_time, values)):
            _STRICT.fail(f"{where}.samples.{shown(block)}", "a list of seconds expected")
    if not all(map(_is_time, _STRICT.object(found.get("reported", {}), f"{where}.reported").values())):
        _STRICT.fail(f"{where}.reported", "numbers expected")
    try:
        return Row(unit=unit, **found)
    except TypeError as error:
        raise ProblemError(f"table: {where}: {error}", hint=_STRICT.hint) from error


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST


def _refused(path: Path, error: OSError) -> RecordError:
    return RecordError(f"the table {path} cannot be written: {error.strerror}", hint="Make room, or give --out.")


def context_document(context: Mapping[str, Any]) -> dict[str, Any]:
    """A context as plain JSON values, so that one that was read equals one that was made."""
    made: dict[str, Any] = json.loads(json.dumps(context, allow_nan=False, default=str, sort_keys=True))
    return made
