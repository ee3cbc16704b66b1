"""The csv of the SNPE profiler in nnabla-nas, and that of its NNabla variant; see `gnomon.formats.snpe_table`.

SNPE: ``unit,runtime,key,statistic,microseconds``; NNabla: ``unit,runtime,milliseconds``. Both come of Python's
``csv.writer``: commas between, quotes where a field needs them, CR LF behind each row.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gnomon.errors import ProblemError
from gnomon.formats.complaints import Complaints
from gnomon.formats.snpe_table import (
    HINT,
    KEYS,
    MOST_LETTERS,
    STATISTICS,
    Number,
    SnpeTable,
    gaps,
    missing,
    one_of,
    wrong_runtime,
    wrong_time,
    wrong_unit,
)

MOST_ROWS = 1 << 20
_WHOLE = re.compile(r"[0-9]{1,15}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class NnablaTable:
    """The NNabla variant: ``{unit: {runtime: milliseconds}}``, with runtimes such as ``cpu:float``."""

    entries: Mapping[str, Mapping[str, Number]]


def read_snpe_csv(text: str | bytes) -> SnpeTable:
    """Reads the csv. Raises ProblemError with everything that is wrong, each with its line."""
    table, complaints = scan_snpe_csv(text)
    complaints.raise_any()
    return table


def scan_snpe_csv(text: str | bytes) -> tuple[SnpeTable, Complaints]:
    """The good part of a csv and the complaints about the rest. ProblemError only for what is no text, or too long."""
    complaints = Complaints(what="latency table", hint=HINT)
    found: dict[str, dict[str, dict[str, dict[str, Number]]]] = {}
    first: dict[str, int] = {}
    seen: dict[tuple[str, ...], int] = {}
    for line, row in _rows(text, complaints):
        if len(row) != 5:
            complaints.tell(line_of(line), _width(row, 5, 3, "NNabla's"))
            continue
        unit, runtime, key, statistic, time = row
        value = _number(time)
        wrong = wrong_unit(unit) or wrong_runtime(runtime) or one_of(key, KEYS) or one_of(statistic, STATISTICS)
        wrong = wrong or wrong_time(time if value is None else value, statistic)
        before = seen.setdefault((unit, runtime, key, statistic), line)
        if before != line:
            wrong = wrong or f"the same unit, runtime, key and statistic as in line {before}"
        first.setdefault(unit, line)
        if wrong or value is None:
            complaints.tell(line_of(line), wrong)
        else:
            found.setdefault(unit, {}).setdefault(runtime, {}).setdefault(key, {})[statistic] = value
    for unit, runtime in gaps(found):
        complaints.tell(line_of(first[unit]), missing(runtime))
    _none(found, complaints)
    return SnpeTable(entries=found), complaints


def write_snpe_csv(table: SnpeTable, *, line_end: str = "\r\n") -> str:
    """The csv, letter for letter as the replaced tool writes it."""
    return _written(
        (
            (unit, runtime, key, statistic, value)
            for unit, runtimes in table.entries.items()
            for runtime, keys in runtimes.items()
            for key, statistics in keys.items()
            for statistic, value in statistics.items()
        ),
        line_end,
    )


def read_nnabla_csv(text: str | bytes) -> NnablaTable:
    """Reads the csv of the NNabla variant. Raises ProblemError with everything that is wrong, each with its line."""
    table, complaints = scan_nnabla_csv(text)
    complaints.raise_any()
    return table


def scan_nnabla_csv(text: str | bytes) -> tuple[NnablaTable, Complaints]:
    """The good part of the NNabla variant's csv and the complaints about the rest; see `scan_snpe_csv`."""
    complaints = Complaints(what="latency table", hint=HINT)
    found: dict[str, dict[str, Number]] = {}
    first: dict[tuple[str, str], int] = {}
    for line, row in _rows(text, complaints):
        if len(row) != 3:
            complaints.tell(line_of(line), _width(row, 3, 5, "SNPE's"))
            continue
        unit, runtime, time = row
        value = _number(time)
        wrong = wrong_unit(unit) or wrong_runtime(runtime) or wrong_time(time if value is None else value, "Avg_Time")
        before = first.setdefault((unit, runtime), line)
        if before != line:
            wrong = wrong or f"the same unit and runtime as in line {before}"
        if wrong or value is None:
            complaints.tell(line_of(line), wrong)
        else:
            found.setdefault(unit, {})[runtime] = value
    for unit, runtime in gaps(found):
        complaints.tell(line_of(min(line for (name, _), line in first.items() if name == unit)), missing(runtime))
    _none(found, complaints)
    return NnablaTable(entries=found), complaints


def write_nnabla_csv(table: NnablaTable, *, line_end: str = "\r\n") -> str:
    """The csv of the NNabla variant, letter for letter as the replaced tool writes it."""
    rows = ((unit, runtime, ms) for unit, times in table.entries.items() for runtime, ms in times.items())
    return _written(rows, line_end)


def csv_text(text: str | bytes, what: str, hint: str) -> str:
    """The text of a csv. ProblemError if it is no UTF-8, or too long."""
    if len(text) > MOST_LETTERS:
        raise ProblemError(f"the {what} has {len(text)} letters, and no more than {MOST_LETTERS} are read", hint=hint)
    if isinstance(text, bytes):
        try:
            return text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ProblemError(f"the {what} is no UTF-8 text (byte {error.start})", hint=hint) from error
    return text


def line_of(line: int) -> str:
    """A place in a file."""
    return f"line {line}"


def _rows(text: str | bytes, complaints: Complaints) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line in which each begins; empty lines are passed over, what is no csv ends them."""
    reader = csv.reader(io.StringIO(csv_text(text, complaints.what, complaints.hint), newline=""), strict=True)
    start = 1
    try:
        for count, row in enumerate(reader):
            if count >= MOST_ROWS:
                complaints.tell(line_of(start), f"more than {MOST_ROWS} rows")
                return
            if row:
                yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        complaints.tell(line_of(start), f"no csv: {error}")


def _number(text: str) -> Number | None:
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else None


def _width(row: list[str], wanted: int, other: int, whose: str) -> str:
    told = f"{wanted} fields expected, {len(row)} found"
    return f"{told}: this is {whose} table" if len(row) == other else told


def _none(found: Mapping[str, object], complaints: Complaints) -> None:
    if not found and not complaints.told:
        complaints.tell(line_of(1), "no row at all")


def _written(rows: Iterable[tuple[str | Number, ...]], line_end: str) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=line_end).writerows(rows)
    return out.getvalue()
