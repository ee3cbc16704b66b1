"""The profile that a server of DPU latencies replies with: a text as the profiler of DNNDK's N2Cube prints it.

Sources: the client of ssprofile, which takes the fourth field of every line that begins with "All" as milliseconds and
their mean as the latency; and published tables of that profiler::

    ID NodeName Workload(MOP) Mem(MB) RunTime(ms) Perf(GOPS) Utilization MB/S
    Total Nodes In Avg:
    All 2262.336 59.15 13.937 162.3 13.2% 4244.1

A kernel that was compiled as several has several "All" lines. What is not known is written as "-", as readers
count fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from gnomon.core.strict_json import shown
from gnomon.errors import ProblemError

MOST_LETTERS = 4 << 20
MOST_TOTALS = 10_000
MOST_MS = 1e9
"""Eleven days: no inference takes longer."""

LEAST_MS = 1e-9

_TITLES = ("ID", "NodeName", "Workload(MOP)", "Mem(MB)", "RunTime(ms)", "Perf(GOPS)", "Utilization", "MB/S")
_WIDTHS = (4, 26, 13, 8, 12, 10, 11, 9)
_TOTAL = "All"
_LINE_END = re.compile(r"\r\n|\r|\n")
_TIME_FIELD = 3
_MOST_NAME = 200
_HINT = (
    "The reply to a measured model is a profile with a line such as `All 2262.336 59.15 13.937 162.3 13.2% 4244.1`, "
    "the fourth field being milliseconds. Check the address, and that the model was compiled for profiling."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DpuLine:
    """A line of the profile: a layer, or all of them.

    `workload_mop` are millions of operations (a multiply-add counts two), `memory_mb` megabytes that are moved,
    `utilization` a share from 0 to 1; None: not known.
    """

    name: str
    latency_ms: float
    workload_mop: float | None = None
    memory_mb: float | None = None
    utilization: float | None = None


def read_dpu_profile(text: str) -> float:
    """The latency in milliseconds: the mean over the lines that begin with "All", as the published client reads it.

    ProblemError, which quotes what came, where there is no such line, for a time that is none, and for a text or a
    number beyond all measure.
    """
    if len(text) > MOST_LETTERS:
        _fail(f"{len(text)} letters, and no more than {MOST_LETTERS} are read")
    # Lines as a text file's are, not as str.splitlines has them, which splits at further separators.
    totals = [line.strip() for line in _LINE_END.split(text) if line.strip().startswith(_TOTAL)]
    if not totals:
        _fail(f"no line begins with {_TOTAL}; it says {_quoted(text)}")
    if len(totals) > MOST_TOTALS:
        _fail(f"{len(totals)} lines begin with {_TOTAL}, and no more than {MOST_TOTALS} are read")
    return sum(map(_milliseconds, totals)) / len(totals)


def write_dpu_profile(total: DpuLine, layers: Sequence[DpuLine] = ()) -> str:
    """The profile of a model whose whole latency is known, with a line a layer where these are known.

    ProblemError for a latency that could not be read again.
    """
    lines = [_row(_TITLES)]
    for number, layer in enumerate(layers, 1):
        lines.append(_row((str(number), _name(layer.name), *_fields(layer))))
    lines += ["", "Total Nodes In Avg:", _row(("", _TOTAL, *_fields(total)))]
    return "\n".join(lines) + "\n"


def _milliseconds(line: str) -> float:
    fields = line.split()
    if len(fields) <= _TIME_FIELD:
        _fail(f"the line {_quoted(line)} has no field {_TIME_FIELD + 1}")
    try:
        number = float(fields[_TIME_FIELD])
    except ValueError:
        _fail(f"the field {_quoted(fields[_TIME_FIELD])} of the line {_quoted(line)} is not a number")
    _check(number, line)
    return number


def _check(number: float, line: str) -> None:
    if not LEAST_MS <= number <= MOST_MS:  # also what is not a number
        _fail(f"{number:g} ms is not a latency, in the line {_quoted(line)}")


def _fields(line: DpuLine) -> tuple[str, ...]:
    _check(line.latency_ms, line.name)
    per_s = 1e3 / line.latency_ms
    return (
        _number(line.workload_mop, 3),
        _number(line.memory_mb, 2),
        _time(line.latency_ms),
        _number(None if line.workload_mop is None else line.workload_mop * per_s / 1e3, 1),
        "-" if line.utilization is None else f"{line.utilization:.1%}",
        _number(None if line.memory_mb is None else line.memory_mb * per_s, 1),
    )


def _time(milliseconds: float) -> str:
    """At least three decimals, as published, and five digits that count: small models take microseconds."""
    decimals = max(3, 4 - math.floor(math.log10(milliseconds)))
    return f"{milliseconds:.{decimals}f}"


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.{decimals}f}"


def _name(name: str) -> str:
    """A layer's name as one field; never one that a reader could take for the total's."""
    kept = "".join(c if c.isprintable() and not c.isspace() else "_" for c in name[:_MOST_NAME])
    return kept or "_"


def _row(fields: Sequence[str]) -> str:
    return " ".join(field.rjust(width) for field, width in zip(fields, _WIDTHS, strict=True)).rstrip()


def _quoted(text: str) -> str:
    """The beginning of what came, in ASCII."""
    return shown(text.strip()[:200])


def _fail(what: str) -> NoReturn:
    raise ProblemError(f"the profile is malformed: {what}", hint=_HINT)
