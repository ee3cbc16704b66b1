"""The interface of a runtime, and the values that it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, Protocol, Self, cast

from gnomon.core.graph import Graph
from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.models.model import Model
from gnomon.wire import Answer, Feed, FreshCommand, Job, Options, Packaged, ProbeDetails, RuntimeModel, Segment

if TYPE_CHECKING:
    from gnomon.runtimes.declared import Declaration

#: Sends commands, by key, to fresh processes of the agent on the device; returns the answer or the failure for each
#: key.
Ask = Callable[[Mapping[str, FreshCommand]], Mapping[str, "Answer | Failure"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A device, other than the processor, on which a backend computes, with the runtime's name for it.

    `software` means that the device is a program on the processor itself: it exists for tests, is used only on request,
    and its times say nothing about a real device. `memory_bytes` is None if the runtime does not report it.
    """

    backend: str
    name: str
    software: bool
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A runtime as the agent found it on a device: its version, its backends, and further details.

    In `details`, any runtime may have `devices`, the accelerators of its backends, and `lacking`, which maps each
    missing backend to the reason why it is missing.
    """

    version: str
    backends: tuple[str, ...]
    details: ProbeDetails = field(default_factory=ProbeDetails)

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """The probe in an agent's answer."""
        details = cast(ProbeDetails, {k: v for k, v in answer.items() if k not in {"version", "backends"}})
        return cls(version=answer["version"], backends=tuple(answer["backends"]), details=details)

    @property
    def accelerators(self) -> tuple[Accelerator, ...]:
        """The devices, other than the processor, on which backends compute."""
        # In older records, OpenVINO reported only names by backend, which were never used as accelerators.
        return tuple(Accelerator(**row) for row in self.details.get("devices", ()) if isinstance(row, Mapping))

    def requested(self, runtime: str, settings: RunSettings) -> tuple[str, ...]:
        """The requested backends, or all if no backend or the runtime itself is requested. UsageError for a missing
        backend.
        """
        for name in settings.backends:
            if name not in (*self.backends, runtime):
                raise self.refused(runtime, name)
        everything = not settings.backends or runtime in settings.backends
        return tuple(name for name in self.backends if everything or name in settings.backends)

    def refused(self, runtime: str, backend: str) -> UsageError:
        """The error for a requested backend that is missing."""
        why = self.details.get("lacking", {}).get(backend)
        message = f"{runtime} {self.version} on this device has no backend {backend!r}" + (f": {why}" if why else "")
        return UsageError(message, hint=f"It has: {', '.join(self.backends)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The runtime settings that the user requests: threads, backends, precisions, environments, session options.

    `threads` is the number of threads that a runtime may use; each number in `more_threads` adds a configuration.
    `backends` limits the backends (empty: all that are found). `precisions` are tried in addition to float32 if the
    processor has them. `environments` are sets of environment variables to try in addition to the clean environment;
    their outputs are checked against the clean reference. `options` are sets of session options, each with its runtime;
    their outputs are checked in the same way. `libraries` of operators are loaded in all configurations; they are given
    by runtime, as a mapping from each library's path on the device to its SHA-256. Libraries are code: only a command
    line or a call names them, never a file that is read. The same holds for `commands`, which are programs measured
    like runtimes. If `usual` is set, each runtime runs with one thread, with a thread for each core that a process may
    use, and with nothing set. If `every` is set, it runs with 1, 2, 4, .. threads and with a thread for each core. If
    `by_itself` is "too", a runtime with several devices also runs with its own choice among them; if it is "only",
    nothing but the runtimes' own choices is tried.
    """

    threads: int = 1
    backends: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    environments: tuple[Mapping[str, str], ...] = ()
    options: tuple[tuple[str, Mapping[str, str]], ...] = ()
    libraries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    commands: tuple[Declaration, ...] = ()
    more_threads: tuple[int, ...] = ()
    usual: bool = False
    every: bool = False
    by_itself: Literal["", "too", "only"] = ""

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """All numbers of threads to try."""
        return (self.threads, *self.more_threads)

    def loading(self, runtime: str) -> Options:
        """The option of a segment that makes a runtime load its libraries."""
        return {"libraries": dict(self.libraries[runtime])} if runtime in self.libraries else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The settings of a runtime's whole process, and the backends to which operators can be assigned within it.

    `name` is unique on a device ("onert", "openvino[bf16]", "onert[RUY_PATHS=16]"). `backends` begins with the default
    backend, which takes all operators that are not assigned to another. `tolerance` is the largest difference of
    outputs, relative to the reference's largest magnitude, that does not count as wrong in this precision. `reported`
    maps the loaded runtime's own names of its backends to the names here; it is empty if only a profiled run reports
    places, with the names used here. `transfers` means that the backends have separate memories, so that a tensor is
    copied when it moves between them. A profiled run then runs each operator separately, with copies of everything that
    it reads and writes; with `steps_within`, the model runs as usual, and the time of an operator includes the copies
    that it causes. `accelerators` are the devices, other than the processor, on which its backends compute.
    """

    runtime: str
    name: str
    backends: tuple[str, ...]
    options: Options
    environment: Mapping[str, str] = field(default_factory=dict)
    precision: str = "float32"
    tolerance: float = 1e-3
    reported: Mapping[str, str] = field(default_factory=dict)
    transfers: bool = False
    steps_within: bool = False
    accelerators: tuple[Accelerator, ...] = ()

    @property
    def clean(self) -> bool:
        """True if this is a runtime's own configuration, without environment variables, session options or a
        command.
        """
        return not self.environment and not {"session", "command"} & self.options.keys()

    @property
    def checked(self) -> bool:
        """True if the outputs can be compared; a command may write none."""
        return "outputs" in self.options.get("command", {"outputs": ""})

    @property
    def usual(self) -> bool:
        """True if this configuration sets nothing: the runtime runs with its own defaults, and gets its inputs in the
        way in which programs usually pass them.
        """
        return bool(self.options.get("usual"))

    @property
    def apart(self) -> bool:
        """True if this configuration takes only whole models: it sets nothing, leaves the choice of devices to the
        runtime, or is a command.
        """
        return self.usual or bool(self.options.keys() & {"command", "order"})

    @property
    def serial(self) -> bool:
        """True if one thread does all the work, so that its CPU time is that of a call."""
        return self.options.get("threads", 1) == 1 and not self.apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """A way to run a runtime in which the model is changed as little as possible; `label` describes the way for
    people.
    """

    label: str
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedModel:
    """A model on a device: its graph, its path there, and the tensors of a job that it reads and writes, in order.

    `graph` is the analysed graph, with fixed shapes and folded constants; the file at `path` may have more operators
    and open dimensions. For a converted model (ONNX to ncnn), it is not the graph of the user's own file, but `inputs`
    and `outputs` always have the names in the user's file. `named` is the path of a copy for profiled runs, in which
    the nodes have the graph's names; "" if the file itself has these names. `dims` are the values of the named
    dimensions that the file leaves open.
    """

    graph: Graph
    path: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    named: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, path: str) -> Self:
        """A model whose tensors have the names in its graph."""
        inputs, outputs = ([graph.tensors[index].name for index in side] for side in (graph.inputs, graph.outputs))
        return cls(graph=graph, path=path, inputs=tuple(inputs), outputs=tuple(outputs))

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shapes of the inputs by name, as drivers accept them in the option `shapes`."""
        own = (self.graph.tensors[index].shape for index in self.graph.inputs)
        return {name: list(shape or ()) for name, shape in zip(self.inputs, own, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """The operators that each backend of a configuration takes, and the failures of backends.

    `operators[backend]` are operator indices. `failures[backend]` says why a backend took no operators, or which
    operators it lacks. `options` are needed to run this model in the configuration. `folded` operators do not exist
    when the model runs: each belongs to the backend of the operator into which the runtime folds it. `copy` says why a
    copy of the file is run instead of the file itself; "" if the file itself is run.
    """

    operators: Mapping[str, frozenset[int]]
    failures: Mapping[str, Failure] = field(default_factory=dict)
    options: Options = field(default_factory=dict)
    folded: Mapping[int, int] = field(default_factory=dict)
    copy: str = ""


#: Backend of each operator, by the operator's index; an empty mapping means the default backend everywhere.
Assignment = Mapping[int, str]


class Runtime(Protocol):
    """The host's side of a runtime. Stateless; it never imports the runtime, which lives on the device.

    The order of calls is: `configurations` once for each device, then `support` for each model and configuration, then
    `segment` and `package` any number of times. A runtime may have further attributes. `plain` is a tuple of `Plain`,
    the plainest first; their outputs for the user's own file are used to check results. `tunings` is a tuple of
    `gnomon.runtimes.tunings.Tuning`, the settings that a search may choose. `usual` is a function from a probe to the
    configuration that sets nothing (option `usual`), or to None. `session_options` means that its driver accepts the
    options `session` (strings by name, as in the runtime) and `libraries`. `float64` is false if it computes a float64
    model in float32. `driver` is the import path of its driver (`package.module:Class`); without it, the driver has the
    runtime's name. `chained` are additional options of a segment that shares a process with others. `by_names` means
    that its profiler identifies operators only by the names of nodes. `resolution_s` is the profiler's resolution in
    seconds, if coarser than a nanosecond. `streams` means that calls from several threads compute at the same time.
    Everything that may crash or hang happens in the agent's processes, behind `ask`. Methods raise only
    `gnomon.errors.GnomonError`.
    """

    name: str
    #: Graph.format values that the runtime loads.
    formats: frozenset[str]
    #: The pip requirements of the runtime on a device, including a third party's driver. They are installed on a device
    #: that lacks them, and listed in packages.
    wheels: tuple[str, ...]

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """The configurations worth trying. UsageError if the request names a missing backend."""

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """Ask the runtime on the device which operators each backend takes."""

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> Segment:
        """The segment (docs/agent.md) that the agent loads to run the model under an assignment."""

    def package(self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path) -> Packaged:
        """Write the files that the runtime needs into `folder`; the model's path is relative to `folder`."""


