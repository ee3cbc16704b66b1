"""The best portfolio: the p configurations that together serve N devices best, where each device uses the best of them.

This is the p-median problem: choose a set S of p rows that minimises the sum over devices of weight times the least
regret in S. A first set comes from greedy choice and from random starts, each improved by swapping one configuration
for another as long as that helps (Teitz and Bart, 1968). Branch and bound then improves the set or proves that it is
the best.

Branch and bound looks for p rows of a matrix such that their column minima have the least sum.

The bound is the Lagrangian bound for the constraints that each column is served once (Cornuejols, Fisher and Nemhauser,
"Location of bank accounts to optimize float", 1977). With multipliers u, a chosen row c is worth r_c = sum over columns
of min(0, cost - u), and no p rows cost less than sum(u) + the sum of the p least r. The multipliers are improved by
subgradients with Polyak's step. Rows are taken in the order of r: a branch takes one row and may add only rows after
it, so the rows that a branch may not use improve its bound as well. Rows that are too expensive to beat the incumbent
are cut off. The rows that are already chosen cap u, because a new row saves nothing in a column where it costs at least
as much as they do; this tightens the bound from branch to branch. The last row of a branch is found by trying all
remaining rows.

Rounding: each bound is lowered by more than the rounding error of its sums, and a branch is abandoned only if its bound
reaches (1 - `GAP`) times the incumbent's cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats
from gnomon.errors import InfeasibleError, UsageError

Ints = NDArray[np.intp]

GAP = 1e-9
"""Portfolios count as equal if their values differ by less than this share."""

_STEPS = (400, 10)  # subgradient steps at the root, and at a branch
_PATIENCE = (20, 3)  # steps without a better bound before the step is halved, at the root, and at a branch
_SLACK = 1e-14  # the error of a sum, relative to the sum of its terms' magnitudes: 45 units of rounding
_DEAR, _FAR = 8, 4.0  # expensive columns examined first, if all columns cost over `_FAR` times the incumbent
_DEEPEST = 200  # the maximum number of rows of a branch, because Python limits recursion


def search(costs: Floats, size: int, cost: float, *, out_of_time: Callable[[], bool]) -> Branching:
    """Search for the `size` rows of `costs` (rows, columns) of least cost, if any cost less than `cost`.

    Entries are at least 0 and may be infinite, `cost` is finite and above 0, and 1 <= `size` <= rows. Returns the final
    state of the search.
    """
    with np.errstate(over="ignore"):
        scaled = costs / cost
    branching = Branching(out_of_time)
    rows, columns = costs.shape
    # An entry that alone costs as much as the incumbent is useless.
    settled = np.ones(columns)
    start = np.partition(scaled, min(size, rows - 1), axis=0)[min(size, rows - 1)]
    node = _Node(chosen=(), settled=settled, costs=scaled, rows=np.arange(rows), size=size)
    open_bound = branching.visit(node, np.minimum(start, 1.0))
    proved = branching.best * (1 - GAP)
    branching.bound, branching.done = max(min(open_bound, proved), 0.0) * cost, bool(np.isinf(open_bound))
    return branching


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Node:
    """A branch: the chosen rows, the columns' costs with these rows, and the candidates for `size` further rows."""

    chosen: tuple[int, ...]
    settled: Floats
    costs: Floats
    rows: Ints
    size: int


