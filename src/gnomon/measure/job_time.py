"""How long a job works, and may: what it waits for its device is not counted."""

from __future__ import annotations

import math
import time


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
