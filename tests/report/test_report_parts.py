"""Units, spans and cleaned texts."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.stats import Comparison
from gnomon.report import units
from gnomon.report.chart import timed
from gnomon.report.parts import assignment_text, bounds_and_outcome, numbers, spans
from gnomon.report.plain import clean, finite, listed, shorten
from gnomon.report.units import ratio_interval

SCALES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.2345e-3, "1.23 ms"),
        (12.345e-6, "12.3 us"),
        (999.6e-6, "1.00 ms"),
        (4e-7, "400 ns"),
        (-2.6e-3, "-2.60 ms"),
        (2e-11, "< 1 ns"),
        (1.797e308, "1.80e+308 s"),
        (0.0, "0 s"),
        (None, "-"),
        (math.inf, "-"),
    ],
)
def test_times(seconds: float | None, text: str) -> None:
    assert units.time(seconds) == text


@given(st.floats(min_value=1e-9, max_value=1e6))
def test_times_are_right_to_three_digits(seconds: float) -> None:
    number, unit = units.time(seconds).split()
    assert float(number) * SCALES[unit] == pytest.approx(seconds, rel=5.1e-3)


def test_intervals_are_in_the_unit_of_their_time() -> None:
    assert units.interval(0.95e-3, 1.1e-3, 1e-3) == "[0.950, 1.10]"
    assert units.interval(900e-6, 1.1e-3, 980e-6) == "[900, 1100]"
    assert units.interval(None, 1.0, 1.0) == "[not known]"
    assert units.interval(0.0, math.inf, 1.0) == "[not known]"
    assert units.interval(0.0, 2e-3, 1e-3) == "[not known]"
    assert units.interval(0.0, 2e-3, 1e-3, predicted=True) == "[0, 2.00]"
    assert units.interval(-1e-4, 2e-3, 1e-3, predicted=True) == "[not known]"


def test_an_interval_that_says_nothing_is_not_shown() -> None:
    assert units.interval(0.553e-6, 53.6, 116e-6) == "[not known]"
    assert units.interval(50e-6, 499e-6, 116e-6) == "[50.0, 499]"
    assert units.interval(10e-6, 1.0, 116e-6, predicted=True) == "[10.0, 1000000]"
    assert ratio_interval(0.181, 35.6) == ratio_interval(None, 1.0) == "[not known]"
    assert ratio_interval(0.5, 4.9) == "[0.500, 4.90]"
    compared = Comparison(ratio=2.54, low=0.181, high=35.6, verdict="slower", pairs=3, unit="process")
    assert bounds_and_outcome(compared) == "slower"
    assert timed(116e-6, 0.553e-6, 53.6).low is None and timed(1e-3, 0.0, 2e-3).high == 2.0


@given(st.floats(-1e308, 1e308).filter(lambda value: abs(value) > 1e-300))
def test_any_number_is_shown_and_shortly(value: float) -> None:
    text = units.digits(value)
    assert len(text) < 25 and float(text) == pytest.approx(value, rel=5.1e-3, abs=0)


def test_waiting_and_sizes() -> None:
    assert [units.duration(s) for s in (8.4, 75, 7500)] == ["8 s", "1 min 15 s", "2 h 5 min"]
    assert [units.count(n) for n in (None, 0, 999, 1060000, 7.3e9)] == ["-", "0", "999", "1.06 M", "7.30 G"]
    assert units.mebibytes(40 << 20) == "40.0 MiB"
    assert [units.percent(s) for s in (0.012, -0.5, -0.0004, None)] == ["+1.2 %", "-50.0 %", "+0.0 %", "-"]


@given(st.text())
def test_cleaned_texts_are_printable_and_stable(text: str) -> None:
    assert all(c.isprintable() for c in clean(text))
    assert clean(clean(text)) == clean(text)
    assert all(c == "\n" or c.isprintable() for c in clean(text, lines=True))


def test_cleaning_keeps_other_scripts() -> None:
    assert clean("\u5377\u79ef \u00e9 \u03b1") == "\u5377\u79ef \u00e9 \u03b1"
    assert clean("a\x1b]0;x\x07\u202eb") == "a\\x1b]0;x\\x07\\u202eb"


@given(st.text(), st.integers(min_value=8, max_value=60))
def test_shortened_texts_fit(text: str, width: int) -> None:
    assert len(shorten(text, width)) <= width


def test_shortening_keeps_both_ends() -> None:
    assert shorten("abcdefghijklmnop", 10) == "abcd..mnop"


@given(st.lists(st.sampled_from(["cpu", "ruy", None])))
def test_spans_cover_the_assignment(assignment: list[str | None]) -> None:
    covered = [name for first, last, name in spans(assignment) for _ in range(first, last + 1)]
    assert covered == [name or "-" for name in assignment]


def test_assignments_in_words() -> None:
    assert assignment_text(["cpu"] * 3 + ["ruy"] + ["cpu"] * 2) == "0-2 cpu   3 ruy   4-5 cpu"
    assert assignment_text(["cpu", "ruy"] * 50) == "50 on cpu, 50 on ruy, in 100 stretches"


@given(st.sets(st.integers(min_value=0, max_value=200)))
def test_numbers_tell_every_index(indices: set[int]) -> None:
    text = numbers(sorted(indices), most=1000)
    told: set[int] = set()
    for part in re.findall(r"[0-9-]+", text):
        first, _, last = part.partition("-")
        told |= set(range(int(first), int(last or first) + 1))
    assert told == indices


def test_many_numbers_are_counted() -> None:
    assert numbers([0, 2, 4, 5, 6], most=2) == "0, 2 and 3 more"


def test_names_with_commas_are_listed_by_semicolons() -> None:
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["tvm", "mnn[f16, A=1]", "ort"]) == "tvm; mnn[f16, A=1]; ort"
    assert listed(["a,b", "c", "d", "e"], 3) == "a,b; c; 2 more"


def test_values_that_are_not_finite_become_none() -> None:
    assert finite({"a": (math.inf, 1), 2: {"b": math.nan}}) == {"a": [None, 1], "2": {"b": None}}