class Branching:
    """The state of one search, in units of the cost that is to be undercut.

    `rows` are the rows of the best portfolio found; None if none below that cost was found. At the end no portfolio
    costs less than `bound`, and `done` is True if the search was complete.
    """

    def __init__(self, out_of_time: Callable[[], bool]) -> None:
        self.out_of_time = out_of_time
        self.best = 1.0
        self.rows: tuple[int, ...] | None = None
        self.bound, self.done = 0.0, False

    @property
    def cut(self) -> float:
        """The bound that a branch must undercut."""
        return self.best * (1 - GAP)

    def visit(self, node: _Node, start: Floats) -> float:
        """Search a branch, and return the least bound of its unsearched part, or infinity if all of it was searched."""
        size, count = node.size, len(node.rows)
        if count < size:
            return np.inf  # the missing rows were shown to be too expensive
        if size == 1:
            return self._last(node.chosen, node.settled, node.costs, node.rows)
        if self.out_of_time() or len(node.chosen) >= _DEEPEST:
            return 0.0
        multipliers, worth = self._multipliers(node, start)
        base = float(multipliers.sum()) * (1 - _SLACK * (size + 2))
        order = np.argsort(worth, kind="stable")
        worth = worth[order]
        order = order[: np.searchsorted(worth, self.cut - base - worth[: size - 1].sum())]
        if len(order) < size:
            return np.inf
        worth, costs, rows = worth[: len(order)], node.costs[order], node.rows[order]
        ahead = base + _windows(worth, size)
        # The rows that may follow a row are a slice, because rows are in the order of their worth.
        room = self.cut - base - worth[: len(ahead)] - _windows(worth, size - 2)[1 : len(ahead) + 1]
        ends = np.searchsorted(worth, room).tolist()
        worthwhile = size == 2 and len(node.settled) > 2 * _DEAR and node.settled.sum() > _FAR * self.best
        turned = np.ascontiguousarray(costs.T) if worthwhile else None
        for first, bound in enumerate(ahead.tolist()):
            if bound >= self.cut:
                break
            if ends[first] < first + size:
                continue
            settled, rest = np.minimum(node.settled, costs[first]), slice(first + 1, ends[first])
            chosen = (*node.chosen, int(rows[first]))
            if size == 2:
                left = self._last(chosen, settled, costs[rest], rows[rest], None if turned is None else turned[:, rest])
            else:
                branch = _Node(chosen=chosen, settled=settled, costs=costs[rest], rows=rows[rest], size=size - 1)
                left = self.visit(branch, multipliers)
            if left < np.inf:
                # Out of time: the rest of this branch and all branches after it are unsearched.
                return float(min(max(left, bound), *ahead[first + 1 : first + 2].tolist(), np.inf))
        return np.inf

    def _last(
        self, chosen: tuple[int, ...], settled: Floats, costs: Floats, rows: Ints, turned: Floats | None = None
    ) -> float:
        """Try each row as the last one, and return what `visit` returns. `turned` are the costs (columns, rows)."""
        if self.out_of_time():
            return 0.0
        if turned is not None:
            # Few rows help in the most expensive columns: for other rows the remaining columns need not be examined.
            dear = np.argpartition(settled, -_DEAR)[-_DEAR:]
            part = np.add.reduce(np.minimum(turned[dear], settled[dear, None]), axis=0)
            kept = np.flatnonzero(part < self.best)
            if not len(kept):
                return np.inf
            costs, rows = costs[kept], rows[kept]
        values = np.add.reduce(np.minimum(costs, settled), axis=1)
        least = int(values.argmin())
        if values[least] < self.best:
            self.best, self.rows = float(values[least]), (*chosen, int(rows[least]))
        return np.inf

    def _multipliers(self, node: _Node, start: Floats) -> tuple[Floats, Floats]:
        """The multipliers (columns,) of a good bound of a branch, and the worth (rows,) of its rows with them."""
        root = 0 if not node.chosen else 1
        best_bound, stalled, length = -np.inf, 0, 1.0
        u = best_u = np.minimum(start, node.settled)
        best_worth = np.zeros(len(node.rows))
        saved = np.empty_like(node.costs)
        for _ in range(_STEPS[root]):
            np.subtract(node.costs, u, out=saved)
            np.minimum(saved, 0.0, out=saved)
            worth = saved.sum(axis=1)
            taken = np.argpartition(worth, node.size - 1)[: node.size]
            bound = float(u.sum() + worth[taken].sum())
            if bound > best_bound:
                best_bound, best_u, best_worth, stalled = bound, u, worth, 0
                if bound >= self.cut + _SLACK * (node.size + 2) * float(u.sum()):
                    break
            else:
                stalled += 1
                if stalled > _PATIENCE[root]:
                    length, stalled, u = length / 2, 0, best_u
                    continue
            unserved = 1.0 - (saved[taken] < 0).sum(axis=0)
            steepness = float((unserved * unserved).sum())
            if steepness == 0:
                break
            u = np.clip(u + length * (self.best - bound) / steepness * unserved, 0.0, node.settled)
        return best_u, best_worth


