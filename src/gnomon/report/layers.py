"""The layout of a graph: a place for each node, producers above consumers; a long graph is split into columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_CELL = (176, 46)
"""The width and height of a node including the room around it, in pixels."""

_WIDE = 1.7
"""The ratio of width to height of a long graph."""

_SWEEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The upper left corner of each node, the size of a node, and the size of the whole, in pixels."""

    x: tuple[int, ...]
    y: tuple[int, ...]
    node: tuple[int, int]
    size: tuple[int, int]


def layered(count: int, edges: Iterable[tuple[int, int]]) -> Layout:
    """Place `count` nodes, numbered in execution order; `edges` lead from producers to consumers.

    Nodes are arranged in layers, each node below all its producers; within a layer, they are ordered by the mean place
    of their neighbours. An edge from a later node to an earlier one does not affect the layout. The time grows with the
    number of edges.
    """
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    layer = [0] * count
    for a, b in sorted({(a, b) for a, b in edges if a < b}):
        before[b].append(a)
        after[a].append(b)
        layer[b] = max(layer[b], layer[a] + 1)
    for node, consumers in enumerate(after):
        if consumers and not before[node]:  # as near to its consumers as possible
            layer[node] = min(layer[consumer] for consumer in consumers) - 1
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, depth in enumerate(layer):
        rows[depth].append(node)
    place = [0.0] * count
    for row in rows:
        _spread(row, [0.0] * len(row), place)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            near = before if down else after
            wanted = {n: sum(place[m] for m in near[n]) / len(near[n]) if near[n] else place[n] for n in row}
            row.sort(key=lambda node: wanted[node])
            _spread(row, [wanted[node] for node in row], place)
    return _strips(rows, place)


def _spread(row: Sequence[int], wanted: Sequence[float], place: list[float]) -> None:
    """Place ordered nodes as near as possible to their wanted places, at least 1 apart (least squares)."""
    groups: list[tuple[float, int]] = []  # the mean of wanted - rank, and the number of nodes
    for rank, at in enumerate(wanted):
        mean, size = at - rank, 1
        while groups and groups[-1][0] > mean:
            other, many = groups.pop()
            mean, size = (mean * size + other * many) / (size + many), size + many
        groups.append((mean, size))
    rank = 0
    for mean, size in groups:
        for _ in range(size):
            place[row[rank]] = mean + rank
            rank += 1


def _strips(rows: Sequence[Sequence[int]], place: Sequence[float]) -> Layout:
    """Cut the layers into strips of equal height, side by side, so that the whole is not much taller than wide."""
    width, height = _CELL
    node = (width - 32, height - 18)
    if not rows:
        return Layout(x=(), y=(), node=node, size=_CELL)
    widest = max(max(place[n] for n in row) - min(place[n] for n in row) + 1 for row in rows)
    strips = max(1, round(math.sqrt(_WIDE * len(rows) * height / (widest * width))))
    tall = math.ceil(len(rows) / strips)
    x, y = [0] * len(place), [0] * len(place)
    left = 0
    for start in range(0, len(rows), tall):
        strip = rows[start : start + tall]
        first = min(place[n] for row in strip for n in row)
        last = max(place[n] for row in strip for n in row)
        for depth, row in enumerate(strip):
            for n in row:
                x[n] = left + 16 + round((place[n] - first) * width)
                y[n] = 9 + depth * height
        left += round((last - first + 1) * width)
    return Layout(x=tuple(x), y=tuple(y), node=node, size=(left, tall * height))
