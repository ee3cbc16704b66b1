"""The state of a search for a front, its cases of charges, and the search for one objective or for three or more.

A `Case` is a set of charged choices and the problem in which no other charged choice is used. An assignment that uses
exactly the charged choices of a set costs the sum of its slot costs, its pair costs and the charges of the set. In the
case for a larger set, the same assignment costs more. So the minimal vectors over all sets are the minimal vectors of
the model itself.

`search_many` runs label passes that test the ideal completion of each label. A few weighted minima give the first
points. The first pass accepts an approximation, and its points let the second pass drop more labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from gnomon.core.cost import CostModel, Floats, Ints, Objective, OutOfTime, magnitude
from gnomon.core.front.dominance import nondominated
from gnomon.core.front.labels import Budget, IdealPass
from gnomon.core.front.plan import Plan, minimise_weighted
from gnomon.core.solver.limits import caps_of
from gnomon.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A plan that forbids all charged choices but those of one set, and the sum of the set's charges, (objectives,)."""

    plan: Plan
    charge: Floats


def charged_choices(model: CostModel) -> tuple[list[tuple[Floats, list[tuple[int, int]]]], list[tuple[int, int]]]:
    """The finite charges above 0 with their places (slot, choice), and the places that infinite charges forbid."""
    finite: list[tuple[Floats, list[tuple[int, int]]]] = []
    forbidden: list[tuple[int, int]] = []
    for charge in model.charges:
        cost = np.asarray(charge.cost, dtype=np.float64)
        places = model.places(charge)
        if np.isinf(cost).any():
            forbidden += places
        elif places and cost.any():
            finite.append((cost, places))
    return finite, forbidden


def cases(model: CostModel, plan: Plan) -> list[Case]:
    """A case for each set of charges, smaller sets first; a single case if there are no charges."""
    charges, forbidden = charged_choices(model)
    numbers = range(len(charges))
    parts: list[Case] = []
    for size in range(len(charges) + 1):
        for paid in combinations(numbers, size):
            shut = [place for c in numbers if c not in paid for place in charges[c][1]]
            total = np.sum([charges[c][0] for c in paid], axis=0) if paid else np.zeros(len(model.objectives))
            parts.append(Case(plan=plan.forbidding([*forbidden, *shut]), charge=np.asarray(total)))
    return parts


_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLimits:
    """The limits of the search for a front.

    `table_entries` limits the joint choices of all elimination tables together, `labels` limits the partial cost
    vectors in memory (about 10 bytes each), and `weightings` limits the weighted sums that give bounds. `charges`
    limits the charged choices that are enumerated, each of which doubles the work. `milp_s` limits the seconds of each
    run of HiGHS, which takes over if elimination is beyond the limits.
    """

    table_entries: int = 1 << 22
    labels: int = 50_000_000
    weightings: int = 4096
    charges: int = 8
    milp_s: float = 10.0


class Search:
    """The points found so far, `costs` (N, objectives) and `assignments` (N, slots), none of them dominated.

    `counted` is the model with the uses of its limits as further objectives, and `most` has their greatest allowed
    values. The search ends when each allowed vector is covered within `factor`. `show` is called after progress, with
    the factor that is proved so far.
    """

    def __init__(
        self,
        model: CostModel,
        *,
        factor: float,
        limits: FrontLimits,
        show: Callable[[float], None],
        left_s: Callable[[], float] | None = None,
    ) -> None:
        self.model, self.factor, self.limits = model, factor, limits
        self.show, self.left_s = show, left_s
        count = len(model.objectives)
        self.counted = _counted(model)
        self.most = np.array([cap.at_most for cap in caps_of(model)])
        self.costs: Floats = np.zeros((0, count))
        self.assignments: Ints = np.zeros((0, len(model.space.slots)), dtype=np.intp)
        # A bound on the absolute value of each objective's partial sums.
        parts = tables(self.counted)
        self.magnitude = np.array([sum(magnitude(t[..., m]) for t in parts) for m in range(count + len(self.most))])

    def out_of_time(self) -> bool:
        """Return True if no time is left."""
        return self.left_s is not None and self.left_s() <= 0

    def budget(self, most: int) -> Budget:
        """The budget of a pass that wants at most `most` labels."""
        return Budget(most=most, room=self.limits.labels, out_of_time=self.out_of_time)

    def learn(self, assignments: Ints) -> None:
        """Add the assignments (N, slots) that keep all limits; of assignments with equal costs, the earliest is kept.

        Raises UsageError if a factor above 1 is requested and a cost turns out to be negative.
        """
        count = len(self.model.objectives)
        vectors = self.counted.evaluate(assignments)
        within = (vectors[:, count:] <= self.most).all(axis=1)
        every = np.concatenate([self.assignments, assignments[within]])
        costs = np.concatenate([self.costs, vectors[within, :count]])
        kept = nondominated(costs)
        self.costs, self.assignments = costs[kept], every[kept]
        if self.factor > 1 and bool((self.costs < 0).any()):
            raise UsageError(
                "an epsilon proves nothing if costs are negative",
                hint="Leave the epsilon out, or add a constant to the costs.",
            )

    def slack(self, weights: Floats) -> float:
        """A bound on the rounding error of sums of one assignment's costs under scaled weights (objectives,)."""
        terms = len(self.model.space.slots) + len(self.model.pairs) + 16
        return 4.0 * terms * _EPSILON * float(self.magnitude[: len(weights)] @ weights)


