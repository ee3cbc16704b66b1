"""The JSON documents of `gnomon table`, and the document of whole nets, which are measured like a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gnomon.core.codec import fields_of
from gnomon.core.stats import Block
from gnomon.errors import MeasurementError
from gnomon.measure.environment import Caveat
from gnomon.report.answer import FirstVersion
from gnomon.report.conditions import ConditionsPart, table_conditions
from gnomon.session.document import BlockColumns, block_columns
from gnomon.spaces.latency_table import Difference, Row, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPart:
    """A unit: its time without the overhead of a call (`time_s`), and the time of a call of the unit alone (`call_s`),
    with bounds.

    If the unit was timed inside whole nets (`nets` is their number), both are its times there, and the bounds are the
    minimum and the maximum. `samples` are the times of calls by the table's clock; null if another tool measured them.
    """

    id: str
    label: str
    status: str
    time_s: float | None
    call_s: float | None
    low_s: float | None
    high_s: float | None
    relative_half_width: float | None
    processes: int
    nets: int = 0
    reason: str
    samples: BlockColumns | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableDocument(FirstVersion):
    """A latency table, the most expensive unit first, and complaints about it.

    `measured`, `seconds`, `campaign` and `doubts` describe a build; they are null without one.
    """

    format: Literal["gnomon-table"] = "gnomon-table"
    table: str
    space: str
    context: Mapping[str, Any]
    clock: str
    overhead_s: float
    anchor: str | None
    fused: tuple[str, ...]
    evidence: tuple[Mapping[str, object], ...]
    models: tuple[str, ...] = ()
    counts: Mapping[str, int]
    units: tuple[UnitPart, ...]
    complaints: tuple[str, ...]
    measured: int | None = None
    seconds: float | None = None
    campaign: str | None = None
    doubts: tuple[Caveat, ...] | None = None
    conditions: ConditionsPart | None = None

    def headline(self) -> tuple[str, str]:
        """The space and the folder, and how many units were measured."""
        note = "" if self.measured is None else f"Units measured this time: {self.measured}."
        return f"{self.space} in {self.table}", note


class CheckedTable(TableDocument):
    """A table that was checked."""

    __slots__ = ()

    @property
    def exit_code(self) -> int:
        """7 if there are complaints, otherwise 0."""
        return MeasurementError.exit_code if self.complaints else 0


def table_document(
    table: Table, path: Path, warnings: Sequence[str], kind: type[TableDocument] = TableDocument
) -> TableDocument:
    """The document of a table, with complaints about it."""
    manifest = table.manifest
    began_s = manifest.created_at_s if "protocol" in manifest.context else None  # else the time of an import
    times = table.times_s
    rows = sorted(table.rows, key=lambda row: -times.get(row.unit, 0.0))
    return kind(
        table=str(path),
        **fields_of(TableDocument, manifest) | {"anchor": manifest.anchor or None},
        fused=manifest.rules,
        counts={status: sum(r.status == status for r in rows) for status in ("ok", "unstable", "failed")},
        units=tuple(_unit(row, times.get(row.unit)) for row in rows),
        complaints=tuple(warnings),
        conditions=table_conditions(manifest.context, began_s),
    )


def _unit(row: Row, time_s: float | None) -> UnitPart:
    width = row.relative_half_width
    # A table that was written by another program may name its samples by something else than process and block.
    named = ((name.split("/"), values_s) for name, values_s in row.samples.items())
    blocks = [
        Block(process=int(name[0]), block=int(name[1]), values_s=tuple(values_s))
        for name, values_s in named
        if len(name) == 2 and name[0].isdecimal() and name[1].isdecimal()
    ]
    own = {
        "id": row.unit.id,
        "label": row.unit.label,
        "time_s": time_s,
        "relative_half_width": width if math.isfinite(width) else None,
        "samples": block_columns(blocks),
    }
    return UnitPart(**fields_of(UnitPart, row) | own)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TablesDocument(FirstVersion):
    """The tables of one file, one for each runtime: `gnomon table import`."""

    format: Literal["gnomon-tables"] = "gnomon-tables"
    tables: tuple[TableDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableDiffDocument(FirstVersion):
    """The differences between two tables: `gnomon table diff`.

    `only` are the units that only one table has, by table; `ratio` is the geometric mean of the units' ratios.
    """

    format: Literal["gnomon-table-diff"] = "gnomon-table-diff"
    tables: tuple[str, str]
    unlike: tuple[str, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]
    ratio: float | None
    apart: int
    units: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSpace:
    """A search space: the number of its nets, as digits, and the number of its units."""

    name: str
    nets: str
    units: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SpacesDocument(FirstVersion):
    """The search spaces known by name: `gnomon table spaces`."""

    format: Literal["gnomon-table-spaces"] = "gnomon-table-spaces"
    spaces: tuple[KnownSpace, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableExportDocument(FirstVersion):
    """The files to which a table was exported, and notes on omissions: `gnomon table export`."""

    format: Literal["gnomon-table-export"] = "gnomon-table-export"
    files: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetPart:
    """The time of a net with bounds, and the time of the reference net measured next to it; null if the net failed."""

    latency_s: float | None
    low_s: float | None
    high_s: float | None
    reference_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetFailure:
    """The position of a net among all nets, and the reason why it failed."""

    net: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NetsDocument(FirstVersion):
    """Whole nets, measured like a table. `unlike` are differences from the table's conditions.

    `file` is the csv of the nets, `fit` the command that fits an estimator to them.
    """

    format: Literal["gnomon-nets"] = "gnomon-nets"
    clock: str
    nets: tuple[NetPart, ...]
    failures: tuple[NetFailure, ...]
    unlike: tuple[str, ...]
    doubts: tuple[Caveat, ...]
    seconds: float
    file: str | None = None
    fit: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    conditions: ConditionsPart | None = None
