"""The requests that jobs get, and the link to a device.

The link uses the agent or, on a device without Python, the runtimes' own programs.

When a device that vanished comes back, the job is started again and continues its own campaign from the record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gnomon.devices.address import LOCAL, parse_address
from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig
from gnomon.devices.local import LocalDevice
from gnomon.devices.opening import opened
from gnomon.errors import DeviceError, GnomonError, MeasurementError, RecordError, UsageError
from gnomon.measure.effort import Effort, JobTime
from gnomon.measure.link import AgentLink
from gnomon.measure.progress import Tell
from gnomon.runtimes.base import RunSettings
from gnomon.store.address import RecordAddress, default_record
from gnomon.store.base import CLOSED, FAILED
from gnomon.system.stopping import ANSWERS, pause
from gnomon.values import MOST_SEED, WAIT_S
from gnomon.wire import Machine

if TYPE_CHECKING:
    from gnomon.measure.campaign import CampaignRunner, RecordedRunner

THIS_MACHINE = DeviceConfig(name=LOCAL, address=parse_address(LOCAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """The device, runtimes, effort and record of a job that measures.

    `record` is the results database (None: the user's own). `fresh` starts a new campaign even if an interrupted one
    could be resumed. `seed` determines random inputs and random orders. After `max_time_s`, no new measurement begins
    and the job ends with its results so far (None: no limit). `time` is the clock of a running job (`timed`). `wait_s`
    is how long a vanished device may stay away before the job gives up. UsageError if the seed is out of range.
    """

    device: DeviceConfig = THIS_MACHINE
    runtimes: tuple[str, ...] = ()
    settings: RunSettings = field(default_factory=RunSettings)
    effort: Effort = field(default_factory=Effort)
    seed: int = 0
    record: RecordAddress | None = None
    fresh: bool = False
    wait_s: float = WAIT_S
    max_time_s: float | None = None
    time: JobTime | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < MOST_SEED:
            raise UsageError(f"seed is {self.seed}", hint=f"Give a whole number from 0 to {MOST_SEED - 1}.")

    @property
    def database(self) -> RecordAddress:
        """The address of the results database."""
        return self.record or default_record()

    @property
    def used_s(self) -> float:
        """How long the job has worked, in seconds."""
        return self.time.used_s if self.time is not None else 0.0

    @property
    def waited_s(self) -> float:
        """How long the job has waited for its device, in seconds."""
        return self.time.waited_s if self.time is not None else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest(MeasureRequest):
    """A job that measures one model.

    `shapes` fixes inputs that the file leaves open, and `dims` fixes dimensions that the file names. `signature`
    selects the signature of a TFLite or Circle file ("": its first subgraph). `feeds` are .npy files for inputs; other
    inputs are generated from `seed`. If `measure` is False, the job decides from the measurements of this model and
    device in the results database, and the device need not be reachable. With `interrupted`, it decides from the run
    that Ctrl-C has just ended. A `quick` job measures only whole models. `under` holds the limits of a placement, by
    NAME or NAME:CHOICE. UsageError if the job is to start again but measure nothing.
    """

    model: Path
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    signature: str = ""
    feeds: Mapping[str, Path] = field(default_factory=dict)
    measure: bool = True
    interrupted: bool = False
    quick: bool = False
    under: Mapping[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        MeasureRequest.__post_init__(self)  # a class with slots exists twice: `super()` would refer to the first one
        if self.fresh and not self.measure:
            raise UsageError(
                "--fresh measures everything again, but --no-profile measures nothing",
                hint="Give only one of them (in Python, fresh=True and measure=False).",
            )


Request = TypeVar("Request", bound=MeasureRequest)


def timed(request: Request) -> Request:
    """The request with its clock running; the clock starts now unless it is running already."""
    return request if request.time is not None else replace(request, time=JobTime(request.max_time_s))


def link_to(device: Device, *, timeout_s: float = 60, machine: Machine | None = None, kept: bool = False) -> AgentLink:
    """The link to an open device; all links answer the same requests. Only the link to a local device is `kept`."""
    if device.describe().python:
        return AgentLink(device, timeout_s=timeout_s, machine=machine, kept=kept and isinstance(device, LocalDevice))
    from gnomon.devices.program import ProgramDriver
    from gnomon.measure.program import ProgramLink  # only for boards without Python
    from gnomon.runtimes.commands import CommandProgram
    from gnomon.runtimes.onert import OnertProgram

    programs: dict[str, ProgramDriver] = {"onert": OnertProgram(), "command": CommandProgram()}
    return ProgramLink(device, timeout_s=timeout_s, machine=machine, programs=programs)


def machine_of(config: DeviceConfig) -> Machine:
    """The settings that the whole machine should have during measurements, if any are requested."""
    requested: Machine = {}
    if config.pin:
        requested["pin"] = list(config.pin)
    if config.governor:
        requested["governor"] = config.governor
    return requested


Found = TypeVar("Found")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_MOST_TIMES = 20
"""How many times a device may disconnect in one job before it counts as too unreliable to measure on."""


@contextmanager
def device_met(runner: CampaignRunner | RecordedRunner) -> Iterator[None]:
    """A block that a job enters once it has reached its device; a DeviceError in the block is marked as raised after
    the device was reached.

    The error that ends the job is noted in its campaign.
    """
    try:
        yield
    except GnomonError as error:
        with suppress(RecordError):
            closed = isinstance(error, MeasurementError) and runner.nobody_works and not runner.stopped
            runner.note(FAILED, {"message": error.message, "hint": error.hint, **({CLOSED: True} if closed else {})})
        if isinstance(error, DeviceError):
            raise DeviceError(error.message, hint=error.hint, transient=error.transient, begun=True) from error
        raise


def patiently(job: Callable[[Request], Found], request: Request, tell: Tell | None, *, recalls: bool = False) -> Found:
    """Do a job; if its device vanishes midway, wait up to `request.wait_s` for the device and continue.

    Measurements are in the record, so at most the current visit is repeated. A job that `recalls` can answer from the
    record alone: if `ANSWERS` is set, Ctrl-C ends its measurements but not the job, which then answers from the record.
    DeviceError if the device stays away, or immediately if it never answered.
    """
    say = tell or (lambda sentence: None)
    met = False
    for _ in range(_MOST_TIMES):
        try:
            return job(request)
        except KeyboardInterrupt:
            if not (recalls and ANSWERS.get() and isinstance(request, ModelRequest) and request.measure):
                raise
            say("Ctrl-C: the answer so far follows; press Ctrl-C again to end without an answer")
            with suppress(MeasurementError):
                return job(replace(request, measure=False, fresh=False, interrupted=True))
            raise
        except DeviceError as error:
            met = met or error.met  # the device may vanish again before the job has reached it
            if not (error.transient and met) or request.wait_s <= 0:
                raise
            say(f"{error.message}; waiting up to {request.wait_s:.0f} s for {request.device.name} to come back")
            began_s = time.monotonic()
            _wait_for(request.device, request.wait_s, error, say)
            if request.time is not None:
                request.time.waited_s += time.monotonic() - began_s
            say(f"{request.device.name} is back: continuing from the results database")
            request = replace(request, fresh=request.fresh and not error.begun)
    return job(request)


def patiently_begun(job: Callable[[], Found], device: DeviceConfig, wait_s: float) -> Found:
    """Do a job that may not reach its device at first; wait for the device as if it had vanished midway.

    DeviceError if the device stays away for `wait_s`, or immediately if waiting would not help.
    """
    for _ in range(_MOST_TIMES):
        try:
            return job()
        except DeviceError as error:
            if error.met or error.busy or not error.transient or wait_s <= 0:
                raise
            _wait_for(device, wait_s, error, lambda sentence: None)
    return job()


def _wait_for(device: DeviceConfig, wait_s: float, lost: DeviceError, say: Tell) -> None:
    """Try to open the device until it answers; DeviceError if it does not answer in time.

    The device worked before, so any error may be temporary: while a board restarts, its name and its users may be
    unknown for a while. `say` gets every error that will not go away on its own, so that the user can help.
    """
    deadline = time.monotonic() + wait_s
    pause_s = _FIRST_PAUSE_S
    shown = ""
    while True:
        pause(min(pause_s, max(0.0, deadline - time.monotonic())))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        try:
            with opened(device, on_wait=say):
                return
        except DeviceError as error:
            if time.monotonic() >= deadline:
                away = f"{lost.message}, and {device.name} did not come back within {wait_s:.0f} s"
                hint = "Retry when it is up: what was measured is kept. To wait longer: --reconnect-timeout SECONDS"
                raise (DeviceError(away, hint=hint, transient=True) if error.transient else error) from lost
            if not error.transient and error.message != shown:
                shown = error.message
                say(f"{error.message}. {error.hint}")
