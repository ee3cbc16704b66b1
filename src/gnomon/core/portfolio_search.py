"""Branch and bound for the p-median problem: the p rows of a matrix whose least entries, column by column, sum least.

The bound is the Lagrangian one of the constraints that each column is served once (Cornuejols, Fisher and Nemhauser,
"Location of bank accounts to optimize float", 1977). With multipliers u, a row c that is chosen is worth
r_c = sum over columns of min(0, cost - u), and no p rows cost less than sum(u) + the p least r; u is improved by
subgradients with Polyak's step. Rows are taken in the order of r: a branch takes one, and may add only rows after it,
so what is left out of a branch bounds it as well; rows too dear for the incumbent are cut off. What rows are chosen
already caps u (nothing is saved where it costs no more already), which tightens the bound from branch to branch.
The last row of a branch is found by trying all that are left.

Rounding: each bound is lowered by more than its sums can be off, and a branch is left only where its bound reaches
the incumbent less `GAP` of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats

Ints = NDArray[np.intp]

GAP = 1e-9
"""Portfolios whose values differ by less than this part count as equal."""

_STEPS = (400, 10)  # subgradient steps at the root, and at a branch
_PATIENCE = (20, 3)  # of these, steps without a better bound before the step is halved
_SLACK = 1e-14  # what a sum may be off, relative to the sum of its terms' magnitudes: 45 units of rounding
_DEAR, _FAR = 8, 4.0  # columns looked at first, where columns cost so many times the incumbent without the last rows
_DEEPEST = 200  # rows of a branch; Python's own recursion has a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The rows of the best portfolio found; None where none below the cost that was given was found.

    No portfolio costs less than `bound`. `done` says that the search came to its end, `nodes` how many times it
    branched.
    """

    rows: tuple[int, ...] | None
    bound: float
    done: bool
    nodes: int


def search(costs: Floats, size: int, cost: float, *, whole: bool, out_of_time: Callable[[], bool]) -> Found:
    """The `size` rows of `costs` (rows, columns) of least cost, if any cost less than `cost`.

    Entries are at least 0 or infinite, `cost` is finite and above 0, and 1 <= `size` <= rows. `whole` says that all
    finite entries are integers, so that what is better is better by 1.
    """
    with np.errstate(over="ignore"):
        scaled = costs / cost
    branching = _Branching(scaled, 1 / cost if whole else 0.0, out_of_time)
    rows, columns = costs.shape
    # An entry that alone costs as much as the incumbent is as good as none.
    settled = np.ones(columns)
    start = np.partition(scaled, min(size, rows - 1), axis=0)[min(size, rows - 1)]
    node = _Node(chosen=(), settled=settled, costs=scaled, rows=np.arange(rows), size=size)
    open_bound = branching.visit(node, np.minimum(start, 1.0))
    proved = branching.best * (1.0 if whole else 1 - GAP)
    return Found(
        rows=branching.rows,
        bound=max(min(open_bound, proved), 0.0) * cost,
        done=bool(np.isinf(open_bound)),
        nodes=branching.nodes,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Node:
    """A branch: rows that are chosen, what columns cost with them, and the rows of which `size` are to be added."""

    chosen: tuple[int, ...]
    settled: Floats
    costs: Floats
    rows: Ints
    size: int


class _Branching:
    """The state of one search, in units of the cost to go below."""

    def __init__(self, costs: Floats, grain: float, out_of_time: Callable[[], bool]) -> None:
        self.costs = costs
        self.grain = grain
        self.out_of_time = out_of_time
        self.best = 1.0
        self.rows: tuple[int, ...] | None = None
        self.nodes = 0

    @property
    def cut(self) -> float:
        """What a branch must promise to go below."""
        return max(self.best - max(self.grain - GAP * self.best, GAP * self.best), 0.0)

    def visit(self, node: _Node, start: Floats) -> float:
        """Search a branch; the least bound of what was left unsearched in it, infinity for none."""
        size, count = node.size, len(node.rows)
        if count < size:
            return np.inf  # the rows that are missing were shown to be too dear
        if size == 1:
            return self._last(node.chosen, node.settled, node.costs, node.rows)
        if self.out_of_time() or len(node.chosen) >= _DEEPEST:
            return 0.0
        self.nodes += 1
        multipliers, worth = self._multipliers(node, start)
        base = float(multipliers.sum()) * (1 - _SLACK * (size + 2))
        order = np.argsort(worth, kind="stable")
        worth = worth[order]
        order = order[: np.searchsorted(worth, self.cut - base - worth[: size - 1].sum())]
        if len(order) < size:
            return np.inf
        worth, costs, rows = worth[: len(order)], node.costs[order], node.rows[order]
        ahead = base + _windows(worth, size)
        # What may come after a row is a slice, as rows are in the order of their worth.
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
                # Out of time: what was not searched here is this branch's rest, and all branches after it.
                return float(min(max(left, bound), *ahead[first + 1 : first + 2].tolist(), np.inf))
        return np.inf

    def _last(
        self, chosen: tuple[int, ...], settled: Floats, costs: Floats, rows: Ints, turned: Floats | None = None
    ) -> float:
        """Try each row as the last one; what `visit` returns. `turned` are the costs (columns, rows)."""
        if self.out_of_time():
            return 0.0
        if turned is not None:
            # Few rows help where it is dear already: the others need no look at the other columns.
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
        """Multipliers (columns,) of a good bound of a branch, and the worth (rows,) of its rows with them."""
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
    """Sums of `width` values in a row, summed one by one, as differences of running sums would lose digits."""
    count = len(values) - width + 1
    total = np.zeros(max(count, 0))
    for shift in range(width):
        total += values[shift : shift + count]
    return total
