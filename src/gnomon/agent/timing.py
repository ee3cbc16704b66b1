"""Timing of repeated calls inside one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import repeat

Call = Callable[[], object]


def warm_up(call: Call, *, count: int, seconds: float) -> int:
    """Call until both the count and the time are reached; returns the nanoseconds of the fastest call."""
    start = time.perf_counter_ns()
    best = 0
    done = 0
    while done < count or time.perf_counter_ns() - start < seconds * 1e9:
        before = time.perf_counter_ns()
        call()
        took = time.perf_counter_ns() - before
        best = took if not best else min(best, took)
        done += 1
    return max(best, 1)


def inner_loop(call_ns: int, sample_ns: int) -> int:
    """How many calls one sample needs to last at least `sample_ns`, a round number."""
    wanted = -(-sample_ns // max(call_ns, 1))
    if wanted <= 1:
        return 1
    step: int = 10 ** (len(str(wanted)) - 1)
    return -(-wanted // step) * step


def take(call: Call, *, inner: int, seconds: float, least: int, most: int) -> tuple[list[int], list[int]]:
    """Samples of `inner` calls each: wall nanoseconds and CPU nanoseconds of the process.

    Takes samples until `seconds` are over, at least `least` and at most `most`. The CPU clock is read outside
    the wall clock's interval, so that its system call is not part of the wall time.
    """
    wall: list[int] = []
    cpu: list[int] = []
    clock, cpu_clock = time.perf_counter_ns, time.process_time_ns
    end = clock() + int(seconds * 1e9)
    while len(wall) < least or (clock() < end and len(wall) < most):
        cpu_before = cpu_clock()
        before = clock()
        for _ in repeat(None, inner):
            call()
        after = clock()
        cpu_after = cpu_clock()
        wall.append(after - before)
        cpu.append(cpu_after - cpu_before)
    return wall, cpu
