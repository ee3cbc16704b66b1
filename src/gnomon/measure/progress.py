"""Progress of long work, with the time left: of one stage, or of many short measurements as one stage."""

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
    """How something that is measured beside others stands so far: seconds a call by the clock that compares them.

    `wall_s` is its median by the wall, and `ratio` how many times as long it takes as the fastest.
    """

    label: str
    clock: Clock
    time: Summary
    wall_s: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The current `stage`, its steps so far and in all, and the seconds left, None while unknown.

    `standings` are those of what the stage compares, the fastest first, once each has run.
    """

    stage: str
    done: int
    total: int
    left_s: float | None
    standings: tuple[Standing, ...] = ()


Watch = Callable[[Progress], None]

Tell = Callable[[str], None]
"""Gets sentences for people."""

WatchOf = Callable[[str], Watch]
"""The watch of a device, by its name; each is called from that device's lane."""

TellOf = Callable[[str, str], None]
"""Gets the name of a device and a sentence, from that device's lane."""


class Meter:
    """Counts the steps of one stage and estimates the time left from those taken so far; without steps it is silent."""

    def __init__(self, stage: str, total: int, watch: Watch | None) -> None:
        self._stage, self._total, self._watch = stage, total, watch
        self._done = 0
        self._standings: tuple[Standing, ...] = ()
        self._start = time.monotonic()
        self._reported = False
        if total:
            self._tell()

    def step(self, count: int = 1) -> None:
        """Some more steps are done."""
        self._done += count
        self._total = max(self._total, self._done)
        self._tell()

    def expect(self, left: int) -> None:
        """How many steps are still to come became known better."""
        self._total = self._done + left

    def show(self, standings: tuple[Standing, ...]) -> None:
        """Show how the compared configurations stand."""
        self._standings = standings
        self._tell()

    def finish(self) -> None:
        """All is done, also what turned out not to be needed."""
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
    """Shows many short measurements as one stage with the time left, in place of the stages of each."""

    def __init__(self, stage: str, watch: Watch | None) -> None:
        self._stage, self._watch = stage, watch
        self._meter: Meter | None = None

    def __call__(self, progress: Progress) -> None:
        """The stages of single measurements are shown as long as it is not known how many there will be."""
        if self._watch is not None and self._meter is None:
            self._watch(progress)

    def expect(self, total: int) -> None:
        """So many steps begin."""
        self._meter = Meter(self._stage, total, self._watch)

    def step(self, count: int = 1) -> None:
        """Some more are done."""
        if self._meter is not None:
            self._meter.step(count)

    def left(self, count: int) -> None:
        """So many are still to come, as far as is known by now."""
        if self._meter is not None:
            self._meter.expect(count)

    def end(self) -> None:
        """The steps are over: from now on single measurements show their own stages."""
        self._meter = None
