"""The metric, the choice and its estimates against plain loops, published numbers, and what must not change them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gnomon.core.cost import Floats
from gnomon.core.overlay.choice import LayerChoice, LayerTimes, NetworkChoice, choose, least_worst, weigh_layers
from gnomon.errors import UsageError

TIMES = st.one_of(
    st.floats(1e-6, 10.0),
    st.integers(1, 4).map(lambda k: k * 0.25),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-300, 1e300]),
)
TABLES = st.tuples(st.integers(0, 8), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=TIMES)
)
SOUND = st.tuples(st.integers(1, 8), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(1e-6, 1e3) | st.sampled_from([0.25, 0.5, 1.0]))
)


def layer(times_s: Floats, hosts: tuple[tuple[str, ...], ...] | None = None, weight: int = 1) -> LayerTimes:
    count, devices = times_s.shape
    names = tuple(f"d{i}" for i in range(devices))
    return LayerTimes(
        name="conv",
        layer="1",
        weight=weight,
        devices=names,
        configurations=tuple(f"c{i}" for i in range(count)),
        hosts=tuple((names[i % devices],) for i in range(count)) if hosts is None else hosts,
        times_s=times_s,
    )


def choose_network(layers: list[LayerTimes]) -> NetworkChoice:
    return weigh_layers([choose(one) for one in layers])


def is_time(t: float) -> bool:
    return math.isfinite(t) and t > 0


def published(times_s: Floats) -> tuple[list[float], list[float]]:
    """theta, and M by the published formula, the sum over i of (t_i - theta_i) / theta_i, of complete rows."""
    count, devices = times_s.shape
    theta = [
        min((float(times_s[c, i]) for c in range(count) if is_time(times_s[c, i])), default=math.nan)
        for i in range(devices)
    ]
    metric = []
    for row in times_s.tolist():
        if all(is_time(t) for t in row):
            metric.append(math.fsum((t - best) / best for t, best in zip(row, theta, strict=True)))
        else:
            metric.append(math.nan)
    return theta, metric


def tied(choice: LayerChoice) -> float:
    """What counts as rounding in M."""
    return 1e-11 * (1 + abs(choice.value) + len(choice.times.devices))


@given(TABLES)
def test_equals_the_published_formula(times_s: Floats) -> None:
    choice = choose(layer(times_s))
    theta, metric = published(times_s)
    assert choice.theta_s == pytest.approx(theta, nan_ok=True)
    assert choice.metric == pytest.approx(metric, nan_ok=True, rel=1e-12)
    complete = [m for m in metric if not math.isnan(m)]
    assert choice.complete == len(complete)
    if not complete:
        assert choice.chosen is None and choice.configuration == "" and choice.hosts == ()
        assert math.isnan(choice.value) and math.isnan(choice.mean) and math.isnan(choice.worst)
        return
    assert choice.chosen is not None and choice.configuration == f"c{choice.chosen}"
    assert choice.value == choice.metric[choice.chosen] <= min(complete) + tied(choice)
    assert choice.value >= 0 and choice.mean == choice.value / times_s.shape[1]
    assert choice.regrets.sum() == pytest.approx(choice.value) and choice.worst == choice.regrets.max()
    assert ((choice.estimates >= 0) & (choice.estimates <= 1)).all()


@given(TABLES)
def test_the_least_worst_is_that_of_trying_all(times_s: Floats) -> None:
    choice = choose(layer(times_s))
    other = least_worst(choice)
    theta, metric = published(times_s)
    if choice.chosen is None:
        assert other is choice
        return
    rows = [c for c in range(len(metric)) if not math.isnan(metric[c])]
    worst = {c: max((t - best) / best for t, best in zip(times_s[c].tolist(), theta, strict=True)) for c in rows}
    least = min(worst.values())
    assert other.chosen is not None and other.configuration == f"c{other.chosen}"
    assert worst[other.chosen] <= least + 1e-11 * (1 + least) if math.isfinite(least) else other is choice
    assert other.worst == pytest.approx(worst[other.chosen], rel=1e-11, abs=1e-11)
    assert other is choice or other.worst < choice.worst
    rounding = tied(choice) if math.isfinite(choice.value) else 0.0
    assert other.value == choice.metric[other.chosen] >= choice.value - rounding
    assert other.theta_s is choice.theta_s and other.regrets.sum() == pytest.approx(other.value)


def test_a_published_example() -> None:
    # Milliseconds of eight schedules of one convolution on two processors, and M to three digits.
    times = np.array(
        [
            [0.932, 137.6],
            [1.083, 172.0],
            [1.369, 160.5],
            [1.394, 200.0],
            [1.211, 272.7],
            [0.892, 384.9],
            [2.607, 169.2],
            [3.617, 270.4],
        ]
    )
    choice = choose(layer(times * 1e-3))
    expected = [0.045, 0.463, 0.701, 1.016, 1.339, 1.797, 2.152, 4.020]
    assert choice.metric == pytest.approx(expected, abs=2e-3)
    assert choice.chosen == 0


@given(SOUND, st.lists(st.floats(-200, 200), min_size=5, max_size=5))
def test_the_unit_of_a_device_changes_nothing(times_s: Floats, powers: list[float]) -> None:
    before = choose(layer(times_s))
    after = choose(layer(times_s * 10.0 ** np.array(powers[: times_s.shape[1]])))
    assert after.metric == pytest.approx(before.metric, rel=1e-9, abs=1e-12)
    assert before.chosen is not None and after.chosen is not None
    assert before.metric[after.chosen] <= before.value + tied(before)
    assert after.estimates == pytest.approx(before.estimates, rel=1e-6, abs=1e-9) or after.chosen != before.chosen
    twice = choose(layer(times_s * 2.0 ** np.arange(times_s.shape[1])))  # exact in floats
    assert twice.chosen == before.chosen and twice.metric.tolist() == before.metric.tolist()
    assert twice.estimates.tolist() == before.estimates.tolist()


def test_equal_m_is_decided_by_the_worst_regret_then_by_order() -> None:
    times = np.array([[1.0, 9.0], [9.0, 1.0], [1.0, 3.0], [2.0, 2.0], [2.0, 2.0], [3.0, 1.0]])
    choice = choose(layer(times))
    assert choice.metric.tolist() == [8.0, 8.0, 2.0, 2.0, 2.0, 2.0]
    assert choice.chosen == 3 and choice.worst == 1.0


def test_rounding_decides_no_tie() -> None:
    thirds = np.array([[0.1 + 0.2, 1.0, 0.1], [0.3, 1.0, 0.1]])
    assert choose(layer(thirds)).chosen == 0


def test_estimates_span_the_hosts_own_best() -> None:
    times = np.array(
        [
            [1.0, 8.0, 5.0],  # d0's best
            [9.0, 1.0, 5.0],  # d1's best
            [2.0, 2.0, 5.0],  # the choice, found by both but best of neither
            [8.0, 9.0, 4.0],  # another of d0's
        ]
    )
    hosts = (("d0",), ("d1", "elsewhere"), ("d0", "d1"), ("d0",))
    choice = choose(layer(times, hosts))
    assert choice.chosen == 2 and choice.hosts == ("d0", "d1")
    assert choice.estimates.tolist() == [1 - 1 / 8, 1 - 1 / 7, 1.0]


def test_estimates_are_widened_by_the_choice() -> None:
    times = np.array([[1.0, 4.0], [4.0, 1.0], [1.5, 1.5], [1.0, 1.0]])
    choice = choose(layer(times, (("d0",), ("d1",), ("d0",), ("far",))))
    assert choice.chosen == 3 and choice.estimates.tolist() == [1.0, 1.0]
    alone = choose(layer(np.array([[2.0, 3.0]]), (("far",),)))
    assert alone.estimates.tolist() == [1.0, 1.0]


def test_shares_of_the_networks_time() -> None:
    small, large = np.array([[1.0, 1.0], [2.0, 1.0]]), np.array([[8.0, 6.0], [4.0, 9.0]])
    network = choose_network([layer(small, weight=4), layer(large)])
    # theta: (1, 1) four times and (4, 6): shares 4/8 and 4/10 of the devices' times, 0.45 on average.
    assert network.shares == pytest.approx((0.45, 0.55))
    assert network.value == pytest.approx(0.55 * 0.5) and network.mean == network.value / 2
    # The choice for the large one takes 4 and 9.
    assert network.regrets == pytest.approx([0.0, (4 + 9) / (4 + 6) - 1])


@given(st.lists(SOUND, min_size=1, max_size=4), st.integers(1, 5))
def test_network_totals(tables: list[Floats], weight: int) -> None:
    devices = min(t.shape[1] for t in tables)
    layers = [layer(t[:, :devices], weight=weight + k) for k, t in enumerate(tables)]
    network = choose_network(layers)
    assert sum(network.shares) == pytest.approx(1)
    chosen = [c.theta_s * (1 + c.regrets) * c.times.weight for c in network.layers]
    best = [c.theta_s * c.times.weight for c in network.layers]
    assert network.regrets == pytest.approx(np.sum(chosen, axis=0) / np.sum(best, axis=0) - 1, rel=1e-12, abs=1e-9)
    values = [c.value for c in network.layers]
    assert min(values) - 1e-9 <= network.value <= max(values) + 1e-9 * (1 + max(values))


def test_layers_without_a_choice_have_no_share() -> None:
    failed = replace(layer(np.array([[1.0, np.nan]])), name="dense")
    network = choose_network([layer(np.array([[1.0, 2.0], [2.0, 1.0]])), failed])
    assert network.shares == (1.0, 0.0) and network.value == 1.0
    nothing = choose_network([failed])
    assert math.isnan(nothing.value) and np.isnan(nothing.regrets).all() and nothing.shares == (0.0,)


def test_no_layer_is_refused() -> None:
    with pytest.raises(UsageError):
        choose_network([])
