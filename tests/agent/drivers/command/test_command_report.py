"""What a command is asked, and what it says of its calls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.agent.drivers.command.reading import Unreadable
from gnomon.agent.drivers.command.report import filled, placeholders, report_of


def spoken(printed: str, *, profiled: bool = False, files: dict[str, str] | None = None, **spec: Any) -> Any:
    declared: Any = {"name": "x", "run": ["x", "{model}"], **spec}
    return report_of(declared, printed, (files or {}).__getitem__, profiled=profiled, wall_ns=77)


def test_without_a_way_to_read_it_is_the_wall_time() -> None:
    assert spoken("anything").calls_ns == [77]


def test_each_number_is_a_call_or_the_last_is_that_of_all() -> None:
    told: Any = {"read": "took (?P<ms>[0-9.]+)"}
    assert spoken("took 1\ntook 2.5", **told).calls_ns == [1_000_000, 2_500_000]
    assert spoken("took 1\ntook 2.5", **told, each="mean").calls_ns == [2_500_000]
    assert spoken("took 1\ntook 2.5", **told, each="median").calls_ns == [2_500_000]


def test_a_file_is_read_in_place_of_what_is_printed() -> None:
    assert spoken("9", read="json:us", file="t.json", files={"t.json": '{"us": 3}'}).calls_ns == [3000]


@pytest.mark.parametrize(
    ("printed", "spec", "reason"),
    [
        (
            "started\nno time here\n\n",
            {"read": "took (?P<ms>.*)"},
            "no time that .* matches; its last line is 'no time here'",
        ),
        ("", {"read": "took (?P<ms>.*)"}, "its last line is ''"),
        ("took 0", {"read": "took (?P<ms>.*)"}, "reports 0 ns for a call"),
        ("took 0.2", {"read": "took (?P<ns>.*)"}, "reports 0 ns for a call"),
        ("x\n  falling back to CPU\ntook 1", {"refused_if": "^ *falling back.*"}, "it printed 'falling back to CPU'"),
    ],
)
def test_what_it_did_not_do_as_declared(printed: str, spec: Any, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        spoken(printed, **spec)


def test_operators_of_a_profiled_run_by_their_names() -> None:
    table = {"read": "csv:t_us", "label": "op", "file": "ops.csv"}
    files = {"ops.csv": "op,t_us\nconv,2\nrelu,1\nconv,3\n"}
    rows = spoken("", profiled=True, operators=table, files=files).operators
    assert [(row["name"], row["backend"], row["wall_ns"]) for row in rows] == [
        ("conv", "x", [2000, 3000]),
        ("relu", "x", [1000]),
    ]
    assert spoken("", operators=table).operators == []


@given(st.text(), st.text())
def test_what_fills_a_place_is_taken_as_it_is(model: str, rest: str) -> None:
    assert filled("--in={model}" + rest.replace("{", "("), {"model": model}) == f"--in={model}" + rest.replace("{", "(")
    assert filled("{model}{threads}", {"model": "{threads}", "threads": "2"}) == "{threads}2"


def test_other_braces_stay() -> None:
    assert filled('{"a": 1} {Model} {} {unknown}', {"model": "m"}) == '{"a": 1} {Model} {} {unknown}'
    assert placeholders(["{a}{b}", "{C}", "{}", "{a}"]) == {"a", "b"}
