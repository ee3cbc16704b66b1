"""Which clock tells the truth about a process: its CPU time, or the wall's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gnomon.core.sample import Run
from gnomon.core.stats import quantile

Clock = Literal["wall", "cpu"]


def cpu_tells(runs: Iterable[Run]) -> bool:
    """Whether the CPU time of these runs tells the whole story.

    It does if it is not more than the wall time of the same calls (one thread does the work) and the process never
    gives its core up by itself to wait for something; being interrupted is not waiting. The middle of the calls tells:
    on a virtual machine one call in ten or so was seen with ten times as much CPU as wall time, while its host gave the
    core to others; several threads have more in all of them. Samples without any CPU time are those of a program that
    does not tell it (docs/without-python.md).
    """
    parallel: list[float] = []
    calls = waits = 0
    for run in runs:
        if run.samples is None or run.profiled:
            continue
        parallel += [c / max(w, 1) for c, w in zip(run.samples.cpu_ns, run.samples.wall_ns, strict=True)]
        calls += run.samples.inner * len(run.samples.wall_ns)
        waits += run.facts.get("waits") or 0
    told = max(parallel, default=0.0) > 0
    return told and quantile(parallel, 0.5) <= 1.03 and waits <= 0.5 * calls
