"""Timing of repeated calls inside one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.wire import Pace

Call = Callable[[], object]


def warm_up(call: Call, *, count: int, seconds: float) -> int:
    """Call until both the count and the time are reached; return how many nanoseconds the fastest call took."""
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
    """The number of calls, rounded up to a round number, that make a sample last at least `sample_ns`."""
    wanted = -(-sample_ns // max(call_ns, 1))
    if wanted <= 1:
        return 1
    step: int = 10 ** (len(str(wanted)) - 1)
    return -(-wanted // step) * step


def take(call: Call, *, inner: int, seconds: float, least: int, most: int) -> tuple[list[int], list[int]]:
    """Samples of `inner` calls each: wall nanoseconds and CPU nanoseconds of the process.

    Takes samples until `seconds` have passed, but at least `least` and at most `most` samples. The CPU clock is read
    outside the wall clock's interval, so that its system call is not part of the wall time.
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


def take_paced(call: Call, *, every_ns: int, slots: int, start_ns: int) -> tuple[list[int], list[int], Pace]:
    """Samples of one call each, started on a grid: no call starts before its slot, and slots are `every_ns` apart.

    A call that is still running at the next slot is late. The slots that pass meanwhile are skipped, as an application
    skips frames. Sampling ends when none of the `slots` is left. The process sleeps between calls, as the application
    would.
    """
    wall: list[int] = []
    cpu: list[int] = []
    delays: list[int] = []
    late = skipped = slot = 0
    clock, cpu_clock = time.perf_counter_ns, time.process_time_ns
    while slot < slots:
        due = start_ns + slot * every_ns
        left = due - clock()
        if left > 0:
            time.sleep(left * 1e-9)
        cpu_before = cpu_clock()
        before = clock()
        call()
        after = clock()
        cpu.append(cpu_clock() - cpu_before)
        wall.append(after - before)
        delays.append(max(0, before - due))
        late += after > due + every_ns
        following = max(slot + 1, -(-(after - start_ns) // every_ns))
        skipped += following - slot - 1
        slot = following
    return wall, cpu, {"delay_ns": delays, "late": late, "skipped": skipped}


def take_at_once(
    calls: Sequence[Call], *, inner: int, seconds: float, least: int, most: int
) -> tuple[list[int], list[int], float]:
    """Samples as in `take`, but all calls run at the same time, each in its own thread; also the calls per second.

    The CPU nanoseconds of the process are divided evenly among the samples.
    """

    def stream(call: Call) -> tuple[list[int], float]:
        before = time.perf_counter_ns()
        wall, _ = take(call, inner=inner, seconds=seconds, least=least, most=most)
        return wall, inner * len(wall) * 1e9 / (time.perf_counter_ns() - before)

    cpu_before = time.process_time_ns()
    with ThreadPoolExecutor(len(calls)) as pool:
        taken = list(pool.map(stream, calls))
    every = [sample for wall, _ in taken for sample in wall]
    cpu_ns = (time.process_time_ns() - cpu_before) // len(every)
    return every, [cpu_ns] * len(every), sum(per_s for _, per_s in taken)
