"""The effort of a measurement, and the rule for when it stops.

This module also chooses between CPU time and wall time, and has a clock for the time that a job has worked and may
still work; the time spent waiting for the device does not count.
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

    A candidate is visited `rounds` times in each of `processes_least` to `processes_most` fresh processes. A visit is a
    block: after calls for `rewarm_s` seconds, which refill the caches, samples are taken for `block_s` seconds, at
    least `samples_least` and at most `samples_most` of them. A sample lasts at least `sample_s`: an inner loop repeats
    shorter calls. A fresh process first makes at least `warm_count` calls for at least `warm_s`; its very first call is
    recorded separately. More processes are started until the 95 % interval of each candidate's median is within
    `half_width` of the median (a fraction), or until `budget_s` seconds have passed. A profiled run is one visit, which
    lasts as long as all visits in an unprofiled process together. A candidate that takes more than `laggard` times as
    long as the fastest gets only a few visits, in at most three processes, because the time is better spent on the
    others. One that takes more than `hopeless` times as long gets only two processes. With `decides`, only the fastest
    matters: after `processes_least` processes, a candidate that is surely slower gets one visit in each process. At
    most `together` candidates' processes are alive at once; more are measured in groups. A process that does not answer
    within `timeout_s` is considered hung and is killed. With `energy`, the energy of each block is read from counters
    of the device: those that are named, or by default the usual ones. The period and step of the counters are 0 until
    `gnomon.measure.energy.metered` has set them. With `every_s`, a sample is one call, a call starts every `every_s`
    seconds, and a block has as many calls as fit into `block_s`. With `watched`, the state of the device is recorded
    with each block.
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
        """A candidate that takes more than this many times as long as the fastest gets only two processes."""
        return max(4.0, self.laggard)

    def request(self) -> MeasuringProtocol:
        """The part of a request to the agent that the protocol determines."""
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
"""The quantile of a block's calls that is compared; by wall time it is the 20 % quantile, because nothing disturbed the
fastest calls.
"""

_EQUAL = 0.03
"""The largest relative difference at which CPU and wall time of the same fastest calls count as equal."""


def cpu_tells(runs: Iterable[Run]) -> bool:
    """Return True if the CPU time of these runs accounts for all the time that calls take.

    It does if the CPU time is not more than the wall time of the same calls (one thread works at a time) and the
    process does not wait for something else to do the work. Only the fastest 20 % of the calls of each process by wall
    time are considered, because nothing disturbed them. If CPU time equals wall time in those calls, waits do not
    matter, because another thread of the process did the work meanwhile. If the process hardly ever gives up its core
    voluntarily, CPU time may also be less than wall time, because being interrupted is not waiting. Medians are
    compared, because on a virtual machine about one call in ten showed ten times as much CPU time as wall time while
    the host gave the core to others. If most samples have no CPU time, or are too short for the CPU clock to move, CPU
    time is not used: on a device without Python, programs may not report it (docs/devices/without-python.md).
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
        # The median of the fastest fifth, which nothing disturbed.
        limit = quantile([wall for wall, _ in samples], QUANTILE["wall"])
        shares.append(median([cpu / max(wall, 1e-9) for wall, cpu in samples if wall <= limit]))
    if not shares or min(shares) <= 0:
        return False
    share = median(shares)
    return share <= 1 + _EQUAL and (waits <= 0.5 * calls or share >= 1 - _EQUAL)


def levels(runs: Iterable[Run], clock: Clock) -> tuple[Block, ...]:
    """One number per block for comparisons: the median by CPU time, or the 20 % quantile by wall time."""
    return tuple(
        Block(process=b.process, block=b.block, values_s=(quantile(b.values_s, QUANTILE[clock]),))
        for b in blocks_of(runs, clock=clock)
    )


class JobTime:
    """A clock that starts when it is created. Code that waits for the device adds the waiting time to `waited_s`."""

    def __init__(self, most_s: float | None = None) -> None:
        self.most_s, self.waited_s = most_s, 0.0
        self._start_s = time.monotonic()

    @property
    def used_s(self) -> float:
        """The seconds since the clock was created, without `waited_s`."""
        return time.monotonic() - self._start_s - self.waited_s

    @property
    def left_s(self) -> float:
        """The seconds left of `most_s`, negative once more have been used; infinite without a limit."""
        return math.inf if self.most_s is None else self.most_s - self.used_s
