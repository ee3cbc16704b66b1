"""Limits on a placement: the resources that operators may use on a backend, counted from the model's graph.

Memory is the size of the constants that operators read and of the tensors that they write; a constant that several
operators read counts for each of them. A runtime's arena, its copies of tensors and further layouts of the weights are
not counted.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from gnomon.core.cost import OPERATORS, SWITCHES, CostModel, Limit, Objective, PairCost
from gnomon.core.graph import Graph
from gnomon.core.solver.solve import Solution, solve
from gnomon.core.space import Slot, Space
from gnomon.errors import UsageError
from gnomon.report import units
from gnomon.runtimes.base import Configuration
from gnomon.session.contender import Contender
from gnomon.session.targets import Target
from gnomon.values import quantity_in

MEMORY = "memory"
_UNITS = {MEMORY: "B", OPERATORS: "", SWITCHES: ""}
_SOLVED_S = 20.0
"""The time limit for solving a problem with limits, in seconds."""
Names = frozenset[str]


class Limits:
    """The limits of a request, by their names in `--under`. UsageError for unknown names.

    The limits in `asked` do not have their uses yet, which depend on the choices (see `within`).
    """

    def __init__(self, under: Mapping[str, float | str] = MappingProxyType({})) -> None:
        asked = []
        for name, most in under.items():
            what, _, choice = name.partition(":")
            if what not in _UNITS or (what == SWITCHES and choice):
                hint = "Set limits such as memory:gpu=4GB, operators:gpu=20 or switches=6. Limit whole processes with "
                raise UsageError(
                    f"a placement cannot be limited by '{name}'", hint=f"{hint}gnomon pareto MODEL --under."
                )
            unit = _UNITS[what]
            asked.append(Limit(name=name, unit=unit, at_most=quantity_in(name, most, unit), slots=()))
        self.asked = tuple(asked)

    def within(
        self, model: CostModel, graph: Graph, groups: Sequence[Sequence[int]], choices: Sequence[Names]
    ) -> CostModel:
        """The cost model with the limits. Its first slots are the `groups` of operators; `choices` has each choice's
        names.
        """
        if not self.asked:
            return model
        own, edges = counted(graph)
        slot_of = {index: slot for slot, group in enumerate(groups) for index in group}
        ends = [sorted((slot_of[a], slot_of[b])) for a, b in edges if a in slot_of and b in slot_of]
        links = Counter((a, b) for a, b in ends if a != b)
        sizes = [len(cost) for cost in model.slot_costs]
        none = [np.zeros(pair.cost.shape[:2]) for pair in model.pairs]
        unlike = [number * (1.0 - np.eye(sizes[a], sizes[b])) for (a, b), number in links.items()]

        def limit(asked: Limit) -> Limit:
            what, _, choice = asked.name.partition(":")
            on = np.array([not choice or choice in names for names in choices], dtype=float)
            slots = [np.zeros(size) for size in sizes]
            for slot, group in zip(slots, groups if what != SWITCHES else (), strict=False):
                slot[: len(on)] = on * sum(own[index] if what == MEMORY else 1 for index in group if index in own)
            return replace(asked, slots=tuple(slots), pairs=(*none, *unlike) if what == SWITCHES else ())

        free = [PairCost(a, b, 0.0 * table[:, :, None]) for (a, b), table in zip(links, unlike, strict=True)]
        more = free if any(asked.name == SWITCHES for asked in self.asked) else []
        return replace(model, pairs=(*model.pairs, *more), limits=tuple(map(limit, self.asked)))

    def uses(self, contender: Contender, ran_on: Mapping[int, str] = MappingProxyType({})) -> list[float]:
        """How much of each limit a contender uses; an operator counts where it ran (`ran_on`) or, if that is unknown,
        where it is planned.
        """
        own, edges = counted(contender.graph) if self.asked else ({}, [])
        names = {
            index: names_of(part.configuration, ran_on.get(index, backend))
            for part in contender.parts
            for index, backend in part.backends.items()
        }
        amounts = []
        for what, _, choice in (asked.name.partition(":") for asked in self.asked):
            on = [index for index in own if index in names and (not choice or choice in names[index])]
            if what == SWITCHES:
                on = [a for a, b in edges if a in names and b in names and names[a] != names[b]]
            amounts.append(float(sum(own[index] for index in on) if what == MEMORY else len(on)))
        return amounts

    def broken(self, contender: Contender, ran_on: Mapping[int, str] = MappingProxyType({})) -> str:
        """The limits that a contender breaks, with its uses, or why they cannot be checked; "" if it keeps them all."""
        if self.asked and any("order" in part.configuration.options for part in contender.parts):
            return "its runtime chooses devices itself, so limits cannot be enforced"
        if contender.graph.format == "ncnn" and any(asked.unit for asked in self.asked):
            return "its graph has no weights, so its memory use is unknown"
        return " and ".join(
            f"{asked.name} is {units.limited(used, asked.unit)}, above {units.limited(asked.at_most, asked.unit)}"
            for asked, used in zip(self.asked, self.uses(contender, ran_on), strict=True)
            if used > asked.at_most
        )

    def free(self, contenders: Sequence[Contender]) -> list[Contender]:
        """The contenders that keep all limits."""
        return [contender for contender in contenders if not self.broken(contender)]

    def check(self, graph: Graph, targets: Sequence[Target]) -> None:
        """UsageError if a limit names a choice that no target has; InfeasibleError if nothing keeps all limits."""
        if not self.asked:
            return
        choices = [(t, b) for t in targets for b in t.configuration.backends if t.support.operators.get(b)]
        names = [names_of(target.configuration, backend) for target, backend in choices]
        valid = sorted(frozenset[str]().union(*names))
        for asked in self.asked:
            _, _, choice = asked.name.partition(":")
            if choice and choice not in valid:
                hint = f"Choices: {', '.join(valid)}."
                raise UsageError(f"no configuration runs on '{choice}', which the limit {asked.name} names", hint=hint)
        if any(target.placed.graph is not graph for target in targets):
            return  # a converted model has other operators
        taken = [target.support.operators[backend] for target, backend in choices]
        costs = [np.array([[0.0 if op.index in own else math.inf] for own in taken]) for op in graph.operators]
        slots = tuple(Slot(op.name, tuple(map(str, range(len(choices))))) for op in graph.operators)
        model = CostModel(Space(slots), (Objective("latency", "s"),), tuple(costs))
        solved(self.within(model, graph, [(op.index,) for op in graph.operators], names))


def names_of(configuration: Configuration, backend: str) -> Names:
    """The names by which a limit can refer to a backend of a configuration."""
    name, backends = configuration.name, configuration.backends
    own = backends if len(backends) == 1 else (f"{name}:{backend}",)
    return frozenset({backend, name, configuration.runtime, *own})


@lru_cache(maxsize=8)
def counted(graph: Graph) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """The bytes that each operator uses, and the pairs of operators of which the second reads an output of the first.

    Operators that only prepare constants are left out: their results count for the operators that read them, at the
    size of the constants from which they were computed. Tensors of unknown size count as 0.
    """
    from gnomon.models.order import static_operators

    static, sizes = static_operators(graph), [tensor.size_bytes or 0 for tensor in graph.tensors]
    held = {t: sizes[t] for t, tensor in enumerate(graph.tensors) if tensor.constant}
    own: dict[int, int] = {}
    for operator in graph.operators:
        read = sum(held.get(t, 0) for t in set(operator.inputs))
        if operator.index in static:
            held.update((t, read or sizes[t]) for t in operator.outputs)
        else:
            own[operator.index] = read + sum(sizes[t] for t in operator.outputs)
    edges = dict.fromkeys((e.producer, e.consumer) for e in graph.edges() if e.producer in own)
    return own, list(edges)


def solved(model: CostModel) -> Solution:
    """The exact minimum of a model or, with limits, the best solution found within the time limit."""
    if not model.limits:
        return solve(model)
    from gnomon.core.front.limited import solve_within

    return solve_within(model, time_limit_s=_SOLVED_S, clock_s=time.perf_counter)
