"""The queue of a suite's cells, from which each device takes the next one that it can run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from gnomon.jobs.suite.plan import Cell

MOST_FAILURES = 3
"""The number of consecutive failures after which a device gets no more cells."""


class Waiting:
    """Cells that have not ended; safe for several threads.

    A device that failed a cell does not get this cell again, but another device of the cell does. A device that failed
    `MOST_FAILURES` times in a row is excluded (`out`).
    """

    def __init__(self, cells: Iterable[Cell], ended: Iterable[tuple[Cell, str]] = ()) -> None:
        """`ended` are cells that have already ended, each with its device."""
        self._lock = threading.Lock()
        self._lines: dict[str, deque[Cell]] = {}
        self._open: dict[str, Cell] = {}
        self._used: dict[str, set[str]] = {}
        self._tried: dict[str, set[str]] = {}
        self._failures: dict[str, int] = {}
        self.out: set[str] = set()
        for cell, device in ended:
            self._used.setdefault(cell.group, set()).add(device)
        for cell in cells:
            self._open[cell.id] = cell
            for device in cell.devices:
                self._lines.setdefault(device, deque()).append(cell)

    def take(self, device: str) -> Cell | None:
        """The next cell for a device; None if no cell is ready for it."""
        with self._lock:
            line = self._lines.get(device, deque())
            if device in self.out:
                return None
            kept: list[Cell] = []
            taken = None
            while line and taken is None:
                cell = line.popleft()
                if cell.id not in self._open or device in self._tried.get(cell.id, ()):
                    continue
                if device in self._used.get(cell.group, ()):
                    kept.append(cell)  # another slot of its group is on this device and may still be given back
                    continue
                taken = cell
            line.extendleft(reversed(kept))
            if taken is not None:
                del self._open[taken.id]
                self._used.setdefault(taken.group, set()).add(device)
            return taken

    def done(self, device: str) -> None:
        """Record that a device has completed a cell and therefore works."""
        with self._lock:
            self._failures[device] = 0

    def failed(self, cell: Cell, device: str) -> bool:
        """Record that a device failed a cell; returns whether the cell waits for another device now."""
        with self._lock:
            self._failures[device] = self._failures.get(device, 0) + 1
            if self._failures[device] >= MOST_FAILURES:
                self.out.add(device)
            self._used[cell.group].discard(device)
            tried = self._tried.setdefault(cell.id, set())
            tried.add(device)
            others = [d for d in cell.devices if d not in tried and d not in self.out]
            if others:
                self._open[cell.id] = cell
                for other in others:
                    self._lines[other].append(cell)  # a duplicate is skipped once one is taken
            return bool(others)

    def rest(self) -> list[Cell]:
        """Remove and return all waiting cells, for which no device is left."""
        with self._lock:
            cells = list(self._open.values())
            self._open.clear()
            return cells

    def wanted(self) -> list[str]:
        """The devices for which a cell waits, if they may take it now."""
        with self._lock:
            return [d for d, line in self._lines.items() if d not in self.out and any(self._may(d, c) for c in line)]

    def _may(self, device: str, cell: Cell) -> bool:
        tried, used = self._tried.get(cell.id, set()), self._used.get(cell.group, set())
        return cell.id in self._open and device not in tried and device not in used
