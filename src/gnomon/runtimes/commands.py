"""A declared command as a runtime, with a configuration for each combination of its choices.

On a device without Python, gnomon starts the command itself, and `CommandProgram` reads the command's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from gnomon.agent.drivers.command.reading import Unreadable
from gnomon.agent.drivers.command.report import filled, placeholders, report_of
from gnomon.devices.program import Attempt, Command, Order, ProgramRefused, Shell, Taken
from gnomon.errors import UsageError
from gnomon.models.model import FORMATS, UNREAD
from gnomon.runtimes.base import Assignment, Configuration, PlacedModel, Probe, RunSettings
from gnomon.runtimes.declared import MADE_OF_INPUTS, Declaration
from gnomon.runtimes.whole import WholeModelRuntime, environment_configurations
from gnomon.system.process import Completed
from gnomon.wire import Answer, CommandSpec, FreshCommand, Options, ProbeAnswer, RuntimeModel, Segment

_MOST_CONFIGURATIONS = 64


class CommandRuntime(WholeModelRuntime):
    """The adapter of a declared command, with a configuration for each combination of its choices."""

    driver = "command"
    wheels: tuple[str, ...] = ()

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.name = declaration.name
        self.formats = frozenset(declaration.formats or (*FORMATS, UNREAD))
        self.hint = declaration.hint or "Install it there, or give its full path."
        self.threaded = any("{threads}" in text for text in declaration.texts)

    @property
    def probing(self) -> FreshCommand:
        """The command that finds the program and its version on the device."""
        usual = {name: values[0] for name, values in self.declaration.choices.items() if values}
        options = {"command": self.declaration.spec(usual), "probing": True}
        return {"do": "supports", "segment": {"runtime": self.driver, "model": "", "options": options}}

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """One configuration for each combination of the choices in each environment."""
        choices = self.declaration.choices
        combinations = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
        if len(combinations) > _MOST_CONFIGURATIONS:
            raise UsageError(
                f"the choices of {self.name} make {len(combinations)} configurations",
                hint=f"At most {_MOST_CONFIGURATIONS} are allowed: choose values with --command {self.name}:KEY=VALUE.",
            )
        return tuple(
            configuration
            for own in combinations
            for configuration in environment_configurations(
                self.name,
                settings,
                (self.name,),
                *(f"{key}={value}" for key, value in own.items() if len(choices[key]) > 1),
                options={"threads": settings.threads, "command": self.declaration.spec(own)},
                reported={self.name: self.name},
            )
        )

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> Segment:
        """The whole model, with its name: the driver does not know the name, because the file may have another one on
        the device.
        """
        segment = super().segment(model, configuration, assignment)
        spec: CommandSpec = segment["options"]["command"]
        # AMD's compiler for Caffe writes dpu_NAME.elf, and a server there knows the kernel as NAME.
        named = {**spec.get("choices", {}), "model_name": model.graph.name.removeprefix("dpu_")}
        segment["options"] = {**segment["options"], "command": {**spec, "choices": named}}
        return segment


_OUTPUTS = "outputs.{index}"
"""The names of output files that are fetched from a device without Python."""
_LOOK = 'command -v "$1" || { echo "there is no program $1 on its PATH" >&2; exit 1; }'
_NEEDS_PYTHON = frozenset({"files", "prepare", "file"})


class CommandProgram:
    """The driver of declared commands for devices without Python, where a command needs only its program."""

    name = "command"

    def probe(self, shell: Shell) -> ProbeAnswer:
        """Report nothing, because each declaration names its own program."""
        return {"version": "", "backends": []}

    def supports(self, attempt: Attempt, options: Options) -> Answer:
        """Check that one process of the command succeeds or, when only probing, that its program exists."""
        reason = attempt(options)
        if reason:
            raise ProgramRefused(reason)
        return {"version": "", "backends": [options["command"]["name"]]}

    def command(self, answer: ProbeAnswer, segment: RuntimeModel, order: Order) -> Command:
        """The words of the declaration with their placeholders filled."""
        options = segment["options"]
        spec: CommandSpec = options["command"]
        if options.get("probing"):
            program = filled(spec["run"][0], spec.get("choices", {}))
            return Command(argv=("sh", "-c", _LOOK, "sh", program), environment={})
        words = [*spec["run"], *(spec.get("profile", ()) if order.trace is not None else ())]
        unknown = _NEEDS_PYTHON & spec.keys() | placeholders(words) & MADE_OF_INPUTS
        if unknown:
            raise ProgramRefused(f"on a device without Python, a command cannot use {' and '.join(sorted(unknown))}")
        if not spec.get("read"):
            raise ProgramRefused("on a device without Python, the process of a command is not timed: declare `read`")
        if spec.get("outputs", _OUTPUTS) != _OUTPUTS:
            raise ProgramRefused(f"on a device without Python, the outputs of a command must be called {_OUTPUTS}")
        values = {
            **spec.get("choices", {}),
            "model": segment["model"],
            "threads": str(options.get("threads", 1)),
            "runs": str(order.runs),
            "warm": str(order.warm_runs),
            "inputs": order.inputs or "",
            "folder": ".",
        }
        environment = {name: filled(value, values) for name, value in spec.get("environment", {}).items()}
        return Command(argv=tuple(filled(word, values) for word in words), environment=environment)

    def read(self, segment: RuntimeModel, ended: Completed, traces: Mapping[str, bytes]) -> Taken:
        """The times that the command printed; its operators are not read here."""
        spec: CommandSpec = segment["options"]["command"]
        if segment["options"].get("probing"):
            return Taken(load_ns=0, warm_ns=(), calls_ns=(), mean_ns=0)
        printed = f"{ended.stdout}\n{ended.stderr}"
        try:
            calls = report_of(spec, printed, lambda name: "", profiled=False, wall_ns=0).calls_ns
        except Unreadable as error:
            raise ProgramRefused(f"{spec['run'][0]}: {error}") from error
        each = tuple(calls) if spec.get("each", "call") == "call" else ()
        return Taken(load_ns=0, warm_ns=(), calls_ns=each, mean_ns=sum(calls) / len(calls))
