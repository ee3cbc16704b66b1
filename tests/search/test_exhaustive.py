from __future__ import annotations

import pytest
from tests.search.searchkit import Priced, drive, space_of

from gnomon.errors import UsageError
from gnomon.search.simple import MOST_ASSIGNMENTS, Exhaustive


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
