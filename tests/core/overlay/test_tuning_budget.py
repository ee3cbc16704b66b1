from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.overlay.records import LayerProgress, first_round, next_layer, relevant, shares

TIMES = st.floats(1e-9, 10.0)
PROGRESS = st.builds(
    LayerProgress,
    weight=st.integers(1, 1000),
    untuned_s=st.none() | TIMES,
    best_s=st.lists(TIMES, max_size=12),
    ended=st.sampled_from(["", "", "", "plateau", "failed"]),
)


@given(PROGRESS)
def test_a_round_saves_no_less_than_nothing_and_no_more_than_all(one: LayerProgress) -> None:
    assert 0 <= one.gain_s() <= one.weight * one.now_s * (1 + 1e-12)
    assert one.now_s == min([t for t in (one.untuned_s, *one.best_s[-1:]) if t is not None], default=0.0)


@given(st.dictionaries(st.sampled_from("abcdef"), PROGRESS, max_size=6))
def test_the_next_layer_has_not_ended_and_gains_most(layers: dict[str, LayerProgress]) -> None:
    found = next_layer(layers)
    open_ = {name: one.gain_s() for name, one in layers.items() if not one.ended}
    assert (found is None) == (not open_)
    matter = [id(one) for one in relevant(layers.values()) if one.untuned_s is not None]
    untried = [name for name in open_ if not layers[name].best_s and id(layers[name]) in matter]
    if found is not None:
        assert not untried or found in untried, "what matters and was not tried goes before all that was"
        assert open_[found] == max(open_[name] for name in untried or open_)


@given(st.lists(PROGRESS, max_size=6))
def test_shares_are_of_one_whole(layers: list[LayerProgress]) -> None:
    known = [share for share in shares(layers) if share is not None]
    assert all(0 <= share <= 1 for share in known)
    assert not known or math.isclose(sum(known), 1.0)
    assert [share is None for share in shares(layers)] == [one.untuned_s is None for one in layers]


@given(st.lists(PROGRESS, max_size=8))
def test_the_relevant_layers_are_the_fewest_that_take_nearly_all_of_the_time(layers: list[LayerProgress]) -> None:
    timed = [one.weight * one.untuned_s for one in layers if one.untuned_s is not None]
    found = relevant(layers)
    kept = sorted(one.weight * one.untuned_s for one in found if one.untuned_s is not None)
    assert sum(one.untuned_s is None for one in found) == len(layers) - len(timed), (
        "what is too slow to be timed counts"
    )
    assert sum(kept) >= 0.99 * sum(timed) * (1 - 1e-12)
    assert not kept or sum(kept[1:]) < 0.99 * sum(timed) * (1 + 1e-12), "without the least of them it is less"


@given(st.lists(PROGRESS, min_size=1, max_size=8), st.integers(1, 500), st.integers(1, 16))
def test_a_first_round_lets_all_that_matter_have_one(layers: list[LayerProgress], trials: int, per_round: int) -> None:
    size = first_round(layers, trials=trials, per_round=per_round)
    assert 1 <= size <= per_round
    assert size == 1 or size * len(relevant(layers)) <= trials
    assert size == per_round or (size + 1) * len(relevant(layers)) > trials, "and is as large as can be"


def test_what_still_gains_goes_before_what_does_not() -> None:
    gains = LayerProgress(weight=1, untuned_s=1.0, best_s=[0.8, 0.5])
    stuck = LayerProgress(weight=1, untuned_s=1.0, best_s=[0.5, 0.5, 0.5])
    assert next_layer({"stuck": stuck, "gains": gains}) == "gains"
    stuck.weight = 1000
    assert next_layer({"stuck": stuck, "gains": gains}) == "stuck"


def test_a_layer_without_a_time_is_last_but_not_never() -> None:
    unknown, tiny = LayerProgress(weight=1), LayerProgress(weight=1, untuned_s=1e-9, best_s=[1e-9] * 50)
    assert next_layer({"unknown": unknown, "tiny": tiny}) == "tiny"
    tiny.ended = "plateau"
    assert next_layer({"unknown": unknown, "tiny": tiny}) == "unknown"


@pytest.mark.parametrize(
    ("best", "rounds", "ended"),
    [
        ([], 1, False),
        ([1.0], 1, False),
        ([1.0, 1.0], 1, True),
        ([1.0, 0.995], 1, True),
        ([1.0, 0.98], 1, False),
        ([1.0, 0.997, 0.994, 0.991], 3, True),
        ([1.0, 0.997, 0.994, 0.985], 3, False),
        ([5.0, 1.0, 1.0], 3, False),
        ([5.0, 1.0, 1.0, 1.0], 2, True),
    ],
)
def test_a_plateau_is_rounds_that_together_saved_too_little(best: list[float], rounds: int, ended: bool) -> None:
    assert LayerProgress(weight=1, untuned_s=9.0, best_s=best).on_plateau(rounds, 0.01) is ended


@given(st.lists(TIMES, min_size=1, max_size=9), st.integers(1, 5))
def test_what_got_no_better_is_on_a_plateau_in_the_end(best: list[float], rounds: int) -> None:
    one = LayerProgress(weight=1, untuned_s=1.0, best_s=[*best, *[min(best)] * (rounds + 1)])
    assert one.on_plateau(rounds, 0.01)
