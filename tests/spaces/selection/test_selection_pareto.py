"""The Pareto selection: exact on what can be enumerated, the same for any unit and order, sure without noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gnomon.core.front.dominance import dominates
from gnomon.core.space import Slot, Space
from gnomon.errors import UsageError
from gnomon.spaces.cells.effects import Evidence, expit
from gnomon.spaces.selection.pareto import (
    ParetoOptions,
    ParetoSelection,
    select_pareto,
)
from gnomon.spaces.selection.reduce import (
    Resamples,
    frequencies_of,
    front_of_sums,
    reduce_choices,
    weighed_costs,
)

Floats = NDArray[np.float64]
UNITS = (1e-9, 1 / 3, 1e6)


def space(blocks: int = 3, groups: int = 3, families: tuple[str, ...] = ("Mobile", "Res")) -> Space:
    names = tuple(f"{family}block_{i}" for family in families for i in range(blocks))
    return Space(tuple(Slot(f"cell{g}", names) for g in range(groups)))


def truth(given: Space, seed: int) -> tuple[Floats, Floats]:
    """Latencies and logits (groups, choices): slower blocks are somewhat more accurate."""
    rng = np.random.default_rng(seed)
    shape = (len(given.slots), len(given.slots[0].choices))
    work = rng.normal(0, 0.5, shape)
    return rng.uniform(0.5, 2, (shape[0], 1)) * np.exp(work), 0.4 + 0.4 * work + rng.normal(0, 0.2, shape)


def rows_of(given: Space) -> NDArray[np.intp]:
    """All one-change variants of each family's first network."""
    names = [name.split("block_")[0] for name in given.slots[0].choices]
    rows: list[list[int]] = []
    for family in dict.fromkeys(names):
        own = [i for i, name in enumerate(names) if name == family]
        usual = [own[0]] * len(given.slots)
        rows.append(usual)
        rows += [[*usual[:g], i, *usual[g + 1 :]] for g in range(len(usual)) for i in own[1:]]
    return np.array(rows)


def measured(
    tables: tuple[Floats, Floats], rows: NDArray[np.intp], noise: tuple[float, float], seed: int = 0
) -> tuple[Evidence, Evidence]:
    """Accuracies with an absolute error, latencies with a relative one."""
    rng = np.random.default_rng(seed)
    groups = np.arange(rows.shape[1])
    latency = np.array([tables[0][groups, row].sum() for row in rows])
    accuracy = np.asarray(expit(np.array([tables[1][groups, row].sum() for row in rows])))
    accuracy = np.clip(accuracy + rng.normal(0, noise[0], len(rows)), 0, 1)
    latency = latency * np.exp(rng.normal(0, noise[1], len(rows)))
    return (
        Evidence(assignments=rows, values=accuracy, errors=np.full(len(rows), noise[0])),
        Evidence(assignments=rows, values=latency, errors=latency * noise[1]),
    )


def on_front_by_hand(tables: list[Floats]) -> list[set[int]]:
    """The choices of each group that an undominated network uses, by looking at every network."""
    networks = list(itertools.product(*(range(len(table)) for table in tables)))
    costs = [tuple(sum(t[i] for t, i in zip(tables, net, strict=True)).tolist()) for net in networks]
    found: list[set[int]] = [set() for _ in tables]
    for net, cost in zip(networks, costs, strict=True):
        if not any(dominates(other, cost) for other in costs):
            for own, i in zip(found, net, strict=True):
                own.add(i)
    return found


def pairs(found: ParetoSelection) -> set[tuple[int, str]]:
    return {(g, name) for g, names in enumerate(found.groups) for name in names}


@pytest.mark.parametrize("seed", range(25))
def test_the_front_of_sums_is_that_of_all_networks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [rng.normal(0, 1, (int(rng.integers(1, 6)), 2)) for _ in range(int(rng.integers(1, 5)))]
    front = front_of_sums(tables)
    marks = front.used([len(table) for table in tables])
    assert [set(np.flatnonzero(own).tolist()) for own in marks] == on_front_by_hand(tables)
    again = [sum(t[i] for t, i in zip(tables, net, strict=True)) for net in front.assignments]
    assert np.allclose(front.costs, again)


