"""The queue of a suite's cells, from which each device takes the next cell that it can run."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from gnomon.jobs.suite.plan import Cell

MOST_FAILURES = 3
"""The number of consecutive failures after which a device gets no more cells."""


class Waiting:
    """Cells that have not ended; safe to use from several threads.

    A device that failed with a cell does not get this cell again, but the cell's other devices may. A device that
    failed `MOST_FAILURES` times in a row is excluded (`out`).
    """

    def __init__(self, cells: Iterable[Cell], ended: Iterable[tuple[Cell, str]] = ()) -> None:
        """`ended` are cells that have already ended, each with its device."""
        self._lock = threading.Lock()
        self._open = {cell.id: cell for cell in cells}
        self._used: dict[str, set[str]] = {}
        self._tried: dict[str, set[str]] = {}
        self._failures: dict[str, int] = {}
        self.out: set[str] = set()
        for cell, device in ended:
            self._used.setdefault(cell.group, set()).add(device)

    def take(self, device: str) -> Cell | None:
        """The next cell for a device; None if no cell is ready for it."""
        with self._lock:
            cell = next((cell for cell in self._open.values() if self._may(device, cell)), None)
            if cell is not None:
                del self._open[cell.id]
                self._used.setdefault(cell.group, set()).add(device)
            return cell

    def done(self, device: str) -> None:
        """Record that a device has completed a cell and therefore works."""
        with self._lock:
            self._failures[device] = 0

    def failed(self, cell: Cell, device: str) -> bool:
        """Record that a device failed with a cell; return whether the cell now waits for another device."""
        with self._lock:
            self._failures[device] = self._failures.get(device, 0) + 1
            if self._failures[device] >= MOST_FAILURES:
                self.out.add(device)
            self._used[cell.group].discard(device)
            tried = self._tried.setdefault(cell.id, set())
            tried.add(device)
            has_others = not self.out.union(tried).issuperset(cell.devices)
            if has_others:
                self._open[cell.id] = cell
            return has_others

    def rest(self) -> list[Cell]:
        """Remove and return all waiting cells, for which no device is left."""
        with self._lock:
            cells = list(self._open.values())
            self._open.clear()
            return cells

    def wanted(self) -> list[str]:
        """The devices that could take a waiting cell now."""
        with self._lock:
            devices = dict.fromkeys(device for cell in self._open.values() for device in cell.devices)
            return [device for device in devices if any(self._may(device, cell) for cell in self._open.values())]

    def _may(self, device: str, cell: Cell) -> bool:
        """Whether a device may run a cell: it has not failed with it, and has no other cell of the same group."""
        failed = device in self.out or device in self._tried.get(cell.id, ())
        return device in cell.devices and not failed and device not in self._used.get(cell.group, ())
