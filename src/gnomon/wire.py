"""The types of the values that the host and the agent exchange as JSON (docs/agent.md), and of a package's plan.json.

The agent imports these types only for the type checker, so that no process on a device loads this module. The host uses
them to check an agent's output (`gnomon.measure.link.event_of`) with pydantic, which requires `typing_extensions` on
Python 3.11. The module has no ``from __future__ import annotations``, because it would hide from pydantic which keys
are required.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, final

from typing_extensions import TypedDict

Options = Mapping[str, Any]
"""The options of a segment; each runtime, including a third party's, has its own options."""

Details = Mapping[str, Any]
"""A runtime's report about itself, with keys specific to that runtime."""


class OperatorTable(TypedDict):
    """How to read operator times from a command's report; see `gnomon.agent.drivers.command.reading.readings`."""

    read: str
    label: str
    unit: NotRequired[str]
    file: NotRequired[str]


class CommandSpec(TypedDict):
    """A declared command, with one value for each of its choices; see `gnomon.runtimes.declared.Declaration`."""

    name: str
    run: list[str]
    read: NotRequired[str]
    unit: NotRequired[str]
    file: NotRequired[str]
    each: NotRequired[str]
    outputs: NotRequired[str]
    prepare: NotRequired[list[list[str]]]
    files: NotRequired[dict[str, str]]
    environment: NotRequired[dict[str, str]]
    choices: NotRequired[dict[str, str]]
    refused_if: NotRequired[str]
    profile: NotRequired[list[str]]
    operators: NotRequired[OperatorTable]
    version: NotRequired[list[str]]


class Tensor(TypedDict):
    """A buffer. Its shape is None or contains -1 if only the runtime knows it; buffers of the same `slab` share
    memory.
    """

    shape: Sequence[int] | None
    dtype: str
    slab: NotRequired[int | None]


class Feed(TypedDict, total=False):
    """The values of an input: from a file, given here, or random between two limits; empty for the default random
    values.
    """

    file: str
    values: Sequence[float]
    least: float
    most: float


class RuntimeModel(TypedDict):
    """A model file, the runtime that loads it (by its driver's name), and the options."""

    runtime: str
    model: str
    options: Options


class Segment(RuntimeModel):
    """A model and its bindings: each input and output is a name in the model, paired with a tensor of the job."""

    inputs: list[list[str]]
    outputs: list[list[str]]


class Packaged(RuntimeModel):
    """A model in a package, with its runtime's additions: text for README.txt, and variables for environment.sh."""

    readme: NotRequired[str]
    variables: NotRequired[Mapping[str, str]]


class JobInputs(TypedDict):
    """The part of a job that determines its inputs."""

    tensors: dict[str, Tensor]
    feeds: dict[str, Feed]
    seed: int


class Job(JobInputs):
    """A chain of one or more models over shared buffers."""

    outputs: list[str]
    segments: list[Segment]


class PlanJob(Job):
    """A job with the environment of its process."""

    environment: dict[str, str]


class PlanOperator(TypedDict):
    """An operator of the model, and the backend that it was placed on."""

    index: int
    name: str
    type: str
    backend: str | None


class Versions(TypedDict, total=False):
    """The software and the processor of a device, as far as they are known; `packages` are those that pip installed."""

    python: str | None
    processor: str | None
    packages: dict[str, str]
    runtimes: dict[str, str]


class PlanHead(TypedDict):
    """The head of plan.json; `model` has the name and the SHA-256 of the model's file."""

    format: str
    version: int
    gnomon: str
    model: dict[str, str]
    proved_with: NotRequired[Versions]


class Plan(PlanHead):
    """The whole plan.json. `files` has the SHA-256 of each file of the package; `requirements` are for pip."""

    requirements: list[str]
    operators: list[PlanOperator]
    files: dict[str, str]
    job: PlanJob


class Machine(TypedDict, total=False):
    """Settings to apply during measurements: the cores to use and the frequency governor."""

    pin: list[int]
    governor: str


