from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.search.searchkit import distance, space_of

from gnomon.core.space import Slot, Space
from gnomon.search.base import generator
from gnomon.search.hlps import Moves


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(1, 5), st.data())
def test_neighbours_are_as_far_as_they_should_be(radices: list[int], radius: int, data: st.DataObject) -> None:
    space = space_of(*radices)
    moves, rng = Moves(space), generator(3)
    centre = tuple(data.draw(st.integers(0, r - 1)) for r in radices)
    others, movable = max(radices) - 1, sum(r > 1 for r in radices)
    around = list(moves.around(centre, radius, rng))
    reached = range(1, min(radius, movable) + 1)
    assert [distance(a, centre) for a in around] == [d for d in reached for _ in range(others)]
    beside = list(moves.beside(centre, rng))
    assert {distance(a, centre) for a in beside} <= {1}
    assert len(set(beside)) == len(beside) == sum(r - 1 for r in radices)
    switched = list(moves.switched(centre))
    assert all(distance(a, centre) > 1 for a in switched)
    for a in (*around, *beside, *switched):
        space.encode(a)


def test_every_other_choice_is_drawn_as_often() -> None:
    moves, rng = Moves(space_of(4, 4)), generator(3)
    drawn = Counter(a for _ in range(1000) for a in moves.around((1, 3), 1, rng))
    assert set(drawn) == {(0, 3), (2, 3), (3, 3), (1, 0), (1, 1), (1, 2)}
    assert max(drawn.values()) < 1.2 * min(drawn.values())


def test_a_choice_is_left_by_all_its_slots_at_once() -> None:
    three = ("cpu", "gpu", "npu")
    slots = (Slot("a", three), Slot("b", ("gpu", "cpu")), Slot("c", three), Slot("d", ("npu",)), Slot("e", ("1", "2")))
    switched = set(Moves(Space(slots)).switched((1, 0, 1, 0, 1)))
    # To the npu go those that have it; what has no other choice, and what is not a backend, stays.
    assert switched == {(0, 1, 0, 0, 1), (2, 0, 2, 0, 1)}
    assert set(Moves(Space(slots)).switched((2, 0, 0, 0, 0))) == set()
