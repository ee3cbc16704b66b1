"""The reply of a server of DPU latencies: a profile as the profiler of DNNDK's N2Cube prints it."""

from __future__ import annotations

import math

from gnomon.errors import ProblemError

_TITLES = ("ID", "NodeName", "Workload(MOP)", "Mem(MB)", "RunTime(ms)", "Perf(GOPS)", "Utilization", "MB/S")
_WIDTHS = (4, 26, 13, 8, 12, 10, 11, 9)


def write_dpu_profile(latency_ms: float, workload_mop: float | None) -> str:
    """The profile of a whole model.

    `workload_mop` is its work in millions of operations, if known (a multiply-add counts as two).
    ProblemError for a value that is not a latency.
    """
    if not 1e-9 <= latency_ms <= 1e9:  # at most eleven days; NaN is refused too
        raise ProblemError(f"{latency_ms:g} ms is not a latency", hint="Measure the model again.")
    # At least three decimals, as published, and five significant digits: small models take microseconds.
    decimals = max(3, 4 - math.floor(math.log10(latency_ms)))
    workload, speed = "-", "-"
    if workload_mop is not None:
        workload, speed = f"{workload_mop:.3f}", f"{workload_mop / latency_ms:.1f}"
    total = ("", "All", workload, "-", f"{latency_ms:.{decimals}f}", speed, "-", "-")
    rows = [" ".join(map(str.rjust, row, _WIDTHS)).rstrip() for row in (_TITLES, total)]
    return f"{rows[0]}\n\nTotal Nodes In Avg:\n{rows[1]}\n"
