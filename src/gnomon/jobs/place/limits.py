"""Limits of a placement: what operators may use on a backend, counted from the graph of the model.

Memory is what operators read of constants and what they write; a constant that several read counts for each. What a
runtime's arena, its copies or a second layout of the weights take is not counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from gnomon.core.cost import OPERATORS, SWITCHES, CostModel, Limit, Objective, PairCost
from gnomon.core.graph import Graph
from gnomon.core.solver.solve import Solution, solve
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError, UsageError
from gnomon.report import units
from gnomon.report.conditions import LimitPart
from gnomon.runtimes.base import Configuration
from gnomon.session.contender import Contender
from gnomon.session.targets import Target
from gnomon.values import quantity_in

MEMORY = "memory"
_SOLVED_S = 20.0
"""How long a problem under limits may be solved."""
Names = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """At most so much of `what` by the operators on `choice`, or by all where that is ""."""

    what: str
    choice: str
    at_most: float

    @property
    def name(self) -> str:
        """As `--under` names it."""
        return f"{self.what}:{self.choice}" if self.choice else self.what

    @property
    def unit(self) -> str:
        """The unit of the amount; "" for a count."""
        return "B" if self.what == MEMORY else ""


class Limits:
    """The limits that a request has, by what `--under` calls them. UsageError for what no placement uses."""

    def __init__(self, under: Mapping[str, float | str] = MappingProxyType({})) -> None:
        found = []
        for place, most in under.items():
            what, _, choice = place.partition(":")
            if what not in (MEMORY, OPERATORS, SWITCHES) or (what == SWITCHES and choice):
                hint = "Limit memory:gpu=4GB, operators:gpu=20 or switches=6. What whole processes take is limited by "
                raise UsageError(f"no placement is limited by '{place}'", hint=f"{hint}gnomon pareto MODEL --under.")
            amount = quantity_in(place, most, "B" if what == MEMORY else "")
            found.append(Demand(what=what, choice=choice, at_most=amount))
        self.demands = tuple(found)

    def knows(self, target: Target) -> bool:
        """Whether the graph of a target has all that is limited: that of an ncnn model has no weights."""
        return target.placed.graph.format != "ncnn" or all(d.what != MEMORY for d in self.demands)

    def within(
        self, model: CostModel, graph: Graph, groups: Sequence[Sequence[int]], choices: Sequence[Names]
    ) -> CostModel:
        """A cost model with the limits. Its first slots are groups of operators, and `choices` the names of each."""
        if not self.demands:
            return model
        slot_of = {index: slot for slot, group in enumerate(groups) for index in group}
        counts: dict[tuple[int, int], int] = {}
        for ends in edges_of(graph) if any(d.what == SWITCHES for d in self.demands) else ():
            first, second = sorted(slot_of.get(end, -1) for end in ends)
            if 0 <= first < second:
                counts[first, second] = counts.get((first, second), 0) + 1
        sizes = [len(cost) for cost in model.slot_costs]
        free = [PairCost(a, b, np.zeros((sizes[a], sizes[b], len(model.objectives)))) for a, b in counts]
        none = [np.zeros(pair.cost.shape[:2]) for pair in model.pairs]
        unlike = [n * (1.0 - np.eye(sizes[a], sizes[b])) for (a, b), n in counts.items()]

        def limit(demand: Demand) -> Limit:
            own = uses_of(graph, demand.what)
            on = np.array([not demand.choice or demand.choice in names for names in choices], dtype=float)
            slots = [np.zeros(size) for size in sizes]
            for slot, group in zip(slots, groups if demand.what != SWITCHES else (), strict=False):
                slot[: len(on)] = on * sum(own[index] for index in group)
            pairs = (*none, *(unlike if demand.what == SWITCHES else (0 * table for table in unlike)))
            return Limit(
                name=demand.name,
                unit=demand.unit,
                at_most=demand.at_most,
                slots=tuple(slots),
                pairs=pairs if free else (),
            )

        return replace(model, pairs=(*model.pairs, *free), limits=tuple(map(limit, self.demands)))

    def uses(self, contender: Contender, ran_on: Mapping[int, str] = MappingProxyType({})) -> list[float]:
        """How much a contender uses of each limit, where its operators `ran_on` others than planned, there."""
        graph, where = contender.graph, {}
        for part in contender.parts:
            for index, backend in part.backends.items():
                where[index] = (part.configuration, ran_on.get(index, backend))
        found = []
        for demand in self.demands:
            own = uses_of(graph, demand.what)
            if demand.what == SWITCHES:
                places = {index: (configuration.name, backend) for index, (configuration, backend) in where.items()}
                known = [(a, b) for a, b in edges_of(graph) if a in places and b in places]
                found.append(float(sum(places[a] != places[b] for a, b in known)))
            else:
                on = [i for i, place in where.items() if not demand.choice or demand.choice in names_of(*place)]
                found.append(float(sum(own[index] for index in on)))
        return found

    def broken(self, contender: Contender, ran_on: Mapping[int, str] = MappingProxyType({})) -> str:
        """Which limits a contender breaks, and by what it uses; "" where it keeps all."""
        if self.demands and any("order" in part.configuration.options for part in contender.parts):
            return "it chooses devices by itself, within no limit"
        return " and ".join(
            f"{d.name} is {units.limited(used, d.unit)} of at most {units.limited(d.at_most, d.unit)}"
            for d, used in zip(self.demands, self.uses(contender, ran_on), strict=True)
            if used > d.at_most
        )

    def free(self, contenders: Sequence[Contender]) -> list[Contender]:
        """Those that keep all limits."""
        return [contender for contender in contenders if not self.broken(contender)]

    def check(self, targets: Sequence[Target]) -> None:
        """UsageError for a choice that no target has, InfeasibleError where nothing that they can do keeps the limits.

        Those that take one graph whole may be mixed, and so may the backends of another.
        """
        fields: dict[object, list[tuple[Target, str]]] = {}
        for target in targets if self.demands else ():
            one = target.configuration
            backends = [(target, b) for b in one.backends if target.support.operators.get(b)]
            if "order" not in one.options:
                fields.setdefault(one.name if len(one.backends) > 1 else id(target.placed.graph), []).extend(backends)
        known = sorted({name for own in fields.values() for t, b in own for name in names_of(t.configuration, b)})
        for demand in self.demands:
            if demand.choice and demand.choice not in known:
                hint = f"Choices: {', '.join(known)}."
                raise UsageError(f"nothing runs on '{demand.choice}', which {demand.name} limits", hint=hint)
        errors = [error for own in fields.values() if (error := self._why_not(own))]
        if errors and len(errors) == len(fields):
            raise errors[0]

    def _why_not(self, choices: Sequence[tuple[Target, str]]) -> InfeasibleError | None:
        """Why no operator by operator choice among these keeps the limits; None where one does."""
        graph = choices[0][0].placed.graph
        supports = [target.support.operators[backend] for target, backend in choices]
        costs = [[[0.0 if op.index in taken else math.inf] for taken in supports] for op in graph.operators]
        names = tuple(f"{number}" for number in range(len(choices)))
        model = CostModel(
            space=Space(tuple(Slot(op.name, names) for op in graph.operators)),
            objectives=(Objective("latency", "s"),),
            slot_costs=tuple(np.array(cost) for cost in costs),
        )
        called = [names_of(target.configuration, backend) for target, backend in choices]
        try:
            solved(self.within(model, graph, [(op.index,) for op in graph.operators], called))
        except InfeasibleError as error:
            return error
        return None

    def parts(self, contender: Contender, ran_on: Mapping[int, str], prices: Sequence[float]) -> tuple[LimitPart, ...]:
        """What a contender uses of each limit, as it ran, with the solver's `prices`, where it knows them."""
        known: Sequence[float | None] = prices or [None] * len(self.demands)
        return tuple(
            LimitPart(name=d.name, unit=d.unit, at_most=d.at_most, used=used, slack=d.at_most - used, price=price)
            for d, used, price in zip(self.demands, self.uses(contender, ran_on), known, strict=True)
        )


