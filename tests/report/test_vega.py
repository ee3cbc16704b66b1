"""Pictures as specifications: scales, hatches, legends and titles; every one of several differs without its colour."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.picture_kit import layers_of, told_in

from gnomon.report.vega import (
    HATCHES,
    LOOKS,
    Key,
    Scale,
    bars,
    hatched,
    in_values,
    legend,
    line,
    picture,
    point_key,
    points,
    reach,
    scale_of,
    second_axis,
    sentences,
    texts,
    view,
    whole,
)

KINDS: tuple[Literal["linear", "log", "symlog"], ...] = ("linear", "log", "symlog")


@given(st.sampled_from(KINDS), st.floats(1e-3, 1e3), st.floats(1.1, 1e4), st.floats(-0.2, 1.2))
def test_a_place_has_the_value_that_has_the_place(
    kind: Literal["linear", "log", "symlog"], low: float, factor: float, share: float
) -> None:
    scale = Scale(low=low, high=low * factor, length=400, kind=kind, constant=5)
    assert scale.place(scale.low) == pytest.approx(0, abs=1e-6)
    assert scale.place(scale.high) == pytest.approx(400)
    assert scale.place(scale.value(400 * share)) == pytest.approx(400 * share, abs=1e-5)


def test_a_scale_may_begin_with_its_largest_value() -> None:
    rows = Scale(low=3.5, high=-0.5, length=80)
    assert [rows.place(k) for k in (3, 2, 1, 0)] == [10, 30, 50, 70]


def test_axes_tell_ticks_once() -> None:
    """Of ticks that are told Vega leaves out some where their number is told too."""
    for scale in (Scale(low=1, high=900, length=100, kind="log"), Scale(low=0, high=9, length=100)):
        axis = scale.axis("x", **({} if scale.kind == "log" else {"values": [1, 2]}))["axis"]
        assert "values" in axis and "tickCount" not in axis
    assert Scale(low=0, high=9, length=100).axis("x")["axis"]["tickCount"] == 7
    assert Scale(low=0, high=9, length=100).axis(None)["axis"] is None


@pytest.mark.parametrize("values", [[1.0], [0.0], [-2.0, 3.0], [5.0, 5.0]])
def test_a_scale_has_room_for_its_values(values: list[float]) -> None:
    found = scale_of(values, 100)
    assert found.low < min(values) and max(values) < found.high


def test_whole_numbers() -> None:
    assert whole(1, 4) == [1, 2, 3, 4]
    assert whole(1, 2) == [1, 2]


def test_every_one_of_several_differs_without_colour_too() -> None:
    assert len({look.dash for look in LOOKS}) == len({look.shape for look in LOOKS}) == len(LOOKS)
    drawn = {
        json.dumps([list(one["data"]["values"]) for one in hatched(hatch, [(0, 0, 40, 40)])])
        + str([one["mark"].get("size") for one in hatched(hatch, [(0, 0, 40, 40)])])
        for hatch in HATCHES
    }
    assert len(drawn) == len(HATCHES)


BOX = st.tuples(st.floats(0, 500), st.floats(0, 500), st.floats(0, 200), st.floats(0, 200))


@given(st.sampled_from(HATCHES), st.lists(BOX, max_size=3))
def test_hatches_stay_inside_their_boxes(hatch: str, boxes: list[tuple[float, float, float, float]]) -> None:
    for left, top, wide, high in boxes:
        for layer in hatched(hatch, [(left, top, left + wide, top + high)]):
            for row in layer["data"]["values"]:
                assert all(left - 1e-6 <= row[k] <= left + wide + 1e-6 for k in ("x", "x2") if k in row)
                assert all(top - 1e-6 <= row[k] <= top + high + 1e-6 for k in ("y", "y2") if k in row)


def test_places_in_pixels_become_values() -> None:
    x, y = Scale(low=0, high=10, length=100), Scale(low=0, high=5, length=50)
    (made,) = in_values([points([{"x": 20, "y": 10}], "circle", "red")], x, y)
    assert made["data"]["values"] == [{"x": 2, "y": 4}]


def test_lines_of_a_text_stand_about_its_middle() -> None:
    one, two = texts([{"x": 0, "y": 0, "text": ["a", "b"]}, {"x": 0, "y": 1, "text": "c"}])
    assert [one["mark"]["dy"], two["mark"]["dy"]] == [0, -7]


def test_intervals_have_caps() -> None:
    rule, caps = bars([(1, 2, 1.5, 3)], "y", "red")
    assert rule["data"]["values"] == [{"x": 1, "y": 1.5, "y2": 3}]
    assert reach([caps], "y") == [1.5, 3]
    assert reach([rule, caps], "x") == [1, 1, 1]
    assert bars([], "x", "red") == []


def test_a_second_axis_has_round_numbers_of_its_own() -> None:
    for scale in (
        Scale(low=1, high=40, length=100, kind="log"),
        Scale(low=0, high=4, length=100),
        Scale(low=-0.4, high=900, length=100, kind="symlog", constant=5),
    ):
        plot = view(
            [line([(0, 1), (1, 2)], "red")], Scale(low=0, high=1, length=9).axis("x"), scale.axis("y"), (9, 100)
        )
        made = second_axis(plot, scale, 0.05, "other")
        ticks = [tick * 0.05 for tick in made["layer"][2]["encoding"]["y"]["axis"]["values"]]
        assert len(ticks) >= 3 and all(float(f"{tick:.2g}") == pytest.approx(tick) for tick in ticks)


def test_a_legend_has_all_its_words() -> None:
    keys = [
        point_key("a", "circle", "red"),
        Key(text="b", looks=(("rect", {"fill": "red"}),), hatch="/"),
        Key(text="c"),
    ]
    found = legend(keys, columns=2)
    assert told_in(found) == ["a", "b", "c"]
    assert found["height"] == 38
    assert {layer["mark"]["type"] for layer in layers_of(found)} == {"point", "rect", "rule", "text"}


def test_no_line_of_a_title_ends_between_a_number_and_its_unit() -> None:
    told = "x" * 103 + " 12 ms and 3 devices"
    assert sentences(told) == ["x" * 103, "12 ms and 3 devices"]
    assert sentences("y" * 500)[0].count("y") <= 105


def test_a_picture_is_json_that_asks_for_nothing() -> None:
    plot = view(
        [line([(0, 1), (1, None)], "red")], scale_of([0, 1], 9).axis("x"), scale_of([0, 1], 9).axis("y"), (9, 9)
    )
    text = json.dumps(picture([plot], ["title"]), allow_nan=False)
    assert "url" not in text
    assert text.count("http") == 1, "the name of the version"
