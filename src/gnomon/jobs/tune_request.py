"""What a user asks of tuning, and the device that is meant."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gnomon.core.sample import Failure
from gnomon.core.tuning_record import TunedDevice
from gnomon.errors import DeviceError, UsageError
from gnomon.tuning.bench import Bench, Loop
from gnomon.tuning.door import DoorSettings, Workshop
from gnomon.tuning.target import NATIVE, read_linker, read_target, with_cores
from gnomon.tuning.tracker import Tracker

LOCAL = "local"
"""The key of this machine, where no tracker is."""

TOLERANCES = {"float32": 1e-3, "float16": 2e-2}
_PRICES = Loop(number=1, repeat=3, min_repeat_ms=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWish:
    """The device that is meant: its key at a tracker (None: this machine), its target and linker as the user writes
    them (None: found out), and how many threads a function may use there (0: as its server was started).

    `wait_s` is how long to wait for it.
    """

    key: str | None = None
    tracker: Tracker | None = None
    target: str | None = None
    linker: str | None = None
    threads: int = 0
    wait_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """How carefully is measured: samples of at least so many milliseconds, so many of them in each process, so many
    processes where networks or configurations are compared; seconds for a call and for a build; the seed.
    """

    repeat: int = 3
    min_repeat_ms: int = 10
    processes: int = 3
    timeout_s: float = 60.0
    build_timeout_s: float = 30.0
    seed: int = 0

    def loop(self, dtype: str) -> Loop:
        """How calls of layers and networks of a data type are timed."""
        return Loop(
            repeat=self.repeat,
            min_repeat_ms=self.min_repeat_ms,
            tolerance=TOLERANCES[dtype],
            seed=self.seed,
            timeout_s=self.timeout_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """A network to tune for a device.

    `layers` are texts of which a layer's name must hold one (none: all). `trials` in all, `per_round` in a round;
    `plateau` rounds of a layer without a gain of 1 % end it (0: never); `budget_s` ends everything.
    """

    model: Path
    device: DeviceWish = field(default_factory=DeviceWish)
    dtype: str = "float32"
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    layers: tuple[str, ...] = ()
    trials: int = 512
    per_round: int = 8
    strategy: str = "evolutionary"
    plateau: int = 4
    budget_s: float | None = None
    care: Care = field(default_factory=Care)
    out: Path | None = None
    fresh: bool = False


def open_device(shop: Workshop, wish: DeviceWish, known: TunedDevice | None = None) -> tuple[TunedDevice, Bench]:
    """The device that is meant, and a bench that has a session with it.

    `known` is the device as a record or a library describes it: its target and linker are taken where the wish has
    none. UsageError for a device behind a tracker whose target nobody told: a guess would be compiled for another.
    """
    key = LOCAL if wish.tracker is None else wish.key
    if key is None:
        raise UsageError("which device of the tracker is meant?", hint=f"Give --key, one of: {_keys(wish.tracker)}.")
    if wish.tracker is None and wish.key not in (None, LOCAL):
        raise UsageError(
            f"the device {wish.key!r} is behind a tracker, and none is named",
            hint="Give --tracker HOST:PORT, or set TVM_TRACKER_HOST; gnomon rpc up starts one here.",
        )
    text = wish.target or (NATIVE if wish.tracker is None else None)
    if text is None and known is None:
        raise UsageError(
            f"what is to be compiled for {key!r}?",
            hint="Give --target: native for a server on this machine, or such as x86-64-v3 or aarch64-cortex-a72.",
        )
    target = dict(known.target) if text is None and known is not None else read_target(text or NATIVE, here=_here(shop))
    linker = (
        known.linker if text is None and known is not None and wish.linker is None else read_linker(target, wish.linker)
    )
    threads = wish.threads or (len(os.sched_getaffinity(0)) if wish.tracker is None else 0)
    device = TunedDevice(key=key, target=target, linker=linker, threads=threads)
    bench = Bench(shop, device, wish.tracker, wait_s=wish.wait_s)
    bench.connect()
    device = replace(device, target=with_cores(target, bench.threads))
    bench.device = device
    return device, bench


def _here(shop: Workshop) -> Mapping[str, object]:
    door = shop.door(DoorSettings())
    said = door.ask("probe", {"do": "here"})
    door.close()
    if isinstance(said, Failure):
        raise DeviceError(f"this machine's processor cannot be told: {said.message}", hint="Give --target.")
    return said


def _keys(tracker: Tracker | None) -> str:
    return ", ".join(tracker.summary().keys) if tracker else LOCAL
