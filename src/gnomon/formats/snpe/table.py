"""The latency table of the SNPE profiler in nnabla-nas: ``{unit: {runtime: {key: {statistic: microseconds}}}}``.

Sources: ``nnabla_nas/utils/profiler/snpe`` of sony/nnabla-nas (create_latency_table.py, sample_nnps.py, up to commit
8d18f3c). The lookup that counts is `LOOKUP`: the time in the layers, without what a call costs around them.

Whole numbers stay whole (snpe-bench tells its own times so) and sums keep their ``.0``: what is read is written back
letter for letter. A time of 0 is not valid: the readers complain about it, except for a minimum, since SNPE tells whole
microseconds and a layer can take less.

The csv of the SNPE profiler in nnabla-nas, and that of its NNabla variant; see `gnomon.formats.snpe.table`.

SNPE: ``unit,runtime,key,statistic,microseconds``; NNabla: ``unit,runtime,milliseconds``. Both come of Python's
``csv.writer``: commas between, quotes where a field needs them, CR LF behind each row.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.core.strict_json import Complaints, Strict, is_text, not_utf8, shown
from gnomon.errors import ProblemError

Number = int | float
Entries = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Number]]]]

KEYS = ("Forward Propagate", "Total Inference Time", "Layers Time")
STATISTICS = ("Min_Time", "Avg_Time", "Max_Time")
LOOKUP = ("Layers Time", "Avg_Time")
"""The key and the statistic that a table is asked for."""

MOST_LETTERS = 64 << 20
MOST_NAME = 4096
HINT = "Give the csv or json that create_latency_table.py of nnabla-nas wrote, or write one: gnomon table export"
_RUNTIME = re.compile(r"[A-Za-z][A-Za-z0-9_.:+-]{0,63}", re.ASCII)
_FILE = Strict(what="latency table", hint=HINT, most_letters=MOST_LETTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpeTable:
    """A table in microseconds, in the order of its file. A unit may lack a runtime: see `gaps`."""

    entries: Entries

    @property
    def units(self) -> tuple[str, ...]:
        """The units' names."""
        return tuple(self.entries)

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that any unit has, in the order of their first appearance."""
        return tuple(dict.fromkeys(runtime for by_runtime in self.entries.values() for runtime in by_runtime))


_MOST_RUNTIMES = 64


def gaps(entries: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Pairs of a unit and a runtime that other units have and it lacks, in the table's order."""
    named = dict.fromkeys(runtime for by_runtime in entries.values() for runtime in by_runtime)
    runtimes = list(named)[:_MOST_RUNTIMES]  # a file where each unit has runtimes of its own has no end of gaps
    return tuple((unit, runtime) for unit, has in entries.items() for runtime in runtimes if runtime not in has)


def read_snpe_json(text: str | bytes) -> SnpeTable:
    """Reads the json. Raises ProblemError with everything that is wrong, each with its path."""
    table, complaints = scan_snpe_json(text)
    complaints.raise_any()
    return table


def scan_snpe_json(text: str | bytes) -> tuple[SnpeTable, Complaints]:
    """The good part of a json and the complaints about the rest. ProblemError only for what is not a JSON object."""
    complaints = Complaints(what="latency table", hint=HINT)
    found: dict[str, dict[str, dict[str, dict[str, Number]]]] = {}
    for unit, runtimes in _FILE.object(_FILE.parse(text), "$").items():
        place = f"$[{shown(unit)}]"
        if (wrong := wrong_unit(unit)) or not isinstance(runtimes, dict):
            complaints.tell(place, wrong or f"an object of runtimes expected, {shown(runtimes)} found")
            continue
        for runtime, keys in runtimes.items():
            times = _times(keys, f"{place}.{shown(runtime)}", complaints)
            if wrong := wrong_runtime(runtime):
                complaints.tell(place, wrong)
            elif times:
                found.setdefault(unit, {})[runtime] = times
    for unit, runtime in gaps(found):
        complaints.tell(f"$[{shown(unit)}]", missing(runtime))
    if not found and not complaints.told:
        complaints.tell("$", "no unit at all")
    return SnpeTable(entries=found), complaints


