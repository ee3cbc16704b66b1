"""Kernels of a profiled run, and which of the model's operators each of them computes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gnomon.core.graph import Graph
from gnomon.core.stats import median, quantile
from gnomon.measure.effort import Clock

if TYPE_CHECKING:  # what reads models measures nothing yet
    from gnomon.measure.campaign import Measured

CALLS_QUANTILE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPart:
    """A kernel: a piece of work that a runtime executed as one, and the indices of the operators that it computes."""

    name: str
    operators: tuple[int, ...]
    backend: str
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(KernelPart):
    """A kernel with the operators it computes (none: the runtime added it), its backend and its time.

    `named` are the operators that the runtime named, or that were matched by kind; the other `operators` were found
    from the graph. One that several kernels name is among the `operators` of the first of them only. `time_s` is
    the lower third of the calls (what nothing interrupted), then the median over processes.
    """

    named: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """The time of one call of the whole model by operators, kernels of no operator, and the rest.

    `times_s` has the operators that have a kernel, by index. `within` maps an operator that was computed together
    with another one to that, whose time has its own. `own` are the kernels that belong to no operator.
    `unattributed_s` is what is left of the whole, never below 0: the three add up to it. What the operators and
    kernels took beyond the whole (the profiler takes time as well) is `overhead_s`; they are then scaled down to it.
    """

    times_s: Mapping[int, float]
    within: Mapping[int, int]
    own: tuple[Kernel, ...]
    unattributed_s: float
    overhead_s: float


def source_names(graph: Graph) -> dict[str, int]:
    """The index of each source operator, by the names that runtimes use: its own, and those of its outputs."""
    names: dict[str, int] = {}
    for operator in graph.operators:
        for tensor in operator.outputs:
            names[graph.tensors[tensor].name] = operator.index
    names.update({operator.name: operator.index for operator in graph.operators})
    return names


class Sources:
    """Finds the source operator that a profiler's name means.

    `others` are names in the file of what is not an operator of the graph, as it was folded there: they mean none.
    """

    def __init__(self, graph: Graph, others: Collection[str] = ()) -> None:
        self._names: dict[str, int | None] = {**dict.fromkeys(others), **source_names(graph)}

    def __call__(self, name: str) -> int | None:
        """Its index: by the name itself, else by the longest known name that it begins with.

        Runtimes name what they fused after a source operator and append to it, or put a word before: "conv1_nchwc",
        "fc/MatMulAddFusion", "fused fc". None for names that they made up.
        """
        if name not in self._names:
            name = name.removeprefix("fused ")
        for end in (len(name), *(k for k in range(len(name) - 1, 0, -1) if not name[k].isalnum())):
            if name[:end] in self._names:
                return self._names[name[:end]]
        return None


def kernels(graph: Graph, profiled: Measured) -> tuple[Kernel, ...]:
    """The kernels in order of execution, every operator of the graph in exactly one where that can be told.

    Runtimes name a fused kernel after one of its operators. A kernel with a name that the runtime made up is matched
    by kind first (`_matched`); the other operators are found from the graph: see `absorb`.
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
    matched = _matched(graph, {number: row.name for number, row in enumerate(rows) if not row.sources}, home)
    home.update({index: number for number, index in matched.items()})
    absorb(graph, home)
    members: dict[int, list[int]] = {}
    for index, number in sorted(home.items()):
        members.setdefault(number, []).append(index)
    return tuple(
        Kernel(
            name=row.name,
            operators=tuple(members.get(number, ())),
            backend=row.backend,
            time_s=median(times[row.name, row.sources]),
            named=row.sources or ((matched[number],) if number in matched else ()),
        )
        for number, row in enumerate(rows)
    )


def _matched(graph: Graph, names: Mapping[int, str], home: Mapping[int, int]) -> dict[int, int]:
    """Operators without a kernel for kernels without an operator, by kind: the kernel's number -> the operator.

    `names` are the kernels by number, in order of execution. Where a kind has as many of the ones as of the others,
    they are matched in order; else they could be mixed up, and none is.
    """
    types = {op.type for op in graph.operators}
    kernels_of: dict[str, list[int]] = {}
    for number, name in names.items():
        likeness, kind = max(((_likeness(name, kind), kind) for kind in types), default=((0, 0), ""))
        if likeness > (0, 0):
            kernels_of.setdefault(kind, []).append(number)
    matches: dict[int, int] = {}
    for kind, numbers in kernels_of.items():
        free = [op.index for op in graph.operators if op.type == kind and op.index not in home]
        matches.update(zip(numbers, free, strict=True) if len(free) == len(numbers) else ())
    return matches


