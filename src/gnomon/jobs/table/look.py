"""Looking at tables: what one holds, what speaks against it, and how two differ; as documents for reports.

The job `table blocks`: a block table of ProxylessNAS or OFA, listed, and the sum of a net's blocks.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnomon.errors import GnomonError, UsageError
from gnomon.formats.block_table import Block, BlockTable, scan_block_table
from gnomon.jobs.table.document import table_document
from gnomon.jobs.table.folder import read_table
from gnomon.spaces.fuse import rules
from gnomon.spaces.latency_table import complaints, differences, unlike
from gnomon.spaces.loading import space_of
from gnomon.system.files import read_file


def look(path: Path, space: str | None) -> dict[str, Any]:
    """What a table holds and what speaks against it. `space` says where its space is, if it is not a shipped one.

    UsageError for a table of another space; other GnomonErrors where the table or that space cannot be read.
    """
    table = read_table(path)
    told: list[str] = []
    try:
        loaded = space_of(path, table.manifest.space, space)
        units = loaded.tables(rules(table.manifest.rules)).units
        told = complaints(table, units)
    except GnomonError as error:
        if space is not None:
            raise
        told = [f"{error.message}. {error.hint}", *complaints(table, ())]
    return table_document(table, path, told)


def compare(first: Path, second: Path) -> dict[str, Any]:
    """How two tables differ: what they were measured with, and each unit that both hold. Raises GnomonError."""
    ones, others = read_table(first), read_table(second)
    found = differences(ones, others)
    units = [{row.unit for row in table.rows} for table in (ones, others)]
    logs = [math.log(d.ratio) for d in found]
    return {
        "format": "gnomon-table-diff",
        "version": 1,
        "tables": [str(first), str(second)],
        "unlike": unlike(ones.manifest, others.manifest),
        "only": [
            sorted(unit.label for unit in units[0] - units[1]),
            sorted(unit.label for unit in units[1] - units[0]),
        ],
        "ratio": math.exp(sum(logs) / len(logs)) if logs else None,
        "apart": sum(d.apart for d in found),
        "units": [
            {
                "id": d.unit.id,
                "label": d.unit.label,
                "times_s": [d.first_s, d.second_s],
                "ratio": d.ratio,
                "apart": d.apart,
            }
            for d in found
        ],
    }


_MS = 1e-3


def blocks_document(file: Path, names: Sequence[str] = ()) -> dict[str, Any]:
    """The blocks of a YAML file as JSON values, in seconds, and the sum of those named: a name twice counts twice.

    `left_out` says what of the file is wrong. UsageError for a file that cannot be read, or a block that is not there;
    ProblemError for a file of which nothing can be used.
    """
    table, complaints = scan_block_table(read_file(file, hint="Give a YAML file of blocks."))
    if not table.blocks:
        complaints.raise_any()
    chosen = [_block(table, name) for name in names]
    return {
        "format": "gnomon-table-blocks",
        "version": 1,
        "file": str(file),
        "blocks": [_document(block) for block in table.blocks.values()],
        "left_out": list(complaints.told),
        "sum": {"blocks": len(chosen), "mean_s": _MS * math.fsum(b.mean_ms for b in chosen)} if chosen else None,
    }


def _block(table: BlockTable, name: str) -> Block:
    found = table.blocks.get(name)
    if found is None:
        near = difflib.get_close_matches(name[:200], list(table.blocks)[:1000], n=1)
        hint = f"Nearest: {near[0]}" if near else f"The file has {len(table.blocks)} other blocks."
        raise UsageError(f"the file has no block {name[:100]!r}", hint=hint)
    return found


def _document(block: Block) -> dict[str, Any]:
    std_ms = block.numbers.get("std")
    return {
        "name": block.name,
        "kind": block.kind,
        "attributes": block.attributes,
        "mean_s": block.mean_ms * _MS,
        "std_s": None if std_ms is None else std_ms * _MS,
        "count": block.numbers.get("count"),
    }
