"""The predicted front: exact over sums of effects whatever their number, and the networks worth measuring."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spaces.selection.test_selection_kept import EVERY, SPACE, evidence, world

from gnomon.core.front.dominance import hypervolume, nondominated
from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError
from gnomon.spaces.cells.effects import Evidence, expit
from gnomon.spaces.selection.beliefs import Beliefs, believe
from gnomon.spaces.selection.front import (
    FrontOptions,
    PredictedFront,
    in_rounds,
    predict_front,
    share_of,
    taken,
)


@pytest.fixture(scope="module")
def beliefs() -> Beliefs:
    return believe(SPACE, *evidence(*world(1, 0.3), 1))


def brute(beliefs: Beliefs, rows: Any = EVERY, most: float = np.inf) -> set[tuple[int, ...]]:
    """The front of all networks, each predicted by itself."""
    points = beliefs.points(rows)
    fits = np.flatnonzero(points[:, 0] * beliefs.unit <= most)
    return {tuple(rows[k].tolist()) for k in fits[nondominated(points[fits])]}


def rows_of(found: Any) -> set[tuple[int, ...]]:
    return {tuple(row) for row in found.networks[found.on_front].tolist()}


def test_all_of_a_small_front_are_there_and_others_that_may_be_on_it(beliefs: Beliefs) -> None:
    found = predict_front(beliefs, FrontOptions(networks=40))
    assert rows_of(found) == brute(beliefs) and found.size == len(brute(beliefs)) < 40
    assert len(found.networks) == len({tuple(row) for row in found.networks.tolist()}) == 40
    points = beliefs.expected(found.networks)
    assert found.latency[:, 0] == pytest.approx(beliefs.unit * points[:, 0])
    assert found.accuracy[:, 0] == pytest.approx(1 - points[:, 1])
    assert (np.diff(found.latency[:, 0]) >= 0).all()
    for told in (found.latency, found.accuracy):
        assert (told[:, 1] <= told[:, 0]).all() and (told[:, 0] <= told[:, 2]).all()
    # The others are those that are often on the fronts of draws, not any.
    left = np.array([row for row in EVERY.tolist() if row not in found.networks.tolist()])
    assert found.chance[~found.on_front].mean() > 5 * (1 / len(left))


@settings(max_examples=15)
@given(st.integers(1, 12), st.floats(0.3, 1.0), st.integers(0, 3))
def test_below_a_latency_it_is_the_front_of_what_is_below(networks: int, part: float, seed: int) -> None:
    known = believe(SPACE, *evidence(*world(seed, 0.2), seed))
    times = np.sort(beliefs_of_all(known))
    most = float(times[int(part * (len(times) - 1))]) * (1 + 1e-7)
    found = predict_front(known, FrontOptions(networks=networks, most_latency=most, draws=20))
    assert (found.latency[:, 0] <= most * (1 + 1e-9)).all() and len(found.networks) == networks
    whole = brute(known, most=most)
    assert found.size == len(whole) and rows_of(found) <= whole
    fitting = {row for row in whole if known.unit * known.expected(np.array([row]))[0, 0] <= most}
    assert rows_of(found) == fitting or found.on_front.all(), "where a front is too long, all are of it"
    assert ((found.meets >= 0) & (found.meets <= 1)).all()


def beliefs_of_all(known: Beliefs) -> Any:
    return known.unit * known.points(EVERY)[:, 0]


def test_a_latency_that_none_has_is_told(beliefs: Beliefs) -> None:
    least = float(beliefs_of_all(beliefs).min())
    assert len(predict_front(beliefs, FrontOptions(most_latency=least, draws=20)).networks) == 1
    with pytest.raises(ProblemError, match=r"2\.00 times as long|2 times as long") as refused:
        predict_front(beliefs, FrontOptions(most_latency=least / 2))
    assert "longer" in refused.value.hint


def test_a_part_of_the_space_has_its_own_front(beliefs: Beliefs) -> None:
    choices = ((1, 3), (0, 2, 5), (4,))
    found = predict_front(beliefs, FrontOptions(networks=5, choices=choices, draws=20))
    inside = np.array(list(itertools.product(*choices)))
    assert rows_of(found) == brute(beliefs, inside) and len(found.networks) == 5
    assert {tuple(row) for row in found.networks.tolist()} <= {tuple(row) for row in inside.tolist()}


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(2, 9), st.integers(1, 9), st.integers(0, 10_000))
def test_what_is_taken_is_what_adds_most_each_time(draws: int, networks: int, count: int, seed: int) -> None:
    points = np.random.default_rng(seed).random((draws, networks, 2)).round(1)
    reference = (0.9, 0.9)

    def volume(chosen: list[int]) -> float:
        return float(np.mean([hypervolume(one[chosen], reference) for one in points]))

    found = taken(points, reference, count).tolist()
    assert len(found) == len(set(found)) == min(count, networks)
    for k, place in enumerate(found):
        best = max(volume([*found[:k], other]) for other in range(networks) if other not in found[:k])
        assert volume([*found[:k], place]) == pytest.approx(best, abs=1e-12)
    kept = taken(points, reference, count, first=[1]).tolist()
    assert kept[0] == 1 and len(kept) == len(set(kept))


def test_of_a_trillion_networks_the_front_is_exact() -> None:
    """No network of a random thousand, and none that is one change from the front, is better in both."""
    rng = np.random.default_rng(3)
    groups, choices = 12, 10
    space = Space(tuple(Slot(f"cell{g}", tuple(f"VGGblock_{i}" for i in range(choices))) for g in range(groups)))
    rows = rng.integers(0, choices, (60, groups))
    work = rng.normal(0, 0.4, (groups, choices))
    time = np.exp(work)[np.arange(groups), rows].sum(axis=1)
    right = expit(1.5 + 0.1 * (work + rng.normal(0, 0.5, work.shape))[np.arange(groups), rows].sum(axis=1))
    known = believe(
        space,
        Evidence(assignments=rows, values=right, errors=np.full(60, 0.005)),
        Evidence(assignments=rows, values=time, errors=0.02 * time),
    )
    assert space.size == 10**12
    found = predict_front(known, FrontOptions(networks=1000, draws=2))
    front = known.points(found.networks[found.on_front])
    assert len(front) == found.size > 20
    near = np.concatenate([_changed(row, choices) for row in found.networks[found.on_front]])
    others = known.points(np.concatenate([near, rng.integers(0, choices, (1000, groups))]))
    better = (others[:, None, :] <= front[None] - 1e-9).all(axis=2)
    assert not better.any()


def _changed(row: Any, choices: int) -> Any:
    made = np.repeat(row[None], len(row) * choices, axis=0)
    for k in range(len(made)):
        made[k, k // choices] = k % choices
    return made


def test_shares_are_of_the_hypervolume_of_all_networks(beliefs: Beliefs) -> None:
    options = FrontOptions(networks=10, draws=50)
    found = predict_front(beliefs, options)
    assert share_of(beliefs, found.networks, options) == pytest.approx(found.share)
    assert share_of(beliefs, EVERY, options) == (1.0, 1.0, 1.0)


def test_each_round_is_measured_before_the_next_and_has_networks_of_its_own(beliefs: Beliefs) -> None:
    measured: list[PredictedFront] = []

    def measure(front: PredictedFront) -> Beliefs:
        measured.append(front)
        return beliefs

    rounds = in_rounds(beliefs, FrontOptions(networks=20, draws=40), measure)
    networks = np.concatenate([one.networks for one in rounds])
    assert all(one is other for one, other in zip(rounds, measured, strict=True))
    assert [len(one.networks) for one in rounds] == [4] * 5 and len({tuple(row) for row in networks.tolist()}) == 20
    assert all(0 < one.share[1] <= one.share[0] <= one.share[2] <= 1 for one in rounds)


def test_what_is_there_already_is_not_told_again_and_counts(beliefs: Beliefs) -> None:
    options = FrontOptions(networks=6, draws=40)
    first = predict_front(beliefs, options)
    more = predict_front(beliefs, options, beside=first.networks)
    both = np.concatenate([first.networks, more.networks])
    assert len({tuple(row) for row in both.tolist()}) == 12
    assert more.share == pytest.approx(share_of(beliefs, both, options))
    assert more.share[0] > first.share[0]


def test_rounds_end_where_no_network_keeps_to_the_latency_any_more() -> None:
    known = believe(SPACE, *evidence(*world(2, 0.2), 2))
    least = float(np.sort(beliefs_of_all(known))[40])
    slower = replace(known, unit=known.unit * 99)
    options = FrontOptions(networks=20, most_latency=least, draws=10)
    rounds = in_rounds(known, options, lambda front: slower)
    assert len(rounds) == 1 and len(rounds[0].networks) == 4
    with pytest.raises(ProblemError, match="times as long"):
        in_rounds(slower, options, lambda front: slower)
