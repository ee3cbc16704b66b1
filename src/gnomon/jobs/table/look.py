"""Looking at tables: the content of a table, complaints about it, and the differences between two tables."""

from __future__ import annotations

import math
from pathlib import Path

from gnomon.errors import GnomonError
from gnomon.jobs.table.document import (
    KnownSpace,
    SpacesDocument,
    TableDiffDocument,
    TableDocument,
    table_document,
)
from gnomon.jobs.table.folder import read_table, table_space
from gnomon.spaces.fuse import UNFUSED, rules
from gnomon.spaces.latency_table import complaints, differences, unlike
from gnomon.spaces.loading import known_spaces, load_space


def look(path: Path, space: str | None, kind: type[TableDocument] = TableDocument) -> TableDocument:
    """The content of a table, with warnings. `space` names the table's space if gnomon does not know it.

    UsageError for a table of another space; other GnomonErrors if the table or the space cannot be read.
    """
    table = read_table(path)
    try:
        loaded = table_space(path, table.manifest.space, space)
        units = loaded.tables(rules(table.manifest.rules)).units
        warnings = complaints(table, units)
    except GnomonError as error:
        if space is not None:
            raise
        warnings = [f"{error.message}. {error.hint}", *complaints(table, ())]
    return table_document(table, path, warnings, kind)


def compare(first: Path, second: Path) -> TableDiffDocument:
    """The differences between two tables: their conditions, and the times of each common unit. Raises GnomonError."""
    tables = read_table(first), read_table(second)
    both = differences(*tables)
    units = [{row.unit for row in table.rows} for table in tables]
    logs = [math.log(unit.ratio) for unit in both]
    return TableDiffDocument(
        tables=(str(first), str(second)),
        unlike=tuple(unlike(tables[0].manifest, tables[1].manifest)),
        only=(
            tuple(sorted(unit.label for unit in units[0] - units[1])),
            tuple(sorted(unit.label for unit in units[1] - units[0])),
        ),
        ratio=math.exp(sum(logs) / len(logs)) if logs else None,
        apart=sum(unit.apart for unit in both),
        units=tuple(both),
    )


def list_spaces() -> SpacesDocument:
    """The search spaces known by name. GnomonError if a space that a package adds cannot be loaded."""
    spaces = []
    for name in known_spaces():
        tables = load_space(name).tables(UNFUSED)
        spaces.append(KnownSpace(name=name, nets=str(tables.nets()), units=len(tables.units)))
    return SpacesDocument(spaces=tuple(spaces))
