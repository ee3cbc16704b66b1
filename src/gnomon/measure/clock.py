"""Which clock tells the truth about a process: its CPU time, or the wall's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gnomon.core.sample import Run
from gnomon.core.stats import Block, blocks_of, median, quantile

Clock = Literal["wall", "cpu"]

QUANTILE = {"cpu": 0.5, "wall": 0.2}
"""Which calls of a block are compared: by wall time the lower fifth, where nothing disturbs a call."""

_EQUAL = 0.03
"""How far CPU and wall time of the same undisturbed calls may be apart and count as equal."""


def cpu_tells(runs: Iterable[Run]) -> bool:
    """Whether the CPU time of these runs tells the whole story.

    It does if it is not more than the wall time of the same calls (one thread works at a time) and the process does not
    wait for something else to do the work. Only undisturbed calls show either: the fastest fifth of each process by
    wall time. Where CPU time equals wall time in those, waits cost nothing: the work was handed to another thread of
    the process. Where the process hardly ever gives up its core by itself, CPU time may also be less: being interrupted
    is not waiting. Medians tell: on a virtual machine one call in ten or so was seen with ten times as much CPU as wall
    time, while its host gave the core to others. Samples without CPU time, or too short for its clock to move in most
    of them, are those of a program that does not tell it (docs/without-python.md).
    """
    by_process: dict[int, list[tuple[float, float]]] = {}
    calls = waits = 0
    for run in runs:
        if run.samples is None or run.profiled:
            continue
        by_process.setdefault(run.process, []).extend(zip(run.samples.wall_s, run.samples.cpu_s, strict=True))
        calls += run.samples.inner * len(run.samples.wall_ns)
        waits += run.facts.get("waits") or 0
    shares = [_undisturbed(samples) for samples in by_process.values() if samples]
    if not shares or min(shares) <= 0:
        return False
    share = median(shares)
    return share <= 1 + _EQUAL and (waits <= 0.5 * calls or share >= 1 - _EQUAL)


def _undisturbed(samples: list[tuple[float, float]]) -> float:
    """CPU time over wall time in the middle of the fastest fifth of a process's samples (wall, CPU)."""
    limit = quantile([wall for wall, _ in samples], QUANTILE["wall"])
    return median([cpu / max(wall, 1e-9) for wall, cpu in samples if wall <= limit])


def levels(runs: Iterable[Run], clock: Clock) -> tuple[Block, ...]:
    """The one number of each block that is compared: by CPU time its median, by wall time its lower fifth."""
    return tuple(
        Block(process=b.process, block=b.block, values_s=(quantile(b.values_s, QUANTILE[clock]),))
        for b in blocks_of(runs, clock=clock)
    )
