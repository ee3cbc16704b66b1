"""The pictures of overlays: what they show, without colour too, the same bytes each time, and what is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.picture_kit import needs_drawing, words_in
from tests.report.tuning_kit import HOSTILE, analyze, chosen, measured, proved

from gnomon.core.overlay.confidence import Spread
from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.jobs.overlay.layer_drawing import _asides, bins_of, series_of
from gnomon.jobs.overlay.network_drawing import rows_of
from gnomon.jobs.overlay.picture import layer_pictures, network_picture

DOCUMENT = analyze(layers=[])


@pytest.fixture(autouse=True)
def drawing() -> None:
    needs_drawing()


def drawn(folder: Path, series: dict[str, Any], name: str = "conv") -> dict[str, str]:
    """The words of the pictures of one layer, by what each shows."""
    made = layer_pictures(DOCUMENT, {name: series}, folder, ("svg",))
    return {Path(path).name.split(".")[-2]: " ".join(words_in(path)) for path in made}


def test_there_are_two_pictures_of_a_layer_each_as_svg_and_png(tmp_path: Path) -> None:
    made = layer_pictures(DOCUMENT, {"conv": measured(2, 40)}, tmp_path / "a" / "b")
    kinds = ["times.svg", "times.png", "metric.svg", "metric.png"]
    assert [Path(path).name for path in made] == [f"layer.conv.{kind}" for kind in kinds]
    assert Path(made[1]).read_bytes().startswith(b"\x89PNG")
    told = " ".join(words_in(made[0]))
    assert "conv: the choice is number 2 of 40 on device0, 28.6 % slower than the best; on device1 it is" in told
    assert "chosen: 0000000000000005, found on device1" in told
    assert "configurations, the fastest on device0 first" in told
    assert "on device0, us" in told
    assert {"device1", "best 51.5 us"} <= set(words_in(made[0]))
    told = " ".join(words_in(made[2]))
    assert "conv: 40 configurations on 2 devices; the choice loses 14.3 % on average, at worst" in told
    assert "M, the sum of the losses" in told


def test_the_same_document_gives_the_same_bytes_in_any_order_of_kinds(tmp_path: Path) -> None:
    series = {"a": measured(8, 20, 1)}
    kinds = {"a": ("svg", "png"), "b": ("png", "svg")}
    first, second = (sorted(layer_pictures(DOCUMENT, series, tmp_path / name, kinds[name])) for name in kinds)
    assert len(first) == 4
    assert [Path(path).read_bytes() for path in first] == [Path(path).read_bytes() for path in second]
    for name in ("a.png", "b.png", "a.svg", "b.svg"):
        network_picture(analyze(), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_many_devices_are_a_band_and_the_picture_stays_small(tmp_path: Path) -> None:
    made = layer_pictures(DOCUMENT, {"conv": measured(100, 400, 2)}, tmp_path, ("svg",))
    for path in made:
        told = " ".join(words_in(path))
        assert "9 of 10 below" in told
        assert "device57" not in told
        assert "(logarithmic)" in told
        assert Path(path).stat().st_size < 100_000
    assert "99 devices" in words_in(made[0])
    assert "100 devices" in words_in(made[1])


def test_many_configurations_are_thinned(tmp_path: Path) -> None:
    made = layer_pictures(DOCUMENT, {"conv": measured(5, 2500, 2)}, tmp_path, ("svg",))
    assert max(Path(path).stat().st_size for path in made) < 400_000
    assert "thin lines: medians of neighbouring ranks; dots: single ones" in words_in(made[0])


@pytest.mark.parametrize(("devices", "count"), [(1, 8), (6, 60), (2, 90), (9, 8)])
def test_points_have_their_intervals(tmp_path: Path, devices: int, count: int) -> None:
    series = measured(devices, count)
    times = np.asarray(series["times_s"])
    asked = []

    def ends(rows: list[int]) -> Spread:
        asked.append(rows)
        both, shift = times[rows], np.array([0.9, 1.1])[:, None, None]
        lost = shift * (both / times.min(axis=0) - 1)
        return Spread(times_s=shift * both, regrets=lost, metric=lost.sum(axis=2))

    told = drawn(tmp_path, {**series, "spread": ends})
    some = " at some ranks" if count > 60 else ""
    assert all(f"bars: 95 % intervals{some}" in words for words in told.values())
    assert not any("without a bar" in words for words in told.values())
    chosen = series["configurations"].index(series["chosen"])
    for rows in asked:
        assert chosen in rows
        assert len(rows) == (count if count <= 60 else len(set(rows)))
        assert len(rows) <= 60


def test_lines_stand_side_by_side_about_their_rank() -> None:
    for lines in range(7):
        aside = _asides(lines, 60)
        assert len({0.0, *aside}) == lines + 1
        assert all(abs(by) <= 0.3 + 1e-9 for by in aside)
        assert _asides(lines, 61) == [0.0] * lines


@pytest.mark.parametrize(("devices", "count"), [(1, 5), (6, 61), (7, 101), (2, 60)])
def test_any_size_is_drawn(tmp_path: Path, devices: int, count: int) -> None:
    told = drawn(tmp_path, measured(devices, count))
    assert set(told) == {"times", "metric"}
    assert all("chosen: " in words for words in told.values())
    assert not any("bars" in words for words in told.values()), "there is no interval without its samples"


def test_one_device_and_all_equal_ones_are_told_as_such(tmp_path: Path) -> None:
    assert "the choice is the best on it." in drawn(tmp_path, measured(1, 2))["metric"]
    series = measured(3, 40)
    series["times_s"] = [[1e-5, 2e-5, 3e-5]] * 40
    told = drawn(tmp_path, series)
    assert "conv: all 40 configurations take equally long." in told["times"]
    assert "the choice is the best on every one." in told["metric"]


def test_incomplete_configurations_are_left_out_and_counted(tmp_path: Path) -> None:
    series = measured(3, 40, 5)
    series["times_s"][7][1] = None
    series["times_s"][9][0] = None
    told = drawn(tmp_path, series)
    assert "1 without a time there skipped" in told["times"]
    assert "2 without a time on every device skipped" in told["metric"]


def test_what_there_is_nothing_to_see_of_is_not_drawn(tmp_path: Path) -> None:
    series = measured(2, 10)
    series["times_s"] = [[1e-5, None] for _ in range(10)]
    assert set(drawn(tmp_path, series)) == {"times"}
    series["times_s"] = [[None, 1e-5] for _ in range(10)]
    assert drawn(tmp_path, series) == {}
    assert drawn(tmp_path, {**series, "configurations": [], "hosts": [], "times_s": []}) == {}
    assert layer_pictures(DOCUMENT, {}, tmp_path) == []


@pytest.mark.parametrize("choice", [None, "unknown"])
def test_a_layer_without_a_choice_is_drawn_without_its_mark(tmp_path: Path, choice: str | None) -> None:
    told = drawn(tmp_path, {**measured(2, 10), "chosen": choice})
    assert "; no choice." in told["times"]
    assert "no choice is among them." in told["metric"]
    assert "chosen:" not in told["times"]


def test_a_choice_without_a_time_on_the_first_device_is_told(tmp_path: Path) -> None:
    series = measured(2, 10)
    row = series["configurations"].index(series["chosen"])
    series["times_s"][row][0] = None
    told = drawn(tmp_path, series)
    assert "the choice has no time there" in told["times"]


def test_names_can_neither_leave_the_folder_nor_break_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    series = measured(3, 12)
    series.update(
        devices=[HOSTILE, "../x", "$y$"], hosts=[HOSTILE] * 12, configurations=[f"{HOSTILE}{k}" for k in range(12)]
    )
    series["chosen"] = series["configurations"][0]
    made = layer_pictures(DOCUMENT, {f"../../{HOSTILE}": series, "..": series}, folder, ("svg",))
    network = [{**row, "device": f"{HOSTILE}{row['device']}"} for row in analyze()["network"]]
    network_picture(analyze(network=network), folder / "network.svg")
    for path in [*map(Path, made), folder / "network.svg"]:
        assert path.parent == folder
        assert all(word.isprintable() for word in words_in(path))
    assert len(made) == 4
    assert list(tmp_path.iterdir()) == [folder]


def test_layers_with_like_names_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.report.render.write", lambda spec, paths: None)  # their names are all that is looked at
    names = ("a/b", "a:b", "A?b", "a_b")
    made = layer_pictures(DOCUMENT, {name: measured(2, 3) for name in names}, tmp_path, ("svg",))
    assert len({path.lower() for path in made}) == 2 * len(names)


def test_the_best_time_of_the_document_counts_too() -> None:
    series = {**measured(1, 2), "times_s": [[2.0], [4.0]]}
    layer = chosen("conv", 1, 1.0, {"device0": 2.0}, {"device0": 1.0})
    assert series_of("conv", series, layer).relative[:, 0].tolist() == [2.0, 4.0]
    assert series_of("conv", series, None).relative[:, 0].tolist() == [1.0, 2.0]


TIMES = st.lists(st.lists(st.none() | st.floats(1e-6, 1.0), min_size=3, max_size=3), min_size=1, max_size=12)


@given(TIMES)
def test_orders_are_those_of_brute_force(times: list[list[float | None]]) -> None:
    names = [str(k) for k in range(len(times))]
    found = {
        "configurations": names,
        "hosts": names,
        "devices": ["a", "b", "c"],
        "times_s": times,
        "chosen": "0",
        "spread": None,
    }
    series = series_of("conv", found, None)
    first = [row[0] for row in times]
    assert [first[k] for k in series.by_time()] == sorted(time for time in first if time is not None)
    best = [min((time for row in times if (time := row[k]) is not None), default=1.0) for k in range(3)]
    complete = [k for k, row in enumerate(times) if None not in row]
    metric = {k: sum((times[k][i] or 0.0) / best[i] - 1 for i in range(3)) for k in complete}
    assert sorted(series.by_metric()) == complete
    ordered = [metric[int(k)] for k in series.by_metric()]
    assert ordered == pytest.approx(sorted(ordered), abs=1e-9)


@given(st.integers(1, 20_000), st.integers(1, 60), st.booleans(), st.integers(1, 30))
def test_stretches_cover_every_rank_once(count: int, most: int, logarithmic: bool, least: int) -> None:
    bins = bins_of(count, most, logarithmic=logarithmic, least=least)
    assert bins.edges[0] == 0
    assert bins.edges[-1] == count
    widths = np.diff(bins.edges)
    assert len(widths) <= most
    assert widths.min() >= min(least, count)
    assert len(bins.places) == len(widths)
    assert ((bins.places > bins.edges[:-1]) & (bins.places <= bins.edges[1:])).all()


def test_the_network_is_relative_to_each_devices_own_best(tmp_path: Path) -> None:
    rows = {row.device: row for row in rows_of(analyze())}
    assert rows["phone"].of("overlay") == pytest.approx(1.02)
    assert rows["phone"].of("own") == 1
    assert rows["phone"].failed == ("another device's best",)
    network_picture(analyze(), tmp_path / "n.svg")
    words = words_in(tmp_path / "n.svg")
    told = " ".join(words)
    assert "The whole network with the overlay's choice takes 5.4 % longer than each device's own" in told
    assert "untuned it takes 18.6 to 19.0 times as long." in told
    assert {"phone, 600 us", "tablet, 450 us", "failed: another device's best", "95 % interval"} <= set(words)
    assert "untuned (own scale)" in words


def test_the_network_is_drawn_by_its_paired_ratios() -> None:
    rows = proved("a", {"overlay": 1.2e-3, "own:a": 1e-3}, 0.3)
    rows[0]["to_own"] = {"ratio": 1.1, "low": 1.05, "high": 1.15}
    (row,) = rows_of(analyze(network=rows))
    assert set(row.dots) == {("overlay", 1.1, 1.05, 1.15), ("own", 1.0, None, None)}


def test_untuned_that_is_near_shares_the_scale(tmp_path: Path) -> None:
    rows = proved("a", {"overlay": 1.1e-3, "own:a": 1e-3, "untuned": 1.2e-3}, None)
    network_picture(analyze(network=rows), tmp_path / "n.svg")
    words = words_in(tmp_path / "n.svg")
    assert "untuned (own scale)" not in words
    assert "untuned" in words
    assert "95 % interval" not in words


def test_a_device_without_its_own_best_is_relative_to_its_fastest(tmp_path: Path) -> None:
    rows = [*proved("a", {"overlay": 2e-3, "own:b": 1e-3}), *proved("b", {"untuned": 1e-3})]
    rows += proved("c", {"overlay": None})
    found = {row.device: row for row in rows_of(analyze(network=rows))}
    assert found["a"].of("overlay") == 2
    assert not found["a"].own
    network_picture(analyze(network=rows), tmp_path / "n.svg")
    words = words_in(tmp_path / "n.svg")
    assert "a, fastest 1.00 ms" in words
    assert "failed: the overlay's choice" in words
    assert "no own best beside the overlay's choice" in " ".join(words)


@pytest.mark.parametrize("count", [1, 9, 121])
def test_any_number_of_devices_is_drawn(tmp_path: Path, count: int) -> None:
    times = [{f"own:d{k}": 1e-3, "overlay": None if k == 7 else 1e-3 * (1 + k / 1000)} for k in range(count)]
    rows = [row for k in range(count) for row in proved(f"d{k}", times[k])]
    network_picture(analyze(network=rows), tmp_path / "n.svg")
    words = words_in(tmp_path / "n.svg")
    assert ("d0, 1.00 ms" in words) == (count <= 120)
    assert ("; 1 measurement failed." in " ".join(words)) == (count > 120)
    if count > 6:
        assert rows_of(analyze(network=rows))[1].device == f"d{count - 1}"  # the first one failed


def test_another_suffix_or_kind_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"n\.gif is not a picture"):
        network_picture(analyze(), tmp_path / "n.gif")
    with pytest.raises(UsageError, match="unknown kind gif"):
        layer_pictures(DOCUMENT, {"conv": measured(2, 3)}, tmp_path / "a", ("svg", "gif"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows", [[], proved("a", {"overlay": None})])
def test_a_network_that_was_not_measured_is_no_picture(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    with pytest.raises(UsageError, match="measured on no device"):
        network_picture(analyze(network=rows), tmp_path / "n.svg")


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        layer_pictures(DOCUMENT, {"conv": measured(2, 3)}, tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be written"):
        network_picture(analyze(), tmp_path / "none" / "n.svg")


def test_without_vl_convert_it_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(RuntimeMissingError) as caught:
        layer_pictures(DOCUMENT, {"conv": measured(2, 3)}, tmp_path)
    assert "vl-convert-python>=1.9,<2" in str(caught.value.hint)
    with pytest.raises(RuntimeMissingError):
        network_picture(analyze(), tmp_path / "n.svg")


def test_there_is_no_picture_of_one_dot(tmp_path: Path) -> None:
    one = {**measured(2, 1), "chosen": "0" * 16}
    assert layer_pictures(DOCUMENT, {"conv": one}, tmp_path) == []
    lone = measured(2, 2)
    lone["times_s"][1] = [None, lone["times_s"][1][1]]
    assert not [path for path in layer_pictures(DOCUMENT, {"conv": lone}, tmp_path) if "metric" in path]