def _windows(values: Floats, width: int) -> Floats:
    """Sums of `width` consecutive values, added one by one, because differences of running sums would lose digits."""
    count = len(values) - width + 1
    total = np.zeros(max(count, 0))
    for shift in range(width):
        total += values[shift : shift + count]
    return total


_STARTS = 24  # random sets from which swapping begins, besides the greedy one
_IMPROVES = 1 - 1e-12  # swaps that gain no more than rounding could go round in circles


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """Configurations chosen for several devices, with a proven bound.

    `chosen` are the indices, in order, of the configurations that serve a device, at most as many as requested.
    `serves` has the index of the configuration that serves each device, and `value` is the sum of the regrets. No
    portfolio's value is below `bound`; `proven` is True if none is better than this one by more than a share of 1e-9.
    If time ended before any portfolio was found, `chosen` is empty and `value` is infinite.
    """

    chosen: tuple[int, ...]
    serves: tuple[int, ...]
    value: float
    bound: float
    proven: bool


def best_portfolio(
    regrets: Floats, size: int, *, devices: Sequence[str] = (), out_of_time: Callable[[], bool] | None = None
) -> Portfolio:
    """The portfolio of at most `size` configurations whose least regrets on the devices have the least sum.

    `regrets` (configurations, devices) are at least 0; infinite or NaN if a configuration cannot serve a device.
    `devices` names the devices in messages. The search ends early if `out_of_time` returns True, and does not extend a
    branch beyond 200 configurations. The same arguments give the same answer.

    Raises UsageError for a `size` below 1 and for regrets too large to add, and InfeasibleError if no `size`
    configurations serve all devices.
    """
    costs = _checked(regrets, size)
    count, columns = costs.shape
    _check_served(costs, devices)
    stop = out_of_time or (lambda: False)
    floor = float(costs.min(axis=0).sum())
    if size >= min(count, columns):
        return _portfolio(costs, tuple(costs.argmin(axis=0).tolist()), floor, True)
    tamed = _tamed(costs)
    rows = _swapped_from_all(tamed, size, stop)
    if not np.isfinite(_value(costs, rows)):
        cover = search(np.where(np.isfinite(costs), 0.0, 1.0), size, 1.0, out_of_time=stop)
        if cover.rows is None and cover.done:
            raise InfeasibleError(
                f"no set of {size} configurations serves all {columns} devices",
                hint="Allow more configurations, or measure more of them on all devices.",
            )
        if cover.rows is None:
            return Portfolio(chosen=(), serves=(), value=np.inf, bound=floor, proven=False)
        rows = _swapped(tamed, list(cover.rows))
    value = _value(costs, rows)
    if value <= floor:
        return _portfolio(costs, rows, floor, True)
    # One of several equal configurations is enough.
    single = np.sort(np.unique(costs, axis=0, return_index=True)[1])
    branching = search(costs[single], min(size, len(single)), value, out_of_time=stop)
    better = [] if branching.rows is None else single[list(branching.rows)].tolist()
    if better and _value(costs, better) < value:
        rows = tuple(better) if branching.done else _swapped(tamed, better)
    return _portfolio(costs, rows, max(branching.bound, floor), branching.done)


