"""Layer-corrected costs: exact where they must be, additive elsewhere, with the errors that noise really gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.spaces.cells.costs import Cells, Latency, LayerCosts, layer_costs
from gnomon.spaces.cells.space import swaps

Measured = dict[tuple[int, ...], Latency]


def cells_of(groups: tuple[int, ...], counts: tuple[int, ...], defaults: tuple[int, ...]) -> Cells:
    names = tuple(tuple(f"Resblock_{k}" for k in range(count)) for count in counts)
    return Cells(groups=groups, choices=names, defaults=defaults)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Cells, Measured, float, tuple[float, ...] | None]:
    """Layers in groups in any order, swaps that were measured, an overhead, and shares or none."""
    count = draw(st.integers(1, 4))
    more = draw(st.lists(st.integers(0, count - 1), max_size=4))
    groups = tuple(draw(st.permutations([*range(count), *more])))
    counts = tuple(draw(st.integers(1, 4)) for _ in range(count))
    defaults = tuple(draw(st.integers(0, one - 1)) for one in counts)
    times = st.floats(1e-4, 1e-2)
    measured = {a: Latency(call_s=draw(times), error_s=draw(st.floats(0, 1e-4))) for a in swaps(defaults, counts)}
    overhead = draw(st.floats(0, 0.9)) * measured[defaults].call_s
    shares = draw(st.none() | st.tuples(*[st.floats(0.1, 10) for _ in groups]))
    return cells_of(groups, counts, defaults), measured, overhead, shares


@given(cases())
def test_it_is_exact_for_the_default_and_single_swaps_and_additive_for_all_others(
    case: tuple[Cells, Measured, float, tuple[float, ...] | None],
) -> None:
    cells, measured, overhead, shares = case
    costs = layer_costs(cells, measured, overhead_s=overhead, default_layers=shares)
    nets = list(measured)
    assert costs.predict_s(nets) == pytest.approx([one.call_s for one in measured.values()], rel=1e-9)
    everything = list(itertools.product(*(range(len(ones)) for ones in cells.choices)))
    default = measured[cells.defaults].call_s
    additive = [
        default + sum(measured[_swapped(cells, g, k)].call_s - default for g, k in enumerate(net)) for net in everything
    ]
    assert costs.predict_s(everything) == pytest.approx(additive, rel=1e-9, abs=1e-12)
    bare = [sum(row[net[g]] for row, g in zip(costs.spread(), cells.groups, strict=True)) for net in everything]
    assert bare == pytest.approx(additive, rel=1e-9, abs=1e-12)


def _swapped(cells: Cells, group: int, choice: int) -> tuple[int, ...]:
    return (*cells.defaults[:group], choice, *cells.defaults[group + 1 :])


def test_a_groups_difference_is_split_as_its_default_layers_are() -> None:
    cells = cells_of((0, 0, 1), (2, 1), (0, 0))
    measured: Measured = {(0, 0): Latency(call_s=1.0, error_s=0.0), (1, 0): Latency(call_s=1.9, error_s=0.0)}
    costs = layer_costs(cells, measured, overhead_s=0.2, default_layers=(1.0, 2.0, 5.0))
    assert costs.cost_s[0] == pytest.approx([0.1, 0.1 + 0.3])
    assert costs.cost_s[1] == pytest.approx([0.2, 0.2 + 0.6])
    assert costs.cost_s[2] == pytest.approx([0.5])


def test_without_shares_the_layers_of_the_default_are_equal() -> None:
    cells = cells_of((0, 1), (1, 1), (0, 0))
    costs = layer_costs(cells, {(0, 0): Latency(call_s=1.0, error_s=0.0)}, overhead_s=0.5)
    assert [row.tolist() for row in costs.cost_s] == [[0.25], [0.25]]


def test_a_swap_that_failed_leaves_unknown_what_needs_it_alone() -> None:
    cells = cells_of((0, 1), (3, 2), (0, 0))
    measured = {net: Latency(call_s=1.0 + sum(net), error_s=0.0) for net in swaps((0, 0), (3, 2)) if net != (2, 0)}
    told = layer_costs(cells, measured).predict_s([(1, 1), (2, 0), (2, 1), (0, 1)])
    assert np.isnan(told).tolist() == [False, True, True, False]


def _simulated(seed: int, cells: Cells, noise: float) -> LayerCosts:
    rng = np.random.default_rng(seed)
    nets = list(swaps(cells.defaults, [len(ones) for ones in cells.choices]))
    told = {n: Latency(call_s=float(5 + sum(n) + rng.normal(0, noise)), error_s=noise) for n in nets}
    return layer_costs(cells, told, overhead_s=1.0, default_layers=(1.0, 2.0, 3.0, 4.0))


def test_standard_errors_are_those_that_noise_gives() -> None:
    """A thousand measurements of the same networks scatter as the errors of the cells say."""
    cells = cells_of((0, 1, 1, 2), (3, 2, 2), (1, 0, 0))
    drawn = [_simulated(seed, cells, 0.05) for seed in range(1000)]
    for layer in range(4):
        scatter = np.std([one.cost_s[layer] for one in drawn], axis=0)
        assert scatter == pytest.approx(drawn[0].error_s[layer], rel=0.1)


def test_what_makes_no_costs_is_refused() -> None:
    cells = cells_of((0, 1), (2, 2), (0, 0))
    measured: Measured = {(0, 0): Latency(call_s=1.0, error_s=0.0)}
    with pytest.raises(ProblemError, match="default network has no latency"):
        layer_costs(cells, {(1, 0): Latency(call_s=1.0, error_s=0.0)})
    for overhead in (1.0, -0.1, float("nan")):
        with pytest.raises(ProblemError, match="leaves nothing"):
            layer_costs(cells, measured, overhead_s=overhead)
    for shares in ((1.0,), (1.0, 0.0), (1.0, float("nan"))):
        with pytest.raises(ProblemError, match="share above 0"):
            layer_costs(cells, measured, default_layers=shares)
    with pytest.raises(ProblemError, match="not networks of these"):
        layer_costs(cells, measured).predict_s([(0, 2)])
    with pytest.raises(ProblemError, match="unlike groups"):
        cells_of((0, 2), (2, 2), (0, 0))
    with pytest.raises(ProblemError, match="not among its group's"):
        cells_of((0, 1), (2, 2), (0, 2))
