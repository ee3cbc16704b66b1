"""Limits on peaks along an order against exhaustive search, and the errors where nothing keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.core.solver.placement_problems import every_cost, exhaustive, random_limits, random_problem

from gnomon.core.cost import CostModel, Limit, Objective, PairCost
from gnomon.core.front.dominance import nondominated
from gnomon.core.front.front import exact_front
from gnomon.core.front.limited import solve_within
from gnomon.core.solver import peaks
from gnomon.core.solver.peaks import without_peaks
from gnomon.core.solver.solve import Solution, solve, solve_peaks
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError, ProblemError


def with_peaks(model: CostModel, seed: int, *, most: float = 1.0) -> CostModel:
    """The model with one or two peaks of whole or broken numbers, in random orders; often nothing keeps them."""
    rng = np.random.default_rng(seed)
    limits = list(model.limits)
    for number in range(int(rng.integers(1, 3)) if model.space.slots else 0):
        order = tuple(rng.permutation(len(model.space.slots)).tolist())
        uses = tuple(
            np.array(rng.integers(0, 8, len(s.choices)) * (0.1 if seed % 3 else 1.0), dtype=np.float64)
            for s in model.space.slots
        )
        peak = Limit(name=f"p{number}", unit="B", at_most=0.0, slots=uses, order=order)
        highest = model.used(peak, [int(use.argmax()) for use in uses])
        limits.append(replace(peak, at_most=float(np.floor(most * rng.random() * highest))))
    return replace(model, limits=tuple(limits))


def simulated(model: CostModel, limit: Limit, assignment: tuple[int, ...]) -> float:
    """The peak of a run in the limit's order that frees an output after its last reader."""
    waiting = {slot: {slot} for slot in limit.order}
    for pair in model.pairs:
        waiting[pair.first].add(pair.second)
        waiting[pair.second].add(pair.first)
    held: set[int] = set()
    done: set[int] = set()
    highest = 0.0
    for slot in limit.order:
        held.add(slot)
        highest = max(highest, sum(limit.slots[s][assignment[s]] for s in held))
        done.add(slot)
        held = {s for s in held if waiting[s] - done}
    return highest


def check(model: CostModel, solver: Callable[..., Solution]) -> bool:
    """Compare with exhaustive search; whether anything is allowed."""
    best = exhaustive(model, {"o0": 1.0})
    if best == np.inf:
        with pytest.raises(InfeasibleError):
            solver(model, {"o0": 1.0})
        return False
    solution = solver(model, {"o0": 1.0})
    assert solution.optimal and solution.value == pytest.approx(best, abs=1e-9) and solution.bound <= best + 1e-9
    assert solution.code == model.space.encode(solution.assignment)
    assert solution.choices == model.space.names(solution.assignment)
    for limit in model.limits:
        assert model.used(limit, solution.assignment) <= limit.at_most + 1e-9
        if limit.order:
            assert model.used(limit, solution.assignment) == pytest.approx(simulated(model, limit, solution.assignment))
    return True


