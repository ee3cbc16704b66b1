"""Labels of points: none covers another one or a point, and none is lost where there is room."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.report.svg import Placed, place_labels, text_width


def placed(points: list[tuple[float, float]], name: str = "cpu; ruy: Conv2D") -> list[Placed]:
    """The labels of points in a rectangle of 700 by 400, where points are no nearer to its ends than 58 and 33."""
    labels = [((58 + 584 * x, 33 + 334 * y), f"{k + 1} {name}") for k, (x, y) in enumerate(points)]
    return place_labels(labels, (0, 0, 700, 400))


COORDINATE = st.floats(0, 1, allow_nan=False)


@given(st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=12))
def test_no_label_covers_another_or_a_point(points: list[tuple[float, float]]) -> None:
    found = placed(points)
    for a, b in itertools.combinations([one.box for one in found], 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    for one in found:
        left, upper, right, lower = one.box
        assert left >= 0 and upper >= 0 and right <= 700 and lower <= 400
        for x, y in [(58 + 584 * x, 33 + 334 * y) for x, y in points]:
            assert not (left < x < right and upper < y < lower)


def test_a_lonely_point_has_its_whole_name_beside_it() -> None:
    (one,) = placed([(0.5, 0.5)])
    assert one.text == "1 cpu; ruy: Conv2D"
    assert one.left and not one.far


def test_points_on_one_spot_are_all_named() -> None:
    found = placed([(0.5, 0.5), (0.5, 0.501), (0.501, 0.5)])
    assert sorted(one.text[0] for one in found) == ["1", "2", "3"]


def test_what_has_no_room_for_its_name_keeps_its_mark() -> None:
    assert [one.text for one in placed([(0.0, 0.5), (1.0, 0.5)], name="n" * 120)][-1] == "2"


def test_a_point_without_a_name_is_not_covered_and_not_named() -> None:
    (one,) = place_labels([((100, 100), "1 n"), ((118, 88), "")], (0, 0, 700, 400))
    assert one.text == "1 n"
    assert (one.x, one.y) != (109, 88)


@pytest.mark.parametrize(("text", "least", "most"), [("", 0, 0), ("iiii", 9, 20), ("MMMM", 33, 60), ("模型", 22, 30)])
def test_widths_are_about_those_of_letters(text: str, least: float, most: float) -> None:
    assert least <= text_width(text) <= most