class MachineSettings(Machine, total=False):
    """The settings that were applied, and the cores' previous governors."""

    governors_before: dict[str, str]


class Snapshot(TypedDict, total=False):
    """The state of a machine at one moment, as far as its kernel reports it.

    `cores` is the number of cores that the process may use. `runnable` counts the processes that want to run, including
    this one. cpu_busy_s and cpu_total_s are totals over all cores since boot. cpu_steal_s is the time that other
    virtual machines used, and own_cpu_s is the time that this process and its ended children used. `swapped_pages`
    counts pages swapped in and out since boot. `frequencies_khz` has, for each core, the current, the lowest allowed,
    the highest allowed, and the hardware's highest frequency. `trip_points_c` has, for each zone, the lowest
    temperature of each type (passive, hot, critical) at which the kernel slows down or stops the machine.
    `slowed_to_cool` has the devices that it is slowing down, and how far. `firmware_limits` are the Raspberry Pi's
    bits: 1 under-voltage, 2 clock capped, 4 throttled, 8 soft temperature limit.
    """

    monotonic_s: float
    pid: int
    cores: int | None
    load_average_1m: float
    runnable: int
    cpu_busy_s: float
    cpu_total_s: float
    cpu_steal_s: float
    cpu_io_wait_s: float
    cpu_idle_s: float
    own_cpu_s: float
    memory_available_bytes: int
    swap_used_bytes: int
    swapped_pages: int
    governors: dict[str, str]
    frequencies_khz: dict[str, list[int | None]]
    throttle_count: int
    temperatures_c: dict[str, float]
    trip_points_c: dict[str, dict[str, float]]
    slowed_to_cool: dict[str, int]
    firmware_limits: int | None
    cgroup_throttled: int
    cgroup_throttled_s: float
    on_battery: bool | None


class Environment(TypedDict):
    """The state before and after a session; `unwatched` is True if the session ended before the state was reported.

    The results database also keeps the session's process and candidates, and the time at which the state arrived.
    """

    before: Snapshot
    after: Snapshot
    settings: NotRequired[MachineSettings]
    unwatched: NotRequired[bool]
    process: NotRequired[int]
    candidates: NotRequired[list[str]]
    at_s: NotRequired[float]


class EnergyMeter(TypedDict):
    """The energy counters to read around a block, with their period and step."""

    counters: Sequence[str]
    period_ns: int
    step_uj: int


class EnergySpent(TypedDict, total=False):
    """The energy of a block, or why it is unknown."""

    spent_uj: int
    wall_ns: int
    unknown: str


class CounterFound(TypedDict):
    """An energy counter: its name, what it counts, and its file."""

    name: str
    domain: str
    path: str


class EnergyCounters(TypedDict):
    """The energy counters of a machine; see `gnomon.agent.energy.probe`."""

    counters: list[CounterFound]
    period_ns: int
    step_uj: int
    power_w: float
    still: list[str]
    others: list[str]


class EnergyRefused(TypedDict):
    """Why a machine has no usable energy counter, and the next step."""

    refused: str
    hint: str


class WarmUp(TypedDict):
    """Calls of a fresh process before the first block."""

    warm_count: int
    warm_s: float


class BlockLimits(TypedDict):
    """The length of a block: samples of `sample_ns`, or the `slots` of a grid with one call each."""

    sample_ns: int
    seconds: float
    least: int
    most: int
    rewarm_s: float
    energy: NotRequired[EnergyMeter]
    every_ns: NotRequired[int]
    slots: NotRequired[int]


class ProfileLimits(TypedDict):
    """The length of a profiled block."""

    seconds: float
    most: int


class Opening(TypedDict):
    """How to open a job: its outputs for `seeds` are saved to a file, or compared with the outputs in a file."""

    job: Job
    profiled: NotRequired[bool]
    save: NotRequired[str]
    check: NotRequired[str]
    seeds: NotRequired[list[int]]


