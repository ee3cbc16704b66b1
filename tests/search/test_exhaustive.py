from __future__ import annotations

import pytest
from tests.search.searchkit import Priced, drive, space_of

from gnomon.errors import UsageError
from gnomon.search.simple import MOST_ASSIGNMENTS, Exhaustive


def test_everything_is_asked_in_the_order_of_the_codes() -> None:
    priced = Priced(space_of(2, 3, 1, 4), 0)
    assert drive(Exhaustive(priced.space), priced, 999) == [priced.space.decode(code) for code in range(24)]


def test_the_checkpoint_is_how_many_were_told_without_a_gap() -> None:
    space = space_of(2, 3)
    strategy = Exhaustive(space)
    asked = strategy.ask(4)
    for told, expected in ((1, 0), (3, 0), (0, 2), (2, 4)):
        strategy.tell(asked[told], (1.0,))
        assert strategy.checkpoint == expected


def test_a_later_run_goes_on_at_the_checkpoint() -> None:
    priced = Priced(space_of(3, 3, 2), 0)
    first = Exhaustive(priced.space)
    begun = drive(first, priced, 7)
    rest = drive(Exhaustive(priced.space, start=first.checkpoint), priced, 999)
    assert begun + rest == [priced.space.decode(code) for code in range(18)]


def test_a_start_outside_the_space_is_refused() -> None:
    for start in (-1, 7):
        with pytest.raises(UsageError):
            Exhaustive(space_of(2, 3), start=start)
    assert not Exhaustive(space_of(2, 3), start=6).ask(1)


def test_it_holds_nothing_of_what_is_done() -> None:
    strategy = Exhaustive(space_of(10, 10, 10, 10))
    for _ in range(100):
        for assignment in strategy.ask(100):
            strategy.tell(assignment, None)
    ledger = strategy._ledger
    assert (strategy.checkpoint, len(ledger.known), len(ledger.pending)) == (10_000, 0, 0)


def test_the_largest_space_begins_at_once_and_a_larger_one_is_refused_with_its_size() -> None:
    assert Exhaustive(space_of(*[10] * 7)).ask(2)[1][0] == 1
    assert MOST_ASSIGNMENTS == 10**7
    with pytest.raises(UsageError, match="20000000 assignments") as refused:
        Exhaustive(space_of(2, *[10] * 7))
    assert "hlps" in refused.value.hint
    with pytest.raises(UsageError, match=r"more than 10\^30"):
        Exhaustive(space_of(*[2] * 20_000))
