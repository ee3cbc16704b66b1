"""Limits on the peak along an order of the slots, expressed as forbidden pairs with helper slots.

At each step, the slots that are alive may together use no more than the limit. A helper slot for the step chooses how
the limit is shared among them, and its pairs forbid any slot to use more than its share. Every method can therefore
solve a problem with peaks like one without.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import numpy as np

from gnomon.core.cost import CostModel, Limit, PairCost
from gnomon.core.solver.limits import most_allowed
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError

_MOST_SHARES = 1 << 12  # the most ways of sharing considered for a step; with more, the step limits a sum instead


def without_peaks(model: CostModel) -> CostModel:
    """The model with helper slots at its end instead of peaks; its limits begin with the model's own limits on sums.

    Raises InfeasibleError if the slots of a single step cannot keep a peak.
    """
    slots, costs, pairs = list(model.space.slots), list(model.slot_costs), list(model.pairs)
    sums = [limit for limit in model.limits if not limit.order]
    if len(sums) == len(model.limits):
        return model
    names = [*(slot.name for slot in slots), *(charge.choice for charge in model.charges)]
    free = "+" * (1 + max(map(len, names), default=0))  # begins a name that is not in use
    nothing = np.zeros(len(model.objectives))
    for limit in (limit for limit in model.limits if limit.order):
        at_most, unused = most_allowed(limit, limit.slots), [np.zeros(len(use)) for use in limit.slots]
        steps = [[slot for slot in alive if limit.slots[slot].any()] for alive in model.alive(limit.order)]
        for alive in [now for now, after in pairwise([*steps, []]) if not set(now) <= set(after)]:
            if sum(float(limit.slots[slot].max()) for slot in alive) <= at_most:
                continue
            levels = [np.unique(limit.slots[slot]) for slot in alive]
            if math.prod(map(len, levels)) > _MOST_SHARES:
                uses = [use if slot in alive else unused[slot] for slot, use in enumerate(limit.slots)]
                sums.append(replace(limit, slots=tuple(uses), order=()))
                continue
            fits = np.asarray(reduce(np.add.outer, levels) <= at_most, dtype=np.int8)
            largest = [np.diff(fits, axis=axis, append=0) < 0 for axis in range(len(alive))]
            shares = np.argwhere(np.logical_and.reduce(largest))
            if not len(shares):
                raise InfeasibleError(f"no assignment keeps the limit '{limit.name}'", hint="Raise it.")
            for slot, level, share in zip(alive, levels, shares.T, strict=True):
                above = np.searchsorted(level, limit.slots[slot])[:, None, None] > share[:, None]
                pairs.append(PairCost(slot, len(slots), np.where(above, np.inf, nothing)))
            slots.append(Slot(f"{free}{len(slots)}", tuple(f"{free}{share}" for share in range(len(shares)))))
            costs.append(np.tile(nothing, (len(shares), 1)))

    def widened(limit: Limit) -> Limit:
        more = [np.zeros(len(cost)) for cost in costs[len(limit.slots) :]]
        tables = [np.zeros(pair.cost.shape[:2]) for pair in pairs[len(limit.pairs) :]] if limit.pairs else []
        return replace(limit, slots=(*limit.slots, *more), pairs=(*limit.pairs, *tables))

    limits = tuple(map(widened, sums))
    return CostModel(Space(tuple(slots)), model.objectives, tuple(costs), tuple(pairs), model.charges, limits)
