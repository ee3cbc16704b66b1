"""The values that the host and the agent exchange as JSON (docs/agent.md), and plan.json of a package: types alone.

The agent imports them for the type checker only, so that no process of a device loads this module. The host checks by
them what an agent writes (`gnomon.measure.link.event_of`), by pydantic, which wants `typing_extensions` of Python 3.11.
It has no ``from __future__ import annotations``, with which that does not see which keys are required.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, final

from typing_extensions import TypedDict

Options = Mapping[str, Any]
"""The options of a segment: each runtime has its own, a third party's runtime too."""

Details = Mapping[str, Any]
"""A runtime's report of itself in its own words; the keys are of that runtime alone."""


class OperatorTable(TypedDict):
    """Where a command reports the times of operators; see `gnomon.agent.drivers.command.reading.readings`."""

    read: str
    label: str
    unit: NotRequired[str]
    file: NotRequired[str]


class CommandSpec(TypedDict):
    """A declared command, with one value for each of its choices; see `gnomon.runtimes.commands.Declaration`."""

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
    """A buffer. Its shape is None, or has a -1, where only the runtime tells it; those of one `slab` share memory."""

    shape: Sequence[int] | None
    dtype: str
    slab: NotRequired[int | None]


class Feed(TypedDict, total=False):
    """The values of an input: a file's, these, those drawn between two ends; empty for those drawn by default."""

    file: str
    values: Sequence[float]
    least: float
    most: float


class RuntimeModel(TypedDict):
    """A model file, the runtime that loads it (its driver's name), and the options."""

    runtime: str
    model: str
    options: Options


class Segment(RuntimeModel):
    """A model whose inputs and outputs are bound: pairs of a name in the model and a tensor of the job."""

    inputs: list[list[str]]
    outputs: list[list[str]]


class Packaged(RuntimeModel):
    """A model in a package, with what its runtime adds: text for README.txt, and variables for environment.sh."""

    readme: NotRequired[str]
    variables: NotRequired[Mapping[str, str]]


class JobInputs(TypedDict):
    """The part of a job that its inputs are made from."""

    tensors: dict[str, Tensor]
    feeds: dict[str, Feed]
    seed: int


class Job(JobInputs):
    """A chain of one or more models over shared buffers."""

    outputs: list[str]
    segments: list[Segment]


class PlanJob(Job):
    """The job, and the environment of its process."""

    environment: dict[str, str]


class PlanOperator(TypedDict):
    """An operator of the model, and the backend that it was placed on."""

    index: int
    name: str
    type: str
    backend: str | None


class Versions(TypedDict, total=False):
    """The software and the processor of a device, as far as they are known; `packages` are pip's."""

    python: str | None
    processor: str | None
    packages: dict[str, str]
    runtimes: dict[str, str]


class PlanHead(TypedDict):
    """How the file begins; `model` has the name and the SHA-256 of the model's file."""

    format: str
    version: int
    gnomon: str
    model: dict[str, str]
    proved_with: NotRequired[Versions]


class Plan(PlanHead):
    """The whole file. `files` has the SHA-256 of each file of the package; `requirements` are for pip."""

    requirements: list[str]
    operators: list[PlanOperator]
    files: dict[str, str]
    job: PlanJob


class Machine(TypedDict, total=False):
    """Settings to make while something is measured: the cores to use, the frequency governor."""

    pin: list[int]
    governor: str


class MachineSettings(Machine, total=False):
    """The settings that were made, and the governors that the cores had before."""

    governors_before: dict[str, str]


class Snapshot(TypedDict, total=False):
    """The state of a machine at one moment, as far as its kernel tells it.

    `cores` are those that the process may use. `runnable` counts the processes that want to run, this one among them.
    cpu_busy_s and cpu_total_s are of all cores since boot, cpu_steal_s was taken by other virtual machines, own_cpu_s
    by this process and its ended children. `swapped_pages` went in and out since boot. `frequencies_khz` are current,
    lowest, highest allowed, highest of the hardware, a core. `trip_points_c` are by zone the lowest temperature of
    each type (passive, hot, critical) from which the kernel slows down or stops the machine, `slowed_to_cool` what it
    slows down now, and how far. `firmware_limits` are the Raspberry Pi's bits: 1 under-voltage, 2 clock capped,
    4 throttled, 8 soft temperature limit.
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
    """The state before and after a session; `unwatched` where the session ended before it was reported.

    The results database also keeps of which process and candidates it is, and when it came.
    """

    before: Snapshot
    after: Snapshot
    settings: NotRequired[MachineSettings]
    unwatched: NotRequired[bool]
    process: NotRequired[int]
    candidates: NotRequired[list[str]]
    at_s: NotRequired[float]


class EnergyMeter(TypedDict):
    """The energy counters to read around a block, how long and how far they move."""

    counters: Sequence[str]
    period_ns: int
    step_uj: int


class EnergySpent(TypedDict, total=False):
    """The energy of a block, or why it is unknown."""

    spent_uj: int
    wall_ns: int
    unknown: str


class CounterFound(TypedDict):
    """An energy counter: its name, what it counts, its file."""

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
    """Why a machine has no energy counter, and the next step."""

    refused: str
    hint: str


class WarmUp(TypedDict):
    """Calls of a fresh process before the first block."""

    warm_count: int
    warm_s: float


class BlockLimits(TypedDict):
    """How long a block lasts: samples of `sample_ns`, or the `slots` of a grid with a call each."""

    sample_ns: int
    seconds: float
    least: int
    most: int
    rewarm_s: float
    energy: NotRequired[EnergyMeter]
    every_ns: NotRequired[int]
    slots: NotRequired[int]


class ProfileLimits(TypedDict):
    """How long a profiled block lasts."""

    seconds: float
    most: int


class Opening(TypedDict):
    """How a job is opened: its outputs for `seeds` are saved to a file, or compared with those of one."""

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
    """A measuring request without its candidates: the effort decides it, but for `machine` and `keep`."""

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
    """A command for one of the jobs that a worker holds open, by its name; "" where there is one."""

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
    """Import what every job needs, so that opening one takes less."""

    do: Literal["wake"]


class ProbeCommand(TypedDict):
    """Report a runtime's version and backends, and the versions of pip packages."""

    do: Literal["probe"]
    runtime: str
    packages: NotRequired[list[str]]
    process: NotRequired[str]


