"""The contract of `gnomon.search.base.Strategy` as tests.

Subclass `StrategyContract` in a test module and give it a fixture `make`: a function that makes a new strategy for a
space and a seed::

    class TestMyStrategy(StrategyContract):
        @pytest.fixture
        def make(self):
            return lambda space, seed: MyStrategy(space, seed=seed)
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError, UsageError
from gnomon.search.base import Assignment, Cost, Strategy

# ruff: noqa: S101, D102 - tests assert, and a test's name is its sentence


Make = Callable[[Space, int], Strategy]
Price = Callable[[Assignment], Cost | None]
Trace = list[tuple[Assignment, Cost | None]]

_MOST = 400


def _space(*radices: int) -> Space:
    return Space(tuple(Slot(f"slot {i}", tuple(f"choice {c}" for c in range(r))) for i, r in enumerate(radices)))


MIXED = _space(3, 2, 1, 4, 2)


def _two(assignment: Assignment) -> Cost:
    """Two conflicting objectives, with interactions and without equal costs."""
    first = sum((i + 2) * ((c * 7 + i) % 5) for i, c in enumerate(assignment)) + (assignment[0] == assignment[-1]) * 4
    second = sum((c + 1) * (11 - i) % 13 for i, c in enumerate(assignment))
    tie = sum(c * 0.001 * 5**i for i, c in enumerate(assignment))
    return (first + tie, second + tie)


def _some_fail(assignment: Assignment) -> Cost | None:
    return None if (assignment[0] + assignment[1]) % 2 else _two(assignment)


def _drive(strategy: Strategy, price: Price, most: int = _MOST, n: int = 1) -> Trace:
    """Ask and tell until the strategy is exhausted or has proposed `most` assignments; check each answer."""
    trace: Trace = []
    seen: set[Assignment] = set()
    while len(trace) < most and (asked := strategy.ask(min(n, most - len(trace)))):
        assert len(asked) <= n
        for assignment in asked:
            assert assignment not in seen, "asked twice"
            seen.add(assignment)
            trace.append((assignment, price(assignment)))
            strategy.tell(*trace[-1])
    return trace


class StrategyContract:
    """The contract of every strategy."""

    @pytest.mark.parametrize("n", [1, 3, 1000])
    @pytest.mark.parametrize("price", [_two, _some_fail], ids=["all succeed", "some fail"])
    def test_assignments_are_of_the_space_and_asked_once(self, make: Make, n: int, price: Price) -> None:
        strategy = make(MIXED, 0)
        trace = _drive(strategy, price, n=n)
        assert trace
        for assignment, _ in trace:
            assert isinstance(assignment, tuple)
            assert all(type(choice) is int for choice in assignment)
            MIXED.encode(assignment)

    def test_what_is_pending_is_not_asked_again(self, make: Make) -> None:
        strategy = make(MIXED, 0)
        asked: list[Assignment] = []
        while more := strategy.ask(2):
            asked.extend(more)
        assert len(set(asked)) == len(asked) <= MIXED.size
        for assignment in reversed(asked):
            strategy.tell(assignment, _two(assignment))
        assert not set(asked) & set(strategy.ask(10))

    def test_none_are_given_where_none_are_wanted(self, make: Make) -> None:
        strategy = make(MIXED, 0)
        assert len(strategy.ask(0)) == 0
        assert strategy.ask(1)

    def test_exhausted_it_stays_so(self, make: Make) -> None:
        space = _space(2, 3)
        strategy = make(space, 1)
        assert 0 < len(_drive(strategy, _two)) <= space.size
        assert [len(strategy.ask(5)) for _ in range(3)] == [0, 0, 0]

    def test_it_is_a_function_of_the_seed_and_leaves_others_generators_alone(self, make: Make) -> None:
        others = random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()
        first, second = make(MIXED, 5), make(MIXED, 5)
        other = make(MIXED, 6)
        for _ in range(30):
            asked, two = first.ask(1), second.ask(1)
            assert asked == two
            for assignment in asked:
                first.tell(assignment, _two(assignment))
                second.tell(assignment, _two(assignment))
            for assignment in other.ask(2):
                other.tell(assignment, None)
        assert (random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()) == others

    @pytest.mark.parametrize("price", [_two, _some_fail], ids=["all succeed", "some fail"])
    def test_told_the_same_results_a_new_one_goes_on_as_the_old_one(self, make: Make, price: Price) -> None:
        whole = _drive(make(MIXED, 2), price, most=40)
        for cut in (1, 7, 20, 33):
            resumed = make(MIXED, 2)
            for assignment, cost in whole[:cut]:
                resumed.tell(assignment, cost)
            assert whole[:cut] + _drive(resumed, price, most=40 - min(cut, len(whole))) == whole, cut

    def test_what_an_earlier_one_asked_in_vain_is_asked_again(self, make: Make) -> None:
        whole = _drive(make(MIXED, 2), _two, most=30)
        earlier, resumed = make(MIXED, 2), make(MIXED, 2)
        for assignment, cost in _drive(earlier, _two, most=11):
            resumed.tell(assignment, cost)
        lost = earlier.ask(1)
        assert list(lost) == [a for a, _ in whole[11:12]] == list(resumed.ask(1))

    def test_the_order_of_results_that_are_waited_for_does_not_matter(self, make: Make) -> None:
        first, second = make(MIXED, 4), make(MIXED, 4)
        for _ in range(5):
            asked = first.ask(4)
            assert second.ask(4) == asked
            for assignment in asked:
                first.tell(assignment, _two(assignment))
            for assignment in reversed(asked):
                second.tell(assignment, _two(assignment))

    def test_what_was_told_unasked_is_not_asked(self, make: Make) -> None:
        strategy = make(MIXED, 0)
        foreign = [MIXED.decode(code) for code in range(0, MIXED.size, 3)]
        for assignment in foreign:
            strategy.tell(assignment, _two(assignment))
        assert not {assignment for assignment, _ in _drive(strategy, _two)} & set(foreign)

    def test_it_ends_where_everything_fails(self, make: Make) -> None:
        space = _space(3, 3, 2)
        strategy = make(space, 0)
        assert 0 < len(_drive(strategy, lambda _: None, n=4)) <= space.size

    @pytest.mark.parametrize("objectives", [1, 2, 3, 5])
    def test_any_number_of_objectives_will_do(self, make: Make, objectives: int) -> None:
        assert _drive(make(MIXED, 0), lambda a: tuple(_two(a)[k % 2] * (k + 1) for k in range(objectives)), n=3)

    def test_equal_costs_are_borne(self, make: Make) -> None:
        assert _drive(make(MIXED, 0), lambda _: (1.0, 2.0), n=2)

    @pytest.mark.parametrize("radices", [(), (1,), (1, 1), (4,), (1, 2)], ids=str)
    def test_the_smallest_spaces_are_searched_whole(self, make: Make, radices: tuple[int, ...]) -> None:
        space = _space(*radices)
        trace = _drive(make(space, 0), lambda a: (float(sum(a)), -float(sum(a))))
        assert {assignment for assignment, _ in trace} == {space.decode(code) for code in range(space.size)}

    @pytest.mark.parametrize("cost", [(float("nan"), 1.0), (float("inf"), 1.0), (), (1.0, 2.0, 3.0)], ids=str)
    def test_costs_that_cannot_be_are_refused_and_leave_no_trace(self, make: Make, cost: Cost) -> None:
        strategy, untouched = make(MIXED, 0), make(MIXED, 0)
        first = strategy.ask(1)[0]
        assert untouched.ask(1)[0] == first
        strategy.tell(first, _two(first))
        untouched.tell(first, _two(first))
        (second,) = strategy.ask(1)
        with pytest.raises(ProblemError):
            strategy.tell(second, cost)
        assert untouched.ask(1) == (second,)
        for each in (strategy, untouched):
            each.tell(second, _two(second))
        assert _drive(strategy, _two, most=20) == _drive(untouched, _two, most=20)

    @pytest.mark.parametrize("assignment", [(), (0, 0, 0, 0), (3, 0, 0, 0, 0), (0, 0, 0, 0, -1)], ids=str)
    def test_assignments_outside_the_space_are_refused(self, make: Make, assignment: Assignment) -> None:
        with pytest.raises(ProblemError):
            make(MIXED, 0).tell(assignment, (1.0, 2.0))

    def test_of_several_results_of_one_assignment_the_first_counts(self, make: Make) -> None:
        first, second = make(MIXED, 3), make(MIXED, 3)
        trace = _drive(first, _two, most=12)
        for assignment, cost in trace:
            second.tell(assignment, cost)
            second.tell(assignment, None)
            second.tell(assignment, (0.0, 0.0))
        assert _drive(first, _two, most=12) == _drive(second, _two, most=12)

    def test_a_huge_space_is_searched_or_refused_with_advice(self, make: Make) -> None:
        space = _space(*[3] * 300)
        try:
            strategy = make(space, 0)
        except UsageError as refused:
            assert refused.hint
            return
        assert len(_drive(strategy, lambda a: (float(sum(a)), float(-sum(a[::2]))), most=60, n=7)) == 60
