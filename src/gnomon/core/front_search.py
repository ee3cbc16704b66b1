"""What a search for a front knows: the points found, and how to tell them from what may still be missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import CostModel, Floats, Ints
from gnomon.core.dominance import nondominated
from gnomon.errors import UsageError

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLimits:
    """How large the search for a front may grow.

    `table_entries` are the joint choices of all elimination tables together, `labels` the partial cost vectors held at
    once (about 10 bytes each), `weightings` how many weighted sums bound them, `charges` how many charged choices are
    enumerated (their number doubles the work), and `milp_s` the seconds of each run of HiGHS, which takes over
    where elimination is beyond the limits.
    """

    table_entries: int = 1 << 22
    labels: int = 50_000_000
    weightings: int = 4096
    charges: int = 8
    milp_s: float = 10.0


class Search:
    """The points found so far, `costs` (N, objectives) and `assignments` (N, slots), none of them dominated.

    `factor` is what the search is content with: each allowed vector covered within that factor. `show` is called
    where there is more to see, with the factor that is proved by then.
    """

    def __init__(
        self,
        model: CostModel,
        *,
        factor: float,
        limits: FrontLimits,
        out_of_time: Callable[[], bool],
        show: Callable[[float], None],
    ) -> None:
        self.model, self.factor, self.limits = model, factor, limits
        self.out_of_time, self.show = out_of_time, show
        count = len(model.objectives)
        self.costs: Floats = np.zeros((0, count))
        self.assignments: Ints = np.zeros((0, len(model.space.slots)), dtype=np.intp)
        self.magnitude = magnitude(model)

    def learn(self, assignments: Ints) -> None:
        """Add assignments (N, slots); of equal costs the one found first stays.

        Raises UsageError where a factor above 1 is asked for and a cost turns out negative.
        """
        every = np.concatenate([self.assignments, assignments])
        costs = np.concatenate([self.costs, self.model.evaluate(assignments)])
        kept = nondominated(costs)
        self.costs, self.assignments = costs[kept], every[kept]
        if self.factor > 1 and bool((self.costs < 0).any()):
            raise UsageError(
                "an epsilon says nothing where costs are negative",
                hint="leave the epsilon out, or add a constant to the costs",
            )

    def slack(self, weights: Floats) -> float:
        """A bound on the rounding of sums of one assignment's costs under scaled weights (objectives,)."""
        terms = len(self.model.space.slots) + len(self.model.pairs) + 16
        return 4.0 * terms * _EPSILON * float(self.magnitude @ weights)


def magnitude(model: CostModel) -> Floats:
    """A bound on the absolute value of each objective's partial sums, (objectives,)."""
    total = np.zeros(len(model.objectives))
    for group in (*model.slot_groups, *model.pair_groups):
        finite = np.where(np.isinf(group.tables), 0.0, np.abs(group.tables))
        total += finite.reshape(len(group.members), -1, len(total)).max(axis=1).sum(axis=0)
    for charge in model.charges:
        cost = np.asarray(charge.cost, dtype=np.float64)
        total += np.where(np.isinf(cost), 0.0, cost)
    return total


def whole(model: CostModel) -> bool:
    """Whether all sums of the model's costs are integers that double precision holds exactly."""
    tables = [group.tables for group in (*model.slot_groups, *model.pair_groups)]
    tables += [np.asarray(charge.cost, dtype=np.float64) for charge in model.charges]
    integers = all(bool((np.floor(t) == t).all()) for t in tables)
    return integers and float(magnitude(model).max(initial=0.0)) < 2.0**53
