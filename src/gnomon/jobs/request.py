"""What a job is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gnomon.devices.address import LOCAL, parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.errors import UsageError
from gnomon.measure.effort import Effort
from gnomon.measure.job_time import JobTime
from gnomon.runtimes.base import Wish

WAIT_S = 600.0
MOST_SEED = 2**31 - 1
THIS_MACHINE = DeviceConfig(name=LOCAL, address=parse_address(LOCAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The model, where and with what it runs, and how hard to try.

    `shapes` fix inputs that the file leaves open; `feeds` are .npy files for inputs, others are drawn from `seed`.
    `record` is the database (None: the user's own); `fresh` starts anew where an interrupted campaign could be
    taken up. `measure` False decides from what the record holds of this model on this device, which then need not be
    reachable. After `max_time_s` nothing more is begun: the job ends with what it knows (None: no limit). `time` is
    its clock, once it runs: see `timed`. `wait_s` is how long a device that vanishes may stay away before the job
    gives up. UsageError where it shall start anew and measure nothing, or the seed is out of its range.
    """

    model: Path
    device: DeviceConfig = THIS_MACHINE
    runtimes: tuple[str, ...] = ()
    wish: Wish = field(default_factory=Wish)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    feeds: Mapping[str, Path] = field(default_factory=dict)
    effort: Effort = field(default_factory=Effort)
    seed: int = 0
    record: Path | None = None
    fresh: bool = False
    measure: bool = True
    wait_s: float = WAIT_S
    max_time_s: float | None = None
    time: JobTime | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.fresh and not self.measure:
            raise UsageError(
                "--fresh measures anew and --no-profile measures nothing",
                hint="Give one of them; from Python they are fresh=True and measure=False.",
            )
        if not 0 <= self.seed < MOST_SEED:
            raise UsageError(f"seed is {self.seed}", hint=f"Give a whole number from 0 to {MOST_SEED - 1}.")

    @property
    def used_s(self) -> float:
        """How long the job has worked."""
        return self.time.used_s if self.time is not None else 0.0

    @property
    def waited_s(self) -> float:
        """How long the job has waited for its device."""
        return self.time.waited_s if self.time is not None else 0.0


def timed(request: Request) -> Request:
    """The request with its clock running: from now on, unless it ran already."""
    return request if request.time is not None else replace(request, time=JobTime(request.max_time_s))
