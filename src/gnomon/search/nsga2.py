"""NSGA-II, as implemented by pymoo, over assignments. Only this module imports pymoo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from itertools import chain
from typing import Any

import numpy as np

from gnomon.core.space import Space
from gnomon.installing import needed
from gnomon.search.base import Archive, Assignment, Cost, generator, shuffled
from gnomon.search.hlps import Moves, Plan, Planned, common_starts
from gnomon.search.surrogate import Guide

# mypy: disable-error-code="import-untyped, import-not-found, misc"
# pymoo comes without types.


with needed("NSGA-II needs pymoo, which cannot be imported", "search"):
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.duplicate import DuplicateElimination
    from pymoo.core.evaluator import Evaluator
    from pymoo.core.mutation import Mutation
    from pymoo.core.population import Population
    from pymoo.core.problem import Problem
    from pymoo.core.termination import NoTermination
    from pymoo.operators.crossover.ux import UniformCrossover
    from pymoo.problems.static import StaticProblem

POPULATION = 12  # small, because each evaluation is a run on a device

_BRED = 6  # children bred for each one that is evaluated
_TRIES = 5  # the most attempts to breed enough new children
_SWITCHED = 0.1  # the share of children in which one choice is replaced by another in all slots


class Nsga2(Planned):
    """pymoo's NSGA-II (Deb et al., IEEE Transactions on Evolutionary Computation 6, 2002); a `Strategy`.

    It begins with half a population: `common_starts`, for at most half of it, and random assignments. Each generation
    is a third of a population. A gene is the choice of a slot that has several choices. Parents are mixed slot by slot
    (uniform crossover), and each slot takes another of its choices, all equally likely, with probability 1 / slots; in
    one of ten children, one choice is replaced by another in all slots. Six times as many children are bred as are
    evaluated, and a `Guide` chooses the most promising ones (preselection, as in Emmerich, Giannakoglou and Naujoks,
    IEEE Transactions on Evolutionary Computation 10, 2006). Children that were bred before are replaced; if too few new
    children are found, random new assignments fill the generation. Nothing is therefore evaluated twice, and a small
    space is searched completely. The algorithm treats failures as infeasible: they lose to everything else. It waits
    for the results of a whole generation.
    """

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        order = chain(common_starts(space)[: POPULATION // 4], shuffled(space, generator(seed)))
        super().__init__(space, _plan(space, seed, order))


class _Unmet(DuplicateElimination):
    """Drops individuals with genes that occurred before, in this batch or earlier."""

    def __init__(self, met: Callable[[Any], bool]) -> None:
        super().__init__()
        self._met = met

    def do(self, pop: Any, *others: Any, **_: Any) -> Any:
        seen = {tuple(row) for other in others for row in other.get("X")}
        kept = []
        for index, row in enumerate(pop.get("X")):
            if tuple(row) not in seen and not self._met(row):
                kept.append(index)
            seen.add(tuple(row))
        return pop[kept]


class _AnotherChoice(Mutation):
    """Gives each gene another value with probability 1 / genes, then in some children replaces one choice by another in
    all slots.
    """

    def __init__(self, space: Space, genes: _Genes) -> None:
        super().__init__(prob=1.0)
        self._radices = genes.radices
        self._moves, self._genes = Moves(space), genes

    def _do(self, problem: Any, X: Any, *args: Any, random_state: Any = None, **kwargs: Any) -> Any:
        steps = random_state.integers(1, self._radices, size=X.shape)
        chosen = random_state.random(X.shape) < 1 / X.shape[1]
        mutated = np.where(chosen, (X + steps) % self._radices, X)
        for index in np.flatnonzero(random_state.random(len(X)) < _SWITCHED):
            switched = list(self._moves.switched(self._genes.assignment(X[index])))
            if switched:
                mutated[index] = self._genes.rows([switched[random_state.integers(len(switched))]])[0]
        return mutated


class _Genes:
    """Assignments as rows of the slots that have several choices, and the set of assignments requested so far."""

    def __init__(self, space: Space) -> None:
        self.slots = [i for i, slot in enumerate(space.slots) if len(slot.choices) > 1]
        self.radices = np.array([len(space.slots[i].choices) for i in self.slots], dtype=np.int64)
        self.met: set[Assignment] = set()
        self._length = len(space.slots)

    def assignment(self, row: Any) -> Assignment:
        full = [0] * self._length
        for slot, choice in zip(self.slots, row, strict=True):
            full[slot] = int(choice)
        return tuple(full)

    def rows(self, assignments: list[Assignment]) -> Any:
        return np.array([[a[i] for i in self.slots] for a in assignments], dtype=np.int64)

    def unmet(self, order: Iterator[Assignment], n: int, but: Set[Assignment] = frozenset()) -> list[Assignment]:
        """The next `n` different assignments in an order that have not been requested and are not in `but`."""
        unmet: dict[Assignment, None] = {}
        while len(unmet) < n and (assignment := next(order, None)) is not None:
            if assignment not in self.met and assignment not in but:
                unmet[assignment] = None
        return list(unmet)


def _outcomes(costs: list[Cost | None], objectives: int) -> dict[str, object]:
    """The costs (F) of a generation and the values of its constraint (G). Only failures violate the constraint."""
    # The costs of a failure are never compared, because its violated constraint decides first.
    values = np.array([(0.0,) * objectives if cost is None else cost for cost in costs])
    return {"F": values, "G": np.array([[1.0 if cost is None else -1.0] for cost in costs])}


def _plan(space: Space, seed: int, order: Iterator[Assignment]) -> Plan:
    genes, choice = _Genes(space), _Choice(space)
    first: dict[Assignment, Cost | None] = {}
    while not any(cost is not None for cost in first.values()):
        batch = genes.unmet(order, POPULATION // 2)
        if not batch:
            return
        genes.met.update(batch)
        first.update(zip(batch, (yield batch), strict=True))
    if len(genes.met) == space.size:
        return
    choice.learn(first)
    # If many assignments failed before the first success, only the last population of results is used.
    costs = dict(list(first.items())[-POPULATION:])
    objectives = next(len(cost) for cost in costs.values() if cost is not None)
    problem = Problem(n_var=len(genes.slots), n_obj=objectives, n_ieq_constr=1, xl=0, xu=genes.radices - 1, vtype=int)
    wanted = POPULATION // 3
    algorithm = NSGA2(
        pop_size=POPULATION,
        n_offsprings=_BRED * wanted,
        sampling=genes.rows(list(costs)),
        crossover=UniformCrossover(prob=0.9),
        mutation=_AnotherChoice(space, genes),
        eliminate_duplicates=_Unmet(lambda row: algorithm.is_initialized and genes.assignment(row) in genes.met),
    )
    algorithm.mating.n_max_iterations = _TRIES
    algorithm.setup(problem, termination=NoTermination(), seed=seed)
    _tell(algorithm, problem, algorithm.ask(), _outcomes(list(costs.values()), objectives))
    while len(genes.met) < space.size:
        batch = choice.best(_children(algorithm, genes, wanted, order), wanted)
        genes.met.update(batch)
        results = yield batch
        choice.learn(dict(zip(batch, results, strict=True)))
        _tell(algorithm, problem, Population.new("X", genes.rows(batch)), _outcomes(list(results), objectives))


class _Choice:
    """The selection of the children to evaluate."""

    def __init__(self, space: Space) -> None:
        self._guide, self._front = Guide(space), Archive()

    def learn(self, results: dict[Assignment, Cost | None]) -> None:
        for assignment, cost in results.items():
            self._guide.learn(assignment, cost)
            if cost is not None:
                self._front.add(assignment, cost)

    def best(self, children: list[Assignment], count: int) -> list[Assignment]:
        if not self._guide.ready or len(children) <= count:
            return children[:count]
        return self._guide.best(children, [self._front.cost(a) for a in self._front], count)


def _children(algorithm: Any, genes: _Genes, wanted: int, order: Iterator[Assignment]) -> list[Assignment]:
    """New children of the population, and random new assignments if fewer than `wanted` children were bred."""
    bred = algorithm.ask()
    algorithm.termination.force_termination = False  # set if nothing new could be bred
    children = [] if bred is None else [genes.assignment(row) for row in bred.get("X")]
    return [*children, *genes.unmet(order, wanted - len(children), set(children))]


def _tell(algorithm: Any, problem: Any, individuals: Any, outcomes: dict[str, object]) -> None:
    Evaluator().eval(StaticProblem(problem, **outcomes), individuals)
    algorithm.tell(infills=individuals)
