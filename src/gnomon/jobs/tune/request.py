"""The requests for tuning, and functions that open the devices they name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from gnomon.core.codec import Above0, Counted, Must, Whole, check_fields
from gnomon.core.overlay.records import TunedDevice
from gnomon.devices.address import LOCAL, TVM
from gnomon.devices.config import DeviceConfig
from gnomon.devices.lease import lease, lease_folder
from gnomon.devices.opening import resolve
from gnomon.errors import UsageError
from gnomon.tuning.bench import Bench, Loop, Servers
from gnomon.tuning.networks import STRATEGIES
from gnomon.tuning.servers import OwnServer, Tell, check_own
from gnomon.tuning.target import NATIVE, read_linker, read_target, with_cores
from gnomon.tuning.tracker import tracked_device
from gnomon.tuning.tvm import TvmPool

TOLERANCES = {"float32": 1e-3, "float16": 2e-2}
_Type = Annotated[str, Must(be=f"the data type {' or '.join(TOLERANCES)}", fits=TOLERANCES.__contains__)]
_Strategy = Annotated[str, Must(be=f"one of {', '.join(STRATEGIES)}", fits=STRATEGIES.__contains__)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """The requested device, its target and linker as the user writes them, and the number of threads of a function.

    If the target or the linker is None, or `threads` is 0, the value comes from the device's configuration or a record,
    or else it is detected. `wait_s` is the time to wait for the device.
    """

    config: DeviceConfig = field(default_factory=lambda: resolve(LOCAL))
    target: str | None = None
    linker: str | None = None
    threads: int = 0
    wait_s: float = 60.0

    @property
    def key(self) -> str:
        """The key in records: the device's name, or the key of the tracker if only its address is given."""
        address = self.config.address
        return address.key if address.key and self.config.name == str(address) else self.config.name


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneEffort(Loop):
    """The effort of measuring: the loop, the number of processes for comparing networks or configurations, and the
    seconds for a build.
    """

    processes: Counted = 3
    build_timeout_s: Above0 = 30.0

    def loop(self, dtype: str) -> Loop:
        """The loop that times calls of layers and networks of a data type."""
        return replace(self, tolerance=TOLERANCES[dtype])

    def details(self) -> dict[str, int]:
        """The settings that identify a campaign of calls."""
        return {"repeat": self.repeat, "min_repeat_ms": self.min_repeat_ms, "processes": self.processes}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """A network to tune for a device.

    `layers` are numbers of layers, or parts of their names (none: all). There are `trials` in total, `per_round` in a
    round, and `first_round` in a layer's first round (None: few enough that every important layer gets a round). After
    `plateau` rounds without a gain of 1 % a layer ends (0: never); `budget_s` is the time for everything. With
    `compare` other runtimes are measured together with the tuned network (None: unless there is a budget). `logs` are
    records or databases of MetaSchedule whose best configurations of the same layers are tried first. With `start` a
    layer begins with configurations that are good for similar layers.
    """

    model: Path
    device: DeviceOptions = field(default_factory=DeviceOptions)
    dtype: _Type = "float32"
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    layers: tuple[str, ...] = ()
    trials: Counted = 512
    per_round: Counted = 8
    first_round: Counted | None = None
    strategy: _Strategy = "evolutionary"
    start: bool = True
    plateau: Whole = 4
    budget_s: Above0 | None = None
    effort: TuneEffort = field(default_factory=TuneEffort)
    out: Path | None = None
    fresh: bool = False
    compare: bool | None = None
    logs: tuple[Path, ...] = ()

    def check(self) -> None:
        """Raise UsageError for invalid values."""
        check_fields(self)
        check_fields(self.effort)


def check_device(options: DeviceOptions, recorded: TunedDevice | None = None) -> None:
    """Check a device's options and its tracker; unlike `open_device`, this does not start TVM, which takes seconds.

    For `recorded` see `open_device`. Raises the errors of `check_options`, and DeviceError if the tracker cannot be
    reached or has no such device.
    """
    check_options(options, recorded)
    if options.config.address.kind == TVM:
        tracked_device(options.config.address).require(options.wait_s, expected=recorded is not None)


def check_options(options: DeviceOptions, recorded: TunedDevice | None = None) -> None:
    """Check a device's kind, target and linker. UsageError or RuntimeMissingError if one is invalid."""
    options, config = _settled(options), options.config
    target = recorded.target if options.target is None and recorded is not None else {}
    if options.target not in (None, NATIVE):
        target = read_target(options.target or "", here={})
    # The host's own linker fits native targets.
    if options.linker is not None or (target and options.target is not None):
        read_linker(target, options.linker)
    if config.address.kind == TVM:
        tracked_device(config.address)
        if options.target is None and not target:
            raise UsageError(
                f"the target of the device {options.key!r} is unknown",
                hint="Give --target: native for a server on this machine, or x86-64-v3, aarch64-cortex-a72, ..",
            )
    elif config.address.kind != LOCAL:
        check_own(config)


def _settled(options: DeviceOptions) -> DeviceOptions:
    """The options, completed from the device's configuration."""
    config = options.config
    return replace(
        options,
        target=options.target or config.target,
        linker=config.linker if options.linker is None else options.linker,
        threads=options.threads or config.threads or 0,
    )


@contextlib.contextmanager
def open_device(
    pool: TvmPool, options: DeviceOptions, recorded: TunedDevice | None = None, tell: Tell = lambda sentence: None
) -> Iterator[tuple[TunedDevice, Bench]]:
    """The requested device, reserved for the block, and a bench that has a session with it.

    `recorded` is the device as a record or a library describes it: its target and linker apply if neither the options
    nor the device's configuration has them. `tell` gets a sentence when gnomon waits. Raises the errors of
    `check_device`, which runs first, and DeviceError.
    """
    check_device(options, recorded)
    options, config = _settled(options), options.config
    if config.governor is not None:
        tell(f"gnomon tune does not set the governor {config.governor!r} of {config.name}: set it yourself beforehand")
    with contextlib.ExitStack() as stack:
        native: Callable[[], Mapping[str, Any]] | None = None
        servers: Servers | None = None
        if config.address.kind == LOCAL:
            stack.enter_context(lease(lease_folder(), LOCAL, on_wait=tell))
        elif config.address.kind == TVM:
            servers = tracked_device(config.address)
        else:
            served = stack.enter_context(OwnServer(config, pool.guard, tell))
            servers, native = served, lambda: asdict(served.info)
        cores = len(config.pin) or (len(os.sched_getaffinity(0)) if servers is None else 0)
        threads = options.threads or (recorded.threads if recorded is not None else 0) or cores
        bench = Bench(
            pool,
            TunedDevice(key=options.key, target={}, threads=threads),
            servers,
            wait_s=options.wait_s,
            environment=config.environment,
            pin=config.pin,
        )
        target, linker = _compilation(native or bench.here, options, recorded)
        bench.connect()
        bench.device = replace(bench.device, target=with_cores(target, bench.threads), linker=linker)
        try:
            yield bench.device, bench
        finally:
            bench.fresh()


def _compilation(
    native: Callable[[], Mapping[str, Any]], options: DeviceOptions, recorded: TunedDevice | None
) -> tuple[Mapping[str, Any], str]:
    """The target and the linker for a device."""
    if options.target is None and recorded is not None and recorded.target:
        linker = recorded.linker if options.linker is None else read_linker(recorded.target, options.linker)
        return recorded.target, linker
    text = options.target or NATIVE
    target = read_target(text, here=native() if text == NATIVE else {})
    return target, read_linker(target, options.linker)
