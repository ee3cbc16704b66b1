"""The exact minimum of an energy by variable elimination.

Slots with at most two neighbours go first, in batches. The remaining slots are eliminated one by one: all tables that
mention a slot are added up and minimised over it, which leaves a table over its neighbours (Bertele and Brioschi,
"Nonserial Dynamic Programming", 1972; Dechter, "Bucket elimination", 1999). Choices are then read back in reverse
order. Time and memory grow as the number of choices raised to the power (width + 1).

Many slots with at most two neighbours are minimised out at once. Each leaves a cost on its only neighbour, or a table
on the pair of its two neighbours: the rules RI and RII of partitioned boolean quadratic programming (Scholz and
Eckstein, "Register allocation for irregular architectures", 2002). Slots that are not neighbours are independent, so
each round takes a maximal independent set and handles all slots of equal shape in one array operation. A chain of n
slots vanishes in about log2(n) rounds instead of n steps.

Every exact method accepts a problem as an `Energy`, one scalar cost function over slots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import CostModel, Floats, Ints, OutOfTime, Stop, add_pair, magnitude, never, weighted_sum
from gnomon.core.solver.ordering import Order, best_order
from gnomon.errors import ProblemError


@dataclass(frozen=True, slots=True, eq=False)
class Energy:
    """The sum of unary[i][a] over the slots and of pairwise[i, j][a, b] over the pairs i < j; +inf forbids.

    Charges are kept separately. Arrays are never written to after construction, so energies may share them.
    """

    unary: tuple[Floats, ...]
    pairwise: dict[tuple[int, int], Floats]

    @property
    def sizes(self) -> list[int]:
        """The number of choices of each slot."""
        return [len(costs) for costs in self.unary]

    def value(self, assignment: Sequence[int]) -> float:
        """The cost of one assignment; +inf if it is forbidden."""
        total = sum(float(costs[a]) for costs, a in zip(self.unary, assignment, strict=True))
        return total + sum(float(t[assignment[i], assignment[j]]) for (i, j), t in self.pairwise.items())

    def around(self) -> list[list[tuple[int, Floats]]]:
        """For each slot, its neighbours with the table of each pair, the slot's axis first."""
        neighbours: list[list[tuple[int, Floats]]] = [[] for _ in self.unary]
        for (i, j), table in self.pairwise.items():
            neighbours[i].append((j, table))
            neighbours[j].append((i, table.T))
        return neighbours

    def restrict(self, kept: Sequence[Ints]) -> Energy:
        """The energy over only the kept choices of each slot; pairs with a slot of one choice become unary."""
        unary = [u[k] for u, k in zip(self.unary, kept, strict=True)]
        pairwise: dict[tuple[int, int], Floats] = {}
        for (i, j), table in self.pairwise.items():
            part = table[np.ix_(kept[i], kept[j])]
            if part.shape[0] == 1:
                unary[j] = unary[j] + part[0]
            elif part.shape[1] == 1:
                unary[i] = unary[i] + part[:, 0]
            else:
                pairwise[i, j] = part
        return Energy(tuple(unary), pairwise)

    def induced(self, members: Sequence[int]) -> Energy:
        """The energy over only the given slots, in their order, with the costs among them."""
        place = {slot: p for p, slot in enumerate(members)}
        pairwise: dict[tuple[int, int], Floats] = {}
        for (i, j), table in self.pairwise.items():
            if i in place and j in place:
                add_pair(pairwise, place[i], place[j], table)
        return Energy(tuple(self.unary[i] for i in members), pairwise)


def weigh(model: CostModel, weights: Floats) -> Energy:
    """The weighted sum of a model's slot and pair costs as one energy. Raises ProblemError on overflow."""
    unary: list[Floats] = [np.zeros(0)] * len(model.space.slots)
    total = 0.0
    for group in model.slot_groups:
        costs = weighted_sum(group.tables, weights)
        total += magnitude(costs)
        for (slot,), row in zip(group.members.tolist(), costs, strict=True):
            unary[slot] = row
    pairwise: dict[tuple[int, int], Floats] = {}
    for group in model.pair_groups:
        costs = weighted_sum(group.tables, weights)
        total += magnitude(costs)
        for (first, second), table in zip(group.members.tolist(), costs, strict=True):
            add_pair(pairwise, first, second, table)
    if not math.isfinite(total):
        raise ProblemError("the weighted costs overflow double precision", hint="Use smaller weights.")
    return Energy(tuple(unary), pairwise)


