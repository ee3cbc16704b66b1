"""Places of graphs: producers above consumers in each strip, nothing on anything else, also of odd graphs."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.report.layers import Layout, layered

Edges = list[tuple[int, int]]


def apart(found: Layout) -> None:
    """No two nodes overlap, and all lie within the size that is told."""
    width, height = found.node
    corners = sorted(zip(found.y, found.x, strict=True))
    for (y, x), (below, right) in pairwise(corners):
        assert below >= y + height or right >= x + width
    assert all(0 <= x <= found.size[0] - width and 0 <= y <= found.size[1] - height for y, x in corners)


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=80))
def test_nodes_of_any_graph_do_not_overlap(count: int, edges: Edges) -> None:
    apart(layered(count, [(a % count, b % count) for a, b in edges]))


def test_a_chain_goes_down_in_strips() -> None:
    found = layered(100, [(k, k + 1) for k in range(99)])
    apart(found)
    strips = sorted(set(found.x))
    assert len(strips) > 1
    assert 0.5 < found.size[0] / found.size[1] < 4
    for k in range(99):
        assert found.y[k + 1] > found.y[k] or found.x[k + 1] > found.x[k]


def test_branches_stand_side_by_side_and_join_in_the_middle() -> None:
    found = layered(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert found.y[1] == found.y[2]
    assert found.x[0] == found.x[3] == (found.x[1] + found.x[2]) / 2


def test_what_needs_nothing_stands_above_its_consumer() -> None:
    found = layered(5, [(0, 1), (1, 2), (2, 4), (3, 4)])
    assert found.y[3] == found.y[2]


@pytest.mark.parametrize("seed", range(3))
def test_a_large_graph(seed: int) -> None:
    numbers = random.Random(seed)
    edges = [(numbers.randrange(max(0, k - 30), k), k) for k in range(1, 2012) for _ in range(2)]
    apart(layered(2012, edges))
