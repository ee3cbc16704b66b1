"""What a user asks of tuning, and the device that is meant."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnomon.core.overlay.records import TunedDevice
from gnomon.devices.lease import lease, lease_folder
from gnomon.errors import UsageError
from gnomon.tuning.bench import Bench, Loop
from gnomon.tuning.networks import STRATEGIES
from gnomon.tuning.target import NATIVE, read_linker, read_target, with_cores
from gnomon.tuning.tracker import Tracker
from gnomon.tuning.tvm import Workshop

LOCAL = "local"
"""The key of this machine, where no tracker is."""

TOLERANCES = {"float32": 1e-3, "float16": 2e-2}
_APPEAR_S = 10.0
"""A server that crashed is started anew within so long."""


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

    @property
    def here(self) -> bool:
        """Whether this machine is meant: no tracker is named, or its key is asked for."""
        return self.tracker is None or self.key == LOCAL


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

    def check(self) -> None:
        """UsageError for what cannot be meant."""
        for name, value in (("repeat", self.repeat), ("processes", self.processes), ("seed", self.seed + 1)):
            if value < 1:
                raise UsageError(f"{name} is too small", hint="Give at least 1 sample and process, and a seed from 0.")
        for name, seconds in (("timeout_s", self.timeout_s), ("build_timeout_s", self.build_timeout_s)):
            if not seconds > 0:
                raise UsageError(f"{name} is {seconds:g}", hint="Give seconds above 0.")


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

    def check(self) -> None:
        """UsageError for what cannot be meant."""
        if self.dtype not in TOLERANCES:
            raise UsageError(f"{self.dtype!r} is not tuned", hint=f"Give the data type {' or '.join(TOLERANCES)}.")
        if self.strategy not in STRATEGIES:
            raise UsageError(f"no strategy is called {self.strategy!r}", hint=f"Give one of {', '.join(STRATEGIES)}.")
        least = (("trials", self.trials, 1), ("per_round", self.per_round, 1), ("plateau", self.plateau, 0))
        for name, value, bound in least:
            if value < bound:
                raise UsageError(f"{name} is {value}", hint=f"Give a whole number from {bound}.")
        if self.budget_s is not None and not self.budget_s > 0:
            raise UsageError(f"the budget is {self.budget_s:g} s", hint="Give seconds above 0, or none.")
        self.care.check()


@contextlib.contextmanager
def held_device(wish: DeviceWish, tell: Callable[[str], None] = lambda sentence: None) -> Iterator[None]:
    """Nobody else measures on this machine meanwhile, where it is the device that is meant.

    A tracker sees to that itself for its servers. `tell` is told who has the machine, if it must be waited for.
    """
    if not wish.here:
        yield
        return
    with lease(lease_folder(), LOCAL, on_wait=tell):
        yield


def open_device(shop: Workshop, wish: DeviceWish, known: TunedDevice | None = None) -> tuple[TunedDevice, Bench]:
    """The device that is meant, and a bench that has a session with it.

    `known` is the device as a record or a library describes it: its target and linker are taken where the wish has
    none. UsageError for a device behind a tracker whose target nobody told: a guess would be compiled for another.
    """
    tracker = None if wish.here else wish.tracker
    if tracker is None and wish.key not in (None, LOCAL):
        raise UsageError(
            f"the device {wish.key!r} is behind a tracker, and none is named",
            hint="Give --tracker HOST:PORT, or set TVM_TRACKER_HOST; gnomon rpc up starts one here.",
        )
    own = known.key if known is not None and known.key != LOCAL else None
    key = LOCAL if tracker is None else wish.key or own
    if key is None:
        keys = ", ".join(tracker.summary().keys) if tracker else ""
        raise UsageError(
            "which device of the tracker is meant?",
            hint=f"Give --key, one of: {keys}; or local, which is this machine.",
        )
    threads = (
        wish.threads
        or (known.threads if known is not None else 0)
        or (len(os.sched_getaffinity(0)) if tracker is None else 0)
    )
    bench = Bench(shop, TunedDevice(key=key, target={}, threads=threads), tracker, wait_s=wish.wait_s)
    target, linker = _compilation(bench, wish, known)
    if tracker is not None:
        _listed(tracker, key, wish.wait_s)
    bench.connect()
    bench.device = replace(bench.device, target=with_cores(target, bench.threads), linker=linker)
    return bench.device, bench


def _compilation(bench: Bench, wish: DeviceWish, known: TunedDevice | None) -> tuple[Mapping[str, Any], str]:
    """The target and the linker for a device."""
    asked = known is None or not known.target
    text = wish.target or (NATIVE if wish.here and asked else None)
    if text is not None:
        target = read_target(text, here=bench.here() if text == NATIVE else {})
        return target, read_linker(target, wish.linker)
    if known is None or not known.target:
        raise UsageError(
            f"what is to be compiled for {bench.device.key!r}?",
            hint="Give --target: native for a server on this machine, or such as x86-64-v3 or aarch64-cortex-a72.",
        )
    return known.target, known.linker if wish.linker is None else read_linker(known.target, wish.linker)


def _listed(tracker: Tracker, key: str, wait_s: float) -> None:
    """DeviceError, with the keys that there are, for one that no server has: soon, since it may be a typing error."""
    until_s = time.monotonic() + min(wait_s, _APPEAR_S)
    while not (found := tracker.summary()).of(key):
        if time.monotonic() > until_s:
            found.require(key, tracker.address)
        time.sleep(0.2)
