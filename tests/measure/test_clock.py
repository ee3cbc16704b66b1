from __future__ import annotations

from typing import Any

import pytest

from gnomon.core.sample import Run, Samples
from gnomon.measure.clock import cpu_tells

MS = 1_000_000


def run(ratios: list[float], *, waits: int | None = 0, inner: int = 1, profiled: bool = False) -> Run:
    """Calls of a millisecond each by the wall, with this much CPU time over it."""
    samples = Samples(wall_ns=tuple(MS for _ in ratios), cpu_ns=tuple(int(one * MS) for one in ratios), inner=inner)
    facts: dict[str, Any] = {"waits": waits}
    return Run(candidate="a", process=0, block=0, started_at_s=0.0, samples=samples, profiled=profiled, facts=facts)


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
