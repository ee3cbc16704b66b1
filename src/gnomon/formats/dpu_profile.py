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
from collections.abc import Sequence
from dataclasses import dataclass

from gnomon.errors import ProblemError

MOST_MS = 1e9
"""Eleven days: no inference takes longer."""

LEAST_MS = 1e-9

_TITLES = ("ID", "NodeName", "Workload(MOP)", "Mem(MB)", "RunTime(ms)", "Perf(GOPS)", "Utilization", "MB/S")
_WIDTHS = (4, 26, 13, 8, 12, 10, 11, 9)
_TOTAL = "All"
_MOST_NAME = 200


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


def write_dpu_profile(total: DpuLine, layers: Sequence[DpuLine] = ()) -> str:
    """The profile of a model whose whole latency is known, with a line a layer where these are known.

    ProblemError for a latency that is none.
    """
    lines = [_row(_TITLES)]
    for number, layer in enumerate(layers, 1):
        lines.append(_row((str(number), _name(layer.name), *_fields(layer))))
    lines += ["", "Total Nodes In Avg:", _row(("", _TOTAL, *_fields(total)))]
    return "\n".join(lines) + "\n"


def _fields(line: DpuLine) -> tuple[str, ...]:
    if not LEAST_MS <= line.latency_ms <= MOST_MS:  # also what is not a number
        raise ProblemError(f"{line.latency_ms:g} ms is not a latency", hint="Measure it again.")
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
