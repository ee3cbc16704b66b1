"""Prices of crossings: ground truth recovered from runs, designs, and the exact problem against exhaustive search."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.core.pricing.transfers import (
    AWAY,
    HOME,
    PlacedRun,
    Step,
    TransferPrices,
    alternating,
    fit_transfers,
    random_sides,
    transfer_model,
    wiring_of,
)
from gnomon.core.solver.solve import solve


def network(count: int, seed: int) -> Graph:
    """An Input, then layers that read one or two blobs which nothing has read yet; a Split now and then."""
    rng = random.Random(seed)
    tensors: list[Tensor] = []
    operators: list[Operator] = []
    free: list[int] = []

    def write(number: int) -> tuple[int, ...]:
        for _ in range(number):
            size = 4 * rng.choice([64, 1000, 5000, 20000])
            tensors.append(Tensor(name=f"t{len(tensors)}", shape=(size // 4,), dtype="float32", size_bytes=size))
        return tuple(range(len(tensors) - number, len(tensors)))

    for index in range(count):
        if index == 0:
            kind, reads, number = "Input", [], 1
        elif rng.random() < 0.2:
            kind, reads, number = "Split", [rng.choice(free)], 2
        else:
            kind, number = "Layer", 1
            reads = rng.sample(free, min(len(free), rng.choice([1, 1, 2])))
        made = write(number)
        free = [t for t in free if t not in reads] + list(made)
        operators.append(
            Operator(index=index, name=f"op{index}", type=kind, inputs=tuple(reads), outputs=made, macs=None)
        )
    return Graph(
        name="net",
        format="ncnn",
        digest="",
        tensors=tuple(tensors),
        operators=tuple(operators),
        inputs=operators[0].outputs,
        outputs=tuple(free),
    )


FREE = {"Input", "Split"}


def truth(graph: Graph, seed: int, *, ratio: float = 3.0) -> TransferPrices:
    """Times that a device might have; a crossing costs about as much as a layer."""
    rng = np.random.default_rng(seed)
    wiring = wiring_of(graph, FREE)
    home = rng.uniform(0.1e-3, 2e-3, wiring.count)
    own = np.stack([home, home * np.exp(rng.normal(np.log(ratio), 1.0, wiring.count))], axis=1)
    own[sorted(wiring.free)] = 0.0
    own[0, AWAY] = np.inf
    return TransferPrices(
        wiring=wiring, own_s=own, bring_s=((0.2e-3, 5e-9),), fetch_s=((0.4e-3, 8e-9),), base_s=0.3e-3, error=0.0
    )


def alone(steps_s: Sequence[float]) -> tuple[Step, ...]:
    return tuple(Step(operators=(k,), time_s=time_s) for k, time_s in enumerate(steps_s))


STEP_HOME_S, STEP_AWAY_S = 20e-6, 50e-6


def observed(real: TransferPrices, sides: tuple[int, ...], noise: float, seed: int) -> PlacedRun:
    """What a whole run and its steps would take, the reader's turning being a quarter of a way home."""
    rng = np.random.default_rng(seed)
    steps = []
    for k, side in enumerate(sides):
        if graph_input(real, k):
            steps.append(0.0)
            continue
        time_s = float(real.own_s[k, side]) + (STEP_AWAY_S if side == AWAY else STEP_HOME_S)
        if side == AWAY:
            time_s += sum(0.75 * real.crossing_s(size, AWAY, HOME) for size in real.wiring.written[k])
        for writer, reader, size in real.wiring.edges:
            if reader == k and sides[writer] != side:
                time_s += real.crossing_s(size, sides[writer], side) * (1 if side == AWAY else 0.25)
        steps.append(time_s * float(rng.lognormal(0, noise)))
    total = real.total_s(sides) * float(rng.lognormal(0, noise))
    return PlacedRun(sides=sides, total_s=total, steps=alone(steps))


def graph_input(real: TransferPrices, k: int) -> bool:
    return bool(np.isinf(real.own_s[k, AWAY]))


def profile(graph: Graph, real: TransferPrices, noise: float) -> TransferPrices:
    """What the design asks for, run on the device of `real`, and fitted."""
    movable = set(range(1, len(graph.operators)))
    home = (HOME,) * len(graph.operators)
    away = tuple(AWAY if k in movable else HOME for k in range(len(graph.operators)))
    traced = [home, away, *alternating(graph, movable)]
    drawn = random_sides(len(graph.operators), [movable], 8, seed=1)
    runs = [observed(real, sides, noise, seed) for seed, sides in enumerate(traced)]
    for seed, sides in enumerate(drawn, start=100):
        seen = observed(real, sides, noise, seed)
        runs.append(PlacedRun(sides=sides, total_s=seen.total_s))
    return fit_transfers(real.wiring, runs)


def errors(real: TransferPrices, fitted: TransferPrices, number: int = 30) -> list[float]:
    """Relative errors for placements that the fit has not seen."""
    drawn = random_sides(real.wiring.count, [range(1, real.wiring.count)], number, seed=77)
    return [abs(fitted.total_s(sides) / real.total_s(sides) - 1) for sides in drawn]


