"""Limits on the peak along an order of the slots, as forbidden pairs with helper slots.

At each step the slots that are alive may use no more than the limit together. A helper slot for the step chooses how
the limit is shared among them, and its pairs forbid each slot to use more than its share. So every method solves a
problem with peaks as it solves one without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import numpy as np

from gnomon.core.cost import CostModel, Limit, PairCost
from gnomon.core.solver.limits import Cap, caps_of, conflict, most_allowed
from gnomon.core.solver.solution import Solution, Time, check_options
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError, ProblemError

_MOST_SHARES = 1 << 12  # the most ways of sharing that are looked at for a step; beyond, the step is a limit on a sum
_CLOSE = 1e-9  # relative
_LEAST_S = 1e-3


def without_peaks(model: CostModel) -> CostModel:
    """The model with helper slots at its end instead of peaks; its limits begin with those on sums.

    Raises InfeasibleError if the slots at one step alone cannot keep a peak.
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
                raise InfeasibleError(f"nothing keeps '{limit.name}'", hint="allow more")
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


def solve_peaks(
    model: CostModel,
    solved: Callable[..., Solution],
    time_limit_s: float | None,
    clock_s: Callable[[], float] | None,
) -> Solution:
    """The solution of a model with peaks by `solved`, which solves models without peaks; peaks have no price.

    If no assignment keeps the limits, the InfeasibleError has the amounts that are needed.
    """
    check_options("auto", time_limit_s)
    time = Time(time_limit_s, clock_s)

    def within(limits: Sequence[Limit]) -> Solution:
        left_s = time.left_s()
        left_s = None if left_s is None else max(left_s, _LEAST_S)
        wide = solved(without_peaks(replace(model, limits=tuple(limits))), time_limit_s=left_s, clock_s=clock_s)
        chosen = wide.assignment[: len(model.space.slots)]
        return replace(wide, assignment=chosen, choices=model.space.names(chosen), code=model.space.encode(chosen))

    def least(cap: Cap, others: Sequence[Cap]) -> float:
        limit, kept = model.limits[cap.number], [model.limits[other.number] for other in others]
        low = tried = cap.at_most
        try:
            high = model.used(limit, within(kept).assignment)
        except InfeasibleError:
            return np.inf
        margin = _CLOSE * max(abs(low), abs(high))
        while high - low > margin and not time.over(0.0):
            try:
                high = min(tried, model.used(limit, within([*kept, replace(limit, at_most=tried)]).assignment))
            except InfeasibleError:
                low = tried
            except ProblemError:  # no time is left, or HiGHS cannot decide so close to the least
                break
            tried = (low + high) / 2
        return high if high - low <= margin else float(np.nextafter(low, np.inf))

    try:
        answer = within(model.limits)
    except InfeasibleError as error:
        within(())  # raises the reason if nothing is allowed at all
        raise conflict(model, caps_of(model), least) or error from None
    prices = iter(answer.prices)
    return replace(
        answer,
        prices=tuple(np.nan if limit.order else next(prices) for limit in model.limits) if answer.prices else (),
        free=within(()).value if answer.method != "milp" else None,
    )
