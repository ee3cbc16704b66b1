"""Latency tables, which hold the time of each unit of a search space on a device, and how to check, compare and merge
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated, Any, Literal

from gnomon.core.brief import brief
from gnomon.core.codec import Must, ReadBy, within
from gnomon.errors import ProblemError, UsageError
from gnomon.spaces.unit import Unit, unit_of

Status = Literal["ok", "unstable", "failed"]
_MOST = 1e15
"""The upper limit for the times of calls and for seconds since 1970."""
_LEAST_S = 1e-15
"""The shortest valid time of a call. A thousandth of it can still serve as a divisor."""

Seconds = Annotated[float, Must(be="seconds", fits=lambda value: 0 <= value < _MOST)]
Above0 = Annotated[float, Must(be="a number above 0", fits=lambda value: _LEAST_S <= value < _MOST)]
Whole = Annotated[int, Must(be="a whole number from 0", fits=lambda value: value >= 0)]

STABLE = 0.03
"""A unit counts as stable if half its interval is at most this share of the whole call's time."""

_MOST_NAMED = 5


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST


# Figures of other tools stay as they are written: 3 does not become 3.0.
Figures = Annotated[Mapping[str, Any], Must(be="numbers", fits=lambda value: all(map(_is_time, value.values())))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The measurement of one unit.

    `call_s` is the time of a call of the unit as a model of its own, by the deciding clock, corrected by the factor
    `drift` to the speed of the machine at the beginning of the table; `low_s` and `high_s` are its 95 % interval. If
    the unit was measured in whole nets (`nets` of them), `call_s` is its time there plus the overhead of a call, and
    the bounds are the minimum and the maximum over these nets.

    If the unit ran alone, `added` is the share of its time that went into conversions which the runtime put around it
    and which do not occur inside a net; `call_s` and its bounds exclude them. `at_s` is the time of the measurement.
    `samples` are the raw times of calls in seconds, by process and block. `reported` are figures of an imported table,
    as its file gives them. A failed unit has a `reason` and no time. Its time is never given as 0.
    """

    unit: Annotated[Unit, ReadBy(read=unit_of)]
    status: Status
    at_s: Seconds
    call_s: Seconds | None = None
    low_s: Seconds | None = None
    high_s: Seconds | None = None
    drift: Above0 = 1.0
    processes: Whole = 0
    nets: Whole = 0
    added: Annotated[float, within(0, 1, "a share")] = 0.0
    samples: Mapping[str, tuple[Seconds, ...]] = field(default_factory=dict)
    reported: Figures = field(default_factory=dict)
    reason: str = ""

    def __post_init__(self) -> None:
        numbers = (self.call_s, self.low_s, self.high_s)
        if self.status == "failed" and not self.reason:
            raise ProblemError(f"{self.unit.label}: a failed unit needs a reason", hint="Say why it failed.")
        if self.status != "failed" and (
            self.call_s is None or not (math.isfinite(self.call_s) and self.call_s >= _LEAST_S)
        ):
            raise ProblemError(
                f"{self.unit.label}: {self.call_s} is not the time of a call",
                hint="Give its time, or mark it as failed.",
            )
        ends = [n for n in (self.low_s, self.call_s, self.high_s) if n is not None]
        if any(n is not None and not (math.isfinite(n) and n >= 0) for n in numbers) or ends != sorted(ends):
            raise ProblemError(f"{self.unit.label}: {ends} do not rise from low_s to high_s", hint="Correct the row.")

    @property
    def relative_half_width(self) -> float:
        """Half the interval, divided by the call's time; infinity if the interval is unknown."""
        if self.call_s is None or self.low_s is None or self.high_s is None:
            return math.inf
        return (self.high_s - self.low_s) / 2 / self.call_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The properties that all rows of a table have in common.

    `context` holds the conditions of the measurements: device, runtime with version, configuration, threads, data type,
    protocol. `rules` are the chains of operators that run as one kernel, and `evidence` justifies them. `overhead_s` is
    the time of a call of the no-op model, and `other_s` is the time of an operator that is in no unit, such as a view
    (None if no net had such an operator). `anchor` is the id of the reference unit, which was measured alongside the
    others, and `anchor_calls_s` are its times, by process, at the beginning of the table. `models` names the files from
    which the table was built. `notes` are lines from other tools' files, kept for those tools.
    """

    space: str
    context: Mapping[str, Any]
    clock: Literal["cpu", "wall"]
    overhead_s: Seconds
    other_s: Seconds | None = None
    anchor: str = ""
    anchor_calls_s: tuple[Above0, ...] = ()
    rules: tuple[str, ...] = ()
    evidence: tuple[Mapping[str, Any], ...] = ()
    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    created_at_s: Seconds = 0.0
    gnomon_version: str = ""

    @property
    def command(self) -> Mapping[str, Any]:
        """The declared command that measured the table, as the table describes it; empty if a runtime measured it."""
        options = self.context.get("options")
        command = options.get("command") if isinstance(options, Mapping) else None
        return command if isinstance(command, Mapping) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A latency table: the newest row of each unit, with the units in the order of their first appearance."""

    manifest: Manifest
    rows: tuple[Row, ...]

    __repr__ = brief

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple({row.unit: row for row in self.rows}.values()))

    @property
    def times_s(self) -> dict[Unit, float]:
        """The time that each unit adds to a net: its call minus the overhead, but at least a thousandth of the call."""
        overhead = self.manifest.overhead_s
        return {row.unit: max(row.call_s - overhead, 1e-3 * row.call_s) for row in self.rows if row.call_s is not None}

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows without a time."""
        return tuple(row for row in self.rows if row.status == "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A unit in two tables: its seconds in each, the second divided by the first, and whether the difference exceeds
    the noise.
    """

    id: str
    label: str
    times_s: tuple[float, float]
    ratio: float
    apart: bool


