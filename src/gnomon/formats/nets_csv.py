"""Nets of a search space as csv: a column a slot with the name of its choice, and what was measured of each net.

The first line names the columns. Columns that are no slot, `latency_*`, `low_*`, `high_*` or `reference_*` are passed
over, so that accuracies may stand beside. A latency is in the unit that ends its column's name: s, ms, us or ns; one
without is an error. An empty latency is a net that was not measured, or failed; it is never 0. The low end of an
interval may be.

Where others write a net of the space as one text, a column `arch` of such texts may stand in the place of the slots.

Counts of units as csv, one row a net and unit: what a net is to tools that know nets by their modules.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

from gnomon.core.space import Space
from gnomon.errors import ProblemError

ARCH = "arch"
"""The column of nets that are written as one text."""

MOST_LETTERS = 256 << 20
_HINT = "The columns are the slots of the space, and latency_s, _ms, _us or _ns where nets were measured."
_SCALES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MOST_TOLD = 10
_TIMES = ("latency", "low", "high", "reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetRow:
    """A net, and its latency with its 95 % interval in seconds; None where it is not known.

    `reference_s` is what the space's reference net took beside it: how fast the machine was then.
    """

    assignment: tuple[int, ...]
    latency_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    reference_s: float | None = None


def read_nets(
    data: bytes, space: Space, text_reader: Callable[[str], tuple[int, ...]] | None = None
) -> tuple[NetRow, ...]:
    """The nets of a csv. ProblemError, with every complaint and its line, for one that is malformed.

    `text_reader` makes an assignment of one text: a csv may then have the column `arch` in the place of the slots'.
    """
    if len(data) > MOST_LETTERS:
        raise ProblemError(f"the nets are {len(data)} bytes long", hint=f"At most {MOST_LETTERS} are read.")
    try:
        lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ProblemError(f"the nets are not csv: {error}", hint=_HINT) from error
    if not lines:
        raise ProblemError("the file of nets is empty", hint=_HINT)
    header = [name.strip() for name in lines[0]]
    columns = _columns(header, space, text_reader)
    told: list[str] = []
    found = []
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        try:
            if len(line) != len(header):
                raise ProblemError(f"{len(line)} columns, and the first line has {len(header)}")
            found.append(_row(line, columns, space))
        except ProblemError as error:
            told.append(f"line {number}: {error.message}")
    if told:
        more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
        raise ProblemError("the nets are malformed: " + "; ".join(told[:_MOST_TOLD]) + more, hint=_HINT)
    return tuple(found)


def write_nets(rows: Iterable[NetRow], space: Space, *, measured: bool) -> str:
    """The csv of nets: with `measured`, latencies in seconds beside them."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    rows = tuple(rows)
    kept = _TIMES if any(row.reference_s is not None for row in rows) else _TIMES[:-1]
    names = [f"{what}_s" for what in kept] if measured else []
    writer.writerow([*(slot.name for slot in space.slots), *names])
    for row in rows:
        times = [getattr(row, name) for name in names]
        writer.writerow([*space.names(row.assignment), *("" if t is None else repr(t) for t in times)])
    return file.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCount:
    """How often a unit occurs in a net, which has a number from 1.

    `unit` is the name that estimators know it by, `label` says it in words, and `uid` is its module's name in
    nnabla-nas, empty for what is none there.
    """

    net: int
    unit: str
    label: str
    uid: str
    count: float


def write_counts(rows: Iterable[UnitCount]) -> str:
    """The csv of counts of units."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(field.name for field in fields(UnitCount))
    writer.writerows((row.net, row.unit, row.label, row.uid, f"{row.count:.17g}") for row in rows)
    return file.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    slots: tuple[int, ...]
    times: dict[str, tuple[int, float]]
    text: int = 0
    text_reader: Callable[[str], tuple[int, ...]] | None = None
    """What reads the column `text`, where it stands in the place of the slots."""

    def assignment(self, line: Sequence[str], space: Space) -> tuple[int, ...]:
        """The net of a line. ProblemError where it is none of the space."""
        if self.text_reader is None:
            return space.indices([line[index].strip() for index in self.slots])
        found = tuple(self.text_reader(line[self.text].strip()))
        space.encode(found)
        return found


def _columns(header: Sequence[str], space: Space, text_reader: Callable[[str], tuple[int, ...]] | None) -> _Columns:
    """Where each slot and each time stands."""
    counts = Counter(header)
    twice = sorted(name for name, count in counts.items() if count > 1 and name)
    if twice:
        raise ProblemError(f"the column {twice[0]!r} is there twice", hint=_HINT)
    missing = [slot.name for slot in space.slots if slot.name not in counts]
    named = ARCH in counts and len(missing) == len(space.slots)
    if missing and not (named and text_reader):
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        more = f" (their column {ARCH} is of no use: nobody writes nets of this space as one text)" if named else ""
        raise ProblemError(f"the nets lack columns of slots: {shown}{more}", hint=_HINT)
    times: dict[str, tuple[int, float]] = {}
    for index, name in enumerate(header):
        what, _, unit = name.rpartition("_")
        if what in _TIMES and unit in _SCALES:
            if what in times:
                raise ProblemError(f"there are two columns of {what}", hint=_HINT)
            times[what] = (index, _SCALES[unit])
        elif "latency" in (name, what):
            raise ProblemError(f"the column {name!r} of the nets does not say its unit", hint=_HINT)
    if missing:
        return _Columns(slots=(), times=times, text=header.index(ARCH), text_reader=text_reader)
    return _Columns(slots=tuple(header.index(slot.name) for slot in space.slots), times=times)


def _row(line: Sequence[str], columns: _Columns, space: Space) -> NetRow:
    assignment = columns.assignment(line, space)
    times: dict[str, float | None] = {}
    for what, (index, scale) in columns.times.items():
        text = line[index].strip()
        try:
            value = float(text) * scale if text else None
        except ValueError:
            raise ProblemError(f"{text[:40]!r} is not a valid {what}") from None
        if value is not None and not (math.isfinite(value) and (value > 0 or (value == 0 and what == "low"))):
            raise ProblemError(f"a {what} of {text[:40]} is none: leave out what failed")
        times[what] = value
    return NetRow(assignment=assignment, **{f"{what}_s": value for what, value in times.items()})
