"""Tables on disk: a directory with `manifest.json` and `rows.jsonl`, which has a row on each line and only grows.

A table of a user's own space also has `space.json`, the space as data.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gnomon.core.codec import decode
from gnomon.core.strict_json import Complaints, Strict, indented, shown
from gnomon.errors import RecordError, UsageError, system_errors
from gnomon.spaces.latency_table import Manifest, Row, Table
from gnomon.spaces.loading import SearchSpace, space_of
from gnomon.spaces.remembered import read_space, remembered
from gnomon.system.files import Journal, read_journal, read_regular, write_whole

SCHEMA = 1
MANIFEST, ROWS, SPACE = "manifest.json", "rows.jsonl", "space.json"
_STRICT = Strict(what="table", hint="Build it again with `gnomon table build`.", most_letters=1 << 28)
_SPACE = replace(_STRICT, what="space of the table")


class TableFolder:
    """A table's directory, open for appending. Not safe for several processes at once."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Make the directory, or open an existing table. UsageError for anything else at the path."""
        self.path = path
        check_place(path)
        with _written(path):
            path.mkdir(parents=True, exist_ok=True)
            self._rows = Journal(path / ROWS)
        self.describe(manifest)

    def describe(self, manifest: Manifest) -> None:
        """Write the manifest, replacing an existing one."""
        with _written(self.path):
            write_whole(indented({"schema": SCHEMA, **asdict(manifest)}).encode(), self.path / MANIFEST)

    def append(self, *rows: Row) -> None:
        """Append rows, which then survive a crash."""
        with _written(self.path):
            self._rows.append(*({"id": row.unit.id, **asdict(row), "unit": row.unit.document()} for row in rows))

    def close(self) -> None:
        """Close the file of rows."""
        self._rows.close()


def is_table(path: Path) -> bool:
    """Return True if a directory looks like a table."""
    return (path / MANIFEST).is_file()


def read_table(path: Path) -> Table:
    """Read the table in a directory. A truncated last line is left out, because its row was never complete.

    UsageError if the directory holds no table, ProblemError with all faults of a malformed one.
    """
    if not is_table(path):
        raise UsageError(f"{path} is not a latency table", hint="Give the directory that `gnomon table build` made.")
    with system_errors(UsageError, f"{path} cannot be read", hint="Give a readable table."):
        faults = Complaints(what=_STRICT.what, hint=_STRICT.hint)
        manifest = _manifest_of(_STRICT.parse(read_regular(path / MANIFEST, _STRICT.most_letters)), faults)
        rows = [_row_of(document, f"line {number}", faults) for number, document in read_journal(path / ROWS, _STRICT)]
    faults.raise_any()
    assert manifest is not None  # noqa: S101  # an invalid manifest raised an error above
    return Table(manifest=manifest, rows=tuple(row for row in rows if row is not None))


def keep_space(space: SearchSpace | None, path: Path) -> None:
    """Store a space with its table, unless the space's name identifies it or the space cannot be written as data."""
    kept = None if space is None else remembered(space)
    with _written(path):
        if kept is None:
            (path / SPACE).unlink(missing_ok=True)
        else:
            write_whole((json.dumps(kept, allow_nan=False) + "\n").encode(), path / SPACE)


def kept_space(path: Path) -> SearchSpace | None:
    """The space that is stored with a table, if any. ProblemError for a malformed one."""
    if not (path / SPACE).is_file():
        return None
    with system_errors(UsageError, f"{path} cannot be read", hint="Give a readable table."):
        return read_space(read_regular(path / SPACE, _SPACE.most_letters), _SPACE)


def table_space(path: Path, name: str, given: str | None) -> SearchSpace:
    """The space that a table's manifest calls `name`: `given`, the stored one, or a known one.

    UsageError for any other space, ProblemError for a malformed one.
    """
    return space_of(path, name, given, kept_space(path) if given is None else None)


def write_table(table: Table, path: Path, space: SearchSpace | None = None) -> None:
    """Write a whole table and its space into a new directory. UsageError if something exists at the path."""
    check_unused(path)
    with closing(TableFolder(path, table.manifest)) as folder:
        folder.append(*table.rows)
    keep_space(space, path)


def check_place(path: Path) -> None:
    """Check, before measuring, that a table can be written to a path.

    UsageError if something other than a table exists there, RecordError if the folder cannot be written to.
    """
    if path.exists() and not is_table(path) and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists and is not a table", hint="Give --out another path.")
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    with _written(path):
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, f"{there} is not a folder that can be written to")


def check_unused(path: Path) -> None:
    """Raise UsageError if something exists at a path, unless it is an empty directory."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} already exists", hint="Give --out another path.")


def _manifest_of(document: Any, faults: Complaints) -> Manifest | None:
    if isinstance(document, dict) and document.pop("schema", None) != SCHEMA:
        faults.tell("$.schema", f"schema {SCHEMA} expected")
    manifest: Manifest | None = decode(Manifest, document, faults)
    context = manifest.context if manifest else {}
    for name in ("device", "options", "settings"):
        if not isinstance(context.get(name) or {}, dict):
            faults.tell(f"$.context.{name}", f"an object expected, {shown(context[name])} found")
    return manifest


def _row_of(document: Any, where: str, faults: Complaints) -> Row | None:
    unit_id = document.pop("id", None) if isinstance(document, dict) else ""
    row: Row | None = decode(Row, document, faults, where)
    if not isinstance(unit_id, str) or (row is not None and unit_id != row.unit.id):
        faults.tell(f"{where}.id", "not the id of the line's unit")
    return row


def _written(path: Path) -> AbstractContextManager[None]:
    hint = "Free some disk space, or give --out another path."
    return system_errors(RecordError, f"the table {path} cannot be written", hint=hint)


def context_document(context: Mapping[str, object]) -> dict[str, object]:
    """A context as plain JSON values, so that a context that was read equals the one that was written."""
    plain: dict[str, object] = json.loads(json.dumps(context, allow_nan=False, default=str, sort_keys=True))
    return plain