class SupportsCommand(TypedDict):
    """Report which operators of a model a runtime's backends take."""

    do: Literal["supports"]
    segment: RuntimeModel
    process: NotRequired[str]


class EnergyCommand(TypedDict):
    """Report the energy counters of these names, or the usual ones."""

    do: Literal["energy"]
    counters: list[str]
    process: NotRequired[str]


FreshCommand = ProbeCommand | SupportsCommand | EnergyCommand
"""Commands for fresh workers. Those of one `process` that follow each other go to one worker."""

Command = WakeCommand | OpenCommand | BlockCommand | ProfileCommand | CloseCommand | FreshCommand


class KeyedCommand(TypedDict):
    """A command, and the key by which it is answered."""

    key: str
    command: FreshCommand


@final
class CommandRequest(TypedDict):
    """One command each for fresh workers."""

    commands: list[KeyedCommand]
    timeout_s: float
    machine: NotRequired[Machine]


Request = MeasuringRequest | CommandRequest


class Place(TypedDict):
    """The backend of some operators, by their names or indices, as the runtime reports it.

    Of an accelerator also its name, and the memory that the model holds there; where it was asked to explain itself,
    the `reason` why they are not elsewhere, if it said one. The other keys are one runtime's own.
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
    """The times of a kernel, and the operators that it computes, by their names or indices."""

    name: str
    sources: Sequence[str | int]
    backend: str
    wall_ns: list[int]


class Difference(TypedDict):
    """How far outputs are off: at most, and relative to the largest magnitude of the reference."""

    relative: float
    absolute: NotRequired[float]


class Sensitivity(Difference):
    """How far outputs move with the inputs.

    `finite` is the smallest share of finite values in any output, `again` the relative difference of outputs that are
    computed a second time.
    """

    finite: float
    again: float


class Pace(TypedDict):
    """How calls kept to their grid: the delay of each after its slot, late calls, skipped slots."""

    delay_ns: list[int]
    late: int
    skipped: int


class OpenedFacts(TypedDict, total=False):
    """The facts of an opened job. `program` says that each visit is a process of a program."""

    load_ns: int
    first_call_ns: int
    bare_rss_bytes: int | None
    where: list[list[Place]]
    sensitivity: Sensitivity
    difference: Difference
    program: bool


class BlockFacts(TypedDict):
    """A block of samples of `inner` calls each; `waits` counts how often the process gave up its core by itself.

    `per_s` is how many calls a second ended where several were made at once.
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
    """How a process failed: the kind as in `gnomon.core.sample.Failure`, the signal that ended it, the next step.

    `segment` is the number of a job's segment that was refused when it was loaded.
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
    """An accelerator: its backend, its name, whether it is a program on the processor, its memory."""

    backend: str
    name: str
    software: bool
    memory_bytes: NotRequired[int | None]


class Provider(TypedDict, total=False):
    """An execution provider of ONNX Runtime: the name that sessions report, and what a session gets it by.

    `excludes` is the option that excludes nodes by name. `software` says that the device is a program on the
    processor, `memory` that it has its own, `module` is the plugin that it is in, `refused` why it is not usable.
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
    """The report of a probe beside version and backends: `lacking` says why a backend is not there.

    The keys from `accelerators` on are one runtime's own, and a third party's runtime may have others.
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
"""The answer to a command for a fresh worker: `ProbeAnswer`, `EnergyCounters`, or what a driver's `supports` returns,
which is private between the driver and its adapter."""


class SignalEvent(TypedDict):
    """A sign of life, or the end of a request."""

    event: Literal["alive", "end"]


class AnswerEvent(TypedDict):
    """The answer to the command of a key."""

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
    """A candidate failed, or the command of that key; or, without a name, the settings of the machine."""

    event: Literal["failure"]
    candidate: str
    stage: str


class EnvironmentEvent(TypedDict):
    """The machine before and after the visits."""

    event: Literal["environment"]
    data: Environment


Event = SignalEvent | AnswerEvent | OpenedEvent | BlockEvent | FailureEvent | EnvironmentEvent
