"""Tables of aw_nas: flat ones, which PyYAML writes letter for letter, hostile ones, and the lookup of latencies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.aw_nas.tables import read_accuracies, read_latencies, write_flat_table, write_lookup

FAMILY = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)
INDICES = st.lists(st.integers(0, 12), min_size=1, max_size=6)
IDS = st.builds(lambda family, indices: "_".join((family, *map(str, indices))), FAMILY, INDICES)
MIXED = st.lists(IDS, min_size=1, max_size=12).map("+".join)
LATENCIES = st.dictionaries(
    IDS | MIXED, st.floats(0, exclude_min=True, allow_infinity=False, allow_nan=False), min_size=1
)


@given(LATENCIES)
def test_pyyaml_writes_and_reads_the_same(table: dict[str, float]) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML, the oracle, is not installed")
    text = write_flat_table(table)
    assert text == yaml.safe_dump(table)
    assert yaml.safe_load(text) == read_latencies(text) == table
    assert read_latencies(yaml.safe_dump(table, default_flow_style=True)) == table
    with_comments = "\ufeff---\n# all\n" + text.replace("\n", " # one\r\n")
    assert read_latencies(with_comments.encode()) == table


def test_a_published_table_looks_so() -> None:
    table = {"VGG_1_1_3_1_1": 0.5, "Mobile_1_1_3_1_1": 13.937, "Mobile_1_0_1_1_1": 1e-05}
    text = "Mobile_1_0_1_1_1: 1.0e-05\nMobile_1_1_3_1_1: 13.937\nVGG_1_1_3_1_1: 0.5\n"
    assert write_flat_table(table) == text
    assert read_latencies("'Mobile_1_1': 13\n\"VGG_1_1\": 2e-3\n") == {"Mobile_1_1": 13.0, "VGG_1_1": 0.002}
    assert read_accuracies("A_0: 0\nA_1: 1.0\nA_2: .5\n") == {"A_0": 0.0, "A_1": 1.0, "A_2": 0.5}


@pytest.mark.parametrize(
    "value",
    [".nan", ".inf", "-.inf", "1.e+999", "0.0", "-1.0", "abc", "", "010", "1:30", "[1]", "'1.0'", "null"],
)
def test_values_that_are_no_latency_are_refused(value: str) -> None:
    with pytest.raises(ProblemError, match=r"line 2: a number above 0.* expected for B_1"):
        read_latencies(f"A_1: 1.0\nB_1: {value}\n")


@pytest.mark.parametrize("value", ["1.01", "-0.1", ".nan", "92.5"])
def test_accuracies_are_shares(value: str) -> None:
    with pytest.raises(ProblemError, match=r"line 1: a number from 0 to 1.* expected for A_1"):
        read_accuracies(f"A_1: {value}\n")


def test_everything_wrong_is_told_at_once() -> None:
    rows = ["A_1: .nan", "B: 1.0", "A_2: 1.0", "A_3: [1.0]", "? A_4", "A_5: 1.0", "? A_6"]
    with pytest.raises(ProblemError) as refused:
        read_latencies("\n".join(rows))
    for line in (1, 2, 4, 5, 7):
        assert f"line {line}: " in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("A_1: 2.0", "line 2: the key 'A_1' is given twice, first in line 1"),
        ("A_2 1.0", "line 3: not YAML: .*could not find expected ':'"),
        ("- x", "line 2: not YAML"),
        ("A_2: *a", "line 2: the alias 'a' has no anchor"),
        ("A_2: !!float 1", "line 2: the tag"),
    ],
)
def test_a_row_that_leaves_no_table_is_refused_with_its_line(row: str, told: str) -> None:
    with pytest.raises(ProblemError, match=told):
        read_latencies(f"A_1: 1.0\n{row}\n")


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}\n", b"\xff", "A_1" * 600 + ": 1.0", "{" * 9999])
def test_what_is_no_table_is_refused(text: str | bytes) -> None:
    with pytest.raises(ProblemError):
        read_accuracies(text)


@pytest.mark.parametrize("table", [{"a b": 1.0}, {"A_1\n": 1.0}, {"A_1": float("nan")}, {"A_1": float("inf")}])
def test_what_cannot_be_read_is_not_written(table: dict[str, float]) -> None:
    with pytest.raises(ProblemError, match="cannot hold these rows"):
        write_flat_table(table)


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
