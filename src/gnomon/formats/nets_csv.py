"""Nets of a search space as csv: a column a slot with the name of its choice, and what was measured of each net.

The first line names the columns. Columns that are no slot, `latency_*`, `low_*`, `high_*` or `reference_*` are passed
over, so that accuracies may stand beside. A latency is in the unit that ends its column's name: s, ms, us or ns; one
without is an error. An empty latency is a net that was not measured, or failed; it is never 0. The low end of an
interval may be.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gnomon.core.space import Space
from gnomon.errors import ProblemError

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


def read_nets(data: bytes, space: Space) -> tuple[NetRow, ...]:
    """The nets of a csv. ProblemError, with every complaint and its line, for one that is malformed."""
    if len(data) > MOST_LETTERS:
        raise ProblemError(f"the nets are {len(data)} bytes long", hint=f"At most {MOST_LETTERS} are read.")
    try:
        lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ProblemError(f"the nets are not csv: {error}", hint=_HINT) from error
    if not lines:
        raise ProblemError("the file of nets is empty", hint=_HINT)
    header = [name.strip() for name in lines[0]]
    columns = _columns(header, space)
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
class _Columns:
    slots: tuple[int, ...]
    times: dict[str, tuple[int, float]]


def _columns(header: Sequence[str], space: Space) -> _Columns:
    """Where each slot and each time stands."""
    counts = Counter(header)
    twice = sorted(name for name, count in counts.items() if count > 1 and name)
    if twice:
        raise ProblemError(f"the column {twice[0]!r} is there twice", hint=_HINT)
    missing = [slot.name for slot in space.slots if slot.name not in counts]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise ProblemError(f"the nets lack columns of slots: {shown}", hint=_HINT)
    times: dict[str, tuple[int, float]] = {}
    for index, name in enumerate(header):
        what, _, unit = name.rpartition("_")
        if what in _TIMES and unit in _SCALES:
            if what in times:
                raise ProblemError(f"there are two columns of {what}", hint=_HINT)
            times[what] = (index, _SCALES[unit])
        elif "latency" in (name, what):
            raise ProblemError(f"the column {name!r} of the nets does not say its unit", hint=_HINT)
    return _Columns(slots=tuple(header.index(slot.name) for slot in space.slots), times=times)


def _row(line: Sequence[str], columns: _Columns, space: Space) -> NetRow:
    assignment = space.indices([line[index].strip() for index in columns.slots])
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
