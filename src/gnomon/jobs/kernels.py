"""Kernels of a profiled run, and which of the model's operators each of them computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnomon.core.graph import Graph
from gnomon.core.stats import median, quantile
from gnomon.measure.campaign import Measured

CALLS_QUANTILE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What a runtime executed as one: the operators it computes (none: the runtime added it), where, how long.

    `time_s` is the lower third of the calls (what nothing interrupted), then the median over processes.
    """

    name: str
    operators: tuple[int, ...]
    backend: str
    time_s: float


def source_names(graph: Graph) -> dict[str, int]:
    """What runtimes call a source operator: its name, or the name of what it writes -> its index."""
    names: dict[str, int] = {}
    for operator in graph.operators:
        for tensor in operator.outputs:
            names[graph.tensors[tensor].name] = operator.index
    names.update({operator.name: operator.index for operator in graph.operators})
    return names


class Sources:
    """Finds the source operator that a profiler's name means."""

    def __init__(self, graph: Graph) -> None:
        self._names = source_names(graph)

    def __call__(self, name: str) -> int | None:
        """Its index: by the name itself, else by the longest known name that it begins with.

        Runtimes name what they fused after a source operator and append to it: "conv1_nchwc",
        "fc/MatMulAddFusion". None for names that they made up.
        """
        for end in (len(name), *(k for k in range(len(name) - 1, 0, -1) if not name[k].isalnum())):
            if name[:end] in self._names:
                return self._names[name[:end]]
        return None


def kernels(graph: Graph, profiled: Measured) -> tuple[Kernel, ...]:
    """The kernels in order of execution, every operator of the graph in exactly one where that can be told.

    Runtimes name a fused kernel after one of its operators. The others are found from the graph: see `_absorb`.
    """
    runs = [run for run in profiled.runs if run.operators]
    if not runs:
        return ()
    times: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    for run in runs:
        for row in run.operators:
            if row.wall_ns:
                times.setdefault((row.name, row.sources), []).append(quantile(row.wall_ns, CALLS_QUANTILE) * 1e-9)
    rows = [row for row in runs[0].operators if (row.name, row.sources) in times]
    home: dict[int, int] = {}
    for number, row in enumerate(rows):
        for index in row.sources:
            home.setdefault(index, number)
    _absorb(graph, home)
    members: dict[int, list[int]] = {}
    for index, number in sorted(home.items()):
        members.setdefault(number, []).append(index)
    return tuple(
        Kernel(
            name=row.name,
            operators=tuple(members.get(number, ())),
            backend=row.backend,
            time_s=median(times[row.name, row.sources]),
        )
        for number, row in enumerate(rows)
    )


def _absorb(graph: Graph, home: dict[int, int]) -> None:
    """Give operators without a kernel that of a neighbour, the likelier neighbours first, until nothing changes.

    What computes (has multiply-accumulates) was folded forward into what reads it; what follows it, into what feeds
    it. Only where that leaves some out, the other way round, and what computes last of all: two convolutions in a
    row are two kernels. Of several feeders it is the latest kernel, which has all that it needs; of several readers the
    first.
    """
    feeds: dict[int, list[int]] = {op.index: [] for op in graph.operators}
    read_by: dict[int, list[int]] = {op.index: [] for op in graph.operators}
    for edge in graph.edges():
        feeds[edge.consumer].append(edge.producer)
        read_by[edge.producer].append(edge.consumer)
    heavy = [op.index for op in graph.operators if op.macs]
    light = [op.index for op in graph.operators if not op.macs]
    # Along the flow for what joins its feeder, against it for what joins its reader: one pass reaches a whole chain.
    steps = ((heavy[::-1], read_by, min), (light, feeds, max), (light[::-1], read_by, min), (heavy, feeds, max))
    while True:
        for members, side, likeliest in steps:
            joined = 0
            for index in members:
                found = [home[i] for i in side[index] if i in home]
                if index not in home and found:
                    home[index] = likeliest(found)
                    joined += 1
            if joined:
                break
        else:
            return


def operator_times(graph: Graph, found: Sequence[Kernel]) -> dict[int, float]:
    """Seconds of each operator: a fused kernel's time goes to its operators by their multiply-accumulates."""
    times: dict[int, float] = {}
    for kernel in found:
        macs: Mapping[int, float] = {i: float(graph.operators[i].macs or 0) + 1.0 for i in kernel.operators}
        for index, share in macs.items():
            times[index] = times.get(index, 0.0) + kernel.time_s * share / sum(macs.values())
    return times


def unattributed_s(found: Sequence[Kernel], wall_s: Sequence[float]) -> float:
    """Wall time of a call without profiler that no kernel accounts for; negative where profiling costs more."""
    return quantile(wall_s, CALLS_QUANTILE) - sum(kernel.time_s for kernel in found)
