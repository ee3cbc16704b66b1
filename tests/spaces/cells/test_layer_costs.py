"""Layer-corrected costs: exact where they must be, additive elsewhere; and Kendall's tau-b by its definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.spaces.cells.costs import Cells, Latency, kendall_tau, layer_costs
from gnomon.spaces.cells.space import swaps

Measured = dict[tuple[int, ...], Latency]


def cells_of(groups: tuple[int, ...], counts: tuple[int, ...], defaults: tuple[int, ...]) -> Cells:
    names = tuple(tuple(f"Resblock_{k}" for k in range(count)) for count in counts)
    return Cells(groups=groups, choices=names, defaults=defaults)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Cells, Measured]:
    """Layers in groups in any order, and swaps that were measured."""
    count = draw(st.integers(1, 4))
    more = draw(st.lists(st.integers(0, count - 1), max_size=4))
    groups = tuple(draw(st.permutations([*range(count), *more])))
    counts = tuple(draw(st.integers(1, 4)) for _ in range(count))
    defaults = tuple(draw(st.integers(0, one - 1)) for one in counts)
    times = st.floats(1e-4, 1e-2)
    measured = {a: Latency(call_s=draw(times), error_s=draw(st.floats(0, 1e-4))) for a in swaps(defaults, counts)}
    return cells_of(groups, counts, defaults), measured


@given(cases())
def test_it_is_exact_for_the_default_and_single_swaps_and_additive_for_all_others(
    case: tuple[Cells, Measured],
) -> None:
    cells, measured = case
    costs = layer_costs(cells, measured)
    nets = list(measured)
    assert costs.predict_s(nets) == pytest.approx([one.call_s for one in measured.values()], rel=1e-9)
    everything = list(itertools.product(*(range(len(ones)) for ones in cells.choices)))
    default = measured[cells.defaults].call_s
    additive = [
        default + sum(measured[_swapped(cells, g, k)].call_s - default for g, k in enumerate(net)) for net in everything
    ]
    assert costs.predict_s(everything) == pytest.approx(additive, rel=1e-9, abs=1e-12)
    bare = [sum(row[net[g]] for row, g in zip(costs.cost_s, cells.groups, strict=True)) for net in everything]
    assert bare == pytest.approx(additive, rel=1e-9, abs=1e-12)


def _swapped(cells: Cells, group: int, choice: int) -> tuple[int, ...]:
    return (*cells.defaults[:group], choice, *cells.defaults[group + 1 :])


def test_a_groups_difference_is_split_evenly_over_its_layers() -> None:
    cells = cells_of((0, 0, 1), (2, 1), (0, 0))
    measured: Measured = {(0, 0): Latency(call_s=1.0, error_s=0.0), (1, 0): Latency(call_s=1.9, error_s=0.0)}
    costs = layer_costs(cells, measured)
    assert costs.cost_s[0] == pytest.approx([1 / 3, 1 / 3 + 0.45])
    assert costs.cost_s[1] == pytest.approx([1 / 3, 1 / 3 + 0.45])
    assert costs.cost_s[2] == pytest.approx([1 / 3])


def test_a_swap_that_failed_leaves_unknown_what_needs_it_alone() -> None:
    cells = cells_of((0, 1), (3, 2), (0, 0))
    measured = {net: Latency(call_s=1.0 + sum(net), error_s=0.0) for net in swaps((0, 0), (3, 2)) if net != (2, 0)}
    told = layer_costs(cells, measured).predict_s([(1, 1), (2, 0), (2, 1), (0, 1)])
    assert np.isnan(told).tolist() == [False, True, True, False]


PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=30)


@given(PAIRS)
def test_it_is_what_pairs_say_with_ties(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, np.float64).T
    a, b = (np.sign(np.subtract.outer(one, one)) for one in (x, y))
    scale = math.sqrt((a * a).sum() * (b * b).sum())
    assert kendall_tau(x, y) == pytest.approx((a * b).sum() / scale if scale else 0.0, abs=1e-12)


def test_infinite_numbers_have_an_order() -> None:
    x = np.array([math.inf, math.inf, 1.0, -math.inf])
    assert kendall_tau(x, np.array([3.0, 3.0, 2.0, 1.0])) == pytest.approx(1.0)
