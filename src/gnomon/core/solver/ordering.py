"""Elimination orders: the choice of the slot to minimise out next, so that no table grows large.

The rule is minimum fill-in, with the size of the table as tie-break. Slots with at most one neighbour and simplicial
slots add no edge, and so always come first. (Rose, "A graph-theoretic study of the numerical solution of sparse
positive definite systems", 1972; Bodlaender and Koster, "Treewidth computations I. Upper bounds", 2010.)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from gnomon.core.cost import OutOfTime, Stop, never

_COSTLY_ENTRIES = 200_000.0  # total table entries above which trying a second order is worth the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of elimination: sums formed for one slot, sums in all, and bytes held in memory.

    Memory holds the tables that have not been read yet (8 bytes per entry), and the best choice for each entry (a few
    bits). Sums are formed in small blocks and are not kept.
    """

    table_entries: float = float(1 << 29)
    total_entries: float = float(1 << 36)
    held_bytes: float = 8e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An elimination order: each slot with the neighbours it has when its turn comes, in order of elimination.

    A slot comes directly after the slots whose tables it reads, so that few tables wait to be read. `width` is the
    largest number of neighbours of a slot at its turn, and `entries` is the number of table entries in all steps.
    """

    steps: tuple[tuple[int, tuple[int, ...]], ...]
    width: int
    entries: float


def best_order(
    neighbours: Mapping[int, AbstractSet[int]], sizes: Sequence[int], limits: Limits | None = None, stop: Stop = never
) -> Order | None:
    """A good elimination order of the slots in `neighbours`, or None if all orders tried exceed the limits.

    `sizes[slot]` is the number of choices. The graph is not changed. The result is deterministic. Raises OutOfTime.
    """
    limits = limits or Limits()
    smallest = min((sizes[v] for v in neighbours), default=1)
    if (degeneracy(neighbours) + 1) * math.log(smallest) > math.log(limits.table_entries) + 1e-9:
        return None  # every order exceeds the limits
    if (perfect := _perfect(neighbours)) is not None:
        return _within(perfect, sizes, limits)
    first = _greedy(neighbours, sizes, limits, stop, by_size=False)
    if first is not None and first.entries <= _COSTLY_ENTRIES:
        return first
    second = _greedy(neighbours, sizes, limits, stop, by_size=True)
    orders = [order for order in (first, second) if order is not None]
    return min(orders, key=lambda order: order.entries, default=None)


_Steps = Sequence[tuple[int, AbstractSet[int]]]


def _perfect(neighbours: Mapping[int, AbstractSet[int]]) -> _Steps | None:
    """An order that adds no edge, by maximum cardinality search; None if the graph has no such order.

    Tarjan and Yannakakis, "Simple linear-time algorithms to test chordality of graphs", 1984.
    """
    seen: dict[int, set[int]] = {}
    place: dict[int, int] = {}
    heap = [(0, v) for v in neighbours]
    heapq.heapify(heap)
    weights = dict.fromkeys(neighbours, 0)
    while heap:
        weight, v = heapq.heappop(heap)
        if v in seen or -weight != weights[v]:
            continue
        before = {u for u in neighbours[v] if u in seen}
        if before:
            last = max(before, key=place.__getitem__)
            if not before - {last} <= seen[last]:
                return None
        seen[v], place[v] = before, len(place)
        for u in neighbours[v]:
            if u not in seen:
                weights[u] += 1
                heapq.heappush(heap, (-weights[u], u))
    return list(reversed(seen.items()))


def _within(steps: _Steps, sizes: Sequence[int], limits: Limits) -> Order | None:
    """The steps reordered so that few tables wait to be read, or None if they exceed the limits."""
    position = {v: p for p, (v, _) in enumerate(steps)}
    rings = {v: tuple(sorted(ring, key=position.__getitem__)) for v, ring in steps}
    tables = {v: math.prod(float(sizes[u]) for u in ring) for v, ring in steps}
    entries = {v: table * sizes[v] for v, table in tables.items()}
    readers: dict[int, list[int]] = {v: [] for v in rings}
    peaks: dict[int, float] = {}
    held = 0.0
    for v, ring in rings.items():
        waiting = peak = 0.0
        # Tables that take much memory to make, and leave little, come first (Liu, 1986).
        readers[v].sort(key=lambda u: tables[u] - peaks[u])
        for u in readers[v]:
            peak = max(peak, waiting + peaks[u])
            waiting += tables[u]
        peaks[v] = max(peak, waiting + tables[v])
        held += tables[v] * (sizes[v] - 1).bit_length() / 8
        if ring:
            readers[ring[0]].append(v)
    roots = [v for v, ring in rings.items() if not ring]
    total = math.fsum(entries.values())
    held += 8 * max((peaks[v] for v in roots), default=0.0)
    if max(entries.values(), default=0.0) > limits.table_entries * (1 + 1e-9) or total > limits.total_entries:
        return None
    if held > limits.held_bytes:
        return None
    ordered: list[int] = []
    stack = roots[::-1]
    while stack:  # each slot comes before the slots it reads, so the list is reversed at the end
        ordered.append(v := stack.pop())
        stack += readers[v]
    return Order(
        steps=tuple((v, rings[v]) for v in reversed(ordered)),
        width=max(map(len, rings.values()), default=0),
        entries=total,
    )


def degeneracy(neighbours: Mapping[int, AbstractSet[int]]) -> int:
    """The largest minimum degree of any subgraph: a lower bound on the width of every elimination order."""
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


class _Fill:
    """A graph during elimination: adjacency both as sets and as bit masks, which count common neighbours quickly."""

    def __init__(self, neighbours: Mapping[int, AbstractSet[int]], sizes: Sequence[int]) -> None:
        self.names = list(neighbours)
        place = {v: i for i, v in enumerate(self.names)}
        self.around = [{place[u] for u in neighbours[v]} for v in self.names]
        self.masks = [sum(1 << u for u in around) for around in self.around]
        self.logs = [math.log(sizes[v]) for v in self.names]

    def missing(self, v: int) -> int:
        """The number of edges that eliminating v would add."""
        mask, masks = self.masks[v], self.masks
        degree = len(self.around[v])
        return (degree * (degree - 1) - sum((masks[u] & mask).bit_count() for u in self.around[v])) // 2

    def log_entries(self, v: int) -> float:
        return self.logs[v] + sum(self.logs[u] for u in self.around[v])

    def eliminate(self, v: int) -> int:
        """Join the neighbours of v, remove v, and return the mask of slots whose fill may have changed."""
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
    total, ceiling = 0.0, math.log(limits.table_entries) + 1e-9
    while heap:
        *k, v = heapq.heappop(heap)
        if gone[v] or tuple(k) != keys[v]:
            continue
        if stop(0.0):
            raise OutOfTime
        entries = graph.log_entries(v)
        total += math.exp(entries)
        if entries > ceiling or total > limits.total_entries:
            return None
        gone[v] = True
        steps.append((v, graph.around[v]))
        for u in _bits(graph.eliminate(v)):
            keys[u] = key(u)
            heapq.heappush(heap, (*keys[u], u))
    names = graph.names
    return _within([(names[v], {names[u] for u in around}) for v, around in steps], sizes, limits)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
