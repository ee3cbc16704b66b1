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
from gnomon.jobs.place.document import place_document
from gnomon.jobs.place.job import Placement
from gnomon.jobs.place.picture import contenders_of, placement_charts, segments
from gnomon.report.svg import picture


def document(**how: Any) -> dict[str, Any]:
    return place_document(placement(**how))


def draw(found: dict[str, Any], folder: Path, tell: Callable[[str], None]) -> list[str]:
    return pictures.draw(Placement.charts_by, found, folder / "plan", tell)


def drawn(found: dict[str, Any], folder: Path) -> tuple[str, bytes]:
    needs_drawing()
    told: list[str] = []
    paths = draw(found, folder, told.append)
    assert told == []
    assert [Path(path).name for path in paths] == ["plan.svg", "plan.png"]
    return (folder / "plan.svg").read_text(encoding="utf-8"), (folder / "plan.png").read_bytes()


def test_the_svg_is_well_formed_with_text(tmp_path: Path) -> None:
    _, png = drawn(document(), tmp_path)
    words = words_in(tmp_path / "plan.svg")
    assert {"> onert: plan", "ruy: 2 operators, 34.0 us", "unattributed time"} <= set(words)
    assert png.startswith(b"\x89PNG")


def test_backends_are_told_apart_by_hatches_too() -> None:
    cpu, ruy, *_ = placement_charts(document())[0].groups
    assert (cpu.kind, ruy.kind) == ("bars", "bars") and cpu.look.hatch != ruy.look.hatch


def test_the_same_document_gives_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert drawn(document(), tmp_path / "a") == drawn(document(), tmp_path / "b")


def test_hostile_names_are_shown_not_obeyed(tmp_path: Path) -> None:
    found = document()
    for contender in found["contenders"]:
        contender["label"] += HOSTILE + "$x_1$ <b>&"
    for key in ("chosen", "best_single"):
        found["decision"][key] += HOSTILE + "$x_1$ <b>&"
    text, _ = drawn(found, tmp_path)
    assert words_in(tmp_path / "plan.svg")
    assert "\x1b" not in text
    assert "\u202e" not in text


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
    for row, contender in zip(contenders_of(many(2000)), ["onert:cpu", "onert:ruy (+cpu for 1 of 4)"], strict=False):
        source = next(c for c in many(2000)["contenders"] if c["label"] == contender)
        assert row.label == contender
        assert row.operators_s == pytest.approx(sum(source["operators_s"]))
        assert sum(len(s.operators) for s in row.segments) == 2000
        assert sum(n for n, _ in row.totals.values()) == 2000


def test_the_best_single_is_first_and_the_failed_one_absent() -> None:
    labels = [row.label for row in contenders_of(document())]
    assert labels == ["onert:cpu", "onert:ruy (+cpu for 1 of 4)", "onert: plan"]


@pytest.mark.parametrize("clock", ["cpu", "wall"])
def test_rows_end_with_the_documents_unattributed_time(clock: str) -> None:
    found = document(clock=clock)
    told = {c["label"]: c for c in found["contenders"]}
    for row in contenders_of(found):
        assert row.rest_s == told[row.label]["unattributed_s"] == found["unattributed_s"][row.label]
        assert row.whole_s == pytest.approx(told[row.label]["level_s"])


def test_operators_that_were_scaled_are_said() -> None:
    found = document()
    assert not any(row.scaled for row in contenders_of(found))
    found["contenders"][2]["profiler_overhead_s"] = 50e-6
    assert contenders_of(found)[2].scaled
    told = "Operators as traced, in proportion where the profiler itself takes time."
    assert told in words_of(placement_charts(found))


def test_kernels_of_no_operator_are_drawn_apart() -> None:
    found = document()
    assert "kernels of no operator" not in words_of(placement_charts(found))
    kernel = {"name": "Reorder r", "operators": [], "backend": "cpu", "time_s": 20e-6}
    found["contenders"][0]["kernels"] = [kernel]
    assert contenders_of(found)[0].own_s == 20e-6
    assert "kernels of no operator" in words_of(placement_charts(found))


def test_what_reports_no_operators_is_drawn_whole() -> None:
    found = document()
    single = found["contenders"][0]
    whole = {"name": "whole graph", "operators": [0, 1, 2, 3], "backend": "cpu"}
    single["kernels"] = [{**whole, "time_s": single["level_s"] - single["unattributed_s"]}]
    single["operators_s"] = [None] * 4
    row = contenders_of(found)[0]
    assert [s.backend for s in row.segments] == ["cpu"]
    assert row.own_s == 0
    assert row.whole_s == pytest.approx(single["level_s"])
    assert row.totals == {"cpu": (4, row.operators_s)}


def test_a_converted_model_is_drawn_whole() -> None:
    found = document()
    found["contenders"][1] |= {"assignment": [], "operators_s": []}
    row = contenders_of(found)[1]
    assert [s.backend for s in row.segments] == found["contenders"][1]["configurations"]
    assert row.whole_s == pytest.approx(found["contenders"][1]["level_s"])


def test_small_operators_are_drawn_together_on_the_backend_of_most_of_their_time() -> None:
    made = segments(["a", "b", "a", "b"], [1.0, 0.001, 0.002, 1.0], 0.01)
    assert [(s.backend, s.operators) for s in made] == [("a", (0,)), ("b", (1, 2, 3))]
    assert [(s.backend, s.operators) for s in segments(["a", "b"], [0.0, 0.0], 0.01)] == [("a", (0, 1))]
    assert [s.operators for s in segments(["a", "b"], [1.0, 0.0], 0.01)] == [(0, 1)]


def test_colours_tell_how_much_time_each_backend_has() -> None:
    dice = random.Random(2)
    assignment = [dice.choice("aaab") for _ in range(4000)]
    times_s = [dice.random() for _ in assignment]
    made = list(segments(assignment, times_s, 0.002 * sum(times_s)))
    assert 3 <= len({s.backend for s in made}) + len(made) < 600
    assert sum(s.time_s for s in made) == pytest.approx(sum(times_s))
    assert [i for s in made for i in s.operators] == list(range(4000))


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
    line = f"{sys.executable} -m pip install 'vl-convert-python>=1.9,<2'"
    assert told == [f"no PNG: vl-convert-python is not installed. Install it with: {line}"]


def test_names_in_any_script_are_drawn() -> None:
    found = document()
    found["model"]["path"] = "\u6a21\u578b.circle"
    assert "\u6a21\u578b.circle" in picture(placement_charts(found))
