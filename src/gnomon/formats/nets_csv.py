"""Nets of a search space as csv: one column for each slot, with the name of its choice, and measurements of each net.

The first line names the columns. Columns that are neither slots nor `latency_*`, `low_*`, `high_*` or `reference_*` are
ignored, so a csv may also contain accuracies, for example. A latency is in the unit at the end of its column's name: s,
ms, us or ns. The form Latency [ms] is accepted too; a latency without a unit is an error. The latency of a net that was
not measured, or that failed, is empty and never 0. The low end of an interval may be 0.

The output of spreadsheets is read too: semicolons or tabs as separators (then possibly with decimal commas throughout
the file), UTF-16, and empty rows at the end.

Nets of a profile (`profiled`) have further columns, which `PROFILED` names. Their times are written in milliseconds,
with as many digits as are needed to read the same seconds back.

If other tools write a net of the space as a single string, a column `arch` of these strings may replace the slots.

`write_counts` writes another csv, with one row for each net and unit, for tools that describe nets by their modules.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any

from gnomon.core.space import Space
from gnomon.core.strict_json import Complaints, not_utf8, shown
from gnomon.errors import ProblemError

ARCH = "arch"
"""The column for nets that are written as a single text."""

MOST_LETTERS = 256 << 20
_HINT = "Give a column for each slot of the space and, if nets were measured, one named latency_s, _ms, _us or _ns."
_POWERS = {"s": 0, "ms": -3, "us": -6, "ns": -9}
_MOST_WORD = 200
_TIMES = ("latency", "low", "high", "reference")
_TIME = re.compile(rf"(?P<what>{'|'.join(_TIMES)})(([ _]+[(\[]?|[(\[])(?P<unit>[^ _()\[\]]*)[)\]]?)?", re.IGNORECASE)
"""Names such as latency_ms, and forms that people write: Latency [ms]."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?", re.ASCII)
_IDS = ("", "id", "index", "name", "net")
_SHARES, _NAMES = ("accuracy", "accuracy_error"), ("method", "toolchain")
_BETWEEN = (",", ";", "\t")
_MOST_HEADER = 1 << 16
_NAME = re.compile(r"[A-Za-z0-9_+-]+", re.ASCII)

_SIZES = ("parameters", "macs", "peak_bytes")
_COUNTS = ("processes", *_SIZES)
PROFILED = (*_SHARES, "method", *(f"{what}_ms" for what in _TIMES[:-1]), "processes", "toolchain", "device", *_SIZES)
"""The further columns of nets of a profile, which follow the columns of the slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetRow:
    """A net and its latency in seconds, with its 95 % interval; None if unknown.

    `reference_s` is the time of the space's reference net at the same moment, which shows the speed of the machine.

    Only nets of a profile have the other values. `accuracy`, a share of images, has a standard error and comes from a
    `method`. `processes` is the number of processes behind the interval, or 0 if unknown. A `toolchain` made the
    program that ran on the `device`. `parameters`, `macs` and `peak_bytes` are what the net needs
    (`gnomon.spaces.unit.NetSize`). Values that are not reported are empty.
    """

    assignment: tuple[int, ...]
    latency_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    reference_s: float | None = None
    accuracy: float | None = None
    accuracy_error: float | None = None
    method: str = ""
    processes: int = 0
    toolchain: str = ""
    device: str = ""
    parameters: int | None = None
    macs: int | None = None
    peak_bytes: int | None = None
    line: int = field(default=0, compare=False)
    """The line of the csv that contains the net."""


def read_nets(
    data: bytes,
    space: Space,
    text_reader: Callable[[str], tuple[int, ...]] | None = None,
    *,
    profiled: bool = False,
) -> tuple[NetRow, ...]:
    """The nets of a csv. ProblemError, with every complaint and its line, for a malformed csv.

    `text_reader` makes an assignment from a string: the csv may then have the column `arch` in place of the slots'
    columns. With `profiled`, the further columns of nets of a profile are read too; otherwise they are ignored.
    """
    lines, between = _lines(data)
    header = [name.strip() for name in lines[0]]
    columns = _columns(header, space, text_reader, profiled)
    columns = replace(columns, comma=_has_decimal_commas(lines[1:], between, columns.numbers))
    complaints = Complaints(what="file of nets", hint=_HINT)
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if not any(map(str.strip, line)):
            continue
        try:
            if len(line) != len(header):
                raise ProblemError(f"{len(header)} fields expected, as in the first line, {len(line)} found")
            rows.append(replace(_row(line, columns, space), line=number))
        except ProblemError as error:
            complaints.tell(f"line {number}", error.message)
            if error.hint and complaints.hint == _HINT:
                complaints.hint = f"Line {number}: {error.hint} {_HINT}"
    complaints.raise_any()
    return tuple(rows)


def _lines(data: bytes) -> tuple[list[list[str]], str]:
    """The lines of a csv, at least one, and the separator of fields. ProblemError for a malformed csv."""
    if len(data) > MOST_LETTERS:
        raise ProblemError(f"the file of nets has {len(data)} bytes", hint=f"Give at most {MOST_LETTERS} bytes.")
    try:
        text, between = _sheet(data)
        lines = list(_reader(text, between))
    except UnicodeDecodeError as error:
        raise ProblemError(f"the file of nets is {not_utf8(data, error)}", hint=_HINT) from error
    except csv.Error as error:
        raise ProblemError(f"the file of nets is not csv: {error}", hint=_HINT) from error
    if not lines:
        raise ProblemError("the file of nets is empty", hint=_HINT)
    return lines, between


def number_columns(data: bytes) -> dict[str, tuple[str, ...]]:
    """The different values, as text, of each column of numbers that describes nets.

    Columns with any other text, with measurements (`latency..`, `low_s`, `accuracy` and the like) or with ids are left
    out. ProblemError for a malformed csv, or if no column remains.
    """
    (header, *rows), _ = _lines(data)
    columns = {}
    for name, *texts in zip(header, *(row for row in rows if any(map(str.strip, row))), strict=False):
        values = tuple(dict.fromkeys(map(str.strip, texts)))
        measured = name.lower().startswith(_TIMES[0]) or _TIME.fullmatch(name) or name in PROFILED
        if not measured and name.strip().lower() not in _IDS and all(map(_NUMBER.fullmatch, values)):
            columns[name.strip()] = values
    if not columns:
        raise ProblemError("no column of the csv has numbers that describe nets", hint="Add columns of numbers.")
    return columns


def lines_of_nets(data: bytes) -> tuple[str, ...]:
    """The unchanged lines of a csv that `read_nets` accepts: the line with the columns' names, and one for each net."""
    text, between = _sheet(data)
    lines = list(io.StringIO(text, newline=""))
    rows = csv.reader(lines, delimiter=between, strict=True)
    kept, begin = [], 0
    for row in rows:
        if any(map(str.strip, row)):
            kept.append("".join(lines[begin : rows.line_num]).rstrip("\r\n"))
        begin = rows.line_num
    return tuple(kept)