@pytest.mark.parametrize("shares", [1 << 12, 4])
@pytest.mark.parametrize("solver", [solve, solve_within, partial(solve, method="milp")])
def test_peaks_are_exhaustive_search(
    solver: Callable[..., Solution], shares: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few shares at a step, most steps become limits on sums."""
    monkeypatch.setattr(peaks, "_MOST_SHARES", shares)
    allowed = [check(with_peaks(random_problem(seed, largest=5, impossible=0.03), seed), solver) for seed in range(40)]
    assert 8 < sum(allowed) < 36  # both outcomes are met


def test_peaks_beside_limits_on_sums_are_exhaustive_search() -> None:
    models = [with_peaks(random_limits(random_problem(s, impossible=0.03), s), s, most=2.0) for s in range(40)]
    allowed = [check(model, solve_within) for model in models]
    assert 8 < sum(allowed) < 36


@pytest.mark.parametrize("seed", range(30))
def test_fronts_under_peaks_are_exhaustive_search(seed: int) -> None:
    model = with_peaks(random_problem(2 * seed + 1, objectives=2, impossible=0.02), seed, most=2.0)
    costs = every_cost(model)
    costs = costs[np.isfinite(costs).all(axis=1)]
    if not len(costs):
        with pytest.raises(InfeasibleError):
            exact_front(model)
        return
    front = exact_front(model)
    expected = costs[nondominated(costs)]
    assert sorted(front.costs.tolist()) == sorted(expected.tolist())
    assert np.array_equal(model.evaluate(front.assignments), front.costs)


def chain(*most: float, pairs: bool = True) -> CostModel:
    """Three slots in a chain that cost nothing on b, where each keeps 5 B until the next one has run."""
    slots = tuple(Slot(name, ("a", "b")) for name in "pqr")
    use = (np.array([0.0, 5.0]),) * 3
    limits = [
        Limit(name=f"peak {number}", unit="B", at_most=at_most, slots=use, order=(0, 1, 2))
        for number, at_most in enumerate(most)
    ]
    joined = (PairCost(0, 1, np.zeros((2, 2, 1))), PairCost(1, 2, np.zeros((2, 2, 1)))) if pairs else ()
    costs = (np.array([[1.0], [0.0]]),) * 3
    return CostModel(Space(slots), (Objective("o0"),), costs, joined, limits=tuple(limits))


def test_a_pair_keeps_an_output_alive() -> None:
    assert [solve(chain(most)).value for most in (10.0, 9.0, 4.0)] == [0.0, 1.0, 3.0]
    assert solve(chain(5.0, pairs=False)).value == 0.0
    assert solve(chain(9.0)).choices == ("b", "a", "b") and solve(chain(9.0)).free == 0.0
    assert len(without_peaks(chain(10.0)).space.slots) == 3


def test_an_answer_is_kept_if_no_time_is_left_to_price_its_limits() -> None:
    model = with_peaks(random_problem(3), 1, most=8.0)
    known = solve(model, {"o0": 1.0})

    def solved(model: CostModel, **_: object) -> Solution:
        if not calls:
            raise ProblemError("no allowed assignment was found in time")
        return calls.pop()

    calls = [known]
    answer = solve_peaks(model, solved, None, None)
    assert (answer.assignment, answer.value, answer.free) == (known.assignment, known.value, None)
    calls = [replace(known, optimal=False), known]
    assert solve_peaks(model, solved, None, None).free is None


def test_the_least_peak_that_is_needed_is_named() -> None:
    model = chain(9.0)
    only_b = replace(model, slot_costs=(np.array([[np.inf], [0.0]]),) * 3)
    with pytest.raises(InfeasibleError, match=r"(?m)the limit 'peak 0': at least 10 B of peak 0 is needed$"):
        solve(only_b)
    few = Limit(name="few", at_most=1.0, slots=(np.array([1.0, 0.0]),) * 3)
    with pytest.raises(InfeasibleError, match="3 of few or at least 5 B of peak 0 is needed if the other limits"):
        solve(replace(model, limits=(few, replace(model.limits[0], at_most=4.0))))
    with pytest.raises(InfeasibleError, match="limits 'peak 0' and 'peak 1': at least 10 B of peak 0 or"):
        other = replace(model.limits[0], name="peak 1", slots=(np.array([5.0, 0.0]),) * 3)
        solve(replace(model, limits=(replace(model.limits[0], at_most=5.0), replace(other, at_most=4.0))))


@pytest.mark.parametrize(
    "change", [{"order": (0, 1)}, {"order": (0, 1, 1)}, {"at_most": -1.0}, {"slots": (np.array([-1.0, 0.0]),) * 3}]
)
def test_peaks_that_cannot_be_meant(change: dict[str, object]) -> None:
    model = chain(9.0)
    with pytest.raises(ProblemError, match="peak 0"):
        replace(model, limits=(replace(model.limits[0], **change),))  # type: ignore[arg-type]
