"""The latency lookup table of aw_nas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.aw_nas.tables import read_lookup, write_lookup

ROWS = st.lists(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9).map(tuple), min_size=1
)


@given(ROWS)
def test_what_is_written_is_read_by_us_and_by_aw_nas(rows: list[tuple[float, ...]]) -> None:
    text = write_lookup(rows)
    assert read_lookup(text, [len(row) for row in rows]) == tuple(rows)
    # As aw_nas reads it: every line, without its end, split at blanks.
    assert [[float(word) for word in line.rstrip().split()] for line in text.splitlines(keepends=True)] == [
        list(row) for row in rows
    ]


def test_published_files_end_their_lines_with_a_blank() -> None:
    assert read_lookup("0.148 0.103 .5 \r\n0.092 0.09 1.\r\n") == ((0.148, 0.103, 0.5), (0.092, 0.09, 1.0))
    assert read_lookup(b"1 2\n3", [2, 1]) == ((1.0, 2.0), (3.0,))


def test_everything_wrong_is_told_at_once() -> None:
    with pytest.raises(ProblemError) as refused:
        read_lookup("1 2\n\n1 nan\n1\n1e999 2\n", [2, 2, 2, 2])
    told = str(refused.value)
    assert "line 5: 5 lines, and there are 4 layers" in told
    assert "line 2: no number" in told and "line 3: finite numbers expected, 'nan' found" in told
    assert "line 4: 1 numbers, and the layer's group has 2 primitives" in told and "line 5: finite" in told


@given(st.text() | st.text("0123456789.e+- \n", max_size=30) | st.binary())
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    try:
        rows = read_lookup(text)
    except ProblemError as error:
        assert error.hint
    else:
        assert read_lookup(write_lookup(rows)) == rows


@pytest.mark.parametrize("rows", [[], [[]], [[1.0], []], [[float("nan")]], [[float("inf")]]])
def test_what_is_no_table_is_not_written(rows: list[list[float]]) -> None:
    with pytest.raises(ProblemError):
        write_lookup(rows)


def test_large_files_are_refused() -> None:
    with pytest.raises(ProblemError, match="10001 lines"):
        read_lookup("1\n" * 10_001)
    with pytest.raises(ProblemError, match="more than 10000 numbers"):
        read_lookup("1 " * 10_001)
