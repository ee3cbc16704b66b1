from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.front.dominance import nondominated
from gnomon.search.base import Archive, Entry


@given(st.integers(1, 4).flatmap(lambda k: st.lists(st.tuples(*[st.integers(0, 4)] * k), max_size=40)))
def test_it_holds_the_front_of_what_was_added_and_the_first_of_equals(costs: list[tuple[int, ...]]) -> None:
    archive = Archive()
    for index, cost in enumerate(costs):
        before = set(archive)
        entry = archive.add((index,), tuple(map(float, cost)))
        assert (entry is not Entry.NO) == ((index,) in archive)
        assert (entry is Entry.REPLACED) == bool(before - set(archive))
    expected = [(int(i),) for i in nondominated(costs)] if costs else []
    assert sorted(archive, key=archive.cost) == expected
    assert len(archive) == len(expected)
