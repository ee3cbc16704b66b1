"""Looking at tables: what one holds, what speaks against it, how two differ, and tables of blocks of other tools."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.core.codec import fields_of
from gnomon.errors import GnomonError, UsageError, did_you_mean
from gnomon.formats.block_table import Block, scan_block_table
from gnomon.jobs.table.document import (
    BlockPart,
    BlocksDocument,
    BlockSum,
    KnownSpace,
    SpacesDocument,
    TableDiffDocument,
    TableDocument,
    table_document,
)
from gnomon.jobs.table.folder import read_table
from gnomon.spaces.fuse import UNFUSED, rules
from gnomon.spaces.latency_table import complaints, differences, unlike
from gnomon.spaces.loading import known_spaces, load_space, space_of
from gnomon.system.files import read_file

_MS = 1e-3


def look(path: Path, space: str | None, kind: type[TableDocument] = TableDocument) -> TableDocument:
    """What a table holds and what speaks against it. `space` says where its space is, if it is not a shipped one.

    UsageError for a table of another space; other GnomonErrors where the table or that space cannot be read.
    """
    table = read_table(path)
    try:
        loaded = space_of(path, table.manifest.space, space)
        units = loaded.tables(rules(table.manifest.rules)).units
        warnings = complaints(table, units)
    except GnomonError as error:
        if space is not None:
            raise
        warnings = [f"{error.message}. {error.hint}", *complaints(table, ())]
    return table_document(table, path, warnings, kind)


def compare(first: Path, second: Path) -> TableDiffDocument:
    """How two tables differ: what they were measured with, and each unit that both hold. Raises GnomonError."""
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


def known() -> SpacesDocument:
    """The search spaces that are known by name. GnomonError where one that a package adds cannot be loaded."""
    spaces = []
    for name in known_spaces():
        tables = load_space(name).tables(UNFUSED)
        spaces.append(KnownSpace(name=name, nets=str(tables.nets()), units=len(tables.units)))
    return SpacesDocument(spaces=tuple(spaces))


def blocks(file: Path, names: Sequence[str] = ()) -> BlocksDocument:
    """The blocks of a YAML or JSON file in seconds, and the sum of those named: a name twice counts twice.

    `left_out` says what of the file is wrong. UsageError for a file that cannot be read, or a block that is not there;
    ProblemError for a file of which nothing can be used.
    """
    known, complaints = scan_block_table(read_file(file, hint="Give a YAML or JSON file of blocks."))
    if not known:
        complaints.raise_any()
    chosen = [_block(known, name) for name in names]
    total = BlockSum(blocks=len(chosen), mean_s=_MS * math.fsum(b.mean_ms for b in chosen)) if chosen else None
    return BlocksDocument(
        file=str(file),
        blocks=tuple(map(_part, known.values())),
        left_out=tuple(complaints.told),
        sum=total,
    )


def _block(known: Mapping[str, Block], name: str) -> Block:
    block = known.get(name)
    if block is None:
        hint = did_you_mean(name, list(known)[:1000]) or f"The file has {len(known)} other blocks."
        raise UsageError(f"the file has no block {name[:100]!r}", hint=hint)
    return block


def _part(block: Block) -> BlockPart:
    numbers = block.numbers
    std_ms = math.sqrt(numbers["var"]) if "var" in numbers and "std" not in numbers else numbers.get("std")
    return BlockPart(
        mean_s=block.mean_ms * _MS,
        std_s=None if std_ms is None else std_ms * _MS,
        count=numbers.get("count"),
        **fields_of(BlockPart, block),
    )
