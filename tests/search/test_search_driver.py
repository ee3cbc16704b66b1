from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.search.searchkit import Priced, space_of

from gnomon.errors import ProblemError, UsageError
from gnomon.search.base import Assignment, Cost, Told
from gnomon.search.driver import Trail, known_strategies, make_strategy, run
from gnomon.search.simple import Exhaustive

PRICED = Priced(space_of(2, 3, 2, 2, 3), 4)


class Bench:
    """Evaluates one by one, fails for some, counts, and is pulled from the wall after `most`."""

    def __init__(self, most: int = 10**6) -> None:
        self.most = most
        self.batches: list[int] = []
        self.evaluated: list[Assignment] = []

    def __call__(self, asked: Sequence[Assignment]) -> Iterator[Cost | None]:
        self.batches.append(len(asked))
        for assignment in asked:
            self.evaluated.append(assignment)
            if len(self.evaluated) > self.most:
                raise KeyboardInterrupt
            yield None if assignment[1] == assignment[4] == 2 else PRICED(assignment)


def strategy(name: str, seed: int = 1) -> Any:
    if name == "nsga2":
        pytest.importorskip("pymoo", reason="pymoo is not installed")
    return make_strategy(name, PRICED.space, seed=seed)


@pytest.mark.parametrize("name", known_strategies())
@pytest.mark.parametrize("cut", [0, 1, 13, 29])
@pytest.mark.parametrize("batch", [1, 5])
def test_an_interrupted_search_is_gone_on_with_and_finds_the_same(name: str, cut: int, batch: int) -> None:
    whole = run(strategy(name), Bench(), budget=40, batch=batch)
    record: list[Told] = []
    first = Bench(most=cut)
    with pytest.raises(KeyboardInterrupt):
        run(strategy(name), first, budget=40, batch=batch, on_told=record.append)
    assert len(record) == cut
    second = Bench()
    resumed = run(strategy(name), second, budget=40, told=record, batch=batch)
    assert (resumed.told, resumed.front, resumed.replayed) == (whole.told, whole.front, cut)
    assert len(set(first.evaluated) & set(second.evaluated)) <= 1


@pytest.mark.parametrize("name", known_strategies())
def test_how_many_are_asked_at_once_does_not_change_what_is_found(name: str) -> None:
    trails = [run(strategy(name), Bench(), budget=36, batch=batch) for batch in (1, 4, 50)]
    assert trails[0].told == trails[1].told == trails[2].told


def test_the_budget_counts_what_was_told_before() -> None:
    first = run(Exhaustive(PRICED.space), Bench(), budget=10)
    bench = Bench()
    second = run(Exhaustive(PRICED.space), bench, budget=15, told=[*first.told, first.told[0]], batch=4)
    assert bench.batches == [4, 1]
    assert (len(second.told), second.replayed, second.exhausted) == (15, 10, False)
    assert not run(Exhaustive(PRICED.space), Bench(0), budget=5, told=first.told).exhausted


def test_a_space_that_is_done_is_told_to_be() -> None:
    trail = run(Exhaustive(PRICED.space), Bench(), budget=1000, batch=7)
    assert trail.exhausted
    assert len(trail.told) == PRICED.space.size
    failed = {a for a in map(PRICED.space.decode, range(PRICED.space.size)) if a[1] == a[4] == 2}
    assert trail.failed == len(failed)
    assert {told.assignment for told in trail.front} >= PRICED.front() - failed


def test_the_front_keeps_the_first_of_equal_costs_and_no_failure() -> None:
    rows: list[tuple[Assignment, Cost | None]] = [
        ((0,), (2.0, 2.0)),
        ((1,), (1.0, 3.0)),
        ((2,), (2.0, 2.0)),
        ((3,), None),
        ((4,), (2.0, 3.0)),
    ]
    trail = Trail(told=tuple(Told(assignment=a, cost=c) for a, c in rows))
    assert [told.assignment for told in trail.front] == [(1,), (0,)]
    assert Trail(told=()).front == ()


def test_errors_of_the_evaluation_pass_through() -> None:
    def broken(asked: Sequence[Assignment]) -> list[Cost | None]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(Exhaustive(PRICED.space), broken, budget=1)


def test_an_evaluation_that_gives_too_few_results_is_refused_after_those_it_gave() -> None:
    record: list[Told] = []
    with pytest.raises(UsageError, match="gave 2 results"):
        run(
            Exhaustive(PRICED.space),
            lambda asked: [(1.0, 1.0)] * 2,
            budget=3,
            batch=3,
            on_told=record.append,
        )
    assert len(record) == 2


def test_an_evaluation_is_run_to_its_end_and_may_not_give_more() -> None:
    ended = []

    def tidy(asked: Sequence[Assignment]) -> Iterator[Cost | None]:
        yield from [(1.0,)] * len(asked)
        ended.append(len(asked))

    run(Exhaustive(PRICED.space), tidy, budget=5, batch=3)
    assert ended == [3, 2]
    with pytest.raises(UsageError, match="more results"):
        run(Exhaustive(PRICED.space), lambda asked: [(1.0,)] * 4, budget=3, batch=3)


def test_a_cost_that_cannot_be_is_not_recorded() -> None:
    record: list[Told] = []
    with pytest.raises(ProblemError):
        run(Exhaustive(PRICED.space), lambda asked: [(float("nan"),)], budget=3, on_told=record.append)
    assert not record


class Stubborn:
    """Breaks the contract: asks for the same things again and again."""

    def __init__(self, answers: list[list[Assignment]]) -> None:
        self.answers = answers

    def ask(self, n: int) -> list[Assignment]:
        return self.answers.pop(0)

    def tell(self, assignment: Assignment, cost: Cost | None) -> None:
        pass


@pytest.mark.parametrize("answers", [[[(0,), (1,), (2,)]], [[(0,), (0,)]], [[(0,)], [(0,)]]])
def test_a_strategy_that_breaks_its_contract_is_stopped(answers: list[list[Assignment]]) -> None:
    with pytest.raises(UsageError, match="the strategy asked"):
        run(Stubborn(answers), lambda asked: [(1.0,) for _ in asked], budget=9, batch=2)


@pytest.mark.parametrize(("budget", "batch"), [(-1, 1), (1, 0)])
def test_a_budget_and_a_batch_that_cannot_be_are_refused(budget: int, batch: int) -> None:
    with pytest.raises(UsageError):
        run(Exhaustive(PRICED.space), Bench(), budget=budget, batch=batch)
