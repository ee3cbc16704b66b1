"""Kernels of a profiled run, and the operators of the model that each of them computes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gnomon.core.graph import Graph
from gnomon.core.stats import median, quantile
from gnomon.measure.effort import Clock

if TYPE_CHECKING:  # code that reads models does not need the measuring code
    from gnomon.measure.campaign import Measured

CALLS_QUANTILE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPart:
    """A kernel: a piece of work that a runtime executed as a unit, and the indices of the operators it computes."""

    name: str
    operators: tuple[int, ...]
    backend: str
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(KernelPart):
    """A kernel with the operators that it computes (none if the runtime added it), its backend and its time.

    `named` are the operators that the runtime named or that were matched by kind; the other `operators` were inferred
    from the graph. An operator that several kernels name is among the `operators` of the first one only. `time_s` is
    the median over processes of the 30 % quantile of the calls, which represents uninterrupted calls.
    """

    named: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """The time of one call of the whole model, divided into operators, kernels without an operator, and the rest.

    `times_s` holds the times of operators that have a kernel, by index. `within` maps each operator that was computed
    together with another to that other operator, whose time includes both. `own` are the kernels that belong to no
    operator. `unattributed_s` is the remainder, which is never below 0: operators, these kernels and the remainder add
    up to the whole call. Because the profiler takes time too, operators and kernels together may seem to take longer
    than the whole call. The excess is `overhead_s`, and the times of operators and kernels are then scaled down to the
    whole call.
    """

    times_s: Mapping[int, float]
    within: Mapping[int, int]
    own: tuple[Kernel, ...]
    unattributed_s: float
    overhead_s: float


def source_names(graph: Graph) -> dict[str, int]:
    """The index of each source operator, by the names that runtimes use: those of the operator and of its outputs."""
    names: dict[str, int] = {}
    for operator in graph.operators:
        for tensor in operator.outputs:
            names[graph.tensors[tensor].name] = operator.index
    names.update({operator.name: operator.index for operator in graph.operators})
    return names


class Sources:
    """Finds the source operator that a profiler's name refers to.

    `others` are names of nodes in the file that were folded and are no longer operators of the graph; they refer to no
    operator.
    """

    def __init__(self, graph: Graph, others: Collection[str] = ()) -> None:
        self._names: dict[str, int | None] = {**dict.fromkeys(others), **source_names(graph)}

    def __call__(self, name: str) -> int | None:
        """The index of the operator with this name or, if there is none, with the longest known name that this name
        begins with.

        Runtimes name a fused kernel after a source operator and add a suffix or a word in front: "conv1_nchwc",
        "fc/MatMulAddFusion", "fused fc". None for names that a runtime made up.
        """
        if name not in self._names:
            name = name.removeprefix("fused ")
        for end in (len(name), *(k for k in range(len(name) - 1, 0, -1) if not name[k].isalnum())):
            if name[:end] in self._names:
                return self._names[name[:end]]
        return None


def kernels(graph: Graph, profiled: Measured) -> tuple[Kernel, ...]:
    """The kernels in order of execution; each operator belongs to exactly one kernel, as far as this is known.

    Runtimes name a fused kernel after one of its operators. A kernel whose name the runtime made up is first matched by
    kind (`_matched`). The remaining operators are assigned from the graph (`absorb`).
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
    """Match kernels without an operator to operators without a kernel, by kind. Returns the operator of each kernel
    that has a match, by the kernel's number.

    `names` are the kernels by number, in order of execution. If a kind has as many kernels as operators, they are
    matched in order. Otherwise, none of that kind are matched, because they could be mixed up.
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
"""The minimum length of an abbreviation of a longer kind ("layernorm"); too many kinds share a shorter beginning
("conv").
"""


def _likeness(name: str, kind: str) -> tuple[int, int]:
    """How well a kernel's first word ("LSTMSequence lstm_3") matches an operator's kind; (0, 0) means no match.

    The best matches begin with the kind in whole words ("Convert" is not "Conv"), and a longer kind is better. The
    second best are abbreviations of the kind.
    """
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", (name.split() or [""])[0])
    said = ["".join(words[:count]).lower() for count in range(1, len(words) + 1)]
    wanted = "".join(re.findall(r"[a-z]+", kind.lower()))
    if wanted and wanted in said:
        return 2, len(wanted)
    shortened = said and len(said[-1]) >= _SHORTENED and wanted.startswith(said[-1])
    return (1, len(said[-1])) if shortened else (0, 0)


def absorb(graph: Graph, home: dict[int, int]) -> None:
    """Assign operators without a kernel to a neighbour's kernel, likelier neighbours first, until nothing changes.

    An operator that computes (has multiply-accumulates) is taken to have been folded forward into its reader, any other
    operator into its feeder. If that leaves some without a kernel, the opposite direction is tried. It is tried last
    for operators that compute, because two convolutions in a row are usually two kernels. Among several feeders, the
    latest kernel is chosen, because all inputs are available only there; among several readers, the first.
    """
    feeds: dict[int, list[int]] = {op.index: [] for op in graph.operators}
    read_by: dict[int, list[int]] = {op.index: [] for op in graph.operators}
    for edge in graph.edges():
        feeds[edge.consumer].append(edge.producer)
        read_by[edge.producer].append(edge.consumer)
    heavy = [op.index for op in graph.operators if op.macs]
    light = [op.index for op in graph.operators if not op.macs]
    # Go along the flow to join feeders and against it to join readers, so that one pass reaches a whole chain.
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
    """The breakdown of a call that takes `whole_s`, based on the kernels of a profiled run.

    The time of a fused kernel is given to one operator: the one with the most multiply-accumulates among those that the
    runtime named, or among all that the kernel computes if the named ones are known to have none. The shares of the
    other operators are unknown. A kernel that covers the whole graph gives no information about single operators.
    """
    times: dict[int, float] = {}
    leaders: dict[int, int] = {}
    own: list[Kernel] = []
    for kernel in profile:
        named = kernel.named or kernel.operators
        if not named or (len(set(named)) == len(graph.operators) > 1):
            own.append(kernel)
            continue
        # Some runtimes name a product after the addition at its end; the product is then among the other operators.
        pool = named if any(graph.operators[index].macs != 0 for index in named) else (*named, *kernel.operators)
        leader = max(pool, key=lambda index: (graph.operators[index].macs or 0, -index))
        # An operator within an earlier kernel belongs to that kernel's leader, as a reorder belongs to its convolution.
        leader = leaders.setdefault(leader, leader)
        times[leader] = times.get(leader, 0.0) + kernel.time_s
        for index in kernel.operators:
            leaders.setdefault(index, leader)
    within = {index: leader for index, leader in leaders.items() if index != leader}
    return divided(times, own, whole_s, within)


def divided(
    times_s: Mapping[int, float], own: Sequence[Kernel], whole_s: float, within: Mapping[int, int] | None = None
) -> Breakdown:
    """A call of `whole_s` divided into operators, kernels without an operator, and unattributed time."""
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
    """Convert the kernels of a profiled run, whose times are wall times, to another clock.

    In one thread's CPU time, the kernels together take no longer than the profiled calls. Any excess was time during
    which other work interrupted the kernels.
    """
    samples = [run.samples for run in profiled.runs if run.samples is not None and any(run.samples.cpu_ns)]
    calls_s = [quantile(s.cpu_s, CALLS_QUANTILE) for s in samples] if clock == "cpu" else []
    total_s = sum(kernel.time_s for kernel in profile)
    share = min(1.0, median(calls_s) / total_s) if calls_s and total_s > 0 else 1.0
    return tuple(replace(kernel, time_s=kernel.time_s * share) for kernel in profile)
