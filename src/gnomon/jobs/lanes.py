"""One lane, a thread, for each machine: what is done on several devices at once, and ended together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from gnomon.devices.config import DeviceConfig
from gnomon.devices.stopping import Stopped, stop_at
from gnomon.errors import GnomonError

T = TypeVar("T")

_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Generic[T]):
    """How a device's part ended: with what it found, or with the error that ended it."""

    found: T | None
    error: GnomonError | None


def run_lanes(
    devices: Mapping[str, DeviceConfig], job: Callable[[str], T], *, patience_s: float = _PATIENCE_S
) -> dict[str, Ended[T]]:
    """Do the job for each device by its name, on different machines at the same time.

    Devices of one machine come one after the other: they would wait for each other's lease. The job runs in a thread
    of its own, where it must open all that it uses. A GnomonError ends that device's part alone. Anything else, such as
    Ctrl-C in the thread that called, ends all: each lane gets `Stopped` once, where it next waits for its device
    (`gnomon.devices.stopping`), and up to `patience_s` to clean up there. What is left then ends with the process, and
    the devices clean up by themselves.
    """
    answers: SimpleQueue[tuple[str, Ended[T] | BaseException]] = SimpleQueue()
    ending = threading.Event()

    def lane(names: Sequence[str]) -> None:
        stop_at(ending)
        for name in names:
            if ending.is_set():
                return
            try:
                answers.put((name, Ended(found=job(name), error=None)))
            except GnomonError as error:
                answers.put((name, Ended(found=None, error=error)))
            except Stopped:
                return
            except BaseException as error:  # told by the thread that waits, which ends the others
                answers.put((name, error))
                return

    threads = [
        threading.Thread(target=lane, args=(names,), name=f"gnomon-{names[0]}", daemon=True)
        for names in _by_machine(devices)
    ]
    ended: dict[str, Ended[T]] = {}
    try:
        for thread in threads:
            thread.start()
        while len(ended) < len(devices):
            try:
                name, answer = answers.get(timeout=1.0)
            except Empty:  # wakes up now and then, so that a signal is seen whatever the platform
                continue
            if isinstance(answer, BaseException):
                raise answer
            ended[name] = answer
    finally:
        ending.set()
        deadline = time.monotonic() + patience_s
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))  # a second Ctrl-C ends the waiting
    return {name: ended[name] for name in devices}


def _by_machine(devices: Mapping[str, DeviceConfig]) -> list[list[str]]:
    machines: dict[tuple[object, ...], list[str]] = {}
    for name, config in devices.items():
        machines.setdefault(config.address.machine, []).append(name)
    return list(machines.values())
