"""Nets as a runtime runs them: the nodes that each kernel computes, and the time of each kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from gnomon.session.bench.baseline import place_each, placed_net, placed_unit
from gnomon.session.bench.bench import Bench, Placed
from gnomon.session.contender import traced_candidate
from gnomon.session.kernels import by_clock, kernels
from gnomon.session.model import read_model
from gnomon.session.request import ModelRequest
from gnomon.spaces.loading import SearchSpace
from gnomon.spaces.models import ModelSpace
from gnomon.spaces.unit import Net, Unit, net_of

_CALLS = 15
"""The number of calls of a traced net in a process; there are several, because calls may be interrupted."""

_UNDISTURBED = 0.9
"""The least share of CPU time in the wall time of calls that were not interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedNet:
    """A net of single layers on the device. `nodes` has the numbers of its nodes, by the names of their operators.

    `others` is the number of operators that take time but are in no unit: views, and operators that cannot be layers.
    """

    net: Net
    placed: Placed
    nodes: Mapping[str, int]
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedKernel:
    """A kernel of a runtime: the nodes that it computes, and its time in seconds.

    A kernel without nodes computes operators that are in no unit, unless the runtime `added` it, for example to convert
    a layout.
    """

    nodes: tuple[int, ...]
    added: bool
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedNet:
    """The kernels of a net in their order. If it was `interrupted`, the times of long kernels may be too long."""

    on_device: PlacedNet
    kernels: tuple[TracedKernel, ...]
    interrupted: bool


@dataclass(slots=True, kw_only=True)
class Traces:
    """Copies nets of a space to a device and traces them. Files made from models are removed when `stack` closes."""

    bench: Bench
    space: SearchSpace
    stack: ExitStack
    _placed: dict[tuple[int, ...], PlacedNet] = field(default_factory=dict)

    def place(self, assignments: Iterable[Sequence[int]]) -> list[PlacedNet]:
        """The nets with these assignments, placed on the device; those that cannot be placed there are left out."""
        wanted = [tuple(map(int, assignment)) for assignment in assignments]
        placed, _ = place_each([net for net in wanted if net not in self._placed], self._place)
        self._placed |= placed
        return [self._placed[net] for net in wanted if net in self._placed]

    def _place(self, assignment: tuple[int, ...]) -> PlacedNet:
        """Place a net: the user's file if the space consists of models, otherwise the net with made-up weights.

        Raises GnomonError.
        """
        net = self.space.net(assignment)
        files = self.space.files if isinstance(self.space, ModelSpace) else {}
        file = files.get(self.space.space.names(assignment)[0]) if files else None
        if file is None:
            return written(self.bench, net)
        read = read_model(ModelRequest(model=file.path, shapes=dict(file.shapes)), self.stack)
        # Named by content, because a continued campaign may have begun with other files, and its keys must be unique.
        content = hashlib.sha256(repr((read.model.graph.digest, sorted(read.shapes.items()))).encode())
        key = f"model-{content.hexdigest()[:16]}"
        placed = self.bench.put(key, read.model, read.named or read.source, feeds=read.feeds)
        return PlacedNet(net=net, placed=placed, nodes=file.nodes, others=file.left_out + net.views())

    def trace(self, net: PlacedNet, processes: int) -> TracedNet | None:
        """Trace a net in this many processes with the profiler; None if it fails or leaves no trace."""
        bench, graph = self.bench, net.placed.graph
        effort = replace(bench.request.effort, processes_least=processes, processes_most=processes)
        candidate = replace(
            traced_candidate(net.placed.candidate, len(graph.operators)), process=None, calls_least=_CALLS
        )
        bench.runner.sources = net.placed.sources
        measured = bench.runner.measure("traces", [candidate], effort)[candidate.key]
        traced = kernels(graph, measured) if measured.ok else ()
        total_s = sum(kernel.time_s for kernel in traced)
        if not total_s:
            return None
        nodes = [net.nodes.get(operator.name) for operator in graph.operators]
        cpu_s = sum(kernel.time_s for kernel in by_clock(traced, measured, "cpu"))
        return TracedNet(
            on_device=net,
            kernels=tuple(
                TracedKernel(
                    nodes=tuple(node for index in kernel.operators if (node := nodes[index]) is not None),
                    added=not kernel.operators,
                    time_s=kernel.time_s,
                )
                for kernel in traced
            ),
            interrupted=bench.request.settings.threads == 1 and cpu_s < _UNDISTURBED * total_s,
        )

    def alone(self, unit: Unit) -> PlacedNet:
        """A unit alone, as a net of one node. Raises GnomonError."""
        return PlacedNet(net=net_of(unit), placed=placed_unit(self.bench, unit, f"alone-{unit.id}"), nodes={}, others=0)


def written(bench: Bench, net: Net) -> PlacedNet:
    """A net on the device as a model with made-up weights. Raises GnomonError."""
    placed = placed_net(bench, net, "net")
    nodes = {
        operator.name: node for operator in placed.graph.operators if (node := _node_of(operator.name)) is not None
    }
    return PlacedNet(net=net, placed=placed, nodes=nodes, others=net.views())


def _node_of(name: str) -> int | None:
    """The number of the node in an operator's name (see `gnomon.spaces.unit.layer_name`); None if it has none."""
    head = name.partition(".")[0]
    return int(head[1:]) if head[:1] == "n" and head[1:].isdigit() else None