def _sheet(data: bytes) -> tuple[str, str]:
    """The text of a csv, and the separator of fields.

    The separator is the comma, unless semicolons or tabs occur more often in the first row. Raises UnicodeDecodeError
    and csv.Error.
    """
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    parted = dict.fromkeys(_BETWEEN, 0)
    for between in _BETWEEN:
        with contextlib.suppress(csv.Error):
            parted[between] = len(next(_reader(text[:_MOST_HEADER], between), ()))
    return text, max(_BETWEEN, key=parted.__getitem__)


def _reader(text: str, between: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=between, strict=True)


def _has_decimal_commas(rows: Iterable[Sequence[str]], between: str, columns: Collection[int]) -> bool:
    """Return True if at least one number in these columns has a comma, and another character separates the fields."""
    return between != "," and any("," in row[index] for row in rows for index in columns if index < len(row))


def _with_point(text: str, *, comma: bool) -> str:
    """A number in Python's form, from a file with decimal commas or without. ValueError if it is ambiguous."""
    if "_" in text or (comma and "." in text):
        raise ValueError(text)
    return text.replace(",", ".") if comma else text


def write_profiled(rows: Iterable[NetRow], space: Space) -> str:
    """The csv of nets of a profile, with all that is known about them."""
    lines = ([*space.names(row.assignment), *(_field(row, name) for name in PROFILED)] for row in rows)
    return _csv([*(slot.name for slot in space.slots), *PROFILED], lines)


def _field(row: NetRow, name: str) -> str:
    """A net's field in a column of a profile's csv; empty if the value is unknown."""
    value = getattr(row, name.replace("_ms", "_s"))
    if value is None or (value == 0 and isinstance(value, int)):
        return ""
    if name.endswith("_ms"):
        return format(Decimal(repr(value)).scaleb(3), "f")
    return value if isinstance(value, str) else repr(value)


