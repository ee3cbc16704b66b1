"""Documents as tables: rows of plain values, as pandas frames, and as pyarrow tables."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from gnomon.errors import UsageError
from gnomon.installing import install_line
from gnomon.report.page import Table

Rows = list[dict[str, Any]]

RUNS = "runs"
"""The table of all samples, one per row, for documents whose configurations have `runs`."""


def tables_of(document: Mapping[str, object]) -> dict[str, Rows]:
    """The lists of objects in a document as tables, by key, in the document's order, and all samples of its `runs`.

    Values that are nested in a row get a name with a dot ("measured.median_s"). Columns of `runs` are left out of the
    rows because they are in the table `runs`.
    """
    tables: dict[str, Rows] = {}
    samples: Rows = []
    for key, value in document.items():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            tables[key] = [dict(_flat(item)) for item in value]
            samples += [row for item in value for row in _samples(item)]
    return tables | ({RUNS: samples} if samples else {})


def _flat(row: Mapping[str, object], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if key == "runs" and isinstance(value, Mapping):
            yield from ((f"{before}{name}", cell) for name, cell in value.items() if not isinstance(cell, Mapping))
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def _samples(row: Mapping[str, object]) -> Iterator[dict[str, Any]]:
    runs = row.get("runs")
    if not isinstance(runs, Mapping):
        return
    columns = runs["samples"]
    for number, wall_us in enumerate(columns["wall_us"]):
        cpu_us = columns["cpu_us"][number] if columns["cpu_us"] else [None] * len(wall_us)
        for sample, (wall, cpu) in enumerate(zip(wall_us, cpu_us, strict=True)):
            yield {
                "label": row["label"],
                "process": columns["process"][number],
                "block": columns["block"][number],
                "sample": sample,
                "wall_us": wall,
                "cpu_us": cpu,
            }


_MOST_COLUMNS = 10


def plain_table(rows: Rows) -> Table[dict[str, Any]]:
    """The rows as a table of the first few columns that hold plain values."""
    names = dict.fromkeys(name for row in rows for name in row)
    plain = (name for name in names if not any(isinstance(row.get(name), list | dict) for row in rows))
    table = Table(rows)
    for name in islice(plain, _MOST_COLUMNS):
        if any(isinstance(row.get(name), str) for row in rows):
            table.text(name.replace("_", " "), _value(name))
        else:
            table.number(name.replace("_", " "), _value(name))
    return table


def _value(name: str) -> Callable[[Mapping[str, object]], str]:
    return lambda row: plain_cell(row.get(name))


def plain_cell(value: Any) -> str:
    """A value of a document as a table cell: a number with four digits, "-" for None."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def frame(rows: Sequence[Mapping[str, object]], using: Literal["pandas", "pyarrow"] = "pandas") -> Any:
    """The rows as a `pandas.DataFrame` or a `pyarrow.Table`. UsageError if the package is not installed."""
    if using not in ("pandas", "pyarrow"):
        raise UsageError(f"frames cannot use {using!r}", hint="Give using='pandas' or using='pyarrow'.")
    package = _package(using, "a frame needs", "use the rows of table_rows()")
    if using == "pandas":
        return package.DataFrame.from_records([dict(row) for row in rows])
    return package.Table.from_pylist([dict(row) for row in rows])


_ROWS_AT_ONCE = 1 << 16


def write_parquet(rows: Iterable[Sequence[Any]], columns: Mapping[str, str], path: Path) -> None:
    """Write rows to a Parquet file, completely or not at all; `columns` maps names to Arrow's types.

    UsageError if pyarrow is not installed or the file cannot be written.
    """
    arrow = _package("pyarrow", "Parquet needs", "give --format csv")
    parquet = import_module("pyarrow.parquet")
    partial = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")
    schema = arrow.schema([(name, getattr(arrow, kind)()) for name, kind in columns.items()])
    left = iter(rows)
    try:
        with parquet.ParquetWriter(partial, schema, compression="zstd") as writer:
            while batch := list(islice(left, _ROWS_AT_ONCE)):
                values = zip(*batch, strict=True)
                arrays = [arrow.array(column, field.type) for column, field in zip(values, schema, strict=True)]
                writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error}", hint="Give --out another file.") from error
    finally:
        partial.unlink(missing_ok=True)


def _package(name: str, what: str, instead: str) -> Any:
    """A package that is imported only when it is needed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"{what} {name}, which is not installed", hint=f"{install_line(name, python=sys.executable)}; or {instead}."
        ) from error