def portable(options: Options) -> Options:
    """A segment's options with the paths of its operator libraries reduced to file names; their SHA-256 is kept."""
    if "libraries" not in options:
        return options
    return {**options, "libraries": {PurePosixPath(path).name: d for path, d in options["libraries"].items()}}


def resolution_of(runtime: Runtime) -> float:
    """The resolution of a runtime's profiler in seconds, below which times are unknown; 0 for a nanosecond or finer."""
    return float(getattr(runtime, "resolution_s", 0.0))


def by_names(runtime: Runtime) -> bool:
    """Return True if a runtime's profiler identifies operators only by the names of nodes, which a file may lack."""
    return bool(getattr(runtime, "by_names", False))


class Named(Protocol):
    """An object with a runtime's name."""

    name: str


def driver_of(runtime: Named) -> str:
    """The agent's name for a runtime's driver: the import path of a third party's driver, otherwise the
    runtime's name.
    """
    return str(getattr(runtime, "driver", runtime.name))


def chained_options(runtime: Runtime) -> Options:
    """The additional options of a runtime's segment in a chain."""
    options: Options = getattr(runtime, "chained", {})
    return options


def loads(runtime: Runtime) -> str:
    """The library that takes up most of the start of a runtime's process: one that several runtimes share (PyTorch), or
    the runtime's own.
    """
    return str(getattr(runtime, "loads", runtime.name))


