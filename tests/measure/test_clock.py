from __future__ import annotations

from typing import Any

import pytest

from gnomon.core.sample import Run, Samples
from gnomon.measure.effort import cpu_tells, levels

MS = 1_000_000


def run(
    ratios: list[float],
    *,
    waits: int | None = 0,
    inner: int = 1,
    profiled: bool = False,
    slower: list[float] | None = None,
    process: int = 0,
) -> Run:
    """Calls of a millisecond each by the wall, or `slower` by these factors, with this much CPU time over it."""
    wall = [factor * MS for factor in slower or [1.0] * len(ratios)]
    cpu = tuple(int(one * took) for one, took in zip(ratios, wall, strict=True))
    samples = Samples(wall_ns=tuple(map(int, wall)), cpu_ns=cpu, inner=inner)
    facts: dict[str, Any] = {"waits": waits}
    return Run(
        candidate="a", process=process, block=0, started_at_s=0.0, samples=samples, profiled=profiled, facts=facts
    )


def test_one_thread_is_told_by_its_cpu_time() -> None:
    assert cpu_tells([run([1.0, 0.99, 1.001, 0.7])])


def test_a_host_that_takes_the_core_away_now_and_then_changes_nothing() -> None:
    # As seen on a virtual machine: the middle at 1.001, a tenth of the calls beyond 1.9, the worst at 12.
    assert cpu_tells([run([1.001] * 35 + [1.46, 1.9, 1.9, 9.7, 12.2])])


@pytest.mark.parametrize("share", [1.05, 1.5, 1.98])
def test_several_threads_have_more_than_the_wall_in_every_call(share: float) -> None:
    assert not cpu_tells([run([share] * 40)])
    assert not cpu_tells([run([share] * 25), run([1.0] * 15)])


def test_waiting_is_not_told_by_cpu_time() -> None:
    assert not cpu_tells([run([0.4] * 10, waits=10)])
    assert cpu_tells([run([0.9] * 10, waits=10, inner=200)])


def test_a_program_that_does_not_tell_its_cpu_time_has_none() -> None:
    assert not cpu_tells([run([0.0] * 10, waits=None)])
    assert not cpu_tells([])
    assert not cpu_tells([run([1.0] * 10, profiled=True)])


def test_work_that_a_thread_of_the_process_does_is_told_where_nothing_disturbs() -> None:
    """As seen of a backend that waits 2.4 times a call for its own thread: CPU time equals wall time all the same."""
    assert cpu_tells([run([1.001] * 10, waits=24)])
    # Neighbours make most calls longer than their CPU time; the fastest fifth stands.
    disturbed = [1.0] * 10 + [2.5] * 30
    assert cpu_tells([run([1.0] * 10 + [0.4] * 30, waits=96, slower=disturbed)])


def test_one_disturbed_process_of_three_does_not_choose_the_clock() -> None:
    quiet = [run([1.0] * 10, waits=24, process=process) for process in range(2)]
    assert cpu_tells([*quiet, run([0.3] * 10, waits=24, slower=[3.0] * 10, process=2)])


def test_an_accelerator_that_is_waited_for_is_not_told() -> None:
    assert not cpu_tells([run([0.9] * 10, waits=10)])
    assert not cpu_tells([run([0.9] * 10 + [1.0] * 30, waits=40, slower=[1.0] * 10 + [2.0] * 30)])


def test_neighbours_do_not_hide_that_threads_are_several() -> None:
    assert not cpu_tells([run([1.9] * 10 + [0.8] * 30, slower=[1.0] * 10 + [3.0] * 30)])


def test_a_clock_that_seldom_moves_tells_nothing() -> None:
    assert not cpu_tells([run(([0.0] * 9 + [10.0]) * 4)])


def test_what_is_compared_is_the_median_of_cpu_time_and_the_fastest_fifth_of_wall_time() -> None:
    taken = run([1.0, 0.5, 0.5, 0.5, 0.5, 0.5], slower=[1.0, 1.0, 4.0, 4.0, 4.0, 4.0])
    assert [b.values_s for b in levels([taken], "wall")] == [pytest.approx((1e-3,))]
    assert [b.values_s for b in levels([taken], "cpu")] == [pytest.approx((2e-3,))]