_SHORTENED = 6
"""The fewest letters that may stand for a longer kind ("layernorm"): fewer begin too many others ("conv")."""


def _likeness(name: str, kind: str) -> tuple[int, int]:
    """How well a kernel's first word ("LSTMSequence lstm_3") says the kind of an operator: (0, 0) is not at all.

    Best where it begins with the kind, whole words only ("Convert" is not "Conv"), the more the better; else where it
    is a shortened form of it.
    """
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", (name.split() or [""])[0])
    said = ["".join(words[:count]).lower() for count in range(1, len(words) + 1)]
    wanted = "".join(re.findall(r"[a-z]+", kind.lower()))
    if wanted and wanted in said:
        return 2, len(wanted)
    shortened = said and len(said[-1]) >= _SHORTENED and wanted.startswith(said[-1])
    return (1, len(said[-1])) if shortened else (0, 0)


def absorb(graph: Graph, home: dict[int, int]) -> None:
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
                homes = [home[i] for i in side[index] if i in home]
                if index not in home and homes:
                    home[index] = likeliest(homes)
                    joined += 1
            if joined:
                break
        else:
            return


def breakdown(graph: Graph, profile: Sequence[Kernel], whole_s: float) -> Breakdown:
    """The breakdown of a call that takes `whole_s`, by the kernels of a profiled run.

    A fused kernel's time is that of the operator which makes it: of those that the runtime named, the one of the most
    multiply-accumulates; of all that it computes, where those named are known to have none. How much of it the others
    take nobody knows. A kernel of the whole graph tells of no operator.
    """
    times: dict[int, float] = {}
    leaders: dict[int, int] = {}
    own: list[Kernel] = []
    for kernel in profile:
        named = kernel.named or kernel.operators
        if not named or (len(set(named)) == len(graph.operators) > 1):
            own.append(kernel)
            continue
        # Some runtimes name a product after the addition that it ends with: what computes is then among the others.
        pool = named if any(graph.operators[index].macs != 0 for index in named) else (*named, *kernel.operators)
        leader = max(pool, key=lambda index: (graph.operators[index].macs or 0, -index))
        # What a kernel before it has is that one's: a reorder of a convolution is part of it.
        leader = leaders.setdefault(leader, leader)
        times[leader] = times.get(leader, 0.0) + kernel.time_s
        for index in kernel.operators:
            leaders.setdefault(index, leader)
    within = {index: leader for index, leader in leaders.items() if index != leader}
    return divided(times, own, whole_s, within)


def divided(
    times_s: Mapping[int, float], own: Sequence[Kernel], whole_s: float, within: Mapping[int, int] | None = None
) -> Breakdown:
    """A call of `whole_s` divided into operators, kernels of no operator, and unattributed time."""
    total = sum(times_s.values()) + sum(kernel.time_s for kernel in own)
    scale = min(1.0, whole_s / total) if total > 0 else 1.0
    return Breakdown(
        times_s={index: time_s * scale for index, time_s in times_s.items()},
        within=dict(within or {}),
        own=tuple(replace(kernel, time_s=kernel.time_s * scale) for kernel in own),
        unattributed_s=max(0.0, whole_s - total),
        overhead_s=max(0.0, total - whole_s),
    )


def by_clock(profile: Sequence[Kernel], profiled: Measured, clock: Clock) -> tuple[Kernel, ...]:
    """The kernels of a profiled run, whose times are wall time, by another clock.

    By CPU time of one thread they take no more than the profiled calls: what they took beyond was something else that
    interrupted them.
    """
    samples = [run.samples for run in profiled.runs if run.samples is not None and any(run.samples.cpu_ns)]
    calls_s = [quantile(s.cpu_s, CALLS_QUANTILE) for s in samples] if clock == "cpu" else []
    total_s = sum(kernel.time_s for kernel in profile)
    share = min(1.0, median(calls_s) / total_s) if calls_s and total_s > 0 else 1.0
    return tuple(replace(kernel, time_s=kernel.time_s * share) for kernel in profile)
