from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from tests.search.searchkit import Priced, distance, drive, space_of

from gnomon.core.front.dominance import nondominated
from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError
from gnomon.search import hlps
from gnomon.search.base import Assignment, Cost
from gnomon.search.driver import make_strategy
from gnomon.search.hlps import Hlps, common_starts, grouped


def found_front(priced: Priced, asked: list[Assignment]) -> set[Assignment]:
    return {asked[int(i)] for i in nondominated([priced(a) for a in asked])}


def phase_of(priced: Priced, samples: int, seed: int = 3) -> hlps._Phase:
    return hlps._Phase(priced.space, seed, samples, lambda assignment: assignment)


def driven(phase: hlps._Phase, priced: Priced, until: Callable[[], bool] = lambda: False) -> list[Assignment]:
    """What a phase asked for, until its end or until `until` holds of all results."""
    plan, seen = phase.plan(()), list[Assignment]()
    costs: list[Cost] | None = None
    with contextlib.suppress(StopIteration):
        while True:
            batch = next(plan) if costs is None else plan.send(costs)
            if until():
                break
            seen.extend(batch)
            costs = [priced(a) for a in batch]
    return seen


@pytest.mark.parametrize("radices", [(2,) * 8, (3,) * 5, (2, 3, 4, 2, 3), (6, 2, 5, 1, 3)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_a_round_ends_with_a_front_that_no_single_change_improves(radices: tuple[int, ...], seed: int) -> None:
    priced = Priced(space_of(*radices), seed)
    phase = phase_of(priced, 10**6, seed)
    asked = driven(phase, priced, until=lambda: bool(phase.archive) and not phase._due and phase._over())
    assert len(asked) < priced.space.size
    front = found_front(priced, asked)
    beside = {priced.space.decode(code) for code in range(priced.space.size)}
    assert {b for b in beside if any(distance(a, b) == 1 for a in front)} <= set(asked)


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_a_whole_front_without_looking_at_everything(seed: int) -> None:
    priced = Priced(space_of(*[3] * 7), seed)
    asked = drive(Hlps(priced.space, seed=0), priced, priced.space.size // 8)
    assert found_front(priced, asked) == priced.front()


def test_it_goes_on_until_the_samples_or_the_space_are_spent() -> None:
    priced = Priced(space_of(*[2] * 7), 1)
    assert len(drive(Hlps(priced.space), priced, 10**6)) == 128
    assert len(drive(Hlps(priced.space, samples=100), priced, 10**6)) == 100


def test_what_is_beaten_is_not_searched_on() -> None:
    phase = phase_of(Priced(space_of(*[2] * 8), 0), 10**6)
    phase._moves.around = lambda *_: iter(())  # type: ignore[method-assign]
    worse, better = (1,) * 8, (0,) * 8
    phase._enter(worse, (9.0,))
    assert {distance(a, worse) for near in phase._open() for a in near} == {1, 8}
    phase._enter(better, (8.0,))
    assert {distance(a, better) for near in phase._open() for a in near} == {1, 8}


@pytest.mark.parametrize("seed", range(3))
def test_it_begins_as_random_search_does_and_soon_takes_each_single_choice(seed: int) -> None:
    priced = Priced(space_of(3, 3, 3, 3, 3), 0)
    asked = drive(Hlps(priced.space, seed=seed), priced, 10)
    assert asked[:4] == drive(make_strategy("random", priced.space, seed=seed), priced, 4)
    assert {(c,) * 5 for c in range(3)} <= set(asked)


def test_common_starts_are_the_choices_that_half_of_the_slots_have() -> None:
    three = ("cpu", "gpu", "npu")
    slots = [Slot("conv", three), Slot("pool", ("gpu", "cpu")), Slot("fixed", ("npu",)), Slot("threads", ("1", "4"))]
    assert common_starts(Space(tuple(slots))) == ((0, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 0))
    assert common_starts(space_of()) == ((),)
    assert common_starts(space_of(1, 5)) == ((0, 0),)


def test_one_backend_is_left_by_all_slots_at_once() -> None:
    # A charge for the second choice is worth paying for all eight slots only: single changes lead nowhere from there.
    space = space_of(*[2] * 8)

    def price(assignment: Assignment) -> Cost:
        used = sum(assignment)
        return (100.0 - used - 50 * (used == 8), 10.0 * used + 300 * (used > 0))

    found: list[Assignment] = []
    strategy = Hlps(space, seed=2)
    while len(found) < 24:
        for assignment in strategy.ask(1):
            found.append(assignment)
            strategy.tell(assignment, price(assignment))
    assert {(0,) * 8, (1,) * 8} <= set(found)


def test_a_start_is_sought_until_one_succeeds() -> None:
    space = space_of(*[2] * 8)
    strategy = Hlps(space, seed=0)
    good = space.decode(77)
    asked: list[Assignment] = []
    while more := strategy.ask(1):
        asked.extend(more)
        near = distance(more[0], good) <= 1
        strategy.tell(more[0], (1.0 + distance(more[0], good),) if near else None)
    assert good in asked


def test_the_coarse_space_comes_first_and_what_it_told_leads_the_finer_search() -> None:
    space = space_of(*[2] * 12)
    priced = Priced(space, 2)
    coarse = grouped(space, [f"g{i % 4}" for i in range(12)])
    asked = drive(Hlps(space, seed=1, coarse=coarse), priced, 60)
    above = [a for a in asked if a[:4] == a[4:8] == a[8:]]
    assert asked[: len(above)] == above
    front = found_front(priced, above)
    assert len(front) > 1
    # Random assignments would be as near as that once in five times only.
    near = [a for a in asked[len(above) :][:14] if min(distance(a, b) for b in front) <= 3]
    assert len(near) >= 10


def test_samples_limit_each_phase_and_nothing_is_asked_twice() -> None:
    space = space_of(*[2] * 12)
    priced = Priced(space, 0)
    coarse = grouped(space, [f"g{i % 6}" for i in range(12)])
    asked = drive(Hlps(space, coarse=coarse, samples=20), priced, 10**6)
    # The finer phase counts the front that it starts from too, but that is known.
    assert 20 < len(asked) <= 40
    assert len(set(asked)) == len(asked)
    assert all(a[:6] == a[6:] for a in asked[:20])


def test_choices_are_matched_by_name() -> None:
    fine = Space((Slot("a", ("gpu", "cpu")), Slot("b", ("cpu", "npu", "gpu"))))
    made = grouped(fine, ["conv", "conv"])
    assert made.space.slots == (Slot("conv", ("gpu", "cpu")),)
    assert made.tables(fine) == ((0, 1), (2, 0))


def test_groups_without_a_common_choice_are_refused() -> None:
    fine = Space((Slot("a", ("gpu",)), Slot("b", ("cpu",))))
    with pytest.raises(ProblemError, match="'x'"):
        grouped(fine, ["x", "x"])
