"""The Pareto front of a cost model, with a certificate of its quality (see docs/jobs/front.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gnomon.core.cost import CostModel, Floats, Ints, OutOfTime
from gnomon.core.front.limited import solve_within
from gnomon.core.front.plan import joint_pairs, plan_of
from gnomon.core.front.search import FrontLimits, Search, cases, charged_choices, search_many
from gnomon.core.front.triangles import TriangleSearch
from gnomon.core.front.wide import search_wide, solved
from gnomon.core.solver.elimination import minimise, weigh
from gnomon.core.solver.ordering import Limits, Order
from gnomon.core.solver.peaks import without_peaks
from gnomon.core.solver.prune import infeasible, weigh_charges
from gnomon.errors import InfeasibleError, ProblemError, UsageError

_SOME_SLOTS = 64  # from this number on, a front that needs no search is worth showing
_MANY_SLOTS = 300  # from this number on, planning takes longer than finding a first minimum


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """A choice index for each slot, and the cost of this assignment in each objective."""

    assignment: tuple[int, ...]
    cost: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The proof that comes with a front.

    "exact": for each allowed assignment, some point is nowhere worse (and no point is dominated). "epsilon": for each
    allowed assignment, some point is nowhere worse than (1 + `epsilon`) times its cost. "complete": every allowed
    assignment was run, so the front is right up to the noise of the runs. "heuristic": nothing is proved, except that
    no point dominates another.
    """

    kind: Literal["exact", "epsilon", "complete", "heuristic"]
    epsilon: float | None = None

    def document(self) -> str | dict[str, float]:
        """The certificate as JSON: {"epsilon": e} for kind "epsilon", and the kind for all others."""
        return {"epsilon": self.epsilon} if self.epsilon is not None else self.kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Front:
    """Distinct cost vectors (N, objectives) in order of the first objective; none dominates another.

    `assignments` (N, slots) has an assignment for each vector. `points` are the same data as records.
    """

    costs: Floats
    assignments: Ints
    certificate: Certificate

    def __len__(self) -> int:
        return len(self.costs)

    @property
    def points(self) -> tuple[FrontPoint, ...]:
        """The points in order."""
        rows = zip(self.assignments.tolist(), self.costs.tolist(), strict=True)
        return tuple(FrontPoint(assignment=tuple(a), cost=tuple(c)) for a, c in rows)


def exact_front(
    model: CostModel,
    *,
    epsilon: float = 0.0,
    limits: FrontLimits | None = None,
    left_s: Callable[[], float] | None = None,
    watch: Callable[[Front], Any] | None = None,
) -> Front:
    """The Pareto front of a model; with an `epsilon` above 0, points that cover it within 1 + `epsilon`.

    `left_s` returns the seconds that are left; the search ends early when none are left or when a limit is reached. The
    certificate then states the factor proved so far. The time limit also applies to HiGHS, which takes over if
    elimination is beyond the limits. `watch` receives the fronts found on the way, each better than the last. Time and
    memory grow with the number of points; two objectives are much faster than more.

    Raises UsageError for an invalid epsilon, or for an epsilon above 0 if costs are negative, and
    InfeasibleError if no assignment is allowed.
    """
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise UsageError(f"the epsilon is {epsilon}", hint="Use a number of 0 or more, such as 0.01.")
    limits = limits or FrontLimits()

    def show(factor: float) -> None:
        if watch is not None and len(search.costs):
            watch(_front(search, factor, epsilon, model))

    try:
        search = Search(without_peaks(model), factor=1.0 + epsilon, limits=limits, show=show, left_s=left_s)
        factor = _run(search)
        if not len(search.costs) and search.model.limits:
            raise ProblemError("no assignment within the limits was found in time", hint="Raise the time limit.")
        if not len(search.costs):
            weights = np.ones(len(model.objectives))
            raise infeasible(model.space, weigh_charges(model, weights, weigh(model, weights))[0])
    except InfeasibleError:
        if any(limit.order for limit in model.limits):
            solve_within(model, {model.objectives[0].name: 1.0})  # raises an error that names the limits
        raise
    return _front(search, factor, epsilon, model)


def _run(search: Search) -> float:
    """Search with the method that fits the model, and return the factor that is proved, +inf if none is."""
    model, limits = search.model, search.limits
    if not model.space.slots:
        search.learn(np.zeros((1, 0), dtype=np.intp))
        return 1.0
    if len(model.space.slots) >= _SOME_SLOTS:
        search.learn(_simple(model))
        search.show(math.inf)
    if len(model.space.slots) >= _MANY_SLOTS:
        _start(search)
    if model.limits:  # a first point, or the reason why no assignment keeps the limits
        solved(search, np.eye(len(model.objectives))[0])
    counted = search.counted
    charges, forbidden = charged_choices(counted)
    entries = float(limits.table_entries)
    plan = plan_of(counted.slot_costs, joint_pairs(counted), Limits(table_entries=entries, total_entries=entries))
    if plan is None or len(charges) > limits.charges:
        return search_wide(search)
    relaxed, parts = plan.forbidding(forbidden), cases(counted, plan)
    if len(model.objectives) == 2 and not model.limits:
        return TriangleSearch(search).run(parts, relaxed)
    return search_many(search, parts, relaxed)


def _start(search: Search) -> None:
    """Find the minimum of each objective and of their even mix, as a first front before anything is planned."""
    model, count = search.model, len(search.model.objectives)

    order: Order | None = None

    def learn(weights: Floats) -> None:
        nonlocal order
        try:
            minimum = minimise(weigh(model, weights), order=order, stop=lambda _: search.out_of_time())
        except OutOfTime:
            return
        if minimum is not None:
            order = minimum.order
            search.learn(np.array([minimum.assignment], dtype=np.intp))

    for unit in np.eye(count):
        learn(unit)
    search.show(math.inf)
    reach = np.ptp(search.costs, axis=0) if len(search.costs) else np.zeros(count)
    if reach.all():
        learn(1.0 / reach)
    search.show(math.inf)


def _simple(model: CostModel) -> Ints:
    """Assignments (N, slots) that need no search.

    For each objective, there is the assignment of each slot's cheapest choice; for each choice, there is one with this
    choice in all slots that allow it. Pair costs may still forbid these assignments.
    """
    slots = model.space.slots
    allowed: list[Floats] = [np.where(np.isinf(c).any(axis=1, keepdims=True), np.inf, c) for c in model.slot_costs]
    cheapest = np.array([cost.argmin(axis=0) for cost in allowed])
    rows = [cheapest.T]
    for name in dict.fromkeys(choice for slot in slots for choice in slot.choices):
        row = cheapest[:, 0].copy()
        for i, slot in enumerate(slots):
            if name in slot.choices and allowed[i][slot.choices.index(name), 0] < np.inf:
                row[i] = slot.choices.index(name)
        rows.append(row[None])
    return np.concatenate(rows)


def _front(search: Search, factor: float, epsilon: float, model: CostModel) -> Front:
    if factor <= 1:
        certificate = Certificate(kind="exact")
    elif math.isfinite(factor) and not bool((search.costs < 0).any()):  # a factor above 1 makes negative costs smaller
        # A requested epsilon that was reached is written as requested, without the rounding error of 1 + epsilon.
        reached = factor <= search.factor
        certificate = Certificate(kind="epsilon", epsilon=min(factor - 1.0, epsilon) if reached else factor - 1.0)
    else:
        certificate = Certificate(kind="heuristic")
    assignments = search.assignments[:, : len(model.space.slots)]  # without helper slots
    return Front(costs=search.costs, assignments=assignments, certificate=certificate)
