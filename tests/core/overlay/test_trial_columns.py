"""Trials and samples in columns are those that were put in."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.overlay.samplekit import table

from gnomon.core.overlay.records import UNTUNED, TuningTrial, configuration_id, sound_times
from gnomon.core.overlay.samples import Blocks, gathered
from gnomon.core.overlay.trials import by_layer, columns_of, traces_of
from gnomon.core.sample import Failure
from gnomon.core.stats import median

LOST = Failure(stage="run", kind="vanished", transient=True, message="gone")
TIMES = st.lists(st.sampled_from([0.5, 1.0, 0.0, -1.0, math.inf]), max_size=3).map(tuple)


@st.composite
def trials(draw: st.DrawFn) -> TuningTrial:
    layer, trace = draw(st.sampled_from("ab")), draw(st.sampled_from([None, [[1], []], [[2], [0.5, "x"]]]))
    failure = draw(st.none() | st.just(LOST))
    times_s = () if failure else draw(TIMES)
    return TuningTrial(
        layer=layer,
        configuration=configuration_id(layer, trace),
        trace=trace,
        times_s=times_s,
        cpu_s=draw(st.sampled_from([(), tuple(0.5 * time_s for time_s in times_s)])),
        failure=failure,
        error=draw(st.none() | st.floats(0, 1)),
        server=draw(st.sampled_from(["", "127.0.0.1:9091", "127.0.0.1:9092"])),
        at_s=draw(st.floats(0, 2e9)),
    )


@given(st.lists(trials(), max_size=8), st.data())
def test_trials_are_what_they_were(given_: list[TuningTrial], data: st.DataObject) -> None:
    columns = columns_of(given_)
    assert columns_of(columns) is columns
    assert list(columns) == given_ and columns == tuple(given_) and len(columns) == len(given_)
    assert [columns[k] for k in range(-len(given_), len(given_))] == given_ + given_
    assert columns[1:3] == tuple(given_[1:3]) and columns != [*given_, *given_, None]
    assert columns.sound().tolist() == [t.failure is None and sound_times(t.samples_s) for t in given_]
    assert columns.counts().tolist() == [len(t.times_s) for t in given_]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(given_), max_size=len(given_))), dtype=np.bool_)
    assert columns.kept(mask) == [trial for trial, kept in zip(given_, mask, strict=True) if kept]
    alone = {t.layer for t in given_ if t.failure is None and sound_times(t.times_s) and not t.cpu_s}
    assert columns.without_cpu() == alone
    by_wall = [replace(t, cpu_s=()) if t.layer in alone else t for t in given_]
    assert columns.by_wall(alone) == by_wall
    assert by_layer(columns) == {layer: [t for t in given_ if t.layer == layer] for layer in {t.layer for t in given_}}
    wanted = {(t.layer, t.configuration): t.trace for t in given_ if t.configuration != UNTUNED}
    assert traces_of(columns, wanted) == wanted
    with pytest.raises(IndexError):
        columns[len(given_)]


BLOCKS = st.lists(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=4).map(tuple), min_size=1, max_size=3).map(tuple)
SAMPLES: st.SearchStrategy[dict[Any, Blocks]] = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 2)), BLOCKS, max_size=8
)


@given(SAMPLES)
def test_samples_are_what_they_were(samples: dict[tuple[int, int], Blocks]) -> None:
    found = table(samples, 3)
    assert found == samples
    low, high = found.ranges(4)
    medians = found.medians(4)
    for row in range(4):
        for column in range(3):
            values = [t for block in samples.get((row, column), ()) for t in block]
            here = (low[row, column], high[row, column], medians[row, column])
            if values:
                assert here == (min(values), max(values), median(values))
                assert (row, column) in found
            else:
                assert all(map(math.isnan, here)) and (row, column) not in found
    assert (0, 3) not in found and (9, 0) not in found


def test_samples_are_gathered_from_where_they_lie() -> None:
    cells, starts = np.array([1, 1, 5]), np.array([4, 0, 2])
    found = gathered(3, cells, starts, np.array([2, 1, 2], dtype=np.int32), np.arange(6.0))
    assert found == {(0, 1): ((4.0, 5.0), (0.0,)), (1, 2): ((2.0, 3.0),)}
    nothing = np.zeros(0, dtype=np.int64)
    assert gathered(3, nothing, nothing, nothing.astype(np.int32), np.zeros(0)) == {}
