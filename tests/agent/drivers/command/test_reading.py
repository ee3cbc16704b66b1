"""Times in what programs print: known texts, and any text at all."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.agent.drivers.command.reading import UNITS_NS, Unreadable, declared_unit, readings, unit_of

TABLE = """loading
name;time (ms);averageUs
conv;0.5;1500
"a;b";0.25;x
"""


@pytest.mark.parametrize(
    ("read", "printed", "found"),
    [
        ("json:ms", '{"ms": 1.5}', [1.5e6]),
        ("json:ms", '{"ms": "1.5"}', [1.5e6]),
        ("json:[].ms", '[{"ms": 1}, {"us": 2}, {"ms": 3}]', [1e6, 3e6]),
        ("json:[1].us", '[{"us": 1}, {"us": 2}]', [2e3]),
        ("json:runs[].*.ns", '{"runs": [{"a": {"ns": 1}, "b": {"ns": 2}}]}', [1, 2]),
        ('json:"a.b [c]".s', '{"a.b [c]": {"s": 2}}', [2e9]),
        ("json:latency_ms[]", '{"latency_ms": [1, true, null, 2]}', [1e6, 2e6]),
        ("json:ms", '{"ms": 1}\n{"ms": 2}\n', [1e6, 2e6]),
        ("json:ms", '[INFO] begin\n{\n "ms": 1\n}\n[INFO] end', [1e6]),
        ("json:ms", 'result: {"ms": 1} (ok)', [1e6]),
        ("json:fps", '{"fps": 200}', [5e6]),
        ("csv:time (ms)", TABLE, [5e5, 2.5e5]),
        ("csv:averageUs", TABLE, [1.5e6]),
        ("took (?P<ms>[0-9.]+)", "took 3\ntook 4", [3e6, 4e6]),
        ("^(?P<fps>[0-9]+)$", "x 1\n100", [1e7]),
        ("(?P<ms>[0-9.]+) ms|(?P<us>[0-9.]+) us", "3.5 ms, then 250 us", [3.5e6, 2.5e5]),
    ],
)
def test_where_times_are(read: str, printed: str, found: list[float]) -> None:
    assert [time_ns for _, time_ns in readings(read, printed)] == pytest.approx(found)


def test_a_unit_that_nothing_names_is_given() -> None:
    assert readings("csv:2", "run,t\n1,3\n2,4", unit="us") == [("", 3e3), ("", 4e3)]
    assert readings("csv:2", "1;3\n2;4", unit="us") == [("", 3e3), ("", 4e3)]
    assert readings("[0-9]+", "12 13", unit="ns") == [("", 12), ("", 13)]
    assert readings("a=([0-9]+)", "a=7", unit="s") == [("", 7e9)]


def test_labels_stand_beside_the_numbers() -> None:
    assert readings("json:ops[].ms", '{"ops": [{"name": "conv", "ms": 1}]}', label="name") == [("conv", 1e6)]
    assert readings("json:layers.*", '{"layers": {"conv": 1}}', unit="ms", label="*") == [("conv", 1e6)]
    assert readings("csv:time (ms)", TABLE, label="name") == [("conv", 5e5), ("a;b", 2.5e5)]
    assert readings("(?P<op>\\w+): (?P<us>[0-9]+)", "conv: 3", label="op") == [("conv", 3e3)]


@pytest.mark.parametrize("read", ["json:ms", "csv:t_ms", "took (?P<ms>.*)"])
@pytest.mark.parametrize("value", ["-1", "inf", "nan", "1e300"])
def test_what_cannot_be_a_time_is_unreadable(read: str, value: str) -> None:
    printed = {"json:ms": f'{{"ms": "{value}"}}', "csv:t_ms": f"t_ms\n{value}"}.get(read, f"took {value}")
    with pytest.raises(Unreadable, match="is not a time"):
        readings(read, printed)


@pytest.mark.parametrize(
    ("read", "printed", "reason"),
    [
        ("json:ms", "no braces", "not JSON"),
        ("json:ms", "[" * 100_000, "nested too deeply"),
        ("csv:t_ms", "other\n1", "no column 't_ms'"),
        ("csv:t_ms", "x" * 200_000 + "\nt_ms\n1", "not CSV"),
        ("(?P<fps>.*)", "0", "'0' is not a time"),
    ],
)
def test_another_text_is_unreadable(read: str, printed: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        readings(read, printed)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        *(("latency_ms", "ms"), ("realTime (us)", "us"), ("averageMs", "ms"), ("s", "s"), ("time [ns]", "ns")),
        *(("fps", "fps"), ("items", ""), ("ms_total", ""), ("RUNS", "")),
    ],
)
def test_the_unit_that_ends_a_name(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_a_way_that_names_no_key_names_no_unit() -> None:
    assert (declared_unit("json:"), declared_unit("json:[].*"), declared_unit("csv:3")) == ("", "", "")


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from(sorted(UNITS_NS)), st.text("{}[] x\n", max_size=9))
def test_numbers_come_back_in_nanoseconds(numbers: list[float], unit: str, after: str) -> None:
    printed = json.dumps({"runs": [{"took": number} for number in numbers]}) + "\n" + after
    found = [time_ns for _, time_ns in readings("json:runs[].took", printed, unit=unit)]
    assert found == pytest.approx([number * UNITS_NS[unit] for number in numbers])
    lines = "\n".join(["took", *map(repr, numbers)])
    assert [time_ns for _, time_ns in readings("csv:took", lines, unit=unit)] == pytest.approx(found)


HOSTILE = st.one_of(
    st.text(),
    st.text('{}[]":,;\t\n\r\v 0123456789.eE-+msatook"'),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda below: st.lists(below) | st.dictionaries(st.sampled_from(["ms", "a", "latency"]) | st.text(), below),
    ).map(json.dumps),
)


@given(
    HOSTILE,
    st.sampled_from(["json:latency[].ms", "json:*", "json:[0].a", "csv:a", "csv:2", "csv:ms", "took (.*)", ".*"]),
    st.sampled_from(["", "*", "a", "ms"]),
)
def test_whatever_is_printed_times_or_unreadable(printed: str, read: str, label: str) -> None:
    try:
        found = readings(read, printed, unit="us", label=label)
    except Unreadable as error:
        assert str(error)
        return
    assert all(isinstance(name, str) and math.isfinite(time_ns) and time_ns >= 0 for name, time_ns in found)
