"""What a choice keeps of the front: told with what pairs of primitives add, which sums of effects do not see."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from gnomon.core.front.dominance import hypervolume
from gnomon.core.space import Slot, Space
from gnomon.spaces.cells.effects import Evidence, design_matrix, expit, learn, learn_both, shared_pairs
from gnomon.spaces.selection.beliefs import Front, believe, exchanged
from gnomon.spaces.selection.pareto import ParetoOptions, select_pareto

Floats = NDArray[np.float64]
GROUPS, BLOCKS = 3, 6
SPACE = Space(tuple(Slot(f"cell{g}", tuple(f"VGGblock_{i}" for i in range(BLOCKS))) for g in range(GROUPS)))
EVERY = np.array(list(itertools.product(range(BLOCKS), repeat=GROUPS)), dtype=np.intp)


def world(seed: int, interaction: float) -> tuple[Floats, Floats]:
    """Accuracies and latencies of all networks; what pairs of primitives add is so much of the effects' spread."""
    rng = np.random.default_rng(seed)
    work = rng.normal(0, 0.5, (GROUPS, BLOCKS))
    latency = np.exp(work)[np.arange(GROUPS), EVERY].sum(axis=1)
    logit = (0.8 * work + rng.normal(0, 0.4, work.shape))[np.arange(GROUPS), EVERY].sum(axis=1)
    pairs = np.zeros(len(EVERY))
    for a, b in itertools.combinations(range(GROUPS), 2):
        pairs += rng.normal(0, 1, (BLOCKS, BLOCKS))[EVERY[:, a], EVERY[:, b]]
    logit += interaction * logit.std() * (pairs - pairs.mean()) / pairs.std()
    return np.asarray(expit(1.5 + 0.6 * (logit - logit.mean()) / logit.std())), latency


def evidence(accuracy: Floats, latency: Floats, seed: int, networks: int = 45) -> tuple[Evidence, Evidence]:
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(EVERY))[:networks]
    right = np.clip(accuracy[chosen] + rng.normal(0, 0.004, networks), 0, 1)
    took = latency[chosen] * np.exp(rng.normal(0, 0.01, networks))
    return (
        Evidence(assignments=EVERY[chosen], values=right, errors=np.full(networks, 0.004)),
        Evidence(assignments=EVERY[chosen], values=took, errors=took * 0.01),
    )


def test_networks_share_what_pairs_add_as_they_share_pairs() -> None:
    """Of neighbours, of any groups, and of their families, where the third group has one primitive."""
    space = Space(
        (Slot("a", ("Ablock_0", "Ablock_1")), Slot("b", ("Ablock_0", "Ablock_1")), Slot("c", ("Ablock_0", "Bblock_0")))
    )
    rows = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 1]])
    near, every, kin, own = shared_pairs(space, "logit", (rows, design_matrix(space, rows)))
    assert near[0].tolist() == [1, 0, 0.5] and np.allclose(every[0], [1, 1 / 3, 1 / 3])
    assert np.allclose(kin[0], [1, 1, 1 / 3]) and own.tolist() == np.eye(3).tolist()
    alone = Space((Slot("a", ("Ablock_0", "Ablock_1", "Bblock_0")),))
    one = np.eye(2).tolist()
    rows = np.array([[0], [1]])
    shared = shared_pairs(alone, "logit", (rows, design_matrix(alone, rows)))
    assert shared.tolist() == [one, one, np.ones((2, 2)).tolist(), one]


def test_of_latencies_neighbours_share_what_they_add_wherever_they_are_in_proportion_to_what_they_take() -> None:
    names = ("Ablock_0", "Ablock_1", "Bblock_0")
    space = Space(tuple(Slot(f"cell{g}", names) for g in range(3)))
    rows = np.array([[0, 2, 1], [1, 0, 2], [0, 2, 2]])
    shares = np.array([[0.5, 0.4, 0.1], [0.2, 0.2, 0.6], [0.1, 0.1, 0.8]])
    design = design_matrix(space, rows)
    design[:, 1:] *= np.repeat(shares, len(names), axis=1)
    placed, joint, kin, own = shared_pairs(space, "sums", (rows, design))
    pairs = 1.5 * (shares[:, :-1] + shares[:, 1:])
    assert placed[0, 2] == pytest.approx(pairs[0, 0] * pairs[2, 0] / 2)
    assert placed[0, 1] == 0, "the same two, in other places"
    assert kin[0, 1] == pytest.approx(pairs[0, 0] * pairs[1, 1] / 2)
    assert joint[0, 1] == pytest.approx(kin[0, 1]), "of names and of families alike"
    assert np.linalg.eigvalsh([placed, joint, kin, own]).min() > -1e-12