def _csv(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """The text of a csv; None is an empty field."""
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n").writerows([header, *lines])
    return file.getvalue()


def write_nets(rows: Iterable[NetRow], space: Space, *, measured: bool) -> str:
    """The csv of nets; with `measured`, their latencies in seconds too."""
    rows = tuple(rows)
    kept = _TIMES if any(row.reference_s is not None for row in rows) else _TIMES[:-1]
    names = [f"{what}_s" for what in kept] if measured else []
    lines = ([*space.names(row.assignment), *(getattr(row, name) for name in names)] for row in rows)
    return _csv([*(slot.name for slot in space.slots), *names], lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCount:
    """How often a unit occurs in a net; nets are numbered from 1.

    `unit` is its name in estimators, `label` describes it in words, and `uid` is the name of its module in nnabla-nas,
    or empty.
    """

    net: int
    unit: str
    label: str
    uid: str
    count: float


def write_counts(rows: Iterable[UnitCount]) -> str:
    """The csv of counts of units."""
    lines = ((row.net, row.unit, row.label, row.uid, f"{row.count:.17g}") for row in rows)
    return _csv([field.name for field in fields(UnitCount)], lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    slots: tuple[int, ...]
    times: dict[str, tuple[int, int]]
    beside: dict[str, int]
    comma: bool = False
    text: int = 0
    text_reader: Callable[[str], tuple[int, ...]] | None = None
    """The reader for the column `arch`, which then replaces the columns of the slots."""

    @property
    def numbers(self) -> list[int]:
        """The columns with numbers that may have decimals."""
        return [*(index for index, _ in self.times.values()), *(self.beside[k] for k in _SHARES if k in self.beside)]

    def assignment(self, line: Sequence[str], space: Space) -> tuple[int, ...]:
        """The net of a line. ProblemError for a net outside the space."""
        if self.text_reader is None:
            return space.indices([line[index].strip() for index in self.slots])
        chosen = tuple(self.text_reader(line[self.text].strip()))
        space.encode(chosen)
        return chosen


def _columns(
    header: Sequence[str], space: Space, text_reader: Callable[[str], tuple[int, ...]] | None, profiled: bool
) -> _Columns:
    """The columns of the slots and the times and, with `profiled`, the further columns of nets of a profile."""
    counts = Counter(header)
    twice = sorted(name for name, count in counts.items() if count > 1 and name)
    if twice:
        raise ProblemError(f"the file of nets has the column {twice[0]!r} twice", hint=_HINT)
    slots = {slot.name for slot in space.slots}
    missing = [slot.name for slot in space.slots if slot.name not in counts]
    named = ARCH in counts and len(missing) == len(space.slots)
    if missing and not (named and text_reader):
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        more = f" (the column {ARCH} cannot replace them: nets of this space have no text form)" if named else ""
        raise ProblemError(f"the file of nets lacks the columns of slots: {shown}{more}", hint=_HINT)
    times: dict[str, tuple[int, int]] = {}
    for index, name in enumerate(header):
        match = _TIME.fullmatch(name)
        if name in slots or match is None:
            continue
        what, unit = match["what"].lower(), (match["unit"] or "").lower().replace("µ", "u").replace("μ", "u")
        if unit in _POWERS:
            if what in times:
                raise ProblemError(f"the file of nets has two columns for {what}", hint=_HINT)
            times[what] = (index, _POWERS[unit])
        elif what == "latency":
            raise ProblemError(f"the column {name!r} of the file of nets has no unit in its name", hint=_HINT)
    wanted = (*_COUNTS, *_SHARES, *_NAMES, "device") if profiled else ()
    beside = {name: header.index(name) for name in wanted if name in counts}
    if missing:
        return _Columns(slots=(), times=times, beside=beside, text=header.index(ARCH), text_reader=text_reader)
    return _Columns(slots=tuple(header.index(slot.name) for slot in space.slots), times=times, beside=beside)


def _row(line: Sequence[str], columns: _Columns, space: Space) -> NetRow:
    assignment = columns.assignment(line, space)
    entries: dict[str, Any] = {}
    for what, (index, power) in columns.times.items():
        text = line[index].strip()
        try:
            value = _shifted(_with_point(text, comma=columns.comma), power) if text else None
        except ValueError:
            raise ProblemError(f"{text[:40]!r} is not a valid number for {what}") from None
        if value is not None and not (math.isfinite(value) and (value > 0 or (value == 0 and what == "low"))):
            raise ProblemError(f"{text[:40]} is not a valid time for {what}: leave the field empty if the net failed")
        entries[f"{what}_s"] = value
    if (entries.get("low_s") or 0.0) > (entries.get("high_s") or math.inf):
        raise ProblemError("low is above high, but they are the lower and upper ends of an interval")
    for what, index in columns.beside.items():
        text = line[index].strip()
        if text:
            entries[what] = _beside(what, text, comma=columns.comma)
    return NetRow(assignment=assignment, **entries)


def _shifted(text: str, power: int) -> float:
    """A number times 10 ** power, rounded once. ValueError for anything but a number."""
    value = float(text)
    if not math.isfinite(value) or not power:
        return value
    mantissa, _, exponent = text.lower().partition("e")
    return float(f"{mantissa}e{int(exponent or 0) + power}")


def _beside(what: str, text: str, *, comma: bool) -> Any:
    """The value of a field in a further column of a profile. ProblemError for an invalid value."""
    if what in _SHARES:
        expected = "a share from 0 to 1"
        with contextlib.suppress(ValueError):
            share = float(_with_point(text, comma=comma))
            if 0 <= share <= 1:
                return share
            expected += " (divide percentages by 100)" if 1 < share <= 100 else ""
    elif what in _COUNTS:
        expected = "a whole number"
        if text.isascii() and text.isdigit() and len(text) < 16:
            return int(text)
    else:
        expected = f"at most {_MOST_WORD} " + ("letters, digits, _, + or -" if what in _NAMES else "characters")
        if len(text) <= _MOST_WORD and (what not in _NAMES or _NAME.fullmatch(text)):
            return text
    raise ProblemError(f"{expected} expected for {what}, {shown(text)} found")
