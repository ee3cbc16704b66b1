"""How hard a measurement tries, and when it stops.

Which clock tells the truth about a process: its CPU time, or the wall's.

How long a job works, and may: what it waits for its device is not counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gnomon.core.sample import Run
from gnomon.core.stats import Block, blocks_of, median, quantile
from gnomon.wire import BlockLimits, EnergyMeter, MeasuringProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The protocol of a measurement.

    A candidate is visited `rounds` times in each of `processes_least` to `processes_most` fresh processes. A visit
    is a block: samples of at least `sample_s` each (an inner loop makes short calls longer) for `block_s` seconds,
    at least `samples_least` of them, after calls for `rewarm_s` that refill the caches. A fresh process first
    makes `warm_count` calls for at least `warm_s`; its very first call is kept apart. More processes are started
    until each candidate's median is known within `half_width` of itself (95 % interval), or until `budget_s` is over.
    A profiled run is one visit, as long as all visits of an unprofiled one together.
    A candidate more than `laggard` times slower than the fastest gets few visits in two or three processes: it has
    lost, and its time is better spent on the others. One more than `hopeless` times slower gets two processes.
    With `decides` only the fastest matters: a surely slower candidate gets one visit a process after `processes_least`.
    At most `together` candidates' processes are alive at once; more are measured in groups.
    A process that does not answer within `timeout_s` is killed: it hangs.
    With `energy`, what each block took is read from counters of the device, without names from its usual ones. How long
    and how far they move is 0 until `gnomon.measure.energy.metered` has looked.
    With `every_s` a sample is one call, begun on a grid of so many seconds, and a block has the slots of `block_s`.
    With `watched` the state of the device is kept with each block.
    """

    processes_least: int = 3
    processes_most: int = 6
    rounds: int = 5
    block_s: float = 0.06
    sample_s: float = 1e-3
    samples_least: int = 2
    samples_most: int = 2000
    warm_count: int = 3
    warm_s: float = 0.05
    rewarm_s: float = 0.003
    half_width: float = 0.02
    laggard: float = 1.6
    decides: bool = False
    together: int = 8
    budget_s: float = 60.0
    timeout_s: float = 60.0
    energy: EnergyMeter | None = None
    every_s: float | None = None
    watched: bool = False

    @property
    def hopeless(self) -> float:
        """How many times slower than the fastest a candidate is of which two processes tell enough."""
        return max(4.0, self.laggard)

    def request(self) -> MeasuringProtocol:
        """The part of a request to the agent that the protocol decides."""
        block: BlockLimits = {
            "sample_ns": int(self.sample_s * 1e9),
            "seconds": self.block_s,
            "least": self.samples_least,
            "most": self.samples_most,
            "rewarm_s": self.rewarm_s,
        }
        if self.energy is not None:
            block["energy"] = self.energy
        if self.every_s is not None:
            block["every_ns"] = round(self.every_s * 1e9)
            block["slots"] = max(1, round(self.block_s / self.every_s))
        request: MeasuringProtocol = {
            "rounds": self.rounds,
            "laggard": self.laggard,
            "timeout_s": self.timeout_s,
            "warm": {"warm_count": self.warm_count, "warm_s": self.warm_s},
            "block": block,
            "profile": {"seconds": self.block_s * self.rounds, "most": self.samples_most},
        }
        if self.watched:
            request["watched"] = True
        return request


Clock = Literal["wall", "cpu"]

QUANTILE = {"cpu": 0.5, "wall": 0.2}
"""Which calls of a block are compared: by wall time the fastest 20 %, where nothing disturbs a call."""

_EQUAL = 0.03
"""How far CPU and wall time of the same fastest calls may be apart and count as equal."""


def cpu_tells(runs: Iterable[Run]) -> bool:
    """Whether the CPU time of these runs tells the whole story.

    It does if it is not more than the wall time of the same calls (one thread works at a time) and the process does
    not wait for something else to do the work. Only calls that nothing disturbed show either: the fastest 20 % of
    each process by wall time. Where CPU time equals wall time in those, waits cost nothing: the work was handed to
    another thread of the process. Where the process hardly ever gives up its core by itself, CPU time may also be
    less: being interrupted is not waiting. Medians tell: on a virtual machine one call in ten or so was seen with ten
    times as much CPU as wall time, while its host gave the core to others. Samples without CPU time, or too short for
    its clock to move in most of them, are those of a program that does not tell it (docs/devices/without-python.md).
    """
    by_process: dict[int, list[tuple[float, float]]] = {}
    calls = waits = 0
    for run in runs:
        if run.samples is None or run.profiled:
            continue
        by_process.setdefault(run.process, []).extend(zip(run.samples.wall_s, run.samples.cpu_s, strict=True))
        calls += run.samples.inner * len(run.samples.wall_ns)
        waits += run.facts.get("waits") or 0
    shares = []
    for samples in filter(None, by_process.values()):
        # In the middle of the fastest fifth, which nothing disturbed.
        limit = quantile([wall for wall, _ in samples], QUANTILE["wall"])
        shares.append(median([cpu / max(wall, 1e-9) for wall, cpu in samples if wall <= limit]))
    if not shares or min(shares) <= 0:
        return False
    share = median(shares)
    return share <= 1 + _EQUAL and (waits <= 0.5 * calls or share >= 1 - _EQUAL)


def levels(runs: Iterable[Run], clock: Clock) -> tuple[Block, ...]:
    """The one number of each block that is compared: by CPU time its median, by wall time that of its fastest 20 %."""
    return tuple(
        Block(process=b.process, block=b.block, values_s=(quantile(b.values_s, QUANTILE[clock]),))
        for b in blocks_of(runs, clock=clock)
    )


class JobTime:
    """A clock that runs from its making on. `waited_s` is added to by whoever waits for the device."""

    def __init__(self, most_s: float | None = None) -> None:
        self.most_s, self.waited_s = most_s, 0.0
        self._start_s = time.monotonic()

    @property
    def used_s(self) -> float:
        """The seconds since it was made, without those waited."""
        return time.monotonic() - self._start_s - self.waited_s

    @property
    def left_s(self) -> float:
        """The seconds that are left of the most, below 0 after them; infinite where there is no most."""
        return math.inf if self.most_s is None else self.most_s - self.used_s
