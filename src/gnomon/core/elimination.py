"""The exact minimum of an energy by variable elimination.

Slots with at most two neighbours go first, in batches (`gnomon.core.reduction`). What is left is eliminated slot by
slot: all tables that mention the slot are added up and minimised over it, which leaves a table over its neighbours
(Bertele and Brioschi, "Nonserial Dynamic Programming", 1972; Dechter, "Bucket elimination", 1999).
Choices are then read back in reverse order. Time and memory grow with the choices to the power of the width + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats, Ints
from gnomon.core.energy import Energy
from gnomon.core.ordering import Limits, Order, best_order
from gnomon.core.reduction import Reduction

_Factor = tuple[tuple[int, ...], Floats]  # neighbours in order of elimination; table with the slot's axis first


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """An assignment of least cost, and the width of the elimination that found it.

    Where every assignment is forbidden, it is any assignment. `order` is the order of the slots that had three
    neighbours or more; it serves again for another energy on the same graph with as many choices.
    """

    assignment: tuple[int, ...]
    width: int
    order: Order | None = None


def minimise(energy: Energy, limits: Limits | None = None, *, order: Order | None = None) -> Minimum | None:
    """The exact minimum, or None if the tables would exceed the limits.

    `order` is that of an earlier minimum on the same graph. Of several minima it always finds the same one.
    """
    limits = limits or Limits()
    width = sparse_width(energy)
    if limits.width is not None and width > limits.width:
        return None
    reduction = Reduction(energy)
    left = reduction.run(limits.table_entries)
    assignment = np.zeros(len(energy.unary), dtype=np.intp)
    if left:
        order = order or best_order({v: reduction.around[v].keys() for v in left}, energy.sizes, limits)
        if order is None:
            return None
        width = max(width, order.width)
        _eliminate(reduction, order, assignment)
    reduction.recover(assignment)
    return Minimum(assignment=tuple(assignment.tolist()), width=width, order=order)


def sparse_width(energy: Energy) -> int:
    """0 without pairs, 1 for a forest, else 2: what eliminating slots of few neighbours needs at most."""
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


def _eliminate(reduction: Reduction, order: Order, assignment: Ints) -> None:
    """Bucket elimination of the slots in `order`; writes their choices into the assignment."""
    buckets: dict[int, list[_Factor]] = {v: [] for v, _ in order.steps}
    position = {v: p for p, v in enumerate(buckets)}
    for v, factors in buckets.items():
        factors.append(((), reduction.unary[v]))
        factors.extend(((u,), table) for u, table in reduction.around[v].items() if position[u] > position[v])
    for v, ring in order.steps:
        if ring:
            buckets[ring[0]].append((ring[1:], _joined(buckets[v], ring).min(axis=0)))
    for v, _ in reversed(order.steps):
        costs = sum(table[(slice(None), *(assignment[u] for u in ring))] for ring, table in buckets[v])
        assignment[v] = np.argmin(costs)


def _joined(factors: list[_Factor], ring: tuple[int, ...]) -> Floats:
    """Sum of a slot's tables over the slot and all its neighbours.

    Tables join from those over the last neighbours alone to those over the first: partial sums stay small, and axes
    are added in front, so that the innermost loops run over long contiguous stretches.
    """
    axis = {u: a for a, u in enumerate(ring)}
    degree = len(ring)
    start, total = degree, factors[0][1]
    rest = sorted(factors[1:], key=lambda factor: (-axis[factor[0][0]] if factor[0] else -degree, len(factor[0])))
    for members, table in rest:
        size = table.shape[0]
        if not members:
            total = total + table.reshape(size, *(1,) * (total.ndim - 1))
            continue
        first = axis[members[0]]
        shape = [size] + [1] * (degree - first)
        for u, length in zip(members, table.shape[1:], strict=True):
            shape[1 + axis[u] - first] = length
        if first < start:
            total = total.reshape(size, *(1,) * (start - first), *total.shape[1:])
            start = first
        else:
            shape[1:1] = [1] * (first - start)
        total = total + table.reshape(shape)
    return total
