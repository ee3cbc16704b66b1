"""The job `table blocks`: a block table of ProxylessNAS or OFA, listed, and the sum of a net's blocks."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnomon.errors import UsageError
from gnomon.formats.block_table import Block, BlockTable, scan_block_table

_MS = 1e-3


def blocks_document(file: Path, names: Sequence[str] = ()) -> dict[str, Any]:
    """The blocks of a YAML file as JSON values, in seconds, and the sum of those named: a name twice counts twice.

    `left_out` says what of the file is wrong. UsageError for a file that cannot be read, or a block that is not there;
    ProblemError for a file of which nothing can be used.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint="Give a YAML file of blocks.") from error
    table, complaints = scan_block_table(data)
    if not table.blocks:
        complaints.raise_any()
    chosen = [_block(table, name) for name in names]
    return {
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
