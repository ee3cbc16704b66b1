"""The latency table of the SNPE profiler in nnabla-nas: ``{unit: {runtime: {key: {statistic: microseconds}}}}``.

It is JSON or csv. The csv of SNPE has rows of ``unit,runtime,key,statistic,microseconds``, and the csv of its NNabla
variant has rows of ``unit,runtime,milliseconds``. Both come from Python's ``csv.writer``: with commas, quotes for the
fields that need them, and CR LF after each row.

gnomon uses the times of `LOOKUP`: the time spent in the layers, without the overhead of the call around them. Whole
numbers stay whole (as in the times of snpe-bench) and sums keep their ``.0``: a table that was read is written back
letter for letter. A time of 0 is not valid, except as a minimum: SNPE reports whole microseconds, and a layer can take
less.

Sources: ``nnabla_nas/utils/profiler/snpe`` of sony/nnabla-nas (create_latency_table.py, sample_nnps.py, up to commit
8d18f3c).
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from gnomon.core.codec import Location, Must, checked, matching, steps
from gnomon.core.strict_json import Complaints, Strict, file_text

Number = int | float
Entries = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Number]]]]
"""A table in microseconds, in the order of its file. A unit may have no times on a runtime."""
Key = Literal["Forward Propagate", "Total Inference Time", "Layers Time"]
Statistic = Literal["Min_Time", "Avg_Time", "Max_Time"]

KEYS: tuple[Key, ...] = get_args(Key)
LOOKUP = ("Layers Time", "Avg_Time")
"""The key and the statistic of the times that gnomon uses."""

MOST_LETTERS = 64 << 20
MOST_NAME = 4096
HINT = "Give the csv or json that create_latency_table.py of nnabla-nas wrote, or write one: gnomon table export"
_FILE = Strict(what="latency table", hint=HINT, most_letters=MOST_LETTERS)
_MOST_RUNTIMES = 64
MOST_ROWS = 1 << 20
_WHOLE = re.compile(r"[0-9]{1,15}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,3})?", re.ASCII)


def is_time(value: Any) -> bool:
    """Return True for a time or 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


def _are_above_0(times: Mapping[str, Number]) -> bool:
    return all(time > 0 for statistic, time in times.items() if statistic != "Min_Time")


Unit = Annotated[
    str,
    Must(
        be=f"the name of a unit, of 1 to {MOST_NAME} printable characters without a slash,",
        fits=lambda name: 0 < len(name) <= MOST_NAME and name.isprintable() and not {"/", "\\"} & set(name),
    ),
]
Runtime = Annotated[str, matching(r"[A-Za-z][A-Za-z0-9_.:+-]{0,63}", "a runtime such as CPU, GPU, GPU_FP16 or DSP")]
TimeOr0 = Annotated[Any, Must(be="a time above 0", fits=is_time)]
Time = Annotated[TimeOr0, Must(be="a time above 0 (a failed unit has no time)", fits=bool)]
Times = Annotated[
    Mapping[Statistic, TimeOr0],
    Must(be="a time above 0 as Avg_Time and Max_Time (a failed unit has no time)", fits=_are_above_0),
]
_TABLE = Mapping[Unit, Mapping[Runtime, Mapping[Key, Times]]]


