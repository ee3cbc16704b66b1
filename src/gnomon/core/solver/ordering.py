"""Elimination orders: which slot to minimise out next, so that no table grows large.

Minimum fill-in with the size of the table as tie-break. Slots without a neighbour, with one, and simplicial ones
add no edge and so come first by themselves. (Rose, "A graph-theoretic study of the numerical solution of sparse
positive definite systems", 1972; Bodlaender and Koster, "Treewidth computations I. Upper bounds", 2010.)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from gnomon.core.cost import OutOfTime, Stop, never

_COSTLY_ENTRIES = 200_000.0  # total table entries above which a second order is worth its time


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large elimination may grow: entries (8 bytes each) of one table, and of those that are held.

    `total_entries` are the sums that are formed in all. A slot's table is held without the slot itself, which is
    minimised out, so that what is held is less than the sums by a factor of the choices.
    """

    table_entries: float = float(1 << 24)
    held_entries: float = float(1 << 27)
    total_entries: float = float(1 << 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An elimination order: each slot with the neighbours it has when its turn comes, in order of elimination.

    `width` is the largest number of such neighbours and `entries` the number of table entries of all steps.
    """

    steps: tuple[tuple[int, tuple[int, ...]], ...]
    width: int
    entries: float


def best_order(
    neighbours: Mapping[int, AbstractSet[int]],
    sizes: Sequence[int],
    limits: Limits | None = None,
    stop: Stop = never,
) -> Order | None:
    """A good elimination order of the slots in `neighbours`, or None if all that were tried exceed the limits.

    `sizes[slot]` is the number of choices. The graph is not changed. Deterministic. Raises OutOfTime.
    """
    limits = limits or Limits()
    if _exceeds(neighbours, sizes, limits):
        return None
    first = _greedy(neighbours, sizes, limits, stop, by_size=False)
    if first is not None and first.entries <= _COSTLY_ENTRIES:
        return first
    second = _greedy(neighbours, sizes, limits, stop, by_size=True)
    found = [order for order in (first, second) if order is not None]
    return min(found, key=lambda order: order.entries, default=None)


def degeneracy(neighbours: Mapping[int, AbstractSet[int]]) -> int:
    """The largest least degree of any subgraph: a lower bound on the width of every elimination order."""
    degree = {v: len(around) for v, around in neighbours.items()}
    heap = [(d, v) for v, d in degree.items()]
    heapq.heapify(heap)
    least = 0
    done: set[int] = set()
    while heap:
        d, v = heapq.heappop(heap)
        if v in done or d != degree[v]:
            continue
        least = max(least, d)
        done.add(v)
        for u in neighbours[v]:
            if u not in done:
                degree[u] -= 1
                heapq.heappush(heap, (degree[u], u))
    return least


def _exceeds(neighbours: Mapping[int, AbstractSet[int]], sizes: Sequence[int], limits: Limits) -> bool:
    """Whether it is plain that no order is within the limits."""
    smallest = min((sizes[v] for v in neighbours), default=1)
    return (degeneracy(neighbours) + 1) * math.log(smallest) > math.log(limits.table_entries) + 1e-9


class _Fill:
    """A graph under elimination: adjacency both as sets and as bit masks, which count common neighbours fast."""

    def __init__(self, neighbours: Mapping[int, AbstractSet[int]], sizes: Sequence[int]) -> None:
        self.names = list(neighbours)
        place = {v: i for i, v in enumerate(self.names)}
        self.around = [{place[u] for u in neighbours[v]} for v in self.names]
        self.masks = [sum(1 << u for u in around) for around in self.around]
        self.logs = [math.log(sizes[v]) for v in self.names]

    def missing(self, v: int) -> int:
        """Edges that eliminating v would add."""
        mask, masks = self.masks[v], self.masks
        degree = len(self.around[v])
        return (degree * (degree - 1) - sum((masks[u] & mask).bit_count() for u in self.around[v])) // 2

    def log_entries(self, v: int) -> float:
        return self.logs[v] + sum(self.logs[u] for u in self.around[v])

    def eliminate(self, v: int) -> int:
        """Join the neighbours of v and take v out; returns the mask of slots whose fill may have changed."""
        mask, masks, around = self.masks[v], self.masks, self.around
        touched = mask
        ring = around[v]
        fresh: list[tuple[int, int]] = []
        for u in ring:
            around[u].discard(v)
            masks[u] &= ~(1 << v)
            lacking = mask & ~masks[u] & ~(1 << u)
            if lacking:
                fresh.extend((u, w) for w in _bits(lacking) if u < w)
        for u, w in fresh:
            around[u].add(w)
            around[w].add(u)
            masks[u] |= 1 << w
            masks[w] |= 1 << u
        for u, w in fresh:
            touched |= masks[u] & masks[w]
        return touched


def _greedy(
    neighbours: Mapping[int, AbstractSet[int]], sizes: Sequence[int], limits: Limits, stop: Stop, *, by_size: bool
) -> Order | None:
    graph = _Fill(neighbours, sizes)

    def key(v: int) -> tuple[float, float]:
        fill, entries = float(graph.missing(v)), graph.log_entries(v)
        return (entries, fill) if by_size else (fill, entries)

    keys = [key(v) for v in range(len(graph.names))]
    heap = [(*k, v) for v, k in enumerate(keys)]
    heapq.heapify(heap)
    steps: list[tuple[int, set[int]]] = []
    gone = [False] * len(keys)
    width, total, held, ceiling = 0, 0.0, 0.0, math.log(limits.table_entries) + 1e-9
    while heap:
        *k, v = heapq.heappop(heap)
        if gone[v] or tuple(k) != keys[v]:
            continue
        if stop(0.0):
            raise OutOfTime
        entries = graph.log_entries(v)
        width = max(width, len(graph.around[v]))
        if entries > ceiling:
            return None
        total += math.exp(entries)
        held += math.exp(entries - graph.logs[v])
        if total > limits.total_entries or held > limits.held_entries:
            return None
        gone[v] = True
        steps.append((v, graph.around[v]))
        for u in _bits(graph.eliminate(v)):
            keys[u] = key(u)
            heapq.heappush(heap, (*keys[u], u))
    position = {v: p for p, (v, _) in enumerate(steps)}
    named = tuple(
        (graph.names[v], tuple(graph.names[u] for u in sorted(around, key=position.__getitem__))) for v, around in steps
    )
    return Order(steps=named, width=width, entries=total)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
