"""The charts of overlays: what they show, what is left out of very large ones, and names that come from anywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.report.picture_kit import needs_drawing, words_in, words_of
from tests.report.tuning_kit import HOSTILE, analyze, chosen, proved

from gnomon.api.pictures import draw_overlay
from gnomon.jobs.documents import read_document
from gnomon.jobs.overlay.document import AnalyzeDocument, ChosenLayer
from gnomon.jobs.overlay.picture import layer_chart, losses_charts, network_charts, overlay_pictures
from gnomon.report.chart import Chart
from gnomon.report.svg import picture


def values(chart: Chart, name: str) -> list[tuple[float | None, ...]]:
    """The places of the marks of a group."""
    (group,) = [group for group in chart.groups if group.name == name]
    return [(mark.x.value, mark.x.low, mark.x.high) for mark in group.marks]


def read(**changes: Any) -> AnalyzeDocument:
    """The record of the document with these changes."""
    document: AnalyzeDocument = read_document(analyze(**changes))
    return document


def wide(devices: int, options: int) -> ChosenLayer:
    """A layer with so many configurations on so many devices, of which the last ones lose most."""
    names = [f"d{k}" for k in range(devices)]
    layer = chosen("conv", 1, 1.0, dict.fromkeys(names, 1e-3), dict.fromkeys(names, 1e-3))
    layer["options"] = [
        {"configuration": f"c{k}", "host": "d0", "M": float(k), "regret": {n: 0.001 * j for j, n in enumerate(names)}}
        for k in range(options)
    ]
    return read(layers=[layer]).layers[0]


def test_there_is_a_picture_of_each_layer_and_of_the_network_as_svg_and_png(tmp_path: Path) -> None:
    needs_drawing()
    told: list[str] = []
    made = [Path(path) for path in draw_overlay(read(), tmp_path / "a" / "b", told.append)]
    names = ["layer.fused_conv2d", "layer.fused_dense", "network"]
    assert [path.name for path in made] == [f"{name}{kind}" for kind in (".svg", ".png") for name in names]
    assert made[3].read_bytes().startswith(b"\x89PNG") and told == []
    assert "fused_conv2d: loss on each device of the configurations with the least M, out of 40" in words_in(made[0])


def test_a_heat_map_has_what_each_configuration_loses_and_the_choice_stands_out() -> None:
    chart = layer_chart(read().layers[1], ["phone", "tablet"])
    assert chart.y.names == ("5f0c9a7b1d2e3f40", "77aa9a7b1d2e3f40") and chart.y.chosen == {0}
    assert chart.x.names == ("found on", "M", "phone", "tablet")
    (cells,) = chart.groups
    assert [mark.label for mark in cells.marks] == [
        "phone",
        "0.050",
        "+4.5 %",
        "+0.5 %",
        "tablet",
        "0.085",
        "+7.2 %",
        "+1.3 %",
    ]
    assert [mark.share > 0 for mark in cells.marks] == [False, False, True, True] * 2


def test_what_was_not_measured_or_loses_nothing_is_told() -> None:
    layer = chosen("conv", 1, 1.0, {"a": 1e-3}, {"a": 1e-3})
    layer["options"][0]["regret"] = {"a": 0.0}
    (cells,) = layer_chart(read(layers=[layer]).layers[0], ["a", "b"]).groups
    assert [mark.label for mark in cells.marks[2:4]] == ["0", "-"]


def test_of_very_many_devices_and_rows_those_that_count_are_drawn() -> None:
    chart = layer_chart(wide(100, 60), [f"d{k}" for k in range(100)])
    assert (len(chart.y.names), len(chart.x.names)) == (40, 18)
    assert "Shown: the first 40 of 60 rows. Shown: the 16 devices of 100 that lose most." in chart.note
    assert chart.x.names[2:] == tuple(f"d{k}" for k in range(84, 100))
    assert len(picture([chart])) < 300_000


def test_layers_are_in_the_order_of_their_share() -> None:
    assert losses_charts(read())[0].y.names == ("fused_conv2d", "fused_dense")


def test_a_layer_without_anything_to_choose_has_no_picture() -> None:
    one = {**analyze()["layers"][0], "options": analyze()["layers"][0]["options"][:1]}
    assert overlay_pictures(read(layers=[one], network=[])) == {"network": []}


def test_layers_with_like_names_have_files_of_their_own() -> None:
    layers = [{**analyze()["layers"][0], "name": name} for name in ("a/b", "a:b", "A?b", "a_b", "../x", "..")]
    names = list(overlay_pictures(read(layers=layers)))
    assert len({name.lower() for name in names}) == len(layers) + 1
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names)


def test_names_can_not_break_the_file() -> None:
    network = [{**row, "device": f"{HOSTILE}{row['device']}"} for row in analyze()["network"]]
    layers = [{**layer, "name": HOSTILE, "configuration": HOSTILE} for layer in analyze()["layers"]]
    for charts in overlay_pictures(read(layers=layers, network=network)).values():
        assert all(word.isprintable() for word in words_of(charts))


def test_the_network_is_relative_to_each_devices_own_best() -> None:
    (chart,) = network_charts(read())
    assert chart.y.names[:2] == ("tablet, the overlay's choice", "tablet, its own best")
    assert [value for value, _, _ in values(chart, "its own best")] == [1.0, 1.0]
    assert values(chart, "the overlay's choice")[1] == pytest.approx((1.02, 0.9996, 1.0404))
    assert "takes 8.9 % longer than its own best on tablet; undecided" in chart.title
    assert chart.note == "Not drawn, because unknown: 1."


def test_the_network_is_drawn_by_its_paired_ratios() -> None:
    rows = proved("a", {"overlay": 1.2e-3, "own:a": 1e-3}, 0.3)
    rows[0]["to_own"] = {"ratio": 1.1, "low": 1.05, "high": 1.2}
    (chart,) = network_charts(read(network=rows))
    assert values(chart, "the overlay's choice")[0] == pytest.approx((1.1, 1.05, 1.2))
    assert values(chart, "its own best") == [(1.0, None, None)]
    rows[0]["to_own"]["high"] = 11.5
    assert values(network_charts(read(network=rows))[0], "the overlay's choice") == [(1.1, None, None)]


def test_a_device_without_its_own_best_is_relative_to_its_fastest() -> None:
    rows = [
        *proved("a", {"overlay": 2e-3, "own:b": 1e-3}),
        *proved("b", {"untuned": 1e-3}),
        *proved("c", {"overlay": None}),
    ]
    (chart,) = network_charts(read(network=rows))
    assert chart.y.names == ("a, the overlay's choice", "a, another device's best")
    assert values(chart, "the overlay's choice")[0][0] == 2
    assert chart.note == "Not drawn, because unknown: 1."


@pytest.mark.parametrize("count", [1, 9, 121])
def test_any_number_of_devices_is_drawn(count: int) -> None:
    times = [{f"own:d{k}": 1e-3, "overlay": None if k == 7 else 1e-3 * (1 + k / 1000)} for k in range(count)]
    rows = [row for k in range(count) for row in proved(f"d{k}", times[k])]
    (chart,) = network_charts(read(network=rows))
    assert len(chart.y.names) == min(2 * count - (count > 7), 40)
    assert chart.y.names[0] == f"d{count - 1}, the overlay's choice"
    assert ("The first 40 of 241 choices; the table has all." in chart.note) == (count > 40)


@pytest.mark.parametrize("rows", [[], proved("a", {"overlay": None})])
def test_a_network_that_was_not_measured_is_no_picture(rows: list[dict[str, Any]]) -> None:
    assert network_charts(read(network=rows)) == []
