"""Predicting mixed networks of a family: by what error, and what is said of it, on truths that are known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.jobs.space.kits.studykit import mixed_networks, study, timed

from gnomon.jobs.space.profiling.estimates import LEAST_MIXED, held_out, latencies_of, score
from gnomon.jobs.space.profiling.study import space_of
from gnomon.spaces.cells.effects import Evidence, Learned, learn
from gnomon.spaces.cells.space import swaps

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

GROUPS, COUNT = 4, 4
SPACE, DEFAULTS = space_of([f"VGGblock_{k}" for k in range(COUNT)], GROUPS), (1,) * GROUPS
EVERYTHING = list(itertools.product(range(COUNT), repeat=GROUPS))
SWAPS = list(swaps(DEFAULTS, (COUNT,) * GROUPS))
Net = tuple[int, ...]


def truth(seed: int, *, meeting: float = 0.0) -> dict[Net, float]:
    """Seconds of all networks: a cost a swap, and `meeting` of the level where primitive 0 is followed by 2 or 3."""
    costs = np.random.default_rng(seed).uniform(1e-5, 6e-5, (GROUPS, COUNT))
    found = {}
    for net in EVERYTHING:
        met = sum(a == 0 and b >= 2 for a, b in itertools.pairwise(net))
        found[net] = 2e-5 + sum(costs[g, k] for g, k in enumerate(net)) + met * meeting * 1.5e-4
    return found


def learned(true: dict[Net, float], nets: list[Net], noise: float, seed: int = 0, default: float = 1.0) -> Learned:
    """What measurements with this relative error tell, that of the default network off by a factor more."""
    rng = np.random.default_rng(seed)
    values = [true[net] * math.exp(rng.normal(0, noise)) * (default if net == DEFAULTS else 1) for net in nets]
    errors = noise * np.array([true[net] for net in nets])
    return learn(SPACE, Evidence(assignments=np.array(nets), values=np.array(values), errors=errors), scale="sums")


def mixed(count: int, seed: int = 0) -> list[Net]:
    return mixed_networks([COUNT] * GROUPS, DEFAULTS, count, seed=seed)


def errors(true: dict[Net, float], known: list[Net], found: Learned) -> tuple[float, float]:
    """The mean error on networks that were not measured, and the share of 95 % intervals that hold."""
    nets = [net for net in EVERYTHING if net not in known]
    mean, low, high = found.predict(nets)
    y = np.array([true[net] for net in nets])
    return float(np.abs(mean / y - 1).mean()), float(np.mean((low <= y) & (y <= high)))


def test_the_error_of_the_default_network_counts_as_any_other() -> None:
    nets = [*SWAPS, *mixed(16)]
    true = truth(0)
    assert errors(true, nets, learned(true, nets, 0.01, default=1.04))[0] < 0.015


def test_what_it_says_of_its_error_is_what_unseen_networks_show() -> None:
    said, shown, held = [], [], []
    for seed in range(3):
        true, nets = truth(seed, meeting=0.05), [*SWAPS, *mixed(24, seed)]
        found = learned(true, nets, 0.02, seed)
        off, hold = errors(true, nets, found)
        said.append(float(np.abs(np.exp(-found.left_out()[len(SWAPS) :]) - 1).mean()))
        shown.append(math.hypot(off, 0.02 * math.sqrt(2 / math.pi)))  # one measurement more
        held.append(hold)
    assert np.mean(said) == pytest.approx(np.mean(shown), rel=0.35)
    assert 0.88 <= np.mean(held) <= 1


FAR = space_of([f"{family}block_{k}" for family in ("Mobile", "Res", "VGG") for k in range(3)], 3)
ALL = np.array(list(itertools.product(range(9), repeat=3)))


@pytest.mark.parametrize("met", ["anywhere", "by family"])
def test_what_equal_neighbours_add_is_learned_from_all_places_where_they_meet(met: str) -> None:
    """Families 20-fold apart: better than whoever knows each block's cost and no pair, and 95 % intervals hold."""
    off, alone, inside = [], [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        costs = 1e-4 * np.repeat([20.0**0.5, 1.0, 20.0**-0.5], 3) * np.exp(rng.normal(0, 0.3, (3, 9)))
        fits = rng.normal(0, 0.1, (9, 9)) if met == "anywhere" else rng.normal(0, 0.1, (3, 3)).repeat(3, 0).repeat(3, 1)
        each = costs[np.arange(3), ALL]
        true = each.sum(axis=1)
        for g in range(2):
            true = true + fits[ALL[:, g], ALL[:, g + 1]] * (each[:, g] + each[:, g + 1])
        chosen = rng.permutation(len(ALL))
        known, unseen = chosen[:100], chosen[100:]
        values = true[known] * np.exp(rng.normal(0, 0.01, len(known)))
        told = learn(FAR, Evidence(assignments=ALL[known], values=values, errors=0.01 * values), scale="sums")
        mean, low, high = told.predict(ALL[unseen])
        assert (low > 0).all() and (low <= mean).all() and (mean <= high).all()
        off.append(np.abs(mean / true[unseen] - 1).mean())
        alone.append(np.abs(each.sum(axis=1)[unseen] / true[unseen] - 1).mean())
        inside.append(np.mean((low <= true[unseen]) & (true[unseen] <= high)))
    assert np.mean(off) < 0.5 * np.mean(alone)
    assert np.mean(inside) >= 0.9


def test_each_family_is_told_of_by_its_own_mixed_networks_where_there_are_enough() -> None:
    one = study()
    swapped = [network for family in one.families.values() for network in family.swaps()]
    rows = {n.id: timed(n, 1e-4 * (1 + len(n.id) + sum(n.assignment))) for n in swapped}
    assert held_out(one, rows) == {}, "of one-change variants nothing can be told"
    mean, low, high = latencies_of(one, rows).predict(np.array([one.space.indices(n.primitives) for n in swapped]))
    assert mean.tolist() == [rows[n.id].call_s for n in swapped], "what was measured is what was measured"
    assert (low <= mean).all() and (mean <= high).all() and len(swapped) > LEAST_MIXED


def test_the_score_is_what_is_known_of_small_cases() -> None:
    told = score(np.array([1.1, 2.0, 2.7]), np.array([1.0, 2.0, 3.0]))
    assert (told.networks, told.tau) == (3, 1.0)
    assert told.mean == pytest.approx(0.2 / 3) and told.median == pytest.approx(0.1)
    assert score(np.array([1.0]), np.array([1.0])).tau is None
