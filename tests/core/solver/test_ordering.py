"""Elimination orders: validity and width."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.core.solver.ordering import Limits, Order, best_order, degeneracy

Graph = dict[int, set[int]]


def graph_of(count: int, edges: list[tuple[int, int]]) -> Graph:
    graph: Graph = {v: set() for v in range(count)}
    for a, b in edges:
        graph[a].add(b)
        graph[b].add(a)
    return graph


def replay(graph: Graph, order: Order) -> int:
    """Eliminate by the book; checks the neighbours of each step and returns the width."""
    left = {v: set(around) for v, around in graph.items()}
    place = {v: p for p, (v, _) in enumerate(order.steps)}
    width = 0
    for v, ring in order.steps:
        assert set(ring) == left[v] and list(ring) == sorted(ring, key=place.__getitem__)
        width = max(width, len(ring))
        for u in ring:
            left[u] |= set(ring) - {u}
            left[u].discard(v)
        del left[v]
    assert not left
    return width


@pytest.mark.parametrize("seed", range(30))
def test_steps_are_an_elimination(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 25))
    edges = [(a, b) for a in range(count) for b in range(a) if rng.random() < rng.choice([0.1, 0.3, 0.7])]
    graph = graph_of(count, edges)
    order = best_order(graph, [2] * count)
    assert order is not None
    assert replay(graph, order) == order.width >= degeneracy(graph)
    assert order.entries == pytest.approx(sum(2.0 ** (len(ring) + 1) for _, ring in order.steps))


def test_known_widths() -> None:
    path = graph_of(50, [(i, i + 1) for i in range(49)])
    cycle = graph_of(50, [(i, (i + 1) % 50) for i in range(50)])
    complete = graph_of(6, [(a, b) for a in range(6) for b in range(a)])
    grid = graph_of(16, [(i, i + 1) for i in range(16) if i % 4 < 3] + [(i, i + 4) for i in range(12)])
    for graph, width in [(path, 1), (cycle, 2), (complete, 5), (grid, 4)]:
        order = best_order(graph, [3] * len(graph))
        assert order is not None and order.width == width


def test_chordal_graphs_get_their_exact_width() -> None:
    rng = np.random.default_rng(5)
    edges = [(a, b) for a in range(6) for b in range(a)]
    cliques = [tuple(range(6))]
    for v in range(6, 200):
        ring = rng.permutation(cliques[rng.integers(len(cliques))])[:5].tolist()
        edges += [(u, v) for u in ring]
        cliques.append((*ring, v))
    order = best_order(graph_of(200, edges), [2] * 200)
    assert order is not None and order.width == 5
    assert sum(len(ring) for _, ring in order.steps) == len({(min(e), max(e)) for e in edges})  # no pair is added


def test_limits() -> None:
    complete = graph_of(10, [(a, b) for a in range(10) for b in range(a)])
    assert best_order(complete, [4] * 10, Limits(table_entries=4.0**9)) is None
    assert best_order(complete, [4] * 10, Limits(table_entries=4.0**10)) is not None
    assert best_order(complete, [4] * 10, Limits(total_entries=1e5)) is None
