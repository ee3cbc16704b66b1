"""The progress of long work and the time left, for one stage or for many short measurements shown as one stage."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.core.stats import Summary
    from gnomon.measure.effort import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The current standing of one of several compared configurations; `time` is in seconds per call, by the clock used
    for the comparison.

    `wall_s` is its median wall time, and `ratio` is its time relative to that of the fastest.
    """

    label: str
    clock: Clock
    time: Summary
    wall_s: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The current `stage`, its steps so far and in total, and the seconds left (None while unknown).

    `standings` are those of the configurations that the stage compares, the fastest first, once each has run.
    """

    stage: str
    done: int
    total: int
    left_s: float | None
    standings: tuple[Standing, ...] = ()


Watch = Callable[[Progress], None]

Tell = Callable[[str], None]
"""A function that receives sentences for people."""

WatchOf = Callable[[str], Watch]
"""A function that returns the watch for the device with this name; each watch is called from its device's lane."""

TellOf = Callable[[str, str], None]
"""A function that receives the name of a device and a sentence, from that device's lane."""


class Meter:
    """Counts the steps of one stage and estimates the time left from the steps so far. Nothing is shown for a stage
    without steps.
    """

    def __init__(self, stage: str, total: int, watch: Watch | None) -> None:
        self._stage, self._total, self._watch = stage, total, watch
        self._done = 0
        self._standings: tuple[Standing, ...] = ()
        self._start = time.monotonic()
        self._reported = False
        if total:
            self._tell()

    def step(self, count: int = 1) -> None:
        """Count some more steps as done."""
        self._done += count
        self._total = max(self._total, self._done)
        self._tell()

    def expect(self, left: int) -> None:
        """Correct the number of steps that are still to come."""
        self._total = self._done + left

    def show(self, standings: tuple[Standing, ...]) -> None:
        """Show the standings of the compared configurations."""
        self._standings = standings
        self._tell()

    def finish(self) -> None:
        """End the stage; steps that turned out not to be needed are no longer counted."""
        self._total = self._done
        if self._reported:
            self._tell()

    def _tell(self) -> None:
        self._reported = True
        if self._watch is None:
            return
        done, total = self._done, self._total
        left_s = (time.monotonic() - self._start) / done * (total - done) if done else None
        self._watch(Progress(stage=self._stage, done=done, total=total, left_s=left_s, standings=self._standings))


class Steps:
    """Shows many short measurements as one stage with the time left, instead of the stages of each measurement."""

    def __init__(self, stage: str, watch: Watch | None) -> None:
        self._stage, self._watch = stage, watch
        self._meter: Meter | None = None

    def __call__(self, progress: Progress) -> None:
        """Show the stages of single measurements as long as the number of measurements is unknown."""
        if self._watch is not None and self._meter is None:
            self._watch(progress)

    def expect(self, total: int) -> None:
        """Begin a stage with this many steps."""
        self._meter = Meter(self._stage, total, self._watch)

    def step(self, count: int = 1) -> None:
        """Count some more steps as done."""
        if self._meter is not None:
            self._meter.step(count)

    def left(self, count: int) -> None:
        """Set the number of steps still to come, as far as it is known."""
        if self._meter is not None:
            self._meter.expect(count)

    def end(self) -> None:
        """End the steps: from now on, single measurements show their own stages."""
        self._meter = None
