from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.search.searchkit import Priced, space_of

from gnomon.core.front.dominance import nondominated
from gnomon.errors import ProblemError, UsageError
from gnomon.search.base import Archive, Assignment, Cost, Evaluation
from gnomon.search.driver import Trail, known_strategies, make_strategy, run
from gnomon.search.simple import Exhaustive

PRICED = Priced(space_of(2, 3, 2, 2, 3), 4)


class Bench:
    """Evaluates, fails for some, and is pulled from the wall after `most`."""

    def __init__(self, most: int = 10**6) -> None:
        self.most = most
        self.evaluated: list[Assignment] = []

    def __call__(self, assignment: Assignment) -> Cost | None:
        self.evaluated.append(assignment)
        if len(self.evaluated) > self.most:
            raise KeyboardInterrupt
        return None if assignment[1] == assignment[4] == 2 else PRICED(assignment)


def strategy(name: str, seed: int = 1) -> Any:
    if name == "nsga2":
        pytest.importorskip("pymoo", reason="pymoo is not installed")
    return make_strategy(name, PRICED.space, seed=seed)


@pytest.mark.parametrize("name", known_strategies())
@pytest.mark.parametrize("cut", [0, 1, 13, 29])
def test_an_interrupted_search_is_gone_on_with_and_finds_the_same(name: str, cut: int) -> None:
    whole = run(strategy(name), Bench(), budget=40)
    record: list[Evaluation] = []
    first = Bench(most=cut)
    with pytest.raises(KeyboardInterrupt):
        run(strategy(name), first, budget=40, on_told=record.append)
    assert len(record) == cut
    second = Bench()
    resumed = run(strategy(name), second, budget=40, told=record)
    assert (resumed.told, resumed.front) == (whole.told, whole.front)
    assert len(set(first.evaluated) & set(second.evaluated)) <= 1


def test_the_budget_counts_what_was_told_before() -> None:
    first = run(Exhaustive(PRICED.space), Bench(), budget=10)
    bench = Bench()
    second = run(Exhaustive(PRICED.space), bench, budget=15, told=[*first.told, first.told[0]])
    assert len(bench.evaluated) == 5
    assert (len(second.told), second.exhausted) == (15, False)
    assert not run(Exhaustive(PRICED.space), Bench(0), budget=5, told=first.told).exhausted


def test_a_space_that_is_done_is_told_to_be() -> None:
    trail = run(Exhaustive(PRICED.space), Bench(), budget=1000)
    assert trail.exhausted
    assert len(trail.told) == PRICED.space.size
    failed = {a for a in map(PRICED.space.decode, range(PRICED.space.size)) if a[1] == a[4] == 2}
    assert {told.assignment for told in trail.told if told.cost is None} == failed
    assert {told.assignment for told in trail.front} >= PRICED.front() - failed


def test_the_front_keeps_the_first_of_equal_costs_and_no_failure() -> None:
    costs: list[Cost | None] = [(2.0, 2.0), (1.0, 3.0), (2.0, 2.0), None, (2.0, 3.0)]
    trail = Trail(told=tuple(Evaluation(assignment=(k,), cost=cost) for k, cost in enumerate(costs)))
    assert [told.assignment for told in trail.front] == [(1,), (0,)]


def test_a_cost_that_cannot_be_is_not_recorded() -> None:
    record: list[Evaluation] = []
    with pytest.raises(ProblemError):
        run(Exhaustive(PRICED.space), lambda _: (float("nan"),), budget=3, on_told=record.append)
    assert not record


class Stubborn:
    """Breaks the contract: asks for the same things again and again."""

    def __init__(self, answers: list[list[Assignment]]) -> None:
        self.answers = answers

    def ask(self, n: int) -> list[Assignment]:
        return self.answers.pop(0)

    def tell(self, assignment: Assignment, cost: Cost | None) -> None:
        pass


@pytest.mark.parametrize("answers", [[[(0,), (1,)]], [[(0,)], [(0,)]]])
def test_a_strategy_that_breaks_its_contract_is_stopped(answers: list[list[Assignment]]) -> None:
    with pytest.raises(UsageError, match="the strategy requested"):
        run(Stubborn(answers), lambda _: (1.0,), budget=9)


@given(st.integers(1, 4).flatmap(lambda k: st.lists(st.tuples(*[st.integers(0, 4)] * k), max_size=40)))
def test_it_holds_the_front_of_what_was_added_and_the_first_of_equals(costs: list[tuple[int, ...]]) -> None:
    archive = Archive()
    for index, cost in enumerate(costs):
        before = set(archive)
        beaten = archive.add((index,), tuple(map(float, cost)))
        assert (beaten is not None) == ((index,) in archive)
        assert set(beaten or ()) == before - set(archive)
    expected = [(int(i),) for i in nondominated(costs)] if costs else []
    assert sorted(archive, key=archive.cost) == expected
    assert len(archive) == len(expected)
