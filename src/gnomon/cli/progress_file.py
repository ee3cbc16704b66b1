"""Progress in a file, for whoever looks from outside: GNOMON_PROGRESS names it (docs/unattended.md)."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.measure.progress import Progress

VARIABLE = "GNOMON_PROGRESS"
_PAUSE_S = 1.0
"""At most so often: writing must not disturb what is measured meanwhile."""


class ProgressFile:
    """Keeps one JSON object in a file, replaced whole: stage, done, total, left_s, at_s, and why if it waits.

    Does nothing where no file is named. A full disk is no reason to stop: what cannot be written is left out.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stage = ""
        self._next_s = 0.0

    @classmethod
    def named(cls) -> ProgressFile:
        """The file that the environment names, or none."""
        path = os.environ.get(VARIABLE)
        return cls(Path(path) if path else None)

    def show(self, progress: Progress) -> None:
        """Write how far a stage is, unless that was done a moment ago."""
        now_s = time.monotonic()
        last = progress.done >= progress.total
        if progress.stage != self._stage or last or now_s >= self._next_s:
            self._stage, self._next_s = progress.stage, now_s + _PAUSE_S
            self.write(progress.stage, progress.done, progress.total, left_s=progress.left_s)

    def write(self, stage: str, done: int, total: int, *, left_s: float | None = None, why: str = "") -> None:
        """Write it at once."""
        if self._path is None:
            return
        told = {"stage": stage, "done": done, "total": total, "left_s": left_s, "at_s": time.time(), "why": why}
        part = self._path.with_name(f"{self._path.name}.part")
        with contextlib.suppress(OSError):
            part.write_text(json.dumps(told), encoding="utf-8")
            part.replace(self._path)