class Candidate(TypedDict):
    """A candidate to measure; see docs/agent.md#a-measuring-request."""

    key: str
    open: Opening
    environment: NotRequired[dict[str, str]]
    tolerance: NotRequired[float]
    calls_least: NotRequired[int]
    visits: NotRequired[list[int]]
    process: NotRequired[str]
    stay: NotRequired[bool]


class MeasuringProtocol(TypedDict):
    """A measuring request without its candidates; everything except `machine` and `keep` comes from the effort."""

    rounds: int
    laggard: float
    timeout_s: float
    warm: WarmUp
    block: BlockLimits
    profile: ProfileLimits
    watched: NotRequired[bool]
    machine: NotRequired[Machine]
    keep: NotRequired[bool]


@final
class MeasuringRequest(MeasuringProtocol):
    """Candidates to measure in interleaved rounds."""

    seed: str | int
    candidates: list[Candidate]


class JobCommand(TypedDict):
    """A command for one of a worker's open jobs, identified by its name; "" if there is only one job."""

    job_name: NotRequired[str]


class OpenCommand(JobCommand, WarmUp, Opening):
    """Load a job."""

    do: Literal["open"]


class BlockCommand(JobCommand, BlockLimits):
    """Measure a block of an open job."""

    do: Literal["block"]


class ProfileCommand(JobCommand, ProfileLimits):
    """Measure a profiled block, which ends the job."""

    do: Literal["profile"]
    least: int


class CloseCommand(JobCommand):
    """Release a job."""

    do: Literal["close"]


class WakeCommand(TypedDict):
    """Import the modules that every job needs, so that opening a job takes less time."""

    do: Literal["wake"]


class ProbeCommand(TypedDict):
    """Report a runtime's version and backends, and the versions of pip packages."""

    do: Literal["probe"]
    runtime: str
    packages: NotRequired[list[str]]
    process: NotRequired[str]


class SupportsCommand(TypedDict):
    """Report which operators of a model the runtime's backends support."""

    do: Literal["supports"]
    segment: RuntimeModel
    process: NotRequired[str]


class EnergyCommand(TypedDict):
    """Report the energy counters with these names, or the usual ones."""

    do: Literal["energy"]
    counters: list[str]
    process: NotRequired[str]


FreshCommand = ProbeCommand | SupportsCommand | EnergyCommand
"""Commands for fresh workers. Consecutive commands with the same `process` go to the same worker."""

Command = WakeCommand | OpenCommand | BlockCommand | ProfileCommand | CloseCommand | FreshCommand


class KeyedCommand(TypedDict):
    """A command with the key for its answer."""

    key: str
    command: FreshCommand


@final
class CommandRequest(TypedDict):
    """Commands for fresh workers."""

    commands: list[KeyedCommand]
    timeout_s: float
    machine: NotRequired[Machine]


Request = MeasuringRequest | CommandRequest


class Place(TypedDict):
    """The backend of some operators, given by name or index, as the runtime reports it.

    For an accelerator, `device` is its name, and `device_memory_bytes` is the memory that the model uses there. If the
    runtime was asked to explain itself and gave a reason, `reason` says why the operators do not run on another
    backend. The other keys are specific to one runtime.
    """

    operators: Sequence[str | int]
    backend: str
    reason: NotRequired[str]
    device: NotRequired[str]
    device_memory_bytes: NotRequired[int | None]
    precision: NotRequired[str]
    mnn_backend: NotRequired[int]
    functions: NotRequired[list[str]]


class KernelTimes(TypedDict):
    """The times of a kernel, and the operators that it computes, given by name or index."""

    name: str
    sources: Sequence[str | int]
    backend: str
    wall_ns: list[int]


class Difference(TypedDict):
    """The largest difference between outputs, absolute and relative to the reference's largest magnitude."""

    relative: float
    absolute: NotRequired[float]


class Sensitivity(Difference):
    """The sensitivity of outputs to the inputs.

    `finite` is the lowest share of finite values among the outputs, and `again` is the relative difference between
    outputs computed twice from the same inputs.
    """

    finite: float
    again: float


