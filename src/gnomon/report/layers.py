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
    """Place `count` nodes that are joined from producer to consumer, in time that grows with the number of edges.

    Nodes are arranged in layers, each node below all its producers; within a layer, they are ordered by the middle of
    their neighbours. A node in a cycle is placed as if it had no producers in the cycle.
    """
    joined = [(a, b) for a, b in dict.fromkeys(edges) if a != b]
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in joined:
        before[b].append(a)
        after[a].append(b)
    layer = _layers(before, after)
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


def _layers(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[int]:
    """The layer of each node: the longest path from a node without producers; such nodes are as low as possible."""
    waiting = [len(of) for of in before]
    ready = [node for node, left in enumerate(waiting) if not left]
    layer = [0] * len(before)
    for node in ready:  # grows meanwhile
        for consumer in after[node]:
            layer[consumer] = max(layer[consumer], layer[node] + 1)
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
    for node, producers in enumerate(before):
        if not producers and after[node]:
            layer[node] = max(0, min(layer[consumer] for consumer in after[node]) - 1)
    return layer


def _spread(row: Sequence[int], wanted: Sequence[float], place: list[float]) -> None:
    """Place ordered nodes as near as possible to their wanted places, at least 1 apart (least squares)."""
    groups: list[tuple[float, int]] = []  # mean of wanted - rank, and how many
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
    """Cut the layers into strips of equal height, side by side, so that the whole is not much higher than wide."""
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
