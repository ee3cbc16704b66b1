"""Progress over many short measurements: one stage with the time left."""

from __future__ import annotations

import time

from gnomon.measure.progress import Progress, Watch


class Steps:
    """Shows many short measurements as one stage with the time left."""

    def __init__(self, stage: str, watch: Watch | None) -> None:
        self._stage, self._watch = stage, watch
        self._done = self._total = 0
        self._start = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """The stages of single measurements are shown as long as it is not known how many there will be."""
        if self._watch is not None and not self._total:
            self._watch(progress)

    def expect(self, total: int) -> None:
        """So many steps begin."""
        self._total, self._start = total, time.monotonic()
        self.step(0)

    def step(self, count: int) -> None:
        """Some more are done."""
        self._done += count
        left = (time.monotonic() - self._start) / self._done * (self._total - self._done) if self._done else None
        if self._watch is not None:
            self._watch(Progress(stage=self._stage, done=self._done, total=self._total, left_s=left))