@pytest.mark.parametrize("seed", range(10))
def test_frequencies_are_the_shares_of_resamples_whose_front_uses_a_choice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = (3, 4, 2)
    many = Resamples(
        latencies=tuple(rng.uniform(0.1, 1, (7, n)) for n in counts),
        logits=tuple(rng.normal(0.5, 0.5, (7, n)) for n in counts),
        reference=(2.0, 0.6),
    )
    frequencies = frequencies_of(many)
    by_hand = [np.zeros(n) for n in counts]
    for k in range(7):
        tables = [np.column_stack([a[k], -b[k]]) for a, b in zip(many.latencies, many.logits, strict=True)]
        for total, own in zip(by_hand, on_front_by_hand(tables), strict=True):
            total[list(own)] += 1 / 7
    for one, other in zip(frequencies, by_hand, strict=True):
        assert np.allclose(one, other)


@pytest.mark.parametrize("seed", range(8))
def test_without_noise_each_frequency_is_0_or_1_as_all_networks_say(seed: int) -> None:
    given = space(blocks=4, families=("Mobile",))
    tables = truth(given, seed)
    found = select_pareto(
        given, *measured(tables, rows_of(given), (0.0, 0.0)), ParetoOptions(most_share=1, resamples=20)
    )
    told = on_front_by_hand([np.column_stack([tables[0][g], -tables[1][g]]) for g in range(3)])
    for own, wanted in zip(found.primitives, told, strict=True):
        assert {i for i, one in enumerate(own) if one.frequency == 1} == wanted
        assert all(one.frequency in (0, 1) for one in own)
    assert found.share_kept[0] == pytest.approx(1, abs=1e-9)
    assert found.stability > 0.99


def in_unit(latency: Evidence, unit: float) -> Evidence:
    return Evidence(assignments=latency.assignments, values=latency.values * unit, errors=latency.errors * unit)


@pytest.mark.parametrize("options", [ParetoOptions(resamples=3), ParetoOptions(resamples=3, most_share=0.3)])
def test_no_change_of_unit_changes_a_selection(options: ParetoOptions) -> None:
    given = space()
    for number, unit in enumerate(UNITS):
        accuracy, latency = measured(truth(given, number), rows_of(given), (0.01, 0.03), number)
        first, second = (select_pareto(given, accuracy, one, options) for one in (latency, in_unit(latency, unit)))
        assert first.groups == second.groups
        assert first.primitives == second.primitives
        assert first.share_kept == second.share_kept


@pytest.mark.parametrize("changes", [{}, {"most_share": 1}])
def test_the_order_of_choices_changes_no_selection(changes: dict[str, Any]) -> None:
    """That of groups is a network's own: what neighbours add to each other is believed by it."""
    options = ParetoOptions(**changes, resamples=5)
    given = space(blocks=5)
    rng = np.random.default_rng(1)
    for seed in range(2):
        accuracy, latency = measured(truth(given, seed), rows_of(given), (0.01, 0.03), seed)
        orders = [rng.permutation(10) for _ in range(3)]
        slots = [
            Slot(slot.name, tuple(slot.choices[i] for i in own)) for slot, own in zip(given.slots, orders, strict=True)
        ]
        moved = [
            Evidence(
                assignments=np.column_stack([np.argsort(orders[g])[one.assignments[:, g]] for g in range(3)]),
                values=one.values,
                errors=one.errors,
            )
            for one in (accuracy, latency)
        ]
        first = select_pareto(given, accuracy, latency, options)
        second = select_pareto(Space(tuple(slots)), moved[0], moved[1], options)
        assert pairs(first) == pairs(second)
        assert first.share_kept == pytest.approx(second.share_kept, rel=1e-6)


def test_the_names_of_groups_change_no_selection() -> None:
    """Names told which groups were neighbours: `head` came before `stage1`, wherever they stand in the network."""
    given, rng = space(), np.random.default_rng(5)
    rows, pair = rng.integers(0, 6, (40, 3)), rng.normal(0, 0.3, (6, 6))
    accuracy, latency = measured(truth(given, 1), rows, (0.01, 0.03))
    fits = latency.values * np.exp(pair[rows[:, 1], rows[:, 2]])
    latency = Evidence(assignments=rows, values=fits, errors=0.03 * fits)
    other = Space(tuple(Slot(name, given.slots[0].choices) for name in ("aa", "bbb", "c")))
    options = ParetoOptions(resamples=20, most_share=0.3)
    first, second = (select_pareto(one, accuracy, latency, options) for one in (given, other))
    assert first.groups == second.groups and first.share_kept == second.share_kept


def cheapest(costs: Sequence[Floats], most: float) -> float:
    """The least loss of any choice sets of so many networks, by trying all."""
    subsets = [
        [s for n in range(1, c.shape[1] + 1) for s in itertools.combinations(range(c.shape[1]), n)] for c in costs
    ]
    return min(loss_of(costs, kept) for kept in itertools.product(*subsets) if math.prod(map(len, kept)) <= most)


