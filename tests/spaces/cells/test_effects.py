"""Effects of primitives on a price: found again where they are known, uncertain where they are not."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gnomon.core.space import Slot, Space
from gnomon.spaces.cells.effects import Evidence, _slower, balanced_design, learn

Floats = NDArray[np.float64]

GROUPS, BLOCKS = 4, 4


def space(families: tuple[str, ...] = ("Mobile", "Res")) -> Space:
    names = tuple(f"{family}block_{i}" for family in families for i in range(BLOCKS))
    return Space(tuple(Slot(f"cell{g}", names) for g in range(GROUPS)))


def truth(seed: int, families: int = 2) -> Floats:
    """Effects (groups, families * blocks): a part of the family, one of the primitive, one of its own."""
    rng = np.random.default_rng(seed)
    family, main = np.repeat(rng.normal(0, 0.05, families), BLOCKS), rng.normal(0, 0.1, families * BLOCKS)
    scale = rng.lognormal(0, 0.3, GROUPS)
    return np.asarray(1.0 + scale[:, None] * (family + main + rng.normal(0, 0.05, (GROUPS, families * BLOCKS))))


def single_swaps(families: int = 2) -> NDArray[np.intp]:
    rows = []
    for f in range(families):
        usual = [f * BLOCKS + 1] * GROUPS
        rows.append(usual)
        for g, b in itertools.product(range(GROUPS), range(BLOCKS)):
            if b != 1:
                rows.append([*usual[:g], f * BLOCKS + b, *usual[g + 1 :]])
    return np.array(rows)


def mixed(count: int, seed: int, families: int = 2) -> NDArray[np.intp]:
    return np.random.default_rng(seed).integers(0, families * BLOCKS, (count, GROUPS))


def sums(effects: Floats, rows: NDArray[np.intp]) -> Floats:
    return np.asarray(effects[np.arange(GROUPS), rows].sum(axis=1))


def evidence(effects: Floats, rows: NDArray[np.intp], noise: float, seed: int) -> Evidence:
    values = sums(effects, rows) + np.random.default_rng(seed).normal(0, noise, len(rows))
    return Evidence(assignments=rows, values=values, errors=np.full(len(rows), noise))


ROWS = {
    "one-change variants": single_swaps(),
    "mixed": mixed(60, 1),
    "both": np.concatenate([single_swaps(), mixed(30, 2)]),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_without_noise_what_was_measured_is_found_again(rows: NDArray[np.intp]) -> None:
    effects = truth(3)
    found = learn(space(), evidence(effects, rows, 0.0, 0), scale="sums")
    middle, low, high = found.predict(rows)
    spread = float(np.std(middle))
    assert np.abs(middle - sums(effects, rows)).max() < 0.02 * spread
    assert (low <= middle).all() and (middle <= high).all()


def test_a_group_whose_choices_differ_by_rounding_says_nothing_of_which_is_slower() -> None:
    found = learn(space(), evidence(truth(3), ROWS["mixed"], 0.0, 0), scale="sums").effects
    choices = 2 * BLOCKS
    mean = found.mean.copy()
    mean[1 : 1 + choices] = 0.3 + 1e-15 * np.arange(choices)
    told = _slower(replace(found, mean=mean))
    assert (told[:choices] == 0).all()
    assert told[choices : 2 * choices].std() == pytest.approx(1)


@pytest.mark.parametrize("kind", ROWS)
def test_intervals_hold_the_truth_as_often_as_they_say(kind: str) -> None:
    """Over 60 truths drawn as the model says, 40 networks of one family each."""
    inside = []
    rows = mixed(40, 9, families=1)
    for seed in range(60):
        effects = truth(seed)
        found = learn(space(), evidence(effects, ROWS[kind], 0.03, seed), scale="sums")
        _, low, high = found.predict(rows)
        inside.append(np.mean((low <= sums(effects, rows)) & (sums(effects, rows) <= high)))
    assert 0.9 <= np.mean(inside) <= 0.99  # of 60 truths: the standard error is about 0.01


def test_what_no_sum_explains_is_told_where_networks_can_tell() -> None:
    effects, rows = truth(7), np.concatenate([single_swaps(), mixed(120, 3)])
    off = np.random.default_rng(0).normal(0, 0.1, len(rows))
    given = Evidence(assignments=rows, values=sums(effects, rows) + off, errors=np.full(len(rows), 0.001))
    found = learn(space(), given, scale="sums").effects
    assert 0.015 < found.sizes["misfit"] < 0.05  # 0.1 of networks of about 4
    assert learn(space(), evidence(effects, single_swaps(), 0.01, 0), scale="sums").effects.sizes["misfit"] == 0


def test_draws_have_the_mean_and_the_covariance_that_are_believed() -> None:
    believed = learn(space(), evidence(truth(8), single_swaps(), 0.03, 1), scale="sums")
    found = believed.effects
    rows = mixed(20, 4)
    drawn = found.draw(4000, seed=2)
    totals = sum(table[:, column] for table, column in zip(drawn, rows.T, strict=True))
    middle, low, high = believed.predict(rows)
    spread = np.log(high / low) / (2 * 1.959964 * believed.loose)
    assert np.abs(np.mean(np.log(totals), axis=0) - np.log(middle)).max() < 0.1 * spread.max()
    assert np.abs(np.std(np.log(totals), axis=0) / spread - 1).max() < 0.1


def test_equal_latencies_are_no_better_known_than_they_were_measured() -> None:
    """Logarithms of equal numbers differ in the last bit from their mean, which was taken for their spread."""
    rows = np.array(list(itertools.product(range(2), repeat=GROUPS)))[:7]
    given = Evidence(assignments=rows, values=np.full(7, 0.0123), errors=np.full(7, 1e-4))
    middle, low, high = learn(space(), given, scale="sums").predict(rows)
    assert middle == pytest.approx(np.full(7, 0.0123)) and (high - low > 1e-4).all()


def test_sizes_are_drawn_where_doubt_of_them_reaches_beyond_what_numbers_hold() -> None:
    """Of accuracies that add up exactly a draw came out as large as e to the 20th, and ended the command."""
    rows, work = ROWS["both"], np.random.default_rng(1).normal(0, 0.02, 2 * BLOCKS)
    given = Evidence(assignments=rows, values=0.85 + work[rows].sum(axis=1), errors=np.full(len(rows), 0.01))
    found = learn(space(), given, scale="logit")
    drawn = found.likelihood.sampled(found.sizes, 10 * found.doubt, 5, np.random.default_rng(1))
    assert (np.exp(drawn[:, :3]) < 10).all()


def test_of_one_family_nothing_is_how_families_fit_together() -> None:
    """A misfit as large as all that networks differ by was told of sums that explain everything."""
    rows, effects = np.concatenate([single_swaps(1), mixed(12, 2, families=1)]), truth(4, families=1)
    found = learn(space(("Mobile",)), evidence(effects, rows, 0.001, 1), scale="sums").effects
    assert found.sizes["misfit"] < 0.1 * found.sizes["main"]


def test_accuracies_stay_between_0_and_1() -> None:
    rows = single_swaps()
    values = np.random.default_rng(1).uniform(0.9, 1.0, len(rows))
    values[0] = 1.0
    found = learn(space(), Evidence(assignments=rows, values=values, errors=np.full(len(rows), 0.01)), scale="logit")
    middle, low, high = found.predict(mixed(500, 1))
    assert (low >= 0).all() and (high <= 1).all()
    assert ((low <= middle) & (middle <= high)).all()


def test_one_network_alone_is_enough_to_say_little() -> None:
    rows = single_swaps()[:1]
    found = learn(space(), Evidence(assignments=rows, values=np.array([0.5]), errors=np.array([0.01])), scale="sums")
    middle, low, high = found.predict(np.concatenate([rows, mixed(5, 1)]))
    assert abs(middle[0] - 0.5) < 0.05
    assert (high[1:] - low[1:] > 0.2).all()


def test_the_order_of_groups_and_choices_changes_nothing() -> None:
    effects, rows = truth(9), single_swaps()
    plain = space()
    rng = np.random.default_rng(3)
    groups = rng.permutation(GROUPS)  # of one-change variants alone, which tell nothing of neighbours
    orders = [rng.permutation(2 * BLOCKS) for _ in range(GROUPS)]
    other = Space(tuple(Slot(plain.slots[g].name, tuple(plain.slots[g].choices[i] for i in orders[g])) for g in groups))
    moved = np.column_stack([np.argsort(orders[g])[rows[:, g]] for g in groups])
    given = evidence(effects, rows, 0.02, 1)
    first = learn(plain, given, scale="sums").effects
    second = learn(other, Evidence(assignments=moved, values=given.values, errors=given.errors), scale="sums").effects
    before, after = first.draw(5, seed=1), second.draw(5, seed=1)
    for place, g in enumerate(groups):
        assert np.allclose(after[place], before[g][:, orders[g]], atol=1e-6)


def test_costs_that_differ_a_hundredfold_are_all_above_0_and_relatively_right() -> None:
    """Blocks of 10 us beside blocks of 1 ms: plain sums told a third of what a fast network takes, and less than 0."""
    rng = np.random.default_rng(4)
    costs = np.exp(np.repeat([-4.0, 0.5], BLOCKS) + rng.normal(0, 0.3, (GROUPS, 2 * BLOCKS)))
    rows, unseen = ROWS["both"], mixed(200, 8)
    took = sums(costs, rows) * np.exp(rng.normal(0, 0.01, len(rows)))
    found = learn(space(), Evidence(assignments=rows, values=took, errors=0.01 * took), scale="sums")
    fast = np.array([[0, 2, 3, 0], [3, 3, 3, 3]])
    for networks in (unseen, fast):
        middle, low, high = found.predict(networks)
        truth = sums(costs, networks)
        assert np.abs(middle / truth - 1).mean() < 0.04
        assert (low > 0).all() and np.mean((low <= truth) & (truth <= high)) >= 0.9
    assert all((table > 0).all() for table in found.effects.draw(50, seed=0))


@pytest.mark.parametrize("seed", [2, 3, 17])
def test_groups_of_very_unlike_costs_are_learned_too(seed: int) -> None:
    """Where one group takes most of the time, costs that are linear around a first guess lead far away."""
    rng = np.random.default_rng(seed)
    costs = rng.lognormal(0, 0.25, (5, 5)) * rng.lognormal(0, 0.7, (5, 1))
    one = Space(tuple(Slot(f"cell{g}", tuple(f"Resblock_{k}" for k in range(5))) for g in range(5)))
    swaps = [(1,) * g + (k,) + (1,) * (4 - g) for g in range(5) for k in (0, 2, 3, 4)]
    rows = np.concatenate([[(1,) * 5], swaps, balanced_design([5] * 5, 24, seed=1)])
    true = 0.3 + costs[np.arange(5), rows].sum(axis=1)
    values = true * np.exp(rng.normal(0, 0.01, len(true)))
    found = learn(one, Evidence(assignments=rows, values=values, errors=0.01 * values), scale="sums")
    others = rng.integers(0, 5, (60, 5))
    wanted = 0.3 + costs[np.arange(5), others].sum(axis=1)
    mean, low, high = found.predict(others)
    assert np.abs(mean / wanted - 1).mean() < 0.02
    assert np.mean((low <= wanted) & (wanted <= high)) > 0.9
