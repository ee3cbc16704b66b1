"""The picture: well-formed, told apart by hatches as well as colours, the same bytes each time, any size of model."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.placement_kit import HOSTILE, placement
from tests.report.picture_kit import needs_drawing, words_in, words_of

from gnomon.api import pictures
from gnomon.jobs.documents import read_document
from gnomon.jobs.place.document import PlaceDocument
from gnomon.jobs.place.picture import Bar, bars_of, placement_charts, segments
from gnomon.report.svg import picture


def document(**how: Any) -> dict[str, Any]:
    return placement(**how).document()


def bars(found: dict[str, Any]) -> list[Bar]:
    return bars_of(read_document(found))


def words(found: dict[str, Any]) -> list[str]:
    return words_of(placement_charts(read_document(found)))


def draw(found: dict[str, Any], folder: Path, tell: Callable[[str], None]) -> list[str]:
    return pictures.draw(PlaceDocument.charts_by, read_document(found), folder / "plan", tell)


def drawn(found: dict[str, Any], folder: Path) -> tuple[str, bytes]:
    needs_drawing()
    told: list[str] = []
    paths = draw(found, folder, told.append)
    assert told == []
    assert [Path(path).name for path in paths] == ["plan.svg", "plan.png"]
    return (folder / "plan.svg").read_text(encoding="utf-8"), (folder / "plan.png").read_bytes()


def test_the_svg_is_well_formed_with_text_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first = drawn(document(), tmp_path)
    assert {"> onert: plan", "ruy: 2 operators, 34.0 us", "unattributed time"} <= set(words_in(tmp_path / "plan.svg"))
    assert first[1].startswith(b"\x89PNG")
    assert drawn(document(), tmp_path / "again") == first


def test_backends_are_told_apart_by_hatches_too() -> None:
    cpu, ruy, *_ = placement_charts(placement())[0].groups
    assert (cpu.kind, ruy.kind) == ("bars", "bars") and cpu.look.hatch != ruy.look.hatch


def test_names_of_any_script_are_shown_and_hostile_ones_not_obeyed(tmp_path: Path) -> None:
    found = document()
    found["model"]["path"] = "\u6a21\u578b.circle"
    for contender in found["contenders"]:
        contender["label"] += HOSTILE + "$x_1$ <b>&"
    for key in ("chosen", "best_single"):
        found["decision"][key] += HOSTILE + "$x_1$ <b>&"
    text, _ = drawn(found, tmp_path)
    assert words_in(tmp_path / "plan.svg")
    assert "\x1b" not in text and "\u202e" not in text
    assert "\u6a21\u578b.circle" in picture(placement_charts(read_document(found)))


def many(count: int) -> dict[str, Any]:
    found = document()
    dice = random.Random(1)
    for contender in found["contenders"]:
        contender["assignment"] = [dice.choice(["cpu", "ruy", "a" * 80]) for _ in range(count)]
        contender["operators_s"] = [dice.random() ** 4 * 400e-6 / count for _ in range(count)]
    return found


@pytest.mark.parametrize("count", [1, 5, 2000])
def test_models_of_any_size_are_drawn(count: int, tmp_path: Path) -> None:
    text, _ = drawn(many(count), tmp_path)
    assert len(text) < 1_500_000


def test_rows_keep_the_time_whatever_is_merged() -> None:
    for row, contender in zip(bars(many(2000)), ["onert:cpu", "onert:ruy (+cpu for 1 of 4)"], strict=False):
        source = next(c for c in many(2000)["contenders"] if c["label"] == contender)
        assert row.label == contender
        assert row.operators_s == pytest.approx(sum(source["operators_s"]))
        assert sum(len(s.operators) for s in row.segments) == 2000
        assert sum(n for n, _ in row.totals.values()) == 2000


@pytest.mark.parametrize("clock", ["cpu", "wall"])
def test_rows_are_of_what_ran_the_best_single_first_and_end_with_unattributed_time(clock: str) -> None:
    found = document(clock=clock)
    contenders = {c["label"]: c for c in found["contenders"]}
    rows = bars(found)
    assert [row.label for row in rows] == ["onert:cpu", "onert:ruy (+cpu for 1 of 4)", "onert: plan"]
    for row in rows:
        assert row.rest_s == contenders[row.label]["unattributed_s"] == found["unattributed_s"][row.label]
        assert row.whole_s == pytest.approx(contenders[row.label]["level_s"])


def test_scaled_operators_and_kernels_of_no_operator_are_said() -> None:
    found = document()
    scaled = "Times of operators are traced, and scaled down if the profiler itself takes time."
    assert not any(row.scaled for row in bars(found))
    assert not {scaled, "kernels without an operator"} & set(words(found))
    found["contenders"][2]["profiler_overhead_s"] = 50e-6
    kernel = {"name": "Reorder r", "operators": [], "backend": "cpu", "time_s": 20e-6}
    found["contenders"][0]["kernels"] = [kernel]
    assert bars(found)[2].scaled and bars(found)[0].own_s == 20e-6
    assert {scaled, "kernels without an operator"} <= set(words(found))


def test_what_reports_no_operators_and_a_converted_model_are_drawn_whole() -> None:
    found = document()
    single, converted = found["contenders"][:2]
    whole = {"name": "whole graph", "operators": [0, 1, 2, 3], "backend": "cpu"}
    single["kernels"] = [{**whole, "time_s": single["level_s"] - single["unattributed_s"]}]
    single["operators_s"] = [None] * 4
    converted |= {"assignment": [], "operators_s": []}
    first, second, _ = bars(found)
    assert [s.backend for s in first.segments] == ["cpu"]
    assert (first.own_s, first.totals) == (0, {"cpu": (4, first.operators_s)})
    assert [s.backend for s in second.segments] == converted["configurations"]
    assert [row.whole_s for row in (first, second)] == pytest.approx([single["level_s"], converted["level_s"]])


def test_small_operators_are_drawn_together_on_the_backend_of_most_of_their_time() -> None:
    made = segments(["a", "b", "a", "b"], [1.0, 0.001, 0.002, 1.0], 0.01)
    assert [(s.backend, s.operators) for s in made] == [("a", (0,)), ("b", (1, 2, 3))]
    assert [(s.backend, s.operators) for s in segments(["a", "b"], [0.0, 0.0], 0.01)] == [("a", (0, 1))]
    assert [s.operators for s in segments(["a", "b"], [1.0, 0.0], 0.01)] == [(0, 1)]
    dice = random.Random(2)
    assignment = [dice.choice("aaab") for _ in range(4000)]
    times_s = [dice.random() for _ in assignment]
    every = list(segments(assignment, times_s, 0.002 * sum(times_s)))
    assert 3 <= len({s.backend for s in every}) + len(every) < 600
    assert sum(s.time_s for s in every) == pytest.approx(sum(times_s))
    assert [i for s in every for i in s.operators] == list(range(4000))


def test_no_room_for_the_picture_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "taken").touch()
    assert draw(document(), tmp_path / "taken", told.append) == []
    assert len(told) == 1
    assert "cannot be written" in told[0]


def test_without_vl_convert_there_is_svg_and_the_way_to_png_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    told: list[str] = []
    assert draw(document(), tmp_path, told.append) == [str(tmp_path / "plan.svg")]
    line = f"{sys.executable} -m pip install 'vl-convert-python<2,>=1.9'"
    (sentence,) = told
    assert sentence.startswith("a .png file needs vl-convert-python, which cannot be loaded: ")
    assert sentence.endswith(f". Install it with: {line}")
