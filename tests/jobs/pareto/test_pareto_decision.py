"""The decision of `pareto`: what the noise says of points, what is measured again, and which one is picked."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.pareto.pareto_kit import GOALS2, PretendedSpace, decided, point, runs

from gnomon.core.sample import Failure
from gnomon.errors import InfeasibleError, UsageError
from gnomon.jobs.pareto.prove import (
    check_bounds,
    choose,
    decide,
    dominates_surely,
    enough,
    front_of,
    sampled_points,
)
from gnomon.jobs.pareto.search import spread
from gnomon.measure.campaign import Measured
from gnomon.search.base import Evaluation
from gnomon.session.objectives import GOALS, Against, against, cost_of, estimate

# What the noise says


def test_what_the_noise_says_of_points() -> None:
    found = decided(
        fast=runs([100, 101, 99], [2000, 2000, 2001]),
        small=runs([200, 201, 199], [1000, 1001, 1000]),
        bad=runs([300, 301, 299], [2000, 2001, 2000]),
    )
    assert [found[name].number for name in ("fast", "small", "bad")] == [1, 2, None]
    assert found["bad"].dominated_by is not None
    # What surely takes less memory is not behind, however little it is.
    sizes = [43.3e6, 43.2e6, 43.3e6, 43.3e6]
    found = decided(
        fast=runs([100, 101, 99, 100], sizes),
        small=runs([200, 201, 199, 200], [42.9e6, 42.8e6, 42.9e6, 42.9e6]),
        slow=runs([300, 301, 299, 300], [43.3e6, 43.3e6, 43.2e6, 43.2e6]),
    )
    assert [found[name].number for name in ("fast", "small", "slow")] == [1, 2, None]
    assert not found["small"].maybe_dominated_by and not found["small"].ties
    # Noise keeps a point, and a tie is said; not of what differs for sure.
    found = decided(a=runs([100, 130, 95]), b=runs([110, 104, 125]))
    assert all(p.number and len(p.ties) == 1 for p in found.values())
    found = decided(a=runs([100, 104, 97, 101], [43e6] * 4), b=runs([101, 98, 103, 100], [43.172e6] * 4))
    assert all(p.number and not p.ties for p in found.values())
    # Surely less memory, and the times cannot be told apart: it may be better in all, but that is not shown.
    found = decided(a=runs([100, 130, 95], [1000] * 3), b=runs([110, 104, 125], [2000] * 3))
    assert found["b"].number is not None and found["b"].dominated_by is None
    assert found["b"].maybe_dominated_by
    # One process dominates nothing; what failed is no point of the front.
    found = decided(a=runs([100], [1000]), b=runs([200], [2000]))
    assert (found["a"].number, found["b"].number) == (1, 2)
    failure = Failure(stage="run", kind="crash", transient=False, message="gone")
    found = decided(a=runs([100, 101]), b=Measured(key="b", runs=(), failure=failure))
    assert (found["a"].number, found["b"].number, found["b"].failure) == (1, None, failure)


def test_a_single_backend_that_no_mix_is_surely_better_than() -> None:
    def found(mix: Measured, *, singles: tuple[str, ...] = ("cpu",)) -> str | None:
        points = [replace(point(name), single=name in singles) for name in ("cpu", "mix")]
        best = enough(decide(GOALS2, points, [runs([100, 103, 98], [1000] * 3), mix], ["cpu", "cpu"]))
        return None if best is None else best.label

    assert found(runs([99, 104, 97], [1000] * 3)) == "cpu"
    assert found(runs([80, 81, 79], [2000] * 3)) is None  # it is faster, if larger
    assert found(runs([110, 95, 101], [900] * 3)) is None
    assert found(runs([200, 201, 199], [1001] * 3)) is None  # the mix is not on the front at all
    assert found(runs([99, 104, 97], [1000] * 3), singles=("cpu", "mix")) is None  # there is no mix
    assert found(runs([99, 104, 97], [1000] * 3), singles=()) is None


@given(
    st.lists(st.tuples(st.floats(50, 500), st.integers(1000, 5000), st.integers(0, 3)), min_size=1, max_size=7),
    st.integers(0, 2**31),
)
def test_a_front_is_never_empty_and_every_loser_has_its_winner(points: list[tuple[float, int, int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    measured = {
        f"p{k}": runs([t * f for f in rng.normal(1, 0.001 + 0.02 * noise, 3).clip(0.5, 2)], [m, m, m + 1], key=f"p{k}")
        for k, (t, m, noise) in enumerate(points)
    }
    found = list(decided(None, **measured).values())
    assert any(p.number == 1 for p in found)
    assert sorted(p.label for p in found) == sorted(measured)
    for p in found:
        assert (p.number is None) == (p.dominated_by is not None)
        if p.dominated_by is not None:
            winner = found[p.dominated_by]
            assert winner.number is not None
            compared = [against(g, measured[winner.label], measured[p.label], "cpu") for g in GOALS2]
            assert dominates_surely(compared)
    for p, other in itertools.permutations([p for p in found if p.number], 2):
        pair = measured[p.label], measured[other.label]
        strict = [against(g, *pair, "cpu", rivals=len(found) - 1) for g in GOALS2]
        assert not dominates_surely([against(g, *pair, "cpu") for g in GOALS2], strict)


def test_a_ring_and_a_chain() -> None:
    assert front_of({0: [], 1: [0], 2: [1]}) == {0, 2}  # 2 is only behind what is not on the front
    assert 0 in front_of({0: [2], 1: [0], 2: [1]})
    assert front_of({}) == set()
    assert front_of({0: [], 1: [0], 2: [0, 1]}) == {0}


@given(st.integers(1, 7), st.data())
def test_a_front_of_any_relation_is_there_and_covers(count: int, data: st.DataObject) -> None:
    others = {k: [o for o in range(count) if o != k] for k in range(count)}
    beaten = {k: data.draw(st.lists(st.sampled_from(o), unique=True)) if o else [] for k, o in others.items()}
    standing = front_of(beaten)
    assert standing
    assert all(k in standing or standing.intersection(beaten[k]) for k in beaten)


def test_estimates_hold_the_value_and_an_exact_zero_has_no_interval() -> None:
    measured = runs([100, 110, 90], [1000, 1010, 1005], error=0.0)
    for goal in GOALS.values():
        found = estimate(goal, measured, "cpu")
        assert found.value == goal.value(measured, "cpu")
        if goal.name == "output-error":
            assert (found.value, found.low, found.high) == (0.0, None, None)
        else:
            assert found.low is not None
            assert found.high is not None
            assert found.low <= found.value <= found.high
    other = runs([100, 110, 90], error=1e-3)
    goal = GOALS["output-error"]
    assert against(goal, measured, measured, "cpu").verdict == "tie"
    assert against(goal, measured, other, "cpu").verdict == "better"
    assert against(goal, other, measured, "cpu").verdict == "worse"


def test_what_is_not_reported_is_not_known() -> None:
    measured = runs([100])
    blind = replace(measured, runs=tuple(replace(r, facts={}) for r in measured.runs))
    assert cost_of(GOALS2, blind, "cpu") is None
    assert cost_of(GOALS2, measured, "cpu") == pytest.approx((100e-6, 1000.0))
    found = against(GOALS["peak-memory"], blind, measured, "cpu")
    assert found == Against(ratio=1.0, low=0.0, high=math.inf, verdict="unknown")
    assert not found.not_worse


def test_spread_with_many_objectives() -> None:
    costs = [tuple(float((k * p) % 11) for p in (1, 2, 3, 4, 5)) for k in range(20)]
    assert len(spread(costs, 4)) == 4
    assert spread(costs[:3], 4) == (0, 1, 2)


# Picking


def test_picking_by_number_and_by_bound() -> None:
    costs = ((1.0, 90.0), (2.0, 70.0), (3.0, 50.0))
    told = [Evaluation(assignment=(k,), cost=cost) for k, cost in enumerate(costs)]
    points = sampled_points(told, PretendedSpace(1, ("a", "b", "c")))
    names = ("latency", "peak-memory")
    assert choose(points, names, None, {}) is None
    assert choose(points, names, 2, {}) is points[1]
    assert choose(points, names, None, {"peak-memory": 75.0}) is points[1]
    wide = replace(points[1], estimates=tuple(replace(e, low=1.0, high=80.0) for e in points[1].estimates or ()))
    assert choose([points[0], wide, points[2]], names, None, {"peak-memory": 75.0}) is points[2]  # 80 may be needed
    with pytest.raises(UsageError, match="no point 4"):
        choose(points, names, 4, {})
    with pytest.raises(InfeasibleError, match=r"10 B of peak-memory \(at best: 50 B of peak-memory\)"):
        choose(points, names, None, {"peak-memory": 10.0})
    check_bounds(names, 1, {})
