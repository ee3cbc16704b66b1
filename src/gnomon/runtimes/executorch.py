"""ExecuTorch: programs (.pte) whose operators have fixed places, and exported PyTorch programs (.pt2) whose operators
gnomon places.
"""

from __future__ import annotations

from pathlib import Path

from gnomon.core.graph import Graph
from gnomon.core.sample import Failure
from gnomon.models.model import Model
from gnomon.runtimes.base import Ask, Assignment, Configuration, PlacedModel, Probe, RunSettings, Support, whole_segment
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import WholeModelRuntime, environment_configurations, usual_configuration
from gnomon.wire import Options, Packaged, Segment, SupportsCommand

_PORTABLE, _XNNPACK = "portable", "XnnpackBackend"


class ExecuTorch(WholeModelRuntime):
    """The adapter of ExecuTorch: its kernels are the backend `portable`, and each delegate in the wheel is a further
    backend.

    In a .pte, the exporter has decided where each instruction runs. A .pt2 is lowered on the device, with each operator
    lowered for either `portable` or XNNPACK.
    """

    name = "executorch"
    loads = "torch"
    formats = frozenset({"pte", "pt2"})
    wheels: tuple[str, ...] = ("executorch==1.5.1", "torch>=2.13,<2.14")
    tunings: tuple[Tuning, ...] = (THREADS,)

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """One configuration for each environment, with the requested backends or, if none are, those that are found."""
        return tuple(environment_configurations(self.name, settings, probe.requested(self.name, settings)))

    def usual(self, probe: Probe) -> Configuration:
        """The number of threads is ExecuTorch's own choice, and its partitioner decides which operators of a .pt2 go to
        XNNPACK.
        """
        return usual_configuration(self.name)

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """A .pte loads or fails as a whole, and its file says where its instructions run. For a .pt2, ExecuTorch
        reports whether its kernels take all operators, and XNNPACK's partitioner reports which operators it takes; both
        answers come from the same process unless it fails.
        """
        if configuration.usual:
            return super().support(ask, model, configuration)
        written = {op.index: _written_for(model.graph, op.index) for op in model.graph.operators}
        taken: dict[str, frozenset[int]] = dict.fromkeys(configuration.backends, frozenset[int]())
        if model.graph.format == "pte":
            answer = ask({_PORTABLE: self._trial(model, configuration, [])})[_PORTABLE]
            if isinstance(answer, Failure):
                return Support(operators={}, failures=dict.fromkeys(taken, answer))
            return Support(operators={b: frozenset(i for i, own in written.items() if own == b) for b in taken})
        trials: dict[str, list[int] | None] = {_PORTABLE: [], _XNNPACK: None}
        answers = ask({b: self._trial(model, configuration, trials[b]) for b in taken if b in trials})
        failures = {backend: answer for backend, answer in answers.items() if isinstance(answer, Failure)}
        for backend, answer in answers.items():
            if not isinstance(answer, Failure):
                taken[backend] = frozenset(written if backend == _PORTABLE else answer["taken"])
        return Support(operators=taken, failures=failures)

    def _trial(self, model: PlacedModel, configuration: Configuration, xnnpack: list[int] | None) -> SupportsCommand:
        segment = whole_segment(self.name, model, _options(model.graph, configuration, xnnpack))
        return {"do": "supports", "segment": segment, "process": self.name}

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> Segment:
        """The whole program; for a .pt2, with the operators to lower for XNNPACK."""
        return whole_segment(self.name, model, _placed(model.graph, configuration, assignment))

    def package(self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path) -> Packaged:
        """A copy of the file; a .pt2 is lowered when the package is loaded, as the options say."""
        written = super().package(model, configuration, assignment, folder)
        return {**written, "options": _placed(model.graph, configuration, assignment)}

    def program(self, model: PlacedModel, configuration: Configuration) -> list[str]:
        """Lines that run the method of a .pte, or of a .pt2 after lowering it; none for a .pt2 whose places were chosen
        here.
        """
        if model.graph.format == "pt2" and not configuration.usual:
            return []
        threads = [] if configuration.usual else [_THREADS.format(configuration.options["threads"])]
        return [
            "import torch",
            "from executorch.runtime import Runtime",
            *threads,
            *(_LOWERED if model.graph.format == "pt2" else ["program = Runtime.get().load_program(file)"]),
            "method = program.load_method('forward')",
            "tensors = [torch.from_numpy(array) for array in inputs.values()]",
            "def call():",
            "    return method.execute(tensors)",
        ]


_THREADS = "from executorch.extension.pybindings import portable_lib; portable_lib._unsafe_reset_threadpool({})"
_LOWERED = (
    "from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner",
    "from executorch.exir import to_edge_transform_and_lower",
    "exported = torch.export.load(file)",
    "lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()",
    "program = Runtime.get().load_program(lowered.buffer)",
)


def _placed(graph: Graph, configuration: Configuration, assignment: Assignment) -> Options:
    """Options of the driver for an assignment; in the usual configuration, XNNPACK's partitioner chooses."""
    xnnpack = sorted(index for index, backend in assignment.items() if backend == _XNNPACK)
    return _options(graph, configuration, None if configuration.usual else xnnpack)


def _written_for(graph: Graph, index: int) -> str:
    """The backend of an instruction of a .pte: calls of delegates have the delegate's name as their type."""
    kind = graph.operators[index].type
    return _PORTABLE if "::" in kind or kind.startswith("executorch ") else kind


def _options(graph: Graph, configuration: Configuration, xnnpack: list[int] | None) -> Options:
    """Options of the driver: threads, and either the delegates of a .pte by instruction, or the operators for
    XNNPACK.
    """
    if graph.format == "pt2":
        return {**configuration.options, "xnnpack": xnnpack}
    where = {str(op.index): _written_for(graph, op.index) for op in graph.operators}
    return {**configuration.options, "delegates": {k: b for k, b in where.items() if b != _PORTABLE}}