@pytest.mark.parametrize("seed", range(2))
def test_without_noise_every_placement_is_predicted(seed: int) -> None:
    graph = network(40, seed)
    real = truth(graph, seed)
    fitted = profile(graph, real, 0.0)
    assert max(errors(real, fitted)) < 0.01
    assert fitted.error < 0.005
    for size in (0.0, 80000.0):
        for way in ((HOME, AWAY), (AWAY, HOME)):
            assert fitted.crossing_s(size, *way) == pytest.approx(real.crossing_s(size, *way), rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_the_plan_of_a_noisy_profile_is_nearly_the_best(seed: int) -> None:
    graph = network(60, seed)
    real = truth(graph, seed, ratio=1.0)
    fitted = profile(graph, real, 0.05)
    names = [op.name for op in graph.operators]
    plan = solve(transfer_model(names, ("cpu", "gpu"), fitted)).assignment
    best = solve(transfer_model(names, ("cpu", "gpu"), real))
    singles = [real.total_s([side if k else HOME for k in range(len(names))]) for side in (HOME, AWAY)]
    assert real.total_s(plan) <= 1.1 * best.value
    assert best.value < 0.95 * min(singles), "a case in which there is nothing to gain tells nothing"


@settings(max_examples=40)
@given(st.integers(2, 10), st.integers(0, 10**6))
def test_the_exact_problem_is_the_prices_own_sum(count: int, seed: int) -> None:
    graph = network(count, seed)
    real = truth(graph, seed, ratio=1.0)
    model = transfer_model([op.name for op in graph.operators], ("cpu", "gpu"), real)
    everything = list(itertools.product((HOME, AWAY), repeat=count))
    allowed = [sides for sides in everything if sides[0] == HOME]
    costs = dict(zip(everything, model.evaluate(everything)[:, 0], strict=True))
    for sides in allowed:
        assert costs[sides] == pytest.approx(real.total_s(sides), rel=1e-9)
    best = solve(model)
    assert best.optimal
    assert best.value == pytest.approx(min(costs.values()), rel=1e-9)


def shared_network(seed: int) -> Graph:
    """A chain whose operators read the caller's tensor or others' again, so that tensors have several readers."""
    rng = random.Random(seed)
    count = 5
    tensors = tuple(
        Tensor(name=f"t{k}", shape=(1,), dtype="float32", size_bytes=rng.choice([256, 4000, 80000]))
        for k in range(count + 1)
    )
    operators = tuple(
        Operator(
            index=k,
            name=f"o{k}",
            type="L",
            inputs=tuple(sorted({k, rng.randrange(k + 1)})),
            outputs=(k + 1,),
            macs=None,
        )
        for k in range(count)
    )
    outputs = (count, rng.randrange(1, count))
    return Graph(name="", format="", digest="", tensors=tensors, operators=operators, inputs=(0,), outputs=outputs)


@pytest.mark.parametrize("seed", range(6))
def test_a_tensor_that_several_read_crosses_once_to_each_of_three_sides(seed: int) -> None:
    graph, rng = shared_network(seed), np.random.default_rng(seed)
    wiring = wiring_of(graph)
    own = rng.uniform(0.1e-3, 1e-3, (wiring.count, 3))
    own[rng.random(own.shape) < 0.1] = np.inf
    own[:, HOME] = np.minimum(own[:, HOME], 1.0)
    prices = TransferPrices(
        wiring=wiring,
        own_s=own,
        bring_s=((0.1e-3, 2e-9), (0.05e-3, 0.0)),
        fetch_s=((0.2e-3, 4e-9), (0.02e-3, 1e-9)),
        base_s=0.1e-3,
        error=0.0,
    )
    names = [op.name for op in graph.operators]
    found = solve(transfer_model(names, ("cpu", "gpu", "npu"), prices))
    every = itertools.product(range(3), repeat=wiring.count)
    least = min(prices.total_s(sides) for sides in every)
    assert found.value == pytest.approx(least, rel=1e-9)
    assert prices.total_s(found.assignment[: wiring.count]) == pytest.approx(least, rel=1e-9)
    # Without slots for such tensors each reader pays: never less.
    alone = solve(transfer_model(names, ("cpu", "gpu", "npu"), prices, shared=False))
    assert alone.value >= least - 1e-12 and len(alone.assignment) == wiring.count


@pytest.mark.parametrize("seed", range(4))
def test_steps_within_a_run_price_three_sides(seed: int) -> None:
    graph, rng = shared_network(seed), np.random.default_rng(seed)
    wiring = wiring_of(graph)
    real = TransferPrices(
        wiring=wiring,
        own_s=rng.uniform(0.1e-3, 1e-3, (wiring.count, 3)),
        bring_s=((0.1e-3, 2e-9), (0.05e-3, 1e-9)),
        fetch_s=((0.2e-3, 4e-9), (0.02e-3, 1e-9)),
        base_s=0.1e-3,
        error=0.0,
    )

    def ran(sides: tuple[int, ...]) -> PlacedRun:
        """Steps of the operators one by one, each with the copies that it is the reason of."""
        steps = []
        for k, side in enumerate(sides):
            time_s = float(real.own_s[k, side])
            for tensor in wiring.tensors if side != HOME else ():
                if tensor.writer == k:
                    time_s += sum(real.crossing_s(tensor.size, side, HOME) for _ in tensor.targets(sides))
                elif tensor.source(sides) != side and next((r for r in tensor.readers if sides[r] == side), -1) == k:
                    time_s += real.crossing_s(tensor.size, HOME, side)
            steps.append(Step(operators=(k,), time_s=time_s))
        return PlacedRun(sides=sides, total_s=real.total_s(sides), steps=tuple(steps), apart=False)

    every = range(wiring.count)
    drawn = random_sides(wiring.count, (every, every), 16, seed)
    assert {side for sides in drawn for side in sides} == {0, 1, 2}
    alike = [(side,) * wiring.count for side in range(3)]
    fitted = fit_transfers(wiring, [ran(sides) for sides in (*alike, *drawn)], sides=3)
    unseen = random_sides(wiring.count, (every, every), 30, seed + 1000)
    assert max(abs(fitted.total_s(s) / real.total_s(s) - 1) for s in unseen) < 0.02


@pytest.mark.parametrize("seed", range(3))
def test_what_a_crossing_takes_that_no_step_shows_is_priced(seed: int) -> None:
    """A model of many small operators: what starts behind each crossing takes most of a placement that has many."""
    graph = network(60, seed)
    real = replace(truth(graph, seed, ratio=1.0), bring_s=((2e-3, 0.0),), fetch_s=((2e-3, 0.0),))
    shown = replace(real, bring_s=((0.0, 0.0),), fetch_s=((0.0, 0.0),))
    movable = set(range(1, len(graph.operators)))
    singles = [tuple(side if k in movable else HOME for k in range(len(graph.operators))) for side in (HOME, AWAY)]
    runs: list[PlacedRun] = []
    for sides in (*singles, *alternating(graph, movable), *random_sides(60, [movable], 8, seed=1)):
        steps = tuple(
            Step(operators=(k,), time_s=float(shown.own_s[k, side]))
            for k, side in enumerate(sides)
            if shown.own_s[k, side]
        )
        traced = steps if len(runs) < 4 else ()
        runs.append(PlacedRun(sides=sides, total_s=real.total_s(sides), steps=traced, apart=False))
    fitted = fit_transfers(real.wiring, runs)
    assert max(abs(fitted.total_s(sides) / real.total_s(sides) - 1) for sides in singles) < 0.02
    assert float(np.median(errors(real, fitted))) < 0.02


def chain(count: int, size_bytes: int | None) -> Graph:
    """Operators that read what the one before wrote."""
    tensors = tuple(Tensor(name=f"t{k}", shape=(1,), dtype="float32", size_bytes=size_bytes) for k in range(count + 1))
    operators = tuple(
        Operator(index=k, name=f"o{k}", type="L", inputs=(k,), outputs=(k + 1,), macs=None) for k in range(count)
    )
    return Graph(name="", format="", digest="", tensors=tensors, operators=operators, inputs=(0,), outputs=(count,))


def test_what_a_runtime_folds_away_carries_nothing() -> None:
    wiring = wiring_of(chain(3, 4), folded={1: 0})
    assert wiring.edges == ((0, 2, 4.0),)
    assert wiring.free == {1}
    assert [(t.writer, t.readers, t.returned) for t in wiring.tensors] == [
        (None, (0,), False),
        (0, (), False),
        (0, (2,), False),
        (2, (), True),
    ]


def test_an_operator_that_was_never_seen_away_is_not_put_there() -> None:
    graph = network(8, 3)
    real = truth(graph, 3)
    home = (HOME,) * 8
    fitted = fit_transfers(real.wiring, [observed(real, home, 0.0, 0)])
    assert np.isinf(fitted.own_s[:, AWAY]).all()
    assert np.isfinite(fitted.own_s[:, HOME]).all()
    plan = solve(transfer_model([op.name for op in graph.operators], ("cpu", "gpu"), fitted))
    assert plan.assignment == home
    with pytest.raises(ValueError, match="no run"):
        fit_transfers(real.wiring, [])


@given(st.integers(1, 40), st.integers(0, 10**6), st.sets(st.integers(0, 39)))
def test_designs_move_only_what_may_move(count: int, seed: int, movable: set[int]) -> None:
    graph = network(count, seed)
    even, odd = alternating(graph, movable)
    drawn = random_sides(count, [movable], 4, seed)
    assert drawn == random_sides(count, [movable], 4, seed)
    for sides in (even, odd, *drawn):
        assert len(sides) == count
        assert all(side == HOME for k, side in enumerate(sides) if k not in movable)
    assert all((a == AWAY) != (b == AWAY) for k, (a, b) in enumerate(zip(even, odd, strict=True)) if k in movable)


def test_alternation_crosses_at_every_edge_of_a_chain() -> None:
    graph = chain(6, None)
    for sides in alternating(graph, range(6)):
        assert all(a != b for a, b in itertools.pairwise(sides))
    assert wiring_of(graph).edges[0] == (0, 1, 0.0)
