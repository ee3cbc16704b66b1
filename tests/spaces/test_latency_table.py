"""Latency tables as values: invalid rows, what speaks against a table, differences, merging."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError, UsageError
from gnomon.spaces.latency_table import Manifest, Row, Table, complaints, differences, merged, unlike
from gnomon.spaces.layers import layer
from gnomon.spaces.unit import Unit

CONTEXT = {"device": {"cpu_model": "a", "governor": "x"}, "runtime": "r", "options": {"threads": 1}}
MANIFEST = Manifest(space="s", context=CONTEXT, clock="cpu", overhead_s=1e-6, anchor="u", anchor_calls_s=(2e-5, 2e-5))
TIMES = st.floats(1e-7, 10.0)


def relu(width: int) -> Unit:
    return Unit(layers=(layer("Relu"),), inputs=((1, width, 4, 4),))


def row(width: int, call_s: float = 1e-4, **changes: Any) -> Row:
    known: dict[str, Any] = {
        "unit": relu(width),
        "status": "ok",
        "at_s": 1.0,
        "call_s": call_s,
        "low_s": 0.99 * call_s,
        "high_s": 1.01 * call_s,
        "processes": 6,
    }
    return Row(**{**known, **changes})


def failed(width: int, at_s: float = 1.0) -> Row:
    return Row(unit=relu(width), status="failed", at_s=at_s, reason="refused")


def table(*rows: Row, **changes: Any) -> Table:
    return Table(manifest=replace(MANIFEST, **changes), rows=rows)


@pytest.mark.parametrize(
    "changes",
    [
        {"call_s": None},
        {"call_s": 0.0},
        {"call_s": 5e-324, "low_s": None, "high_s": None},
        {"call_s": math.nan},
        {"call_s": math.inf},
        {"low_s": 2e-4},
        {"high_s": 1e-5},
        {"high_s": math.inf},
        {"low_s": -1.0},
        {"status": "failed", "reason": ""},
    ],
)
def test_rows_that_cannot_be_meant_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProblemError) as refused:
        replace(row(8), **changes)
    assert refused.value.hint


def test_the_newest_row_of_a_unit_counts() -> None:
    found = table(row(8, 1e-4), row(9), row(8, 2e-4))
    assert [r.unit for r in found.rows] == [relu(8), relu(9)]
    assert found.times_s[relu(8)] == pytest.approx(2e-4 - 1e-6)


@given(call_s=TIMES, overhead_s=st.floats(0.0, 1.0))
def test_a_unit_always_adds_something(call_s: float, overhead_s: float) -> None:
    found = table(row(8, call_s), failed(9), overhead_s=overhead_s)
    assert set(found.times_s) == {relu(8)}  # what failed has no time, and never counts as 0
    assert 1e-3 * call_s * 0.999 <= found.times_s[relu(8)] <= call_s


def test_complaints_tell_each_kind_of_trouble_with_an_example() -> None:
    assert complaints(table(row(8)), [relu(8)]) == []
    wide = row(10, status="unstable", low_s=0.5e-4, high_s=2e-4)
    unknown = row(11, status="unstable", low_s=None, high_s=None)
    told = complaints(table(row(8, 5e-7), failed(9), wide), [relu(w) for w in (8, 9, 10, 12, 13)])
    assert len(told) == 4
    assert "the table lacks 2 of the space's units" in told[0]
    assert "refused" in told[1]
    assert "+- 75%" in told[2]
    assert "no longer than the no-op model" in told[3]
    assert "unknown precision" in complaints(table(unknown), [])[0]


def test_what_is_unlike_is_told_by_its_part() -> None:
    assert unlike(MANIFEST, MANIFEST) == []
    other = {"device": {"cpu_model": "a", "governor": "y"}, "runtime": "r", "options": {"threads": 2}, "more": 1}
    assert unlike(MANIFEST, replace(MANIFEST, context=other)) == [
        "device.governor: x and y",
        "more: None and 1",
        "options.threads: 1 and 2",
    ]
    told = unlike(MANIFEST, replace(MANIFEST, space="t", clock="wall", rules=("Conv+Relu",)))
    assert [t.partition(":")[0] for t in told] == ["space", "clock", "fused chains"]
    # What is measured again for each table is not a difference.
    assert unlike(MANIFEST, replace(MANIFEST, overhead_s=2e-6, anchor_calls_s=(1.0,), created_at_s=9.0)) == []


def test_unlike_tables_are_not_merged() -> None:
    with pytest.raises(UsageError, match="clock: cpu and wall") as refused:
        merged(table(row(8)), table(row(9), clock="wall"))
    assert "diff" in refused.value.hint


@given(
    ones=st.dictionaries(st.integers(1, 6), st.tuples(TIMES, st.integers(1, 9)), max_size=5),
    others=st.dictionaries(st.integers(1, 6), st.tuples(TIMES, st.integers(1, 9)), max_size=5),
)
def test_merging_keeps_every_unit_once_and_what_was_measured_last(
    ones: dict[int, tuple[float, int]], others: dict[int, tuple[float, int]]
) -> None:
    first, second = (
        table(*(row(w, call, at_s=float(at)) for w, (call, at) in held.items())) for held in (ones, others)
    )
    whole = merged(first, second)
    assert [r.unit for r in whole.rows] == [relu(w) for w in dict.fromkeys((*ones, *others))]
    for found in whole.rows:
        width = found.unit.inputs[0][1]
        held = [h for h in (ones.get(width), others.get(width)) if h is not None]
        assert (found.call_s, found.at_s) in held
        assert found.at_s == max(at for _, at in held)
    assert merged(first, first) == first


def test_merging_brings_rows_to_the_speed_and_overhead_of_the_first() -> None:
    # The second was measured at half the speed: everything took twice as long, the no-op model too.
    slow = table(row(9, 2e-4), overhead_s=2e-6, anchor_calls_s=(4e-5,))
    whole = merged(table(row(8, 1e-4)), slow)
    assert whole.times_s[relu(9)] == pytest.approx((2e-4 - 2e-6) / 2)
    found = next((row for row in whole.rows if row.unit == relu(9)), None)
    assert found is not None
    assert found.drift == pytest.approx(0.5)
    assert found.relative_half_width == pytest.approx(0.01, rel=0.02)
    # Without an anchor in common only the overhead is known to differ.
    foreign = merged(table(row(8, 1e-4)), table(row(9, 2e-4), overhead_s=3e-6, anchor="v"))
    assert foreign.times_s[relu(9)] == pytest.approx(2e-4 - 3e-6)


def test_differences_are_told_apart_from_noise() -> None:
    first = table(row(8, 1e-4), row(9, 1e-4), row(10, 1e-4), failed(11))
    second = table(row(8, 1.005e-4), row(9, 2e-4), row(12), failed(10))
    found = differences(first, second)
    assert [(d.id, d.apart) for d in found] == [(relu(9).id, True), (relu(8).id, False)]
    assert found[0].ratio == pytest.approx((2e-4 - 1e-6) / (1e-4 - 1e-6))
    # The same units over another overhead are the same units.
    lifted = table(row(8, 1.1e-4), overhead_s=1.1e-5)
    (same,) = differences(table(row(8, 1e-4)), lifted)
    assert not same.apart