def test_draws_of_networks_hold_their_truth_and_the_measured_ones_are_nearly_known() -> None:
    inside, near = [], []
    for seed in range(8):
        accuracy, latency = world(seed, 0.5)
        given = evidence(accuracy, latency, seed)[0]
        drawn = learn(SPACE, given, scale="logit").draw(EVERY, 200, seed=0)
        truth = np.log(accuracy / (1 - accuracy))
        low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
        inside.append(np.mean((low <= truth) & (truth <= high)))
        known = np.ravel_multi_index(tuple(given.assignments.T), (BLOCKS,) * GROUPS)
        near.append(drawn[:, known].std(axis=0).mean() / np.delete(drawn, known, axis=1).std(axis=0).mean())
    assert 0.9 < np.mean(inside) < 0.99
    assert np.mean(near) < 0.3


def test_the_told_interval_holds_the_truth_where_primitives_interact_strongly() -> None:
    """Sums of effects alone told intervals that held 62 % here; `space/coverage.py` has many more spaces."""
    inside: list[bool] = []
    widths: dict[float, list[float]] = {0.0: [], 0.6: []}
    for interaction, told in widths.items():
        for seed in range(12):
            accuracy, latency = world(seed, interaction)
            given = evidence(accuracy, latency, seed)
            found = select_pareto(SPACE, *given, ParetoOptions(resamples=100))
            points = np.column_stack([latency / np.median(given[1].values), 1 - accuracy])
            kept = np.all([np.isin(c, [int(n[-1]) for n in g]) for c, g in zip(EVERY.T, found.groups, strict=True)], 0)
            reference = believe(SPACE, *given).reference
            share = hypervolume(points[kept], reference) / hypervolume(points, reference)
            _, low, high = found.share_kept
            inside.append(low <= share + 1e-9 and share <= high + 1e-9)
            told.append(high - low)
    assert np.mean(inside) >= 0.85
    assert np.mean(widths[0.6]) > 2 * np.mean(widths[0.0])


@pytest.mark.parametrize("groups", [6, 7])
def test_a_large_space_is_judged_by_networks_that_may_be_on_a_front(groups: int) -> None:
    rng = np.random.default_rng(groups)
    space = Space(tuple(Slot(f"cell{g}", tuple(f"VGGblock_{i}" for i in range(5))) for g in range(groups)))
    tables = rng.normal(0, 0.4, (2, groups, 5))
    rows = rng.integers(0, 5, (60, groups))
    right = expit(1 + tables[0][np.arange(groups), rows].sum(axis=1) * 0.5)
    took = np.exp(tables[1])[np.arange(groups), rows].sum(axis=1)
    given = (
        Evidence(assignments=rows, values=np.asarray(right), errors=np.full(60, 0.005)),
        Evidence(assignments=rows, values=took, errors=took * 0.01),
    )
    found = select_pareto(space, *given, ParetoOptions(resamples=40))
    mean, low, high = found.share_kept
    assert 0.8 < low <= mean <= high <= 1


def test_exchanges_find_the_pair_that_effects_do_not_tell() -> None:
    """Two primitives that are only good together: a choice without them is changed for them, and none is left over."""
    points = np.column_stack([np.ones(len(EVERY)), np.full(len(EVERY), 0.5)])[None]
    points[0, np.flatnonzero((EVERY[:, 0] == 4) & (EVERY[:, 1] == 2)), 1] = 0.1
    front = Front(EVERY, points, (2.0, 1.0))
    kept = [np.array([4, 5]), np.array([0, 1]), np.array([3])]
    assert front.shares(kept)[0] == pytest.approx(0.5 / 0.9)
    found = exchanged(front, kept, 4)
    assert front.shares(found)[0] == pytest.approx(1)
    assert np.prod([len(own) for own in found]) <= 4


def test_what_latency_tells_of_accuracy_is_used_where_it_does() -> None:
    """Eight accuracies and 45 latencies: where slower primitives are the more accurate ones these tell much."""
    off: dict[float, list[float]] = {0.8: [], 0.0: []}
    for share, told in off.items():
        for seed in range(10):
            rng = np.random.default_rng(seed)
            work, cells = rng.normal(0, 0.5, (GROUPS, BLOCKS)), np.arange(GROUPS)
            latency = np.exp(work)[cells, EVERY].sum(axis=1)
            logit = 1.5 + (share * work + rng.normal(0, 0.2, work.shape))[cells, EVERY].sum(axis=1)
            truth = np.asarray(expit(logit))
            right, took = evidence(truth, latency, seed, networks=8)[0], evidence(truth, latency, seed)[1]
            both, alone = learn_both(SPACE, right, took)[0], learn(SPACE, right, scale="logit")
            errors = [np.abs(one.predict(EVERY)[0] - truth).mean() for one in (both, alone)]
            told.append(float(errors[0] / errors[1]))
    assert np.mean(off[0.8]) < 0.7
    assert np.mean(off[0.0]) < 1.05