def complaints(table: Table, units: Iterable[Unit]) -> list[str]:
    """Reasons against using a table for a space with these units, one sentence each."""
    rows = {row.unit: row for row in table.rows}
    lacking = [unit for unit in units if unit not in rows]
    warnings = []
    if lacking:
        warnings.append(f"the table lacks {len(lacking)} of the space's units, such as {lacking[0].label}")
    if failed := table.failed:
        warnings.append(f"{_units(failed)} failed, such as {failed[0].unit.label}: {failed[0].reason}")
    if unstable := [row for row in table.rows if row.status == "unstable"]:
        unstable.sort(key=lambda row: -row.relative_half_width)
        worst = [f"{row.unit.label} ({_precision(row)})" for row in unstable[:_MOST_NAMED]]
        more = ", .." if len(unstable) > _MOST_NAMED else ""
        warnings.append(f"the times of {_units(unstable)} are unstable: {', '.join(worst)}{more}")
    below = [row for row in table.rows if row.call_s is not None and row.call_s <= table.manifest.overhead_s]
    if below:
        warnings.append(f"{_units(below)} took no longer than the no-op model, such as {below[0].unit.label}")
    return warnings


def _precision(row: Row) -> str:
    width = row.relative_half_width
    return f"+- {width:.0%}" if math.isfinite(width) else "unknown precision"


def _units(rows: Sequence[Row]) -> str:
    return f"{len(rows)} unit{'' if len(rows) == 1 else 's'}"


def unlike(first: Manifest, second: Manifest) -> list[str]:
    """Differences between the conditions of two tables, one phrase each; empty if the tables may be merged."""
    phrases = []
    if first.space != second.space:
        phrases.append(f"space: {first.space} and {second.space}")
    if first.clock != second.clock:
        phrases.append(f"clock: {first.clock} and {second.clock}")
    if set(first.rules) != set(second.rules):
        phrases.append(f"fused chains: {', '.join(first.rules) or 'none'} and {', '.join(second.rules) or 'none'}")
    return phrases + different(first.context, second.context)


def different(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    """Differences between two contexts, one phrase for each value."""
    return [f"{name}: {in_short(a)} and {in_short(b)}" for name, a, b in differing(first, second)]


def differing(
    first: Mapping[str, object], second: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """The names whose values differ between two mappings, with both values; if both values are mappings, their names
    are compared in the same way.
    """
    for name in sorted({*first, *second}):
        a, b = first.get(name), second.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differing(a, b, f"{prefix}{name}.")
        elif a != b:
            yield f"{prefix}{name}", a, b


def merged(first: Table, second: Table) -> Table:
    """The rows of both tables, with the newest measurement of each unit. UsageError for different conditions."""
    reasons = unlike(first.manifest, second.manifest)
    if reasons:
        raise UsageError(
            "the tables were not measured under the same conditions: " + "; ".join(reasons),
            hint="Compare them with `gnomon table diff`, or measure one table again under the other's conditions.",
        )
    scale = _speed(first.manifest, second.manifest)
    # A table's calls include its own overhead, so the second table's calls are given the first's overhead instead.
    lift = first.manifest.overhead_s - second.manifest.overhead_s * scale
    newest = {row.unit: row for row in first.rows}
    for row in second.rows:
        if row.unit not in newest or row.at_s >= newest[row.unit].at_s:
            newest[row.unit] = _brought(row, scale, lift)
    models = tuple(dict.fromkeys((*first.manifest.models, *second.manifest.models)))
    return Table(manifest=replace(first.manifest, models=models), rows=tuple(newest.values()))


def _speed(first: Manifest, second: Manifest) -> float:
    """The anchor's time at the beginning of the first table divided by its time at the beginning of the second; 1
    without a common anchor.
    """
    if first.anchor != second.anchor or not (first.anchor_calls_s and second.anchor_calls_s):
        return 1.0
    return median(first.anchor_calls_s) / median(second.anchor_calls_s)


def _brought(row: Row, scale: float, lift_s: float) -> Row:
    if row.call_s is None or row.call_s * scale + lift_s <= 0:
        return row
    low = None if row.low_s is None else max(0.0, row.low_s * scale + lift_s)
    high = None if row.high_s is None else row.high_s * scale + lift_s
    return replace(row, call_s=row.call_s * scale + lift_s, low_s=low, high_s=high, drift=row.drift * scale)


def differences(first: Table, second: Table) -> list[Difference]:
    """The units that have a time in both tables, sorted by how far their ratio is from 1 in either direction, the
    farthest first.
    """
    ones, others = first.times_s, second.times_s
    rows, theirs = ({row.unit: row for row in table.rows} for table in (first, second))
    shift = first.manifest.overhead_s - second.manifest.overhead_s
    pairs = [
        Difference(
            id=unit.id,
            label=unit.label,
            times_s=(ones[unit], others[unit]),
            ratio=others[unit] / ones[unit],
            apart=_apart(rows[unit], theirs[unit], shift),
        )
        for unit in ones
        if unit in others
    ]
    return sorted(pairs, key=lambda d: abs(math.log(d.ratio)), reverse=True)


def _apart(a: Row, b: Row, shift: float) -> bool:
    if a.low_s is None or a.high_s is None or b.low_s is None or b.high_s is None:
        return False
    return a.high_s < b.low_s + shift or b.high_s + shift < a.low_s


def in_short(value: Any) -> str:
    """The text of a value, shortened if it is long."""
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
