"""The pictures of search spaces: what they show, without colour too, the same bytes each time, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.space.kits.space_kit import front, hostile, network, profile, published, selection
from tests.report.picture_kit import needs_drawing, words_in

from gnomon.errors import ProblemError
from gnomon.jobs.documents import read_document
from gnomon.jobs.space import picture
from gnomon.jobs.space.document import SelectionDocument, SpaceDocument
from gnomon.jobs.space.picture import Point, choice_charts, pairs_of, points_of, space_front_charts
from gnomon.jobs.space.profiling.look import read_selection
from gnomon.report.plain import SEVERAL
from gnomon.report.render import write_picture

CHOICE = read_document(selection())


@pytest.fixture(autouse=True)
def drawing() -> None:
    needs_drawing()


def draw_pictures(document: dict[str, Any], choice: SelectionDocument | None, folder: Path) -> list[str]:
    return list(picture.draw_pictures(read_document(document), choice, folder))


def points(document: dict[str, Any], choice: SelectionDocument | None = None) -> list[Point]:
    space = read_document(document)
    return points_of(space, space.latency[0], choice)


def test_there_is_one_picture_a_file(tmp_path: Path) -> None:
    made, again = (draw_pictures(profile(), CHOICE, tmp_path / name / "b") for name in ("a", "c"))
    assert [Path(path).read_bytes() for path in made] == [Path(path).read_bytes() for path in again]
    names = ["accuracy-latency.ort", "accuracy-latency.ort-int8", "choice", "quantised"]
    assert [Path(path).name for path in made] == [f"{name}{kind}" for kind in (".svg", ".png") for name in names]
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in made[len(names) :])
    told = " ".join(words_in(Path(made[0])))
    assert "7 networks" in told
    assert "latency by ort, ms" in told
    assert "Hollow: default or one-change variants; filled: mixed networks." in told
    assert "all primitives kept" in told
    assert "4 accuracies are estimated, not measured." in told
    assert "median: 0.500 times as long; 7 of 7 faster" in words_in(Path(made[3]))


def test_what_there_is_not_is_not_drawn(tmp_path: Path) -> None:
    assert draw_pictures(profile(latency=[], accuracy=None), None, tmp_path) == []
    made = draw_pictures(profile(), None, tmp_path)
    assert [Path(path).stem.partition(".")[0] for path in made] == (["accuracy-latency"] * 2 + ["quantised"]) * 2
    assert "all primitives kept" not in words_in(Path(made[0]))
    assert [Path(p).name for p in draw_pictures(profile(accuracy=None), None, tmp_path)] == [
        "quantised.svg",
        "quantised.png",
    ]


def test_a_front_is_drawn_as_predicted_and_as_measured(tmp_path: Path) -> None:
    for measured, legend in ((True, {"predicted", "measured", "the best of these"}), (False, {"predicted"})):
        write_picture(space_front_charts(read_document(front(measured=measured))), tmp_path / "front.svg")
        told = words_in(tmp_path / "front.svg")
        assert legend <= set(told) and ("measured" in told) == measured
        assert "latency by ort, ms" in told and any("4 networks that are predicted" in text for text in told)


def test_names_can_neither_leave_the_folder_nor_break_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    for path in draw_pictures(hostile(), CHOICE, folder):
        assert Path(path).parent == folder
        assert path.endswith(".png") or all(word.isprintable() for word in words_in(Path(path)))
    assert list(tmp_path.iterdir()) == [folder]


def test_two_toolchains_with_like_names_have_two_pictures(tmp_path: Path) -> None:
    document = profile()
    document["latency"][0]["toolchain"], document["latency"][1]["toolchain"] = "a/b", "a:b"
    made = [name for name in draw_pictures(document, None, tmp_path) if "accuracy" in name]
    assert len(set(made)) == 4, "each as .svg and as .png"


def test_points_know_what_they_are() -> None:
    found = {one.network.id: one for one in points(profile(), CHOICE)}
    assert "Res_1_0" not in found  # it failed
    assert found["VGG_0_0"].trained
    assert not found["VGG_0_0"].single
    assert found["VGG_0_0"].chosen
    assert found["VGG_0_1"].single
    assert not found["VGG_0_1"].trained
    assert not found["VGG_0_1"].chosen
    assert found["Res_0_1"].chosen
    front = {name for name, one in found.items() if one.front}
    brute = {
        name
        for name, one in found.items()
        if not any(
            other.latency_s <= one.latency_s and other.accuracy[0] >= one.accuracy[0] and other is not one
            for other in found.values()
        )
    }
    assert front == brute


def test_no_interval_of_an_accuracy_leaves_0_to_1() -> None:
    document = profile()
    for one, accuracy in zip(document["accuracy"]["trained"], (0.999, 0.001, 0.5), strict=True):
        one.update(accuracy=accuracy, error=0.4)
    ends = [one.accuracy for one in points(document) if one.trained]
    assert len(ends) == 3 and all(0 <= low <= high <= 1 for _, low, high in ends)


def test_networks_of_several_families_are_drawn(tmp_path: Path) -> None:
    document = profile()
    mixed = {**network("Res", 0, 0, 1.2e-3), "id": "mixed", "primitives": ["VGGblock_0", "Resblock_1"]}
    document["latency"][0]["networks"].append(mixed)
    document["accuracy"]["trained"].append({"id": "mixed", "family": "", "accuracy": 0.97, "error": 0.01})
    made = draw_pictures(document, CHOICE, tmp_path)
    words = words_in(Path(made[0]))
    assert SEVERAL in words
    assert "mixed" in " ".join(words)


def test_pairs_are_of_both_toolchains() -> None:
    document: SpaceDocument = read_document(profile())
    assert pairs_of(document, document.latency[0]) == []
    found = pairs_of(document, document.latency[1])
    assert len(found) == 7
    assert all(own.latency_s == pytest.approx(0.5 * (plain.latency_s or 0)) for own, plain in found)


def test_the_choice_shows_every_primitive_and_what_is_kept(tmp_path: Path) -> None:
    (chart,) = choice_charts(CHOICE)
    every, kept = chart.groups
    assert (len(every.marks), len(kept.marks)) == (3, 5)
    write_picture([chart], tmp_path / "c.svg")
    words = words_in(tmp_path / "c.svg")
    assert {"VGGblock_0, 1x1", "VGGblock_1, 3x3", "Resblock_0, 5x5", "Resblock_1, 7x7", "95 %", "100 %"} <= set(words)


def test_a_rule_without_frequencies_marks_what_is_kept_alone(tmp_path: Path) -> None:
    write_picture(choice_charts(read_document(published())), tmp_path / "c.svg")
    words = words_in(tmp_path / "c.svg")
    assert words.count("kept") == 1 + 3
    assert not [word for word in words if word.endswith(" %")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"groups": [1]}', r"\$\.rule.*\$\.groups"),
        (json.dumps(selection(groups=[[]])), r"\$\.groups"),
        (json.dumps(selection(primitives=[[{"name": "a", "frequency": "b"}]])), r"\$\.primitives"),
    ],
)
def test_a_damaged_selection_is_told_with_all_that_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "mixed.selection.json").write_text(text)
    with pytest.raises(ProblemError, match=told) as caught:
        read_selection(tmp_path / "mixed.yaml")
    assert "selection.json" in caught.value.message and "gnomon space select" in caught.value.hint
