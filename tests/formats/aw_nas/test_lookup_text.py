"""The latency lookup table of aw_nas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.aw_nas.tables import write_lookup

ROWS = st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9), min_size=1)


@given(ROWS)
def test_aw_nas_reads_what_is_written(rows: list[list[float]]) -> None:
    lines = write_lookup(rows).splitlines(keepends=True)
    # As aw_nas reads it: every line, without its end, split at blanks.
    assert [[float(word) for word in line.rstrip().split()] for line in lines] == rows


@pytest.mark.parametrize("rows", [[], [[]], [[1.0], []], [[float("nan")]], [[float("inf")]]])
def test_what_is_no_table_is_not_written(rows: list[list[float]]) -> None:
    with pytest.raises(ProblemError):
        write_lookup(rows)
