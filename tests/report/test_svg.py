"""Charts as SVG: all values are inside, ticks are round, and every one of several differs without its colour."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.report.picture_kit import words_of

from gnomon.report.chart import (
    BEHIND,
    CHOSEN,
    LOOKS,
    Axis,
    Chart,
    Group,
    Look,
    Mark,
    Row,
    Rule,
    Value,
    in_rows,
    line,
    look_of,
    shares,
    time_words,
    timed,
)
from gnomon.report.svg import inline, picture, scale_of
from gnomon.report.units import log_ticks

NUMBERS = st.floats(1e-9, 1e9)
ANY = st.none() | st.sampled_from([math.nan, math.inf, -math.inf]) | st.floats(-1e12, 1e12) | NUMBERS
VALUES = st.builds(Value, value=ANY, low=ANY, high=ANY)
NO_NUMBER = re.compile(r"[Nn]a[Nn]|[Ii]nf|None")


def ends(values: list[Value]) -> list[float]:
    return [end for one in values if one.is_known for end in one.ends]


def points(*marks: Mark, **how: object) -> Chart:
    return Chart(title="t", x=Axis(title="x"), y=Axis(title="y"), groups=(Group(marks=marks, **how),))  # type: ignore[arg-type]


def at(x: float | None, y: float | None, **more: str) -> Mark:
    return Mark(x=Value(value=x), y=Value(value=y), **more)  # type: ignore[arg-type]


@given(values=st.lists(VALUES, max_size=8), linear=st.booleans())
@example(values=[Value(value=1e-09)], linear=False)
def test_all_values_are_inside_and_ticks_too(values: list[Value], linear: bool) -> None:
    found = scale_of(Axis(linear=linear), ends(values), 100, 500)
    assert found.low < found.high
    assert all(found.low <= value <= found.high for value, _ in found.ticks(6))
    for one in values:
        if one.is_known:
            low, middle, high = map(found.place, one.ends)
            assert all(100 <= place <= 500 for place in (low, middle, high))
        else:
            with pytest.raises(ValueError, match="an unknown value"):
                _ = one.ends


def test_values_that_are_as_far_apart_as_can_be_are_inside() -> None:
    found = scale_of(Axis(), [2.0, 1.2e-308], 100, 500)
    assert 100 <= found.place(1.2e-308) < found.place(2.0) <= 500


def test_ticks_are_round_and_whole_where_that_is_said() -> None:
    assert [text for _, text in scale_of(Axis(), [1.0, 3.0], 0, 100).ticks(6)] == ["1", "1.5", "2", "2.5", "3"]
    assert [text for _, text in scale_of(Axis(), [1.0, 3.0], 0, 100).ticks(6, whole=True)] == ["1", "2", "3"]
    far = scale_of(Axis(), [1.0, 900.0], 0, 100)
    assert far.logarithmic
    assert [text for _, text in far.ticks(6)] == ["1", "10", "100", "1000"]
    assert not scale_of(Axis(linear=True), [1.0, 900.0], 0, 100).logarithmic


@given(st.floats(1e-9, 1e9), st.floats(1.5, 1e12))
def test_ticks_are_few_and_inside(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert len(ticks) <= 8
    assert all(low <= tick <= low * factor for tick in ticks)
    assert len(ticks) >= 2 or factor < 4


def test_an_end_that_is_not_known_is_at_the_value() -> None:
    assert Value(value=2.0, low=math.nan, high=math.inf).ends == (2.0, 2.0, 2.0)
    assert Value(value=2.0, low=None, high=3.0).times(10) == Value(value=20.0, low=None, high=30.0)


def test_every_one_of_several_differs_without_colour_too() -> None:
    looks = (*LOOKS, CHOSEN, BEHIND)
    assert len({(look.shape, look.hollow) for look in looks}) == len(looks)
    assert len({look.dash for look in LOOKS}) == len({look.hatch for look in LOOKS}) == len(LOOKS)
    drawn = {
        re.sub("#[0-9A-Fa-f]{6}|black", "colour", picture([points(at(1, 2), at(2, 3), look=look, line="straight")]))
        for look in LOOKS
    }
    assert len(drawn) == len(LOOKS)
    assert len({(look.colour, look.hatch, look.shape) for look in map(look_of, range(20))}) == 20


@given(st.lists(st.tuples(VALUES, VALUES), max_size=6), st.sampled_from(["points", "dots", "bars", "cells", "none"]))
def test_whatever_is_not_known_the_picture_is_well_formed(pairs: list[tuple[Value, Value]], kind: str) -> None:
    marks = [Mark(x=x, y=y, label="1 a", tip="a") for x, y in pairs]
    chart = points(*marks, kind=kind, line="steps", name="all")
    for names in ((), ("a", "b")):
        text = picture([replace(chart, y=replace(chart.y, names=names))]) + inline(chart, "k")
        root = ElementTree.fromstring(f"<all>{text}</all>")  # noqa: S314 our own
        drawn = [value for one in root.iter() for name, value in one.attrib.items() if name != "class"]
        assert not [value for value in drawn if NO_NUMBER.search(value)]


def test_rows_have_their_names_and_values_and_the_chosen_one_stands_out() -> None:
    rows = [
        Row(name="a", value=timed(1e-3, 0.9e-3, 1.1e-3), text=time_words(1e-3, 0.9e-3, 1.1e-3), look=CHOSEN),
        Row(name="b", value=timed(math.nan), text="-"),
        Row(name="c", value=timed(2e-3), text=time_words(2e-3), look=BEHIND),
    ]
    chart = in_rows("title", "ms", rows, legend={BEHIND: "slower"})
    words = words_of([chart])
    assert {"title", "> a", "1.00 ms", "c", "2.00 ms", "slower", "ms"} <= set(words) and "b" not in words
    assert chart.note == "Not drawn, because unknown: 1."
    many = in_rows("title", "ms", rows[:1] * 50, noun="nets")
    assert (len(many.y.names), many.note) == (40, "The first 40 of 50 nets; the table has all.")


def test_in_a_narrow_window_names_stand_above_their_rows() -> None:
    chart = in_rows("t", "ms", [Row(name="n" * 60, value=timed(1e-3), text="1 ms")])
    wide, narrow = re.findall("<svg.*?</svg>", inline(chart, "k"))
    assert 'width="940"' in wide and 'width="340"' in narrow
    assert 'text-anchor="end">nn' in wide and 'text-anchor="end">nn' not in narrow


def test_a_chart_counts_what_has_no_number() -> None:
    chart = replace(points(at(1, 2), at(1, None), at(math.inf, 1)), note="Note.")
    assert chart.notes == "Note. Not drawn, because unknown: 2."
    lined = Chart(title="t", x=Axis(), y=Axis(), groups=(Group(marks=line([(0, 1), (1, None)]), line="straight"),))
    assert lined.notes == ""


def test_a_line_has_gaps_where_a_value_is_not_known() -> None:
    text = picture([points(*line([(0, 1), (1, None), (2, 1), (3, 2)]), kind="none", line="straight")])
    (way,) = re.findall(r'stroke-width="1.8"[^>]* d="([^"]*)"', text)
    assert re.sub(r"[\d.]+ [\d.]+", "_", way) == "M_M_L_"


def test_a_legend_has_the_groups_that_are_there_and_the_rules() -> None:
    chart = Chart(
        title="t",
        x=Axis(title="x"),
        y=Axis(title="y"),
        groups=(Group(name="there", marks=[at(1, 1)]), Group(name="empty", marks=[])),
        rules=(Rule(along="x", at=3.0, name="the bound"),),
    )
    words = words_of([chart])
    assert "there" in words and "the bound" in words and "empty" not in words
    assert scale_of(chart.x, [1.0, 3.0], 0, 1).high > 3.0


def test_labels_of_points_stand_in_the_picture() -> None:
    words = words_of([points(at(1, 1, label="1 one"), at(2, 2, label="2 two"), at(3, 1))])
    assert {"1 one", "2 two"} <= set(words)


def test_cells_have_their_texts_and_those_that_are_chosen_a_frame() -> None:
    cells = [at(0, 0, label="5 %"), at(1, 0, label="0")]
    x, y = Axis(names=("phone", "t" * 40)), Axis(names=("conv",))
    groups = (Group(marks=cells[:1], kind="cells"), Group(marks=cells[1:], kind="cells", look=CHOSEN, name="kept"))
    chart = Chart(title="t", x=x, y=y, groups=groups)
    text = picture([chart])
    assert text.count('stroke-width="2.2"') == 1 and "rotate(-90)" in text
    assert {"5 %", "0", "conv", "phone", "kept"} <= set(words_of([chart]))


def test_of_very_many_points_no_intervals_are_drawn() -> None:
    def caps(count: int) -> int:
        marks = [Mark(x=Value(value=k, low=k - 0.1, high=k + 0.1), y=Value(value=1.0)) for k in range(count)]
        return picture([points(*marks)]).count("v8")

    assert (caps(400), caps(401)) == (800, 0)


def test_texts_of_foreign_origin_stay_texts() -> None:
    for text in ("<b>&amp;\"'", "]]>", "\u6a21\u578b $x_1$"):
        look = Look(colour="#123456")
        chart = replace(points(at(1, 1, label=text, tip=text), name=text, look=look), title=text)
        assert words_of([chart]).count(text) == 3
        assert text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in inline(chart, "k")
    assert "\x1b" not in picture([points(at(1, 1, tip="\x1b[2J\u202e"))])


def test_pictures_are_the_same_each_time_and_parts_have_names_of_their_own() -> None:
    bars = [Mark(x=Value(value=2.0, low=1.0, high=2.0), y=Value(value=0))]
    groups = tuple(Group(marks=bars, kind="bars", look=look) for look in (*LOOKS, *LOOKS))
    chart = Chart(title="t", x=Axis(low=0), y=Axis(names=("a",)), groups=groups)
    assert picture([chart, chart]) == picture([chart, chart])
    names = re.findall(r' id="([^"]*)"', inline(chart, "a") + inline(chart, "b") + picture([chart, chart]))
    assert len(names) == len(set(names)) == 6 * len(groups)


def test_shares_are_percent() -> None:
    assert shares(0.5, 0.25, None) == Value(value=50.0, low=25.0, high=None)
    assert [a.value for a in itertools.chain(*((m.x, m.y) for m in line([(1, 2), (None, 3)])))] == [1, 2, None, 3]