class Pace(TypedDict):
    """How punctual paced calls were: the delay of each call after its slot, and the numbers of late calls and skipped
    slots.
    """

    delay_ns: list[int]
    late: int
    skipped: int


class OpenedFacts(TypedDict, total=False):
    """Facts about an opened job. `program` means that each visit runs a program in a process of its own."""

    load_ns: int
    first_call_ns: int
    bare_rss_bytes: int | None
    where: list[list[Place]]
    sensitivity: Sensitivity
    difference: Difference
    program: bool


class BlockFacts(TypedDict):
    """A block of samples of `inner` calls each; `waits` counts how often the process gave up its core voluntarily.

    `per_s` is the number of calls per second if several calls run at once.
    """

    wall_ns: list[int]
    cpu_ns: list[int]
    inner: int
    peak_rss_bytes: int | None
    waits: NotRequired[int | None]
    operators: NotRequired[list[KernelTimes]]
    energy: NotRequired[EnergySpent]
    pace: NotRequired[Pace]
    per_s: NotRequired[float]
    state: NotRequired[Snapshot]


class FailureFacts(TypedDict):
    """The failure of a process: the kind as in `gnomon.core.sample.Failure`, the signal that ended the process, and the
    next step.

    `segment` is the number of the job's segment that was refused on loading.
    """

    kind: str
    message: str
    log_tail: str
    transient: bool
    signal: NotRequired[str]
    segment: NotRequired[int]
    block: NotRequired[int]
    hint: NotRequired[str]


class DeviceFound(TypedDict):
    """An accelerator: its backend, its name, whether it is software that runs on the processor, and its memory."""

    backend: str
    name: str
    software: bool
    memory_bytes: NotRequired[int | None]


class Provider(TypedDict, total=False):
    """An ONNX Runtime execution provider: the name that sessions report, and everything that a session needs to use it.

    `excludes` is the option that excludes nodes by name. `software` means that the device is software that runs on the
    processor, and `memory` means that the device has its own memory. `module` is the plugin's module, and `refused` is
    the reason why the provider cannot be used.
    """

    provider: str
    options: dict[str, str]
    excludes: str
    device: str
    software: bool
    memory: bool
    module: str
    refused: str


class ProbeDetails(TypedDict, total=False):
    """What a probe reports besides the version and the backends; `lacking` says why a backend is missing.

    The keys from `accelerators` on are specific to one runtime, and a third party's runtime may have others.
    """

    devices: list[DeviceFound]
    lacking: dict[str, str]
    packages: dict[str, str]
    accelerators: dict[str, Provider]
    precisions: list[str]
    usual_precision: str
    processor: str
    apache_tvm_ffi: str
    linker: str
    program: str
    tells_memory: bool


class ProbeAnswer(ProbeDetails):
    """The answer of a runtime's driver to a probe."""

    version: str
    backends: list[str]


Answer = Mapping[str, Any]
"""The answer to a command for a fresh worker: `ProbeAnswer`, `EnergyCounters`, or the result of a driver's `supports`,
which is private to the driver and its adapter.
"""


class SignalEvent(TypedDict):
    """A sign of life, or the end of a request."""

    event: Literal["alive", "end"]


class AnswerEvent(TypedDict):
    """The answer to the command with this key."""

    event: Literal["answer"]
    key: str
    answer: Answer


class OpenedEvent(OpenedFacts):
    """A candidate is open."""

    event: Literal["opened"]
    candidate: str


class BlockEvent(BlockFacts):
    """A visit of a candidate was measured."""

    event: Literal["block"]
    candidate: str
    block: int
    started_at_s: float


class FailureEvent(FailureFacts):
    """The failure of the candidate or command whose key is `candidate`, or of the machine's settings if it is empty."""

    event: Literal["failure"]
    candidate: str
    stage: str


class EnvironmentEvent(TypedDict):
    """The machine before and after the visits."""

    event: Literal["environment"]
    data: Environment


Event = SignalEvent | AnswerEvent | OpenedEvent | BlockEvent | FailureEvent | EnvironmentEvent
