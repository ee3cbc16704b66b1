"""ONNX Runtime: whole models on its CPU provider, or nodes placed one by one on several execution providers of a
session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gnomon.core.graph import Graph
from gnomon.errors import UsageError
from gnomon.installing import pip_line
from gnomon.models.model import Model
from gnomon.runtimes.base import (
    Accelerator,
    Ask,
    Assignment,
    Configuration,
    PlacedModel,
    Plain,
    Probe,
    RunSettings,
    Support,
    trial_answers,
    whole_segment,
)
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import WholeModelRuntime, chooser, environment_configurations, usual_configuration
from gnomon.wire import Options, Packaged, Provider, Segment

_CPU = "cpu"
_PROVIDER = "CPUExecutionProvider"
_OLDEST = (1, 25)
_NEWER = f"onnxruntime>={'.'.join(map(str, _OLDEST))}"
_README = """
The nodes of {model} are marked, so that ONNX Runtime 1.25 or later places them as they were measured. session.json
lists the providers in order, and the options that a session in any language needs. session.py creates such a session,
and prints where each node runs. genai_config.json has the same options as an entry for onnxruntime-genai.
"""


def _optimised(options: Options, value: str) -> Options:
    return {**options, "optimise": value == "on"}


class OnnxRuntime(WholeModelRuntime):
    """The adapter of ONNX Runtime.

    If ONNX Runtime has providers for the device's accelerators, these are further backends of a configuration besides
    "cpu". Accelerators that are programs on the CPU are used only on request. docs/runtimes/onnxruntime.md describes
    the design.
    """

    name = "onnxruntime"
    formats = frozenset({"onnx", "ort"})
    wheels: tuple[str, ...] = ("onnxruntime>=1.23",)
    resolution_s = 1e-6
    streams = True
    by_names = True
    session_options = True
    tunings: tuple[Tuning, ...] = (
        THREADS,
        Tuning(name="optimise", values=("on", "off"), usual=("on", "off"), change=_optimised),
    )
    chained: Mapping[str, object] = {"shared_arena": True}
    plain: tuple[Plain, ...] = (Plain(label="without optimisations", options={"optimise": False}),)

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """One float32 configuration for each environment, on the CPU provider alone or with accelerators. With
        accelerators, another configuration may list them in order: each takes the nodes that it supports, and the CPU
        takes the rest.
        """
        probe.requested(self.name, settings)
        accelerators = _accelerators(probe, settings)
        backends = (_CPU, *accelerators) if accelerators else (self.name,)
        reported = {str(own["provider"]): backend for backend, own in accelerators.items()}
        options: dict[str, object] = {"threads": settings.threads}
        options |= {"accelerators": accelerators} if accelerators else {"provider": _PROVIDER}
        chosen = tuple(
            environment_configurations(
                self.name,
                settings,
                backends,
                options=options,
                reported={_PROVIDER: backends[0], **reported},
                transfers=bool(accelerators),
                steps_within=True,
                accelerators=tuple(
                    Accelerator(backend=name, name=str(own.get("device", "")), software=bool(own.get("software")))
                    for name, own in accelerators.items()
                ),
            )
        )
        more = [chooser(chosen[0], "order", {"order": accelerators})] if accelerators and settings.by_itself else []
        return (*chosen, *more)

    def usual(self, probe: Probe) -> Configuration:
        """A session without options, called by `run`."""
        return usual_configuration(self.name, _PROVIDER)

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """Load the model in a separate process for each backend, to find the nodes that the backend takes.

        With several backends, an accelerator takes the nodes that ONNX Runtime itself would assign to it, except those
        that it refuses when they are placed on it. Nodes that ONNX Runtime folds away go with a neighbour.
        """
        if configuration.transfers and model.graph.format == "ort":  # only nodes of ONNX files can be marked
            return replace(super().support(ask, model, configuration), options={"accelerators": {}})
        if not configuration.transfers:
            whole = super().support(ask, model, configuration)
            if not (whole.failures and model.dims):
                return whole
            # Shape inference may refuse a branch that is never taken with these dimensions. In that case, only the
            # inputs determine them.
            fed = super().support(ask, replace(model, dims={}), configuration)
            return whole if fed.failures else replace(fed, options={"dims": {}})
        every = frozenset(op.index for op in model.graph.operators)
        trials = {backend: {**configuration.options, "try": backend} for backend in configuration.backends}
        answers, failures = trial_answers(ask, self.name, model, trials)
        taken = {backend: frozenset(answer[backend]) & every for backend, answer in answers.items()}
        if _CPU not in taken:
            return Support(operators={backend: frozenset() for backend in configuration.backends}, failures=failures)
        folded = _folded(model.graph, every - frozenset[int]().union(*taken.values()))
        operators = {backend: taken.get(backend, frozenset()) for backend in configuration.backends}
        return Support(
            operators={**operators, _CPU: every},
            failures=failures,
            options={"folded": [[index, into] for index, into in sorted(folded.items())]} if folded else {},
            folded=folded,
        )

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> Segment:
        """The whole model, with the values of its named dimensions and the places of the nodes on accelerators."""
        dims = {"dims": dict(model.dims)} if model.dims else {}
        return whole_segment(self.name, model, {**dims, **_placed(configuration, assignment)})

    def program(self, model: PlacedModel, configuration: Configuration) -> list[str]:
        """Lines for a session on the CPU, bound to arrays that stay in place; the usual session sets nothing and calls
        `run`.
        """
        options = configuration.options
        if any(options.get(name) for name in ("accelerators", "order", "libraries")):
            return []
        session = f"session = onnxruntime.InferenceSession(file, options, providers=[{_PROVIDER!r}])"
        if configuration.usual:
            return ["import onnxruntime", session.replace("options, ", ""), "call = lambda: session.run(None, inputs)"]
        entries = options.get("session", {})
        outputs = {
            name: f"numpy.empty({model.graph.tensors[index].shape}, {model.graph.tensors[index].dtype!r})"
            for name, index in zip(model.outputs, model.graph.outputs, strict=True)
        }
        return [
            "import onnxruntime",
            "options = onnxruntime.SessionOptions()",
            f"options.intra_op_num_threads, options.inter_op_num_threads = {options['threads']}, 1",
            *(f"options.add_free_dimension_override_by_name({name!r}, {size})" for name, size in model.dims.items()),
            *(f"options.add_session_config_entry({name!r}, {value!r})" for name, value in entries.items()),
            session,
            "binding = session.io_binding()",
            "[binding.bind_cpu_input(name, array) for name, array in inputs.items()]",
            f"outputs = {{{', '.join(f'{name!r}: {array}' for name, array in outputs.items())}}}",
            "for name, array in outputs.items():",
            "    binding.bind_output(name, 'cpu', 0, array.dtype.type, array.shape, array.ctypes.data)",
            "call = lambda: session.run_with_iobinding(binding)",
        ]

    def package(self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path) -> Packaged:
        """A copy of the model; with accelerators, its nodes are marked, and the files for a session are added."""
        written = super().package(model, configuration, assignment, folder)
        if not configuration.options.get("accelerators"):
            return written
        from gnomon.models.onnx.marked import mark_onnx

        options = _placed(configuration, assignment)
        mark_onnx(folder / str(written["model"]), options, folder)
        return {**written, "options": options, "readme": _README.format(model=written["model"])}


def _accelerators(probe: Probe, settings: RunSettings) -> dict[str, Provider]:
    """The provider of each requested accelerator, or of all accelerators that are not programs on the CPU.

    UsageError if accelerators are requested without the CPU, or if ONNX Runtime is too old for them.
    """
    here = probe.details.get("accelerators", {})
    version = tuple(int(part) for part in probe.version.split(".")[:2] if part.isdigit())
    if not settings.backends:
        return {b: own for b, own in here.items() if not own.get("software")} if version >= _OLDEST else {}
    requested = [name for name in settings.backends if name in here]
    if not requested:
        return {}
    if _CPU not in settings.backends:
        raise UsageError(
            "ONNX Runtime takes inputs in the CPU's memory, so it needs the backend 'cpu'", hint="Add --backend cpu."
        )
    if version < _OLDEST:
        raise UsageError(
            f"ONNX Runtime {probe.version} cannot place nodes on accelerators",
            hint=f"Install a newer one on the device: {pip_line([_NEWER])}",
        )
    return {name: here[name] for name in dict.fromkeys(requested)}


def _placed(configuration: Configuration, assignment: Assignment) -> Options:
    if not configuration.transfers:
        return configuration.options
    places = {
        backend: sorted(index for index, on in assignment.items() if on == backend)
        for backend in configuration.backends[1:]
    }
    return {**configuration.options, "places": {backend: own for backend, own in places.items() if own}}


def _folded(graph: Graph, folded: frozenset[int]) -> dict[int, int]:
    """The neighbour that each folded operator goes with: an operator that it reads from, otherwise one of its
    readers.
    """
    before: dict[int, int] = {}
    behind: dict[int, int] = {}
    for edge in graph.edges():
        before.setdefault(edge.consumer, edge.producer)
        behind.setdefault(edge.producer, edge.consumer)
    neighbours: dict[int, int] = {}
    for order, near in ((graph.operators, before), (tuple(reversed(graph.operators)), behind)):
        for operator in order:
            index = operator.index
            if index in folded and index not in neighbours and index in near:
                into = neighbours.get(near[index], near[index])
                if into not in folded:
                    neighbours[index] = into
    return neighbours