def write_snpe_json(table: SnpeTable) -> str:
    """The json, letter for letter as the replaced tool writes it."""
    return json.dumps(table.entries)


def wrong_unit(unit: str) -> str:
    """What is wrong with a unit's name, or "". The tool took part of a path for it where its folder was not a name."""
    if not unit or len(unit) > MOST_NAME or not is_text(unit) or not unit.isprintable():
        return f"the name of a unit, of 1 to {MOST_NAME} printable letters, expected, {shown(unit)} found"
    if "/" in unit or "\\" in unit:
        return f"{shown(unit)} is a path, and no unit's name holds a slash"
    return ""


def wrong_runtime(runtime: str) -> str:
    """What is wrong with a runtime's name, or ""."""
    if _RUNTIME.fullmatch(runtime):
        return ""
    return f"a runtime such as CPU, GPU, GPU_FP16 or DSP expected, {shown(runtime)} found"


def wrong_time(value: Any, statistic: str) -> str:
    """What is wrong with a time, or ""."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return f"a time above 0 expected, {shown(value)} found"
    if value == 0 and statistic != "Min_Time":
        return "a time above 0 expected, 0 found: what failed has no time, and never counts as 0"
    return ""


def missing(runtime: str) -> str:
    """The complaint about a runtime that other units have."""
    return f"no times on {runtime}, which other units have"


def one_of(name: Any, names: tuple[str, ...]) -> str:
    """What is wrong with a name that must be one of these, or ""."""
    return "" if name in names else f"one of {', '.join(names)} expected, {shown(name)} found"


def _times(keys: Any, place: str, complaints: Complaints) -> dict[str, dict[str, Number]]:
    found: dict[str, dict[str, Number]] = {}
    if not isinstance(keys, dict):
        complaints.tell(place, f"an object of keys expected, {shown(keys)} found")
        return found
    for key, statistics in keys.items():
        if (wrong := one_of(key, KEYS)) or not isinstance(statistics, dict):
            complaints.tell(place, wrong or f"an object of statistics expected, {shown(statistics)} found")
            continue
        for statistic, value in statistics.items():
            wrong = one_of(statistic, STATISTICS) or wrong_time(value, statistic)
            if wrong:
                complaints.tell(f"{place}.{key}.{shown(statistic)}", wrong)
            else:
                found.setdefault(key, {})[statistic] = value
    return found


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
    """The good part of a csv and the complaints about the rest. ProblemError only for what is not text, or too long."""
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
    begins: dict[str, int] = {}
    for (unit, _), line in first.items():
        begins.setdefault(unit, line)
    for unit, runtime in gaps(found):
        complaints.tell(line_of(begins[unit]), missing(runtime))
    _none(found, complaints)
    return NnablaTable(entries=found), complaints


def write_nnabla_csv(table: NnablaTable, *, line_end: str = "\r\n") -> str:
    """The csv of the NNabla variant, letter for letter as the replaced tool writes it."""
    rows = ((unit, runtime, ms) for unit, times in table.entries.items() for runtime, ms in times.items())
    return _written(rows, line_end)


def csv_text(text: str | bytes, what: str, hint: str) -> str:
    """The text of a csv. ProblemError if it is not UTF-8, or too long."""
    if len(text) > MOST_LETTERS:
        raise ProblemError(f"the {what} has {len(text)} letters, and no more than {MOST_LETTERS} are read", hint=hint)
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ProblemError(f"the {what} is {not_utf8(text, error)}", hint=hint) from error
    # Marks of byte order say nothing. Behind an empty line one would be a part of a name, and gone once it is written.
    return text.replace("\ufeff", "")


def line_of(line: int) -> str:
    """A place in a file."""
    return f"line {line}"


def _rows(text: str | bytes, complaints: Complaints) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line in which each begins; empty lines are passed over, what is not csv ends them."""
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
        complaints.tell(line_of(start), f"not csv: {error}")


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
