from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.search.searchkit import Priced, drive, space_of

from gnomon.errors import UsageError
from gnomon.search.base import generator, shuffled
from gnomon.search.simple import MOST_ASSIGNMENTS, Exhaustive, RandomSearch


@given(st.lists(st.integers(1, 4), max_size=4), st.integers(0, 10**6))
def test_a_shuffle_is_a_permutation_of_the_space(radices: list[int], seed: int) -> None:
    space = space_of(*radices)
    drawn = list(shuffled(space, generator(seed)))
    assert sorted(map(space.encode, drawn)) == list(range(space.size))


def test_every_order_is_as_likely() -> None:
    space = space_of(2, 2)
    counts = Counter(tuple(map(space.encode, shuffled(space, generator(seed)))) for seed in range(4800))
    assert len(counts) == 24
    # Chi-square with 23 degrees of freedom: 49.7 is passed by chance once in a thousand, and the seeds are fixed.
    assert sum((n - 200) ** 2 / 200 for n in counts.values()) < 49.7


@pytest.mark.parametrize("radix", [2, 3, 7])
def test_in_a_huge_space_slots_are_drawn_evenly(radix: int) -> None:
    space = space_of(*[radix] * 200)
    drawn = RandomSearch(space, seed=1).ask(500)
    assert len(set(drawn)) == 500
    counts = Counter(choice for assignment in drawn for choice in assignment)
    expected = 500 * 200 / radix
    assert set(counts) == set(range(radix))
    assert all(abs(n - expected) < 0.03 * expected for n in counts.values())


def test_the_order_is_the_one_of_the_seed_for_ever() -> None:
    # A record made by one version is gone on with by the next: the draws are part of the format.
    space = space_of(*[2] * 6)
    assert [space.encode(a) for a in RandomSearch(space, seed=7).ask(6)] == KNOWN


KNOWN = [41, 61, 11, 28, 45, 8]


def test_everything_is_asked_in_the_order_of_the_codes() -> None:
    priced = Priced(space_of(2, 3, 1, 4), 0)
    assert drive(Exhaustive(priced.space), priced, 999) == [priced.space.decode(code) for code in range(24)]


def test_the_largest_space_begins_at_once_and_a_larger_one_is_refused_with_its_size() -> None:
    assert Exhaustive(space_of(*[10] * 7)).ask(2)[1][0] == 1
    assert MOST_ASSIGNMENTS == 10**7
    with pytest.raises(UsageError, match="20000000 assignments") as refused:
        Exhaustive(space_of(2, *[10] * 7))
    assert "hlps" in refused.value.hint
    with pytest.raises(UsageError, match=r"more than 10\^30"):
        Exhaustive(space_of(*[2] * 20_000))
