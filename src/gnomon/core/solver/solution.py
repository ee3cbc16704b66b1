"""The answer of a solver with its certificate, the time that is left to find it, and the options of a search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gnomon.core.brief import brief
from gnomon.core.cost import Stop
from gnomon.errors import UsageError

METHODS = ("auto", "elimination", "milp")
_LOOKED_AT = 0.1  # the share of the time after which a hopeless elimination is abandoned
_FOR_CHARGES = 0.5  # the share of the time
_FOR_PRUNING = 0.3  # the share of the remaining time


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """An assignment with its certificate.

    `cost` is in the units of the objectives and `value` is their weighted sum. `bound` is a proven lower bound on the
    value of every assignment; it equals `value` if `optimal`. `method` is "elimination", "milp" (HiGHS), "toulbar2" or,
    under limits, "branching". `width` is the largest number of neighbours that a slot had when it was eliminated. The
    other methods do not eliminate; for them `width` is the degeneracy of the graph, the least width that any
    elimination order can have. For "branching", `prices` are the amounts by which one unit more of each limit would
    lower the bound, and `free` is the least value without limits; a limit on a peak has the price NaN.
    """

    assignment: tuple[int, ...]
    choices: tuple[str, ...]
    code: int
    cost: tuple[float, ...]
    value: float
    optimal: bool
    method: str
    bound: float
    width: int
    prices: tuple[float, ...] = ()
    free: float | None = None

    __repr__ = brief


class Time:
    """The time that is left of a limit, by a clock that may be missing."""

    def __init__(self, limit_s: float | None, clock_s: Callable[[], float] | None) -> None:
        self.limit_s, self._clock_s = limit_s, clock_s
        self._began_s = clock_s() if clock_s is not None else 0.0

    def left_s(self) -> float | None:
        """The seconds that are left; None if there is no limit."""
        if self.limit_s is None or self._clock_s is None:
            return self.limit_s
        return self.limit_s - (self._clock_s() - self._began_s)

    def used(self) -> float:
        """The share of the limit that is used."""
        left = self.left_s()
        return 0.0 if left is None or self.limit_s is None else 1 - left / self.limit_s

    def over(self, done: float) -> bool:
        """Return True if no time is left."""
        return self.used() >= 1

    def hopeless(self, done: float) -> bool:
        """Return True if the work will not finish in time, given the share that is `done`."""
        used = self.used()
        return used >= 1 or (used > _LOOKED_AT and used > done)

    def for_pruning(self) -> Stop:
        """A function that returns True once pruning has used its share of the time that is left now."""
        until = 1 - (1 - self.used()) * (1 - _FOR_PRUNING)
        return lambda _: self.used() >= until

    def for_charges(self, done: float) -> bool:
        """Return True if the time for enumerating charges is over."""
        return self.used() >= _FOR_CHARGES


def check_options(method: str, time_limit_s: float | None) -> None:
    """Raise UsageError for an unknown method or a time limit that is not above 0."""
    if method not in METHODS:
        raise UsageError(f"no method is named '{method}'", hint=f"use one of: {', '.join(METHODS)}")
    if time_limit_s is not None and not (math.isfinite(time_limit_s) and time_limit_s > 0):
        raise UsageError(f"the time limit is {time_limit_s} s", hint="use a number of seconds above 0")