def _counted(model: CostModel) -> CostModel:
    """The model without limits, with the limited quantities as further objectives."""
    if not model.limits:
        return model

    def joined(costs: Floats, uses: list[Floats]) -> Floats:
        return np.concatenate([costs, np.stack(uses, axis=-1)], axis=-1)

    pairs = [
        [limit.pairs[p] if limit.pairs else np.zeros(np.shape(pair.cost)[:2]) for limit in model.limits]
        for p, pair in enumerate(model.pairs)
    ]
    charges = [
        [np.asarray(limit.charges[c] if limit.charges else 0.0) for limit in model.limits]
        for c in range(len(model.charges))
    ]
    names = [Objective(f"limit {number} on {limit.name}") for number, limit in enumerate(model.limits)]
    return CostModel(
        model.space,
        (*model.objectives, *names),
        tuple(joined(c, [limit.slots[i] for limit in model.limits]) for i, c in enumerate(model.slot_costs)),
        tuple(replace(p, cost=joined(p.cost, uses)) for p, uses in zip(model.pairs, pairs, strict=True)),
        tuple(replace(c, cost=joined(c.cost, uses)) for c, uses in zip(model.charges, charges, strict=True)),
    )


def tables(model: CostModel) -> list[Floats]:
    """All costs of a model, as arrays of shape (tables, .., objectives)."""
    paid = [np.asarray(charge.cost, dtype=np.float64)[None] for charge in model.charges]
    return [group.tables for group in (*model.slot_groups, *model.pair_groups)] + paid


_NEAR = 1.05
_EDGE_STEPS = 8
_RANDOM = 64
BATCH_ENTRIES = 1 << 22  # the numbers in memory for one batch of weighted minima


def search_many(search: Search, cases: list[Case], relaxed: Plan) -> float:
    """Search all cases, and return the factor within which the points found are proved to cover everything."""
    count = len(search.model.objectives)
    ideal, assignments = minimise_weighted(relaxed, np.eye(len(search.magnitude)))
    if not np.isfinite(ideal.value).all():
        return 1.0
    search.learn(assignments)
    lowest = ideal.value[:count]
    spread = spread_weights(_scale(search.counted.evaluate(assignments)), len(search.magnitude))
    step = max(1, BATCH_ENTRIES // max(1, relaxed.entries))
    for start in range(0, len(spread), step):
        if search.out_of_time():
            break
        search.learn(minimise_weighted(relaxed, spread[start : start + step])[1])
    search.show(ideal_factor(search.costs, lowest))
    slack = np.array([search.slack(unit) for unit in np.eye(count)])
    if search.magnitude.max() < 2.0**53 and all(bool((np.floor(t) == t).all()) for t in tables(search.counted)):
        slack = np.zeros(count)  # all sums are integers that double precision represents exactly
    factors = [search.factor]
    if search.factor < _NEAR and bool((lowest > 0).all()):
        factors.insert(0, _NEAR)
    proved = float("inf")
    for factor in factors:
        for case in cases:
            minima, ends = minimise_weighted(case.plan, np.eye(len(search.magnitude)))
            if not np.isfinite(minima.value).all():
                continue
            search.learn(ends)
            front = search.costs / factor - case.charge[:count] + slack
            most = search.most - case.charge[count:]
            labels = IdealPass(case.plan, front, search.budget(search.limits.labels), most)
            try:
                labels.run()
            except OutOfTime:
                return min(proved, ideal_factor(search.costs, lowest))
            search.learn(labels.assignments(np.arange(len(labels.left.row))))
        proved = factor
        search.show(factor)
    return search.factor


def ideal_factor(costs: Floats, ideal: Floats) -> float:
    """The least factor within which some point covers the ideal vector, a lower bound on all allowed vectors."""
    if not len(costs) or not bool((ideal > 0).all()):
        return float("inf")
    return float((costs / ideal).max(axis=1).min())


def spread_weights(scale: Floats, count: int) -> Floats:
    """Scaled weightings (W, objectives): the even one, mixes of every two objectives in steps, and random ones."""
    rows = [np.full(count, 1.0 / count)]
    for i, j in combinations(range(count), 2):
        for step in range(1, _EDGE_STEPS):
            row = np.zeros(count)
            row[i], row[j] = step / _EDGE_STEPS, 1 - step / _EDGE_STEPS
            rows.append(row)
    drawn = np.random.default_rng(0).dirichlet(np.ones(count), _RANDOM)
    return np.concatenate([np.array(rows), drawn]) * scale


def _scale(costs: Floats) -> Floats:
    reach = np.ptp(costs, axis=0)
    return np.asarray(1.0 / np.where(reach > 0, reach, 1.0))