def whole_segment(driver: str, model: PlacedModel, options: Options) -> Segment:
    """A segment that binds each input and output of a model to the buffer of the same name."""
    return {
        "runtime": driver,
        "model": model.path,
        "options": dict(options),
        "inputs": [[name, name] for name in model.inputs],
        "outputs": [[name, name] for name in model.outputs],
    }


def trial_answers(
    ask: Ask, driver: str, model: PlacedModel, options: Mapping[str, Options]
) -> tuple[dict[str, Answer], dict[str, Failure]]:
    """The runtime's answers about a model with each of these sets of options, each from a process of its own, and the
    failures.
    """
    segments: dict[str, RuntimeModel]
    segments = {key: {"runtime": driver, "model": model.path, "options": own} for key, own in options.items()}
    answers = ask({key: {"do": "supports", "segment": segment} for key, segment in segments.items()})
    failures = {key: answer for key, answer in answers.items() if isinstance(answer, Failure)}
    return {key: answer for key, answer in answers.items() if not isinstance(answer, Failure)}, failures


def whole_job(graph: Graph, segment: Segment, *, seed: int = 0, feeds: Mapping[str, Feed] | None = None) -> Job:
    """The job that runs a model with known shapes in one segment. Inputs without `feeds` are random."""
    inputs, outputs = ([graph.tensors[index] for index in side] for side in (graph.inputs, graph.outputs))
    return {
        "tensors": {t.name: {"shape": list(t.shape or ()), "dtype": t.dtype} for t in (*inputs, *outputs)},
        "feeds": {t.name: (feeds or {}).get(t.name, {}) for t in inputs},
        "outputs": [t.name for t in outputs],
        "seed": seed,
        "segments": [segment],
    }


def environment_variants(settings: RunSettings, runtime: str = "") -> Sequence[tuple[str, Mapping[str, str]]]:
    """The clean environment, then each requested environment; each has its label for the configuration's name.

    An environment with one of gnomon's own variables (``GNOMON_TVM_..``) applies only to the runtime that the variable
    names.
    """
    own = f"GNOMON_{runtime.upper()}_"
    meant = [e for e in settings.environments if all(k.startswith(own) for k in e if k.startswith("GNOMON_"))]
    return [("", {}), *((",".join(f"{k}={v}" for k, v in sorted(e.items())), e) for e in meant)]