def names_of(configuration: Configuration, backend: str) -> Names:
    """What a backend of a configuration may be called in a limit."""
    one = configuration
    own = one.backends if len(one.backends) == 1 else (f"{one.name}:{backend}",)
    return frozenset({backend, one.name, one.runtime, *own})


@lru_cache(maxsize=8)
def edges_of(graph: Graph) -> tuple[tuple[int, int], ...]:
    """Each pair of an operator and one that reads what it writes, but for what only prepares constants."""
    from gnomon.models.order import static_operators

    static = static_operators(graph)
    return tuple(dict.fromkeys((e.producer, e.consumer) for e in graph.edges() if e.producer not in static))


@lru_cache(maxsize=8)
def uses_of(graph: Graph, what: str) -> dict[int, int]:
    """What each operator uses: bytes, or one where operators are counted; what only prepares constants uses nothing.

    A constant that is computed from others counts as these do. What has no known size counts nothing.
    """
    from gnomon.models.order import static_operators

    static = static_operators(graph)
    held = {t: tensor.size_bytes or 0 for t, tensor in enumerate(graph.tensors) if tensor.constant}
    for operator in graph.operators:
        if operator.index in static:
            read = sum(held.get(t, 0) for t in operator.inputs)
            held.update((t, read or graph.tensors[t].size_bytes or 0) for t in operator.outputs)
    return {
        op.index: 0
        if op.index in static
        else sum(held.get(t, 0) for t in set(op.inputs)) + sum(graph.tensors[t].size_bytes or 0 for t in op.outputs)
        if what == MEMORY
        else 1
        for op in graph.operators
    }


def solved(model: CostModel) -> Solution:
    """The exact minimum of a model; under limits the best that some seconds find."""
    if not model.limits:
        return solve(model)
    from gnomon.core.front.limited import solve_within

    return solve_within(model, time_limit_s=_SOLVED_S, clock_s=time.perf_counter)
