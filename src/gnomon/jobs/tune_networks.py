"""Whole networks measured side by side on a device: fresh processes, in random order, outputs compared."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.core.sample import Failure
from gnomon.core.stats import Block, Comparison, compare, summarise
from gnomon.measure.progress import Meter
from gnomon.tuning.bench import Bench, LayerCall, Loop, NetworkCall


@dataclass(slots=True, kw_only=True)
class CallTimes:
    """What came of one call: a block of times a process, the largest difference of outputs, a failure."""

    blocks: list[Block] = field(default_factory=list)
    error: float | None = None
    failure: Failure | None = None

    def summary(self) -> dict[str, Any] | None:
        """The median with its interval, samples and processes; None where it failed or was not measured."""
        return None if self.failure is not None or not self.blocks else summary_of(self.blocks)


def measure_calls(
    bench: Bench,
    calls: Mapping[str, NetworkCall | LayerCall],
    loop: Loop,
    *,
    processes: int,
    seed: int,
    meter: Meter,
) -> dict[str, CallTimes]:
    """Measure all calls in each of so many fresh processes of the device, in another order each time.

    What failed once is not called again. Steps the meter once a call. DeviceError where the device cannot be had.
    """
    made = {name: CallTimes() for name in calls}
    rng = random.Random(seed)  # noqa: S311 - an order, no secret
    for process in range(processes):
        bench.fresh()
        names = list(calls)
        rng.shuffle(names)
        for name in names:
            one = made[name]
            if one.failure is None:
                said = bench.call(calls[name], loop)
                if isinstance(said, Failure):
                    one.failure = said
                else:
                    one.blocks.append(Block(process=process, block=0, values_s=said.times_s))
                    one.error = _larger(one.error, said.error)
            meter.step()
    return made


def summary_of(blocks: list[Block]) -> dict[str, Any]:
    """A summary as documents have it; bounds that are unknown are null."""
    found = summarise(blocks)
    return {
        "median_s": found.median_s,
        "low_s": found.low_s if math.isfinite(found.high_s) else None,
        "high_s": found.high_s if math.isfinite(found.high_s) else None,
        "samples": found.n,
        "processes": found.processes,
    }


def ratio_of(a: CallTimes, b: CallTimes) -> dict[str, Any] | None:
    """Time of a over time of b, paired by process, as documents have it; None where one has no times."""
    if a.failure is not None or b.failure is not None or not a.blocks or not b.blocks:
        return None
    found: Comparison = compare(a.blocks, b.blocks)
    bounded = math.isfinite(found.high) and found.low > 0
    return {
        "ratio": found.ratio,
        "low": found.low if bounded else None,
        "high": found.high if bounded else None,
    }


def failure_document(failure: Failure) -> dict[str, Any]:
    """A failure as documents have it."""
    return {
        "stage": failure.stage,
        "kind": failure.kind,
        "transient": failure.transient,
        "message": failure.message,
    }


def _larger(a: float | None, b: float | None) -> float | None:
    known = [x for x in (a, b) if x is not None]
    return max(known, default=None)
