"""Compiles layers under configurations, several side by side, each in a process that may be lost."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.core.tuning_record import TunedDevice, TuningLayer
from gnomon.tuning.door import Door, DoorSettings, Workshop

_MOST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A layer, the trace of a configuration (None: untuned), and where the library goes."""

    layer: TuningLayer
    trace: Any
    library: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A library, and the indices of the arguments that its function writes."""

    library: Path
    outputs: tuple[int, ...]


class Builders:
    """Child programs that compile for a device; as many as this machine has processors, four at most."""

    def __init__(self, shop: Workshop, device: TunedDevice, *, timeout_s: float) -> None:
        self._device = device
        self._doors: queue.SimpleQueue[Door] = queue.SimpleQueue()
        self.count = max(1, min(_MOST, len(os.sched_getaffinity(0))))
        for _ in range(self.count):
            self._doors.put(shop.door(DoorSettings(job_timeout_s=timeout_s)))

    def build(
        self, orders: Sequence[Order], tell: Callable[[int], None] = lambda done: None
    ) -> tuple[Built | Failure, ...]:
        """What came of each order, in their order. `tell` is called with the number done, from this thread."""
        with ThreadPoolExecutor(self.count, thread_name_prefix="build") as pool:
            made = []
            for done, one in enumerate(pool.map(self._one, orders), 1):
                made.append(one)
                tell(done)
        return tuple(made)

    def _one(self, order: Order) -> Built | Failure:
        door = self._doors.get()
        try:
            said = door.ask("build", build_job(order, self._device))
        finally:
            self._doors.put(door)
        if isinstance(said, Failure):
            return said
        return Built(library=order.library, outputs=tuple(int(i) for i in said["outputs"]))


def build_job(order: Order, device: TunedDevice) -> Mapping[str, Any]:
    """An order as the child takes it."""
    return {
        "do": "build",
        "layer": order.layer.layer,
        "workload": order.layer.workload,
        "trace": order.trace,
        "target": dict(device.target),
        "linker": device.linker,
        "library": str(order.library.absolute()),
    }


def discard(built: Iterable[Built | Failure]) -> None:
    """Remove libraries that were measured."""
    for one in built:
        if isinstance(one, Built):
            one.library.unlink(missing_ok=True)
