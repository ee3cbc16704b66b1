"""Labels of points: none covers another one or a point, and none is lost where there is room."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from gnomon.report.plot import Label, label_points


def drawn(points: list[tuple[float, float]], name: str = "cpu; ruy: Conv2D") -> list[Text]:
    """The labels that were written for points in a square from 0 to 1."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([x for x, _ in points], [y for _, y in points], "o")
    axes.set_xlim(-0.1, 1.1)
    axes.set_ylim(-0.1, 1.1)
    figure.draw_without_rendering()
    label_points(axes, [Label(at=at, mark=str(k + 1), name=name) for k, at in enumerate(points)])
    figure.draw_without_rendering()
    return list(axes.texts)


COORDINATE = st.floats(0, 1, allow_nan=False)


@given(st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=12))
@settings(max_examples=15)
def test_no_label_covers_another(points: list[tuple[float, float]]) -> None:
    boxes = [Text.get_window_extent(text) for text in drawn(points)]
    for a, b in itertools.combinations(boxes, 2):
        assert not a.overlaps(b)


def test_a_lonely_point_has_its_whole_name_beside_it() -> None:
    (text,) = drawn([(0.5, 0.5)])
    assert text.get_text() == "1  cpu; ruy: Conv2D"


def test_points_on_one_spot_are_all_named() -> None:
    texts = drawn([(0.5, 0.5), (0.5, 0.501), (0.501, 0.5)])
    assert sorted(text.get_text()[0] for text in texts) == ["1", "2", "3"]


def test_what_has_no_room_for_its_name_keeps_its_mark() -> None:
    texts = drawn([(0.0, 0.5), (1.0, 0.5)], name="n" * 120)
    assert [text.get_text() for text in texts][-1] == "2"
