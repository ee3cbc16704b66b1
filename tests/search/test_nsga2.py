from __future__ import annotations

import pytest
from tests.search.searchkit import Priced, drive, space_of

pytest.importorskip("pymoo", reason="pymoo is not installed")

from gnomon.search.nsga2 import Nsga2


@pytest.mark.parametrize("radices", [(2, 3, 1, 4), (5, 5), (2,) * 6], ids=str)
def test_a_small_space_is_searched_whole_and_nothing_twice(radices: tuple[int, ...]) -> None:
    priced = Priced(space_of(*radices), 1)
    asked = drive(Nsga2(priced.space, seed=2), priced, 10**6)
    assert len(asked) == len(set(asked)) == priced.space.size


@pytest.mark.parametrize("seed", range(3))
def test_a_quarter_of_the_runs_finds_most_of_the_exact_front(seed: int) -> None:
    priced = Priced(space_of(*[2] * 10), seed)
    exact = priced.front()
    asked = drive(Nsga2(priced.space, seed=seed), priced, 256)
    assert len(exact & set(asked)) >= 0.6 * len(exact)


def test_where_most_fails_it_is_avoided() -> None:
    space = space_of(*[3] * 6)
    strategy = Nsga2(space, seed=1)
    asked: list[tuple[int, ...]] = []
    while len(asked) < 240:
        for assignment in strategy.ask(50):
            asked.append(assignment)
            fails = 2 in assignment[:3]
            strategy.tell(assignment, None if fails else (float(sum(assignment)), -float(sum(assignment[::2]))))
    failed = [2 in a[:3] for a in asked]
    # 19 of 27 fail by chance, and 64 * 3.375 = 216 assignments of the space do not.
    assert sum(failed[60:180]) / 120 < 0.5


def test_instances_do_not_share_what_they_have_seen() -> None:
    priced, other = Priced(space_of(*[2] * 8), 1), Priced(space_of(*[3] * 5), 2)
    alone = drive(Nsga2(priced.space, seed=3), priced, 100)
    first, second = Nsga2(priced.space, seed=3), Nsga2(other.space, seed=4)
    asked: list[tuple[int, ...]] = []
    for _ in range(100):
        for strategy, price in ((first, priced), (second, other)):
            (assignment,) = strategy.ask(1)
            strategy.tell(assignment, price(assignment))
            if strategy is first:
                asked.append(assignment)
    assert asked == alone


def test_each_generation_is_full_of_what_was_not_met() -> None:
    priced = Priced(space_of(*[2] * 8), 1)
    strategy = Nsga2(priced.space, seed=5)
    for turn in range(30):
        generation = strategy.ask(1000)
        assert len(generation) == (4 if turn else 6)
        for assignment in generation:
            strategy.tell(assignment, priced(assignment))
