"""The interface of a runtime, and the values that pass through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, Protocol, Self, cast

from gnomon.core.graph import Graph
from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.models.model import Model
from gnomon.wire import Answer, FreshCommand, Options, Packaged, ProbeDetails, RuntimeModel, Segment, Tensor

if TYPE_CHECKING:
    from gnomon.runtimes.declared import Declaration

#: Puts commands to fresh processes of the agent on the device: key -> command, answered by key -> answer or failure.
Ask = Callable[[Mapping[str, FreshCommand]], Mapping[str, "Answer | Failure"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A device beside the processor that a backend computes on, by the name that the runtime gives it.

    `software` says that it is a program on the processor itself: it is there to test with, is used only where it is
    wished, and its times say nothing of a real one. `memory_bytes` is None where the runtime does not tell it.
    """

    backend: str
    name: str
    software: bool
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A runtime as the agent found it on a device: its version, its backends, and further findings.

    Of these every runtime may have `devices`, the accelerators of its backends, and `lacking`, why a backend that it
    knows is not there.
    """

    version: str
    backends: tuple[str, ...]
    details: ProbeDetails = field(default_factory=ProbeDetails)

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """The probe that an agent's answer tells."""
        details = cast(ProbeDetails, {k: v for k, v in answer.items() if k not in {"version", "backends"}})
        return cls(version=answer["version"], backends=tuple(answer["backends"]), details=details)

    @property
    def accelerators(self) -> tuple[Accelerator, ...]:
        """The devices beside the processor that backends compute on."""
        # In older records OpenVINO told names alone, by backend: those are not accelerators that anything rested on.
        return tuple(Accelerator(**row) for row in self.details.get("devices", ()) if isinstance(row, Mapping))

    def wished(self, runtime: str, wish: RunSettings) -> tuple[str, ...]:
        """The backends that are wished, all where none is or the runtime itself is. UsageError for one not there."""
        for name in wish.backends:
            if name not in (*self.backends, runtime):
                raise self.refused(runtime, name)
        everything = not wish.backends or runtime in wish.backends
        return tuple(name for name in self.backends if everything or name in wish.backends)

    def refused(self, runtime: str, backend: str) -> UsageError:
        """The error for a backend that is wished and not there."""
        why = self.details.get("lacking", {}).get(backend)
        message = f"{runtime} {self.version} on this device has no backend {backend!r}" + (f": {why}" if why else "")
        return UsageError(message, hint=f"It has: {', '.join(self.backends)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The runtime settings that the user asks for: threads, backends, precisions, environments, session options.

    `threads` is how many a runtime may use; with `more_threads` each of those numbers too is a configuration.
    `backends` limits the backends (empty: all that are found). `precisions` are tried beside float32 where the
    processor has them. `environments` are sets of environment variables to be tried beside the clean one; their
    outputs are checked against the clean reference. So are those with `options`, sets of options of
    sessions, each with its runtime. `libraries` of operators, by runtime the SHA-256 of each by its path
    on the device, are loaded in all configurations: they are code, which a command line or a call names, and nothing
    that is read does; so are `commands`, programs that are measured beside the runtimes. With `usual` each runtime is
    also run as a program runs it that sets nothing, and all cores that a process may use there are a number of threads
    beside one; with `every` 1, 2, 4 .. and all cores. `by_itself` says that a runtime of several devices is run as it
    chooses among them too, or that whatever runtimes do by themselves is all that is tried.
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
        """All numbers of threads that are tried."""
        return (self.threads, *self.more_threads)

    def loading(self, runtime: str) -> Options:
        """The option of a segment that has a runtime load its libraries."""
        return {"libraries": dict(self.libraries[runtime])} if runtime in self.libraries else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Settings of a whole process of a runtime, and the backends that operators can be given within it.

    `name` is unique on a device ("onert", "openvino[bf16]", "onert[RUY_PATHS=16]"). `backends` begins with the
    default one, which takes what no other is given. `tolerance` is the largest difference of outputs, relative to
    the reference's largest magnitude, that is not a wrong result in this precision. `reported` maps what the
    loaded runtime itself calls its backends to theirs here; empty where only a profiled run tells, in these names.
    `transfers` says that the backends have memories of their own, so that a tensor that crosses is copied. A profiled
    run then takes operators apart, each with copies of all that it reads and writes; or, with `steps_within`, it is run
    as ever, and tells the time of operators together with the copies that they are the reason of.
    `accelerators` are what its backends compute on beside the processor.
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
        """Whether it is a runtime's own, with neither variables of the environment nor options of sessions."""
        return not self.environment and not {"session", "command"} & self.options.keys()

    @property
    def checked(self) -> bool:
        """Whether its outputs can be compared: a command may leave none."""
        return "outputs" in self.options.get("command", {"outputs": ""})

    @property
    def usual(self) -> bool:
        """Whether it sets nothing: the runtime runs by its own defaults, fed as a program feeds it."""
        return bool(self.options.get("usual"))

    @property
    def apart(self) -> bool:
        """Whether it takes models whole alone: it sets nothing, chooses of devices by itself, or is a command."""
        return self.usual or bool(self.options.keys() & {"command", "order"})

    @property
    def serial(self) -> bool:
        """Whether one thread does the work, so that its CPU time is the time of a call."""
        return self.options.get("threads", 1) == 1 and not self.apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """A way in which a runtime computes with as little done to the model as it can: `label` says it for people."""

    label: str
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedModel:
    """A model on a device: its graph, the path there, and the tensors of a job that it reads and writes, in order.

    `graph` is the analysed one, its shapes fixed and constants folded: the file at `path` may have more operators, and
    leave dimensions open. For a converted model (ONNX to ncnn) it is not the graph of the user's own file, while
    `inputs` and `outputs` always are named as in the user's own. `named` is the path of a copy for profiled runs, whose
    nodes have the graph's names; "" where the file's own names are those. `dims` are the values of the dimensions that
    the file leaves open by a name.
    """

    graph: Graph
    path: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    named: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shapes of the inputs by their names, as drivers take them in the option `shapes`."""
        own = (self.graph.tensors[index].shape for index in self.graph.inputs)
        return {name: list(shape or ()) for name, shape in zip(self.inputs, own, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Which operators each backend of a configuration takes, and how backends failed.

    `operators[backend]` are operator indices. `failures[backend]` says why a backend took none, or which it lacks.
    `options` are those without which this model does not run in the configuration. `folded` operators do not exist when
    the model runs: each lies where the one does into which the runtime folds it. `copy` says why a copy of the file is
    run and not the file itself: "" where it is the file.
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

    The order of calls is: `configurations` once for each device, then `support` for each model and configuration,
    then `segment` and `package` as often as wanted. A runtime may also have `plain`, a tuple of `Plain`, the plainest
    first: results are checked against its outputs for the user's own file; `tunings`, a tuple of
    `gnomon.runtimes.tunings.Tuning`, the settings that a search may choose; `usual`, a function from a probe to the
    configuration that sets nothing (option `usual`), None where it has none; `session_options`, that its driver takes
    the options `session` (texts by name, as the runtime has them) and `libraries`; `float64`,
    false where it computes a model of float64 in float32; `driver`, the import path of its driver
    (`package.module:Class`), without which its name is that; `chained`, the options more that a segment has beside
    others in one process; `by_names`, that its profiler knows operators by the names of nodes alone; and
    `resolution_s`, the seconds in which that counts, where they are coarser than a nanosecond; and `streams`, that
    calls of several threads compute at once. Everything that may
    crash or hang happens in the agent's processes, behind `ask`. Methods raise `gnomon.errors.GnomonError` only.
    """

    name: str
    #: Graph.format values that the runtime loads.
    formats: frozenset[str]
    #: The pip requirements that a device needs to run it, a third party's driver among them: brought to a device that
    #: lacks them, and named by packages.
    wheels: tuple[str, ...]

    def configurations(self, probe: Probe, wish: RunSettings) -> tuple[Configuration, ...]:
        """The configurations worth trying; UsageError where the wish names a backend that is not there."""

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """Which operators each backend takes, found by asking the runtime on the device."""

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> Segment:
        """The segment (docs/agent.md) that the agent loads to run the model under an assignment."""

    def package(self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path) -> Packaged:
        """Write what the runtime needs into `folder`; the model's path is relative to `folder`."""


def portable(options: Options) -> Options:
    """A segment's options with the SHA-256 of its libraries of operators by their names, wherever these lie."""
    if "libraries" not in options:
        return options
    return {**options, "libraries": {PurePosixPath(path).name: d for path, d in options["libraries"].items()}}


def resolution_of(runtime: Runtime) -> float:
    """The seconds in which a runtime's profiler counts, below which no time of an operator is known; 0: fine ones."""
    return float(getattr(runtime, "resolution_s", 0.0))


def by_names(runtime: Runtime) -> bool:
    """Whether a runtime's profiler tells operators by the names of nodes alone, which a file may lack."""
    return bool(getattr(runtime, "by_names", False))


class Named(Protocol):
    """An object with a runtime's name."""

    name: str


def driver_of(runtime: Named) -> str:
    """The agent's name for a runtime's driver: the import path of a third party's, else the runtime's name."""
    return str(getattr(runtime, "driver", runtime.name))


def chained_options(runtime: Runtime) -> Options:
    """The options that a runtime's segment has more where it is one of a chain's."""
    options: Options = getattr(runtime, "chained", {})
    return options


def loads(runtime: Runtime) -> str:
    """The library that takes most of the start of a runtime's process: a shared one (PyTorch), or its own."""
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
    """The runtime's answers about a model with each of these options, each in its own process; and the failures."""
    segments: dict[str, RuntimeModel]
    segments = {key: {"runtime": driver, "model": model.path, "options": own} for key, own in options.items()}
    answers = ask({key: {"do": "supports", "segment": segment} for key, segment in segments.items()})
    failures = {key: answer for key, answer in answers.items() if isinstance(answer, Failure)}
    return {key: answer for key, answer in answers.items() if not isinstance(answer, Failure)}, failures


def job_tensors(graph: Graph) -> dict[str, Tensor]:
    """The buffers of a job for the inputs and outputs of a graph whose shapes are known."""
    tensors = (graph.tensors[index] for index in (*graph.inputs, *graph.outputs))
    return {tensor.name: {"shape": list(tensor.shape or ()), "dtype": tensor.dtype} for tensor in tensors}


def environment_variants(wish: RunSettings, runtime: str = "") -> Sequence[tuple[str, Mapping[str, str]]]:
    """The clean environment, then each wished one with the label that goes into a configuration's name.

    One with a variable of gnomon's own (``GNOMON_TVM_..``) is meant for the runtime of that name, and left out for
    others.
    """
    own = f"GNOMON_{runtime.upper()}_"
    meant = [e for e in wish.environments if all(k.startswith(own) for k in e if k.startswith("GNOMON_"))]
    return [("", {}), *((",".join(f"{k}={v}" for k, v in sorted(e.items())), e) for e in meant)]
