"""What was measured as one time: drift that is not noise, the anchor nearest in time, the level of calls."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.sample import Failure, Run, Samples
from gnomon.core.stats import drift
from gnomon.measure.campaign import Measured
from gnomon.session.bench.baseline import timed
from gnomon.session.contender import level

SCALES = st.floats(0.1, 10)


def measured(levels: Sequence[float], *, start_s: float = 0.0, noise: Sequence[float] = (1.0,)) -> Measured:
    """A process for each level, a minute apart, its calls as many times the level as the noise says."""
    runs = []
    for process, level_s in enumerate(levels):
        ns = tuple(round(level_s * k * 1e9) for k in noise)
        runs.append(
            Run(
                candidate="c",
                process=process,
                block=0,
                started_at_s=start_s + 60.0 * process,
                samples=Samples(wall_ns=ns, cpu_ns=ns, inner=1),
            )
        )
    return Measured(key="c", runs=tuple(runs), failure=None)


@given(scale=SCALES)
def test_a_machine_that_keeps_its_speed_has_no_drift_and_one_that_changes_has_all_of_it(scale: float) -> None:
    then = [1.00, 1.01, 0.99, 1.00]
    found = drift(then, [scale * one for one in then])
    if abs(math.log(scale)) < 0.04:
        assert found == 1.0
    else:
        assert abs(math.log(found)) <= abs(math.log(scale)) * (1 + 1e-9)
        assert math.log(found) * math.log(scale) <= 0
    if abs(math.log(scale)) > 0.3:
        assert found == pytest.approx(1 / scale, rel=0.02)


def test_the_anchors_own_noise_is_no_drift() -> None:
    assert drift([1.0, 1.2, 0.8, 1.1], [1.05, 1.3, 0.9, 1.0]) == 1.0
    assert drift([], [1.0]) == drift([1.0], []) == 1.0
    assert drift([1.0], [1.03]) == 1.0  # one process of each tells little


@given(scale=SCALES, levels=st.lists(st.floats(1e-5, 1e-2), min_size=2, max_size=8))
def test_times_scale_with_their_unit(scale: float, levels: list[float]) -> None:
    one, other = timed(measured(levels), "cpu"), timed(measured([scale * x for x in levels]), "cpu")
    assert other.call_s == pytest.approx(scale * one.call_s, rel=1e-2)
    assert one.processes == len(levels)
    if one.low_s is None or one.high_s is None:
        assert max(levels) > 1.2 * min(levels), "only unlike processes leave it unknown"
    else:
        assert one.low_s <= one.call_s <= one.high_s <= 1001 * one.call_s


def test_an_interval_that_says_nothing_is_not_known() -> None:
    """Two processes of which one was disturbed: Student's t makes 1e13 s of them, which no reader takes."""
    found = timed(measured([1e-4, 3e-3]), "cpu")
    assert found.low_s is None and found.high_s is None and math.isinf(found.half_width)


def test_a_table_takes_the_same_level_of_calls_as_a_profile() -> None:
    series = measured([1e-3, 2e-3, 4e-3], noise=(1.6, 1.5, 1.0, 1.7, 1.0, 1.0, 1.0))
    assert timed(series, "cpu").call_s == pytest.approx(level(series, "cpu"))
    assert timed(series, "wall").call_s == pytest.approx(level(series, "wall"))


def test_one_process_tells_no_interval() -> None:
    one = timed(measured([1e-3], noise=(1.0, 1.1, 1.2)), "wall")
    assert (one.low_s, one.high_s, one.half_width) == (None, None, math.inf)


def test_a_model_is_held_against_the_anchor_that_ran_beside_it() -> None:
    # The machine became half as fast; the anchor of the slow hour is the one that counts for what ran in it.
    fast, slow = measured([1e-3] * 4), measured([2e-3] * 4, start_s=3600.0)
    reference = (1e-3,) * 4
    late = timed(measured([4e-3] * 4, start_s=3601.0), "cpu", reference_s=reference, anchors=[fast, slow])
    assert late.call_s == pytest.approx(2e-3, rel=0.02)
    assert late.drift == pytest.approx(0.5, rel=0.02)
    early = timed(measured([4e-3] * 4, start_s=1.0), "cpu", reference_s=reference, anchors=[slow, fast])
    assert early.call_s == pytest.approx(4e-3)
    assert early.drift == 1.0
    # An anchor that failed tells nothing.
    failed = Measured(
        key="a", runs=(), failure=Failure(stage="run", kind="crash", transient=False, message="it crashed")
    )
    assert timed(measured([4e-3] * 4), "cpu", reference_s=reference, anchors=[failed]).drift == 1.0


def test_each_sitting_has_a_drift_of_its_own() -> None:
    # Three processes while the machine was half as fast, three when it was itself again: no spread is left.
    reference = (1e-3,) * 6
    levels = [2e-3] * 3 + [1e-3] * 3
    anchor, unit = measured(levels), measured([3 * level for level in levels], start_s=1.0)
    found = timed(unit, "cpu", reference_s=reference, anchors=[anchor], sitting=3)
    assert found.call_s == pytest.approx(3e-3, rel=0.02)
    assert found.half_width < 0.02
    whole = timed(unit, "cpu", reference_s=reference, anchors=[anchor])
    assert whole.half_width > 0.1


def test_failures_are_told_and_have_no_time() -> None:
    failed = Measured(key="c", runs=(), failure=Failure(stage="run", kind="crash", transient=False, message="SIGSEGV"))
    found = timed(failed, "cpu")
    assert "SIGSEGV" in found.reason
    assert found.half_width == math.inf