_CHEAP_ENTRIES = 4096  # the largest three-slot table with which a slot inside a chain is eliminated before the ends
_CACHE_ENTRIES = 1 << 15
_PAIR_ENTRIES = float(1 << 24)  # the largest table of a pair in batches of slots with at most two neighbours
_BLOCK_ENTRIES = 1 << 16  # the maximum number of sums formed at a time


@dataclass(frozen=True, slots=True)
class _Batch:
    """Slots eliminated together: (B,) slots, d arrays (B,) of neighbours, costs (B, k), d tables (B, k, k_j)."""

    slots: Ints
    neighbours: tuple[Ints, ...]
    unary: Floats
    tables: tuple[Floats, ...]


class Reduction:
    """An energy during reduction: `unary` and `around` hold the remaining costs; `recover` restores eliminated slots.

    `around[v][u]` is the table of the pair with the axis of v first. Each table is stored under both slots.
    """

    def __init__(self, energy: Energy) -> None:
        self.unary: list[Floats] = list(energy.unary)
        self.around: list[dict[int, Floats]] = [dict(pairs) for pairs in energy.around()]
        self.alive = [True] * len(self.unary)
        self._batches: list[_Batch] = []
        self._table_entries = 0.0

    def run(self, table_entries: float, stop: Stop = never) -> list[int]:
        """Eliminate until each slot has three neighbours or more, and return the remaining slots.

        Slots whose elimination would leave a table of more than `table_entries` entries remain as well. Raises
        OutOfTime.
        """
        self._table_entries = table_entries
        pending = [v for v, around in enumerate(self.around) if len(around) <= 2]
        waiting: list[int] = []
        while pending or waiting:
            groups, later, dear = self._select(pending, cheap_only=True)
            waiting += dear
            if not groups:
                groups, later, _ = self._select([*later, *waiting], cheap_only=False)
                waiting = []
            touched = dict.fromkeys(later)
            for group in groups.values():
                if stop(0.0):
                    raise OutOfTime
                touched.update(dict.fromkeys(self._eliminate(group)))
            pending = [v for v in touched if self.alive[v] and len(self.around[v]) <= 2]
        return [v for v, alive in enumerate(self.alive) if alive]

    def recover(self, assignment: Ints) -> None:
        """Fill in the choices of the eliminated slots, given the choices of the remaining slots."""
        for batch in reversed(self._batches):
            costs = batch.unary
            row = np.arange(len(batch.slots))
            for neighbours, tables in zip(batch.neighbours, batch.tables, strict=True):
                costs = costs + tables[row, :, assignment[neighbours]]
            assignment[batch.slots] = costs.argmin(axis=1)

    def _select(
        self, candidates: Sequence[int], *, cheap_only: bool
    ) -> tuple[dict[tuple[int, ...], list[int]], list[int], list[int]]:
        """An independent set by shape, the candidates next to it, and the candidates too expensive to take yet."""
        groups: dict[tuple[int, ...], list[int]] = {}
        later: list[int] = []
        dear: list[int] = []
        blocked: set[int] = set()
        taken: set[int] = set()
        for v in candidates:
            if not self.alive[v] or v in taken:
                continue
            if v in blocked:
                later.append(v)
                continue
            around = self.around[v]
            shape = (len(self.unary[v]), *[len(self.unary[u]) for u in around])
            if len(shape) == 3:
                if shape[1] * shape[2] > self._table_entries:
                    continue
                if cheap_only and shape[0] * shape[1] * shape[2] > _CHEAP_ENTRIES:
                    dear.append(v)
                    continue
            blocked.update(around)
            taken.add(v)
            groups.setdefault(shape, []).append(v)
        return groups, later, dear

    def _eliminate(self, slots: list[int]) -> list[int]:
        """Minimise out independent slots of the same shape, and return their neighbours."""
        around, count = self.around, len(slots)
        rings = [tuple(around[v]) for v in slots]
        unary = np.concatenate([self.unary[v] for v in slots]).reshape(count, -1)
        size, degree = unary.shape[1], len(rings[0])
        tables = tuple(
            np.concatenate([around[v][ring[j]] for v, ring in zip(slots, rings, strict=True)]).reshape(count, size, -1)
            for j in range(degree)
        )
        members = tuple(np.array([ring[j] for ring in rings], dtype=np.intp) for j in range(degree))
        self._batches.append(_Batch(np.array(slots, dtype=np.intp), members, unary, tables))
        for v, ring in zip(slots, rings, strict=True):
            self.alive[v] = False
            for u in ring:
                del around[u][v]
        if degree == 1:
            for (u,), row in zip(rings, (tables[0] + unary[:, :, None]).min(axis=1), strict=True):
                self.unary[u] = self.unary[u] + row
        elif degree == 2:
            for (a, b), table in zip(rings, _contract(unary, *tables), strict=True):
                before = around[a].get(b)
                total = table if before is None else before + table
                around[a][b] = total
                around[b][a] = total.T
        return [u for ring in rings for u in ring]