def _checked(regrets: Floats, size: int) -> Floats:
    """The regrets, infinite if a configuration cannot serve a device."""
    table = np.asarray(regrets, dtype=np.float64)
    if size < 1:
        raise UsageError(f"the portfolio's size is {size}", hint="Allow at least one configuration.")
    serves = np.isfinite(table)
    with np.errstate(over="ignore"):
        largest = float(np.where(serves, table, 0.0).max(axis=0).sum())
    if not np.isfinite(largest):
        raise UsageError("the regrets are too large to add", hint="Scale them down.")
    return np.ascontiguousarray(np.where(serves, table, np.inf))


def _check_served(costs: Floats, devices: Sequence[str]) -> None:
    """Raise InfeasibleError with the names of the devices that no configuration serves."""
    alone = np.flatnonzero(~np.isfinite(costs).any(axis=0)).tolist()
    if alone:
        names = ", ".join(devices[i] if i < len(devices) else f"device {i}" for i in alone[:20])
        raise InfeasibleError(
            f"no configuration serves {names}", hint="Measure configurations there, or leave out such devices."
        )


def _value(costs: Floats, rows: Sequence[int]) -> float:
    return float(costs[list(rows)].min(axis=0).sum())


def _portfolio(costs: Floats, rows: Sequence[int], bound: float, proven: bool) -> Portfolio:
    """The portfolio of these rows without rows that serve no device.

    Each device is served by the first of its best rows.
    """
    members = np.unique(np.asarray(rows, dtype=np.intp))
    serves = members[costs[members].argmin(axis=0)]
    value = float(costs[serves, np.arange(costs.shape[1])].sum())
    return Portfolio(
        chosen=tuple(np.unique(serves).tolist()),
        serves=tuple(serves.tolist()),
        value=value,
        bound=min(bound, value),
        proven=proven,
    )


def _tamed(costs: Floats) -> Floats:
    """The costs with finite entries scaled to 0 .. 1, and infinite entries larger than all finite ones together."""
    finite = np.where(np.isfinite(costs), costs, 0.0)
    return np.where(np.isfinite(costs), finite / (float(finite.max()) or 1.0), 2.0 * costs.shape[1])


def _swapped_from_all(costs: Floats, size: int, out_of_time: Callable[[], bool]) -> tuple[int, ...]:
    """The best set of rows that swapping reaches from the greedy set and, while there is time, from random sets."""
    generator = np.random.default_rng(0)
    sets = [_swapped(costs, _greedy(costs, size))]
    for _ in range(_STARTS):
        if out_of_time():
            break
        sets.append(_swapped(costs, generator.choice(len(costs), size, replace=False).tolist()))
    return min(sets, key=lambda rows: _value(costs, rows))


def _greedy(costs: Floats, size: int) -> list[int]:
    """Rows taken one by one, each time the row that helps most."""
    rows: list[int] = []
    settled = np.full(costs.shape[1], np.inf)
    for _ in range(size):
        rows.append(int(np.minimum(costs, settled).sum(axis=1).argmin()))
        settled = np.minimum(settled, costs[rows[-1]])
    return rows


def _swapped(costs: Floats, rows: list[int]) -> tuple[int, ...]:
    """The rows after swaps of one row for another, the best swap each time, until none helps. `costs` must be finite.

    All swaps are evaluated at once: a new row helps each device on its own, and if the removed row was the best for a
    device, the next best takes its place (Whitaker, 1983).
    """
    value, columns = _value(costs, rows), np.arange(costs.shape[1])
    while True:
        mine = costs[rows]
        place = mine.argmin(axis=0)
        nearest = mine[place, columns]
        mine[place, columns] = np.inf
        kept = np.minimum(costs, nearest)
        lost = np.minimum(costs, mine.min(axis=0))
        lost -= kept
        served = np.zeros((len(columns), len(rows)))
        served[columns, place] = 1.0
        values = lost @ served
        values += kept.sum(axis=1)[:, None]
        row, gone = (int(k) for k in np.unravel_index(values.argmin(), values.shape))
        tried = [*rows[:gone], row, *rows[gone + 1 :]]
        reached = _value(costs, tried)
        if reached >= value * _IMPROVES:
            return tuple(rows)
        value, rows = reached, tried