def runtimes_of(entries: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The runtimes of all units, in the order of their first appearance."""
    return tuple(dict.fromkeys(runtime for by_runtime in entries.values() for runtime in by_runtime))


def scan_snpe_json(text: str | bytes) -> tuple[Entries, Complaints]:
    """The valid part of a json, and the complaints about the rest. ProblemError only if the text is
    not a JSON object.
    """
    complaints = Complaints(what="latency table", hint=HINT)
    entries = dict(_FILE.object(_FILE.parse(text), "$"))
    for place, sentence in _take_out(_TABLE, entries):
        complaints.tell("$" + steps(place), sentence)
    if not entries and not complaints.sentences:
        complaints.tell("$", "the table has no unit")
    return entries, complaints


def write_snpe_json(entries: Entries) -> str:
    """The json, exactly as create_latency_table.py writes it."""
    return json.dumps(entries)


def write_accumulation(sums_us: Mapping[str, Number]) -> str:
    """The accumulation file of a sampled net, exactly as nnabla-nas writes it."""
    return json.dumps(dict(sums_us))


def _take_out(kind: Any, entries: dict[str, Any]) -> Iterator[tuple[Location, str]]:
    """Remove the entries that are not of this type; yield their locations and the reasons, and missing runtimes too."""
    _, faults = checked(kind, entries)
    for location, sentence in faults:
        yield location, sentence
        holder = entries
        for name in location[:-1]:
            holder = holder.get(str(name), {})
        for name in location[-1:] or list(holder):  # a fault of the whole table has no location: everything is removed
            holder.pop(str(name), None)
    _drop_empty(entries)
    runtimes = runtimes_of(entries)[:_MOST_RUNTIMES]  # limits the number of reported gaps
    for unit, has in entries.items():
        for runtime in runtimes:
            if runtime not in has:
                yield (unit,), f"no times on {runtime}, although other units have them"


def _drop_empty(entries: dict[str, Any]) -> None:
    for name, below in list(entries.items()):
        if isinstance(below, dict):
            _drop_empty(below)
            if not below:
                del entries[name]


def scan_snpe_csv(text: str | bytes) -> tuple[Entries, Complaints]:
    """The valid part of a csv, and the complaints about the rest. ProblemError only if the file is too long or not
    text.
    """
    return _scan_csv(text, _TABLE, 5, lambda width: ": this is NNabla's table" if width == 3 else "")


def write_snpe_csv(entries: Entries) -> str:
    """The csv, exactly as create_latency_table.py writes it."""
    return written(
        (unit, runtime, key, statistic, value)
        for unit, runtimes in entries.items()
        for runtime, keys in runtimes.items()
        for key, statistics in keys.items()
        for statistic, value in statistics.items()
    )


def scan_nnabla_csv(text: str | bytes) -> tuple[Mapping[str, Mapping[str, Number]], Complaints]:
    """The valid part of a csv of the NNabla variant, and the complaints about the rest; see `scan_snpe_csv`.

    It is ``{unit: {runtime: milliseconds}}``, with runtimes such as ``cpu:float``.
    """
    kind = Mapping[Unit, Mapping[Runtime, Time]]
    return _scan_csv(text, kind, 3, lambda width: ": this is SNPE's table" if width == 5 else "")


def _scan_csv(
    text: str | bytes, kind: Any, width: int, guess: Callable[[int], str]
) -> tuple[dict[str, Any], Complaints]:
    """The times of all rows by the names before them, as entries of this type, and complaints about other rows.

    `guess` returns an addition to the complaint about a row with that number of fields.
    """
    complaints = Complaints(what="latency table", hint=HINT)
    entries: dict[str, Any] = {}
    lines: dict[Location, int] = {}
    faults: list[tuple[int, str]] = []
    for line, row in csv_rows(text, complaints, MOST_ROWS):
        names, time = row[:-1], row[-1]
        if len(row) != width:
            faults.append((line, f"{width} fields expected, {len(row)} found{guess(len(row))}"))
        elif tuple(names) in lines:
            faults.append((line, f"its first {len(names)} fields are those of line {lines[tuple(names)]}"))
        else:
            holder = entries
            for count, name in enumerate(names, 1):
                lines.setdefault(tuple(names[:count]), line)
                holder = holder.setdefault(name, {}) if count < len(names) else holder
            holder[names[-1]] = _number(time)
    faults += [(lines[location], sentence) for location, sentence in _take_out(kind, entries)]
    for line, sentence in sorted(faults):
        complaints.tell(line_of(line), sentence)
    if not entries and not complaints.sentences:
        complaints.tell(line_of(1), "the table has no row")
    return entries, complaints


def line_of(line: int) -> str:
    """The name of a line in a file."""
    return f"line {line}"


def csv_rows(
    text: str | bytes, complaints: Complaints, most: int, between: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """The rows, each with the line in which it begins. Empty lines are skipped; text that is not csv ends the rows."""
    # A byte order mark has no meaning, but after an empty line it would become part of a name.
    whole = file_text(text, complaints.what, complaints.hint, MOST_LETTERS).replace("\ufeff", "")
    lines = io.StringIO(whole, newline="")
    reader = csv.reader(lines, delimiter=between, strict=True)
    start = 1
    try:
        for count, row in enumerate(reader):
            if count >= most:
                complaints.tell(line_of(start), f"more than {most} rows")
                return
            if row:
                yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        complaints.tell(line_of(start), f"not csv: {error}")


def _number(text: str) -> Number | str:
    """The number in a string; the string itself if it is not a number."""
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def written(rows: Iterable[tuple[str | Number, ...]], between: str = ",") -> str:
    """The text of rows as Python's csv writer writes them, with CR LF after each."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=between).writerows(rows)
    return out.getvalue()
