"""Thinning of large label sets, with an account of the error.

A label stands for others of its state where it is nowhere dearer but in one objective, and there by at most a factor f
of the others' least total: their own cost and the least completion of the state. Whatever completes them, the total
is then at most f times as dear, as completions cost at least the least one (see docs/front.md for the proof). Factors
multiply over all thinnings of a pass, so that their logarithms add up to what is spent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.front_bounds import beyond, later, minimise_weighted
from gnomon.core.front_plan import Plan

_TINY = 1e-300
_LARGE = 8  # times the set that is not thinned: thinned at once
_INTERVAL = 16  # thinnings are at least this many buckets apart, unless a set is very large


class Trimmer:
    """Thins sets of more than `most` labels of two objectives that are not negative, within a factor in all.

    `charge` (2,) is paid in any case. `spent` is the logarithm of the factor used so far; it never exceeds that of
    `factor`.
    """

    def __init__(self, plan: Plan, factor: float, most: int, charge: Floats) -> None:
        self.plan, self.minima = plan, minimise_weighted(plan, np.eye(2))[0]
        self.least = [part + charge for part in beyond(plan, self.minima)]
        self.budget = float(np.log(factor)) * (1 - 1e-6)
        self.most, self.spent = most, 0.0
        self.last, self.count = -_INTERVAL, len(plan.buckets)

    def kept(self, number: int, costs: Floats, states: Ints, left: Sequence[int] = ()) -> Ints | None:
        """Which labels (objectives, N) of bucket `number` to keep, None for all.

        They are sorted by state and then by the first objective, and none of a state dominates another. With `left`,
        the places of children that are not added yet, the states are rows of the bucket's terms.
        """
        size = len(states)
        large = bool(left) or size > _LARGE * self.most
        due = large or number - self.last >= _INTERVAL
        if size <= self.most or not due or number == self.count - 1:
            return None
        # Each bucket gets its share of what is left; what small sets did not need goes to all later ones.
        since = _INTERVAL if large else min(number - self.last, 2 * _INTERVAL)
        share = (self.budget - self.spent) * since / (self.count - number + since)
        least = self.least[number]
        if left:
            least = later(self.plan.buckets[number], self.minima, least, left)
        totals = np.log(np.maximum(costs + least[states].T, _TINY))
        chosen = _thinned(totals, states, share)
        self.last = self.last if left else number
        self.spent += share
        return np.flatnonzero(chosen)


def _thinned(totals: Floats, states: Ints, width: float) -> NDArray[np.bool_]:
    """One label of each cell of a width: cells of the first objective on the steep side of each state's staircase,
    where the last label stands for its cell, and of the second on the flat side, where the first one does.
    """
    begin = np.ones(len(states), dtype=bool)
    begin[1:] = states[1:] != states[:-1]
    starts = np.flatnonzero(begin)
    lengths = np.diff(np.append(starts, len(states)))
    ends = starts + lengths - 1
    group = np.repeat(np.arange(len(starts)), lengths)
    x = totals[0] - totals[0][starts][group]
    y = totals[1] - totals[1][ends][group]
    # The turn is where cells of the first objective up to it and of the second from it are fewest.
    span = x + y
    least = np.minimum.reduceat(span, starts)
    turns = np.flatnonzero(span == least[group])
    turn = turns[np.searchsorted(group[turns], np.arange(len(starts)))][group]
    place = np.arange(len(states))
    steep, flat = np.floor(x / width), np.floor(y / width)
    keep = begin.copy()
    keep[ends] = True
    keep |= place == turn
    inner = (place[:-1] < turn[:-1]) & ~begin[1:]
    keep[:-1] |= inner & (steep[1:] != steep[:-1])
    outer = (place[1:] > turn[1:]) & ~begin[1:]
    keep[1:] |= outer & (flat[1:] != flat[:-1])
    return keep