def _contract(unary: Floats, left: Floats, right: Floats) -> Floats:
    """min over x of unary[i, x] + left[i, x, a] + right[i, x, b]: (B, k), (B, k, A), (B, k, B') to (B, A, B')."""
    count, size, width = left.shape
    height = right.shape[2]
    step = max(1, _CACHE_ENTRIES // (width * height))
    out = np.empty((count, width, height))
    for start in range(0, count, step):
        part = slice(start, start + step)
        first = left[part] + unary[part, :, None]
        second = right[part]
        # With the batch as the last axis, the innermost loops are long even if there are few choices.
        if first.shape[0] > 4:
            first = np.ascontiguousarray(first.transpose(1, 2, 0))
            second = np.ascontiguousarray(second.transpose(1, 2, 0))
            best = first[0][:, None] + second[0][None]
            for x in range(1, size):
                np.minimum(best, first[x][:, None] + second[x][None], out=best)
            out[part] = best.transpose(2, 0, 1)
        else:
            best = first[:, 0, :, None] + second[:, 0, None, :]
            for x in range(1, size):
                np.minimum(best, first[:, x, :, None] + second[:, x, None, :], out=best)
            out[part] = best
    return out


_Factor = tuple[tuple[int, ...], Floats]  # neighbours in order of elimination; the table, with the slot's axis first


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """An assignment of least cost, and the width of the elimination that found it.

    If every assignment is forbidden, `assignment` is an arbitrary one. `order` is the order of the slots that had three
    neighbours or more; it can be reused for another energy on the same graph with the same numbers of choices. `bound`
    is a lower bound on the cost of every assignment if the time ran out before this assignment was proved to be the
    best (None: proved).
    """

    assignment: tuple[int, ...]
    width: int
    order: Order | None = None
    bound: float | None = None


def minimise(energy: Energy, *, order: Order | None = None, stop: Stop = never) -> Minimum | None:
    """The exact minimum, or None if the tables would exceed the limits or the available memory.

    `order` is the order of an earlier minimum on the same graph. If there are several minima, the same one is always
    found. Raises OutOfTime if `stop` returns True.
    """
    width = sparse_width(energy)
    reduction = Reduction(energy)
    left = reduction.run(_PAIR_ENTRIES, stop)
    assignment = np.zeros(len(energy.unary), dtype=np.intp)
    if left:
        order = order or best_order({v: reduction.around[v].keys() for v in left}, energy.sizes, stop=stop)
        if order is None:
            return None
        width = max(width, order.width)
        try:
            _eliminate(reduction, order, assignment, stop)
        except MemoryError:  # the machine has less memory than the limits allow
            return None
    reduction.recover(assignment)
    return Minimum(assignment=tuple(assignment.tolist()), width=width, order=order)


def sparse_width(energy: Energy) -> int:
    """The width of eliminating slots with at most two neighbours: 0 without pairs, 1 for a forest, otherwise 2."""
    if not energy.pairwise:
        return 0
    parent = list(range(len(energy.unary)))
    for i, j in energy.pairwise:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        while parent[j] != j:
            parent[j] = parent[parent[j]]
            j = parent[j]
        if i == j:
            return 2
        parent[j] = i
    return 1


@dataclass(frozen=True, slots=True)
class _Best:
    """The best choice of a slot for each state of its neighbours, stored as bits, in one plane per bit.

    The states are in blocks of `inner`.
    """

    ring: tuple[int, ...]
    shape: tuple[int, ...]
    inner: int
    planes: tuple[NDArray[np.uint8], ...]

    def at(self, assignment: Ints) -> int:
        """The best choice, given the neighbours' choices in the assignment."""
        state = 0
        for u, size in zip(self.ring, self.shape, strict=True):
            state = state * size + int(assignment[u])
        block, place = divmod(state, self.inner)
        bits = (int(plane[block, place >> 3]) >> (7 - place % 8) & 1 for plane in self.planes)
        return sum(bit << k for k, bit in enumerate(bits))


def _eliminate(reduction: Reduction, order: Order, assignment: Ints, stop: Stop) -> None:
    """Eliminate the slots in `order` by buckets and write their choices into the assignment. Raises OutOfTime."""
    buckets: dict[int, list[_Factor]] = {v: [] for v, _ in order.steps}
    position = {v: p for p, v in enumerate(buckets)}
    for v, factors in buckets.items():
        factors.append(((), reduction.unary[v]))
        factors.extend(((u,), table) for u, table in reduction.around[v].items() if position[u] > position[v])
    best: dict[int, _Best] = {}
    done = 0.0
    for v, ring in order.steps:
        factors, size = buckets.pop(v), len(reduction.unary[v])
        shape = tuple(len(reduction.unary[u]) for u in ring)
        table, best[v] = _minimised(factors, size, ring, shape, partial(_asked, stop, done, order.entries))
        if ring:
            buckets[ring[0]].append((ring[1:], table))
        done += size * table.size
    for v, _ in reversed(order.steps):
        assignment[v] = best[v].at(assignment)


def _asked(stop: Stop, done: float, total: float, part: float) -> bool:
    """Ask `stop` when `done + part` of the `total` work is done."""
    return stop((done + part) / total)


def _minimised(
    factors: list[_Factor], size: int, ring: tuple[int, ...], shape: tuple[int, ...], stop: Stop
) -> tuple[Floats, _Best]:
    """The least sum of a slot's tables for each state of its neighbours, and the choices that reach it.

    The sums of all states are formed in blocks that stay in the cache; the last neighbours vary within a block. `stop`
    is called with the number of sums formed so far. Raises OutOfTime.
    """
    cut, inner = len(ring), 1
    while cut and size * inner * shape[cut - 1] <= _BLOCK_ENTRIES:
        cut -= 1
        inner *= shape[cut]
    outer, within = ring[:cut], ring[cut:]
    blocks = math.prod(shape[:cut])
    # Tables over outer neighbours alone add one number per choice to a whole block. Tables over inner neighbours alone
    # are the same in all blocks.
    rows = _over([factor for factor in factors if factor[0] and set(factor[0]) <= set(outer)], outer, shape[:cut], size)
    same = _over([factor for factor in factors if set(factor[0]) <= set(within)], within, shape[cut:], size)
    mixed = []
    for members, table in factors:
        axes = tuple(outer.index(u) for u in members if u in outer)
        if axes and len(axes) < len(members):
            mixed.append((table, axes, [n if u in members else 1 for u, n in zip(within, shape[cut:], strict=True)]))
    least = np.empty((blocks, inner))
    planes = tuple(np.empty((blocks, -(-inner // 8)), np.uint8) for _ in range((size - 1).bit_length()))
    sums = np.empty((size, inner))
    shaped = sums.reshape(size, *shape[cut:])
    for number, index in enumerate(np.ndindex(*shape[:cut])):
        if stop(float(number * size * inner)):
            raise OutOfTime
        np.add(same, rows[:, number, None], out=sums)
        for table, axes, lengths in mixed:
            shaped += table[(slice(None), *(index[a] for a in axes))].reshape(size, *lengths)
        _least(sums, least[number], [plane[number] for plane in planes])
    return least.reshape(shape), _Best(ring, shape, inner, planes)


def _over(factors: list[_Factor], ring: tuple[int, ...], shape: tuple[int, ...], size: int) -> Floats:
    """The sum of a slot's tables over its choices and all states of these neighbours, (size, states).

    Tables over only the last neighbours are added first and tables over the first neighbours last, so that partial sums
    stay small.
    """
    axis = {u: a for a, u in enumerate(ring, start=1)}
    total = np.zeros((size, *(1,) * len(ring)))
    for members, table in sorted(factors, key=lambda f: (-axis[f[0][0]] if f[0] else -len(ring), len(f[0]))):
        lengths = [size, *(1,) * len(ring)]
        for u, length in zip(members, table.shape[1:], strict=True):
            lengths[axis[u]] = length
        total = total + table.reshape(lengths)
    return np.broadcast_to(total, (size, *shape)).reshape(size, -1)


def _least(sums: Floats, least: Floats, planes: Sequence[NDArray[np.uint8]]) -> None:
    """Write the least of the sums of all choices, and the bits of the first choice that reaches it."""
    bits = [np.zeros(least.shape, bool) for _ in planes]
    least[...] = sums[0]
    less = np.empty(least.shape, bool)
    for choice in range(1, len(sums)):
        np.less(sums[choice], least, out=less)
        np.minimum(sums[choice], least, out=least)
        for k, bit in enumerate(bits):
            (np.logical_or if choice >> k & 1 else np.greater)(bit, less, out=bit)
    for bit, plane in zip(bits, planes, strict=True):
        plane[:] = np.packbits(bit)