def loss_of(costs: Sequence[Floats], kept: object) -> float:
    assert isinstance(kept, tuple)
    return sum(
        float(c[:, list(own)].min(axis=1).mean() - c.min(axis=1).mean()) for c, own in zip(costs, kept, strict=True)
    )


@pytest.mark.parametrize("seed", range(10))
def test_reduction_holds_its_share_and_loses_hardly_more_than_the_best_of_all_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = (4, 5, 3)
    many = Resamples(
        latencies=tuple(rng.uniform(0.1, 1, (12, n)) for n in counts),
        logits=tuple(rng.normal(0.5, 0.5, (12, n)) for n in counts),
        reference=(3.0, 0.7),
    )
    costs = weighed_costs(many)
    for most in (1, 2, 6, 20, 59, 60):
        kept = reduce_choices(costs, most=most)
        assert 1 <= math.prod(map(len, kept)) <= most
        best = cheapest(costs, most)
        assert loss_of(costs, tuple(own.tolist() for own in kept)) <= 1.15 * best + 1e-12
    assert [own.tolist() for own in reduce_choices(costs, most=60)] == [[*range(n)] for n in counts]


def test_losses_that_are_equal_go_by_the_order_of_the_choices() -> None:
    costs = np.tile(np.eye(4) - 1, (6, 1))  # each is missed equally
    kept = reduce_choices((-costs, -costs), most=2)
    assert sorted(own.tolist() for own in kept) == [[0], [0, 1]]


def test_nothing_but_the_measurements_has_a_part_in_the_choice() -> None:
    """Other numbers of the same blocks, to which an even layout by number would hold on, change no choice."""
    given = space(blocks=5, groups=4, families=("VGG",))
    order = [3, 0, 4, 1, 2]
    names = tuple(f"VGGblock_{order[i]}" for i in range(5))
    other = Space(tuple(Slot(slot.name, names) for slot in given.slots))
    for seed in range(3):
        tables = truth(given, seed)
        evidence = measured(tables, rows_of(given), (0.0, 0.0))
        found = [select_pareto(one, *evidence, ParetoOptions(resamples=5)) for one in (given, other)]
        assert [{order[int(n[-1])] for n in own} for own in found[0].groups] == [
            {int(n[-1]) for n in own} for own in found[1].groups
        ]


def left_by(found: ParetoSelection) -> int:
    return math.prod(map(len, found.groups))


def test_a_share_that_leaves_too_little_to_search_is_refused_with_the_share_that_would_do() -> None:
    small = space(blocks=4, groups=2, families=("Mobile",))
    evidence = measured(truth(small, 1), rows_of(small), (0.01, 0.03))
    with pytest.raises(UsageError, match="only 1 of 16 networks remains") as told:
        select_pareto(small, *evidence)
    share = float(told.value.hint.split("--max-fraction ")[1].split(",")[0])
    assert 0.1 < share < 1
    left = left_by(select_pareto(small, *evidence, ParetoOptions(most_share=share)))
    assert f"leaves {left} networks" in told.value.hint
    noisy = measured(truth(small, 1), rows_of(small), (0.3, 1.5))
    with pytest.raises(UsageError, match=r"of the hypervolume, so perhaps less than half") as told:
        select_pareto(small, *noisy, ParetoOptions(most_share=0.15))
    assert "--max-fraction" in told.value.hint
    all_of_it = select_pareto(small, *noisy, ParetoOptions(most_share=1))
    assert (all_of_it.share_kept[1], left_by(all_of_it)) == (1, 16)


def test_a_selection_tells_what_it_kept_and_how_sure_that_is() -> None:
    given = space(blocks=5, groups=5)
    found = select_pareto(given, *measured(truth(given, 2), rows_of(given), (0.01, 0.03)), ParetoOptions(resamples=50))
    assert left_by(found) <= 10**4
    mean, low, high = found.share_kept
    assert 0 <= low <= mean <= high <= 1
    assert 0.3 < found.stability < 1
    for own in found.primitives:
        assert all(0 <= one.again <= 1 for one in own)
        assert np.mean([one.again for one in own if one.stays]) > np.mean([one.again for one in own if not one.stays])
    for own, names in zip(found.primitives, found.groups, strict=True):
        assert tuple(one.name for one in own if one.stays) == names
        assert all(0 <= one.low <= one.frequency <= one.high <= 1 for one in own)


@pytest.mark.parametrize(
    "options",
    [
        {"most_share": 0.0},
        {"most_share": math.nan},
        {"most_share": 1.1},
        {"resamples": 1},
    ],
)
def test_options_without_a_meaning_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        ParetoOptions(**options)  # type: ignore[arg-type]
    assert caught.value.hint
