"""The reports of `gnomon space`: golden texts, any width, what is missing, and names that want to steer a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.jobs.space.kits.space_kit import HOSTILE, front, hostile, network, profile, published, selection
from tests.report.tuning_kit import Report, text_of, words_of

from gnomon.jobs.space.report import (
    front_report,
    primitives_report,
    profile_report,
    selection_report,
    toolchains_report,
)
from gnomon.report.parts import networks, part
from gnomon.report.plain import listed

DATA = Path(__file__).parents[2] / "report" / "data"
REPORTS: dict[str, tuple[Report, dict[str, Any]]] = {
    "profile": (profile_report, profile()),
    "selection": (selection_report, selection()),
    "published": (selection_report, published()),
    "front": (front_report, front()),
    "predicted-front": (front_report, front(measured=False)),
}


def quantised(**changes: Any) -> dict[str, Any]:
    """A profile whose quantised toolchain is changed."""
    document = profile()
    document["latency"][1].update(changes)
    return document


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_is_the_golden_one(name: str) -> None:
    assert text_of(*REPORTS[name]) == (DATA / f"space-{name}.txt").read_text(encoding="utf-8")


NO_LOSS = {**profile()["latency"][1]["compared"], "drop": None, "worst_drop": None}
ALL_8_BIT = "All convolutions of each network read and return 8-bit values."


@pytest.mark.parametrize(
    ("report", "document", "told", "silent"),
    [
        (
            profile_report,
            profile(accuracy=None, latency=[]),
            ["No network was trained. No latency was measured.", "Accuracies are missing.", "Latencies are missing."],
            "gnomon space select",
        ),
        (
            profile_report,
            profile(latency=[]),
            ["Repeat the command that made the profile without --no-latency."],
            "--toolchain",
        ),
        (profile_report, profile(latency=[], data=""), ["gnomon space import FILE --profile-dir"], "--no-latency"),
        (profile_report, profile(data=""), ["gnomon space select"], "--epochs"),
        (
            profile_report,
            profile(notes=["no cutout"], seconds={"train": 61.0}, pictures=["d/choice.svg"]),
            ["no cutout.", "train 1 min 1 s", "picture d/choice.svg"],
            "",
        ),
        (profile_report, quantised(compared=NO_LOSS), ["The loss of accuracy from quantising was not measured."], ""),
        (profile_report, quantised(least_quantised=1.0), [ALL_8_BIT], ""),
        (profile_report, profile(), ["At least 96 % of the convolutions of each network"], ""),
        (selection_report, selection(unlike_aw_nas=[]), ["Each name means the same block in aw_nas."], ""),
    ],
)
def test_what_there_is_and_is_not_is_told(
    report: Report, document: dict[str, Any], told: list[str], silent: str
) -> None:
    words = words_of(report, document)
    assert [one for one in told if one not in words] == []
    assert not silent or silent not in words


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("name", REPORTS)
def test_lines_fit_and_no_number_is_torn_from_its_unit(name: str, width: int) -> None:
    lines = text_of(*REPORTS[name], width).splitlines()
    assert [line for line in lines if len(line) > width] == []
    assert [line for line in lines if line.strip().startswith(("%", "ms", "points"))] == []


@pytest.mark.parametrize("width", [40, 80, 120])
def test_names_cannot_steer_the_terminal(width: int) -> None:
    strange = selection(
        toolchain=HOSTILE,
        unlike_aw_nas=[HOSTILE],
        groups=[[HOSTILE]],
        meanings={HOSTILE: "\x1b[2J"},
        profile="\x07bell",
    )
    pairs: list[tuple[Report, dict[str, Any]]] = [
        (profile_report, hostile()),
        (selection_report, strange),
    ]
    for report, document in pairs:
        assert all(c == "\n" or c.isprintable() for c in text_of(report, document, width))


@pytest.mark.parametrize(("unsure", "told"), [(0, ""), (3, "Accuracies without a standard error: 3")])
def test_a_standard_error_is_made_up_only_where_none_came(unsure: int, told: str) -> None:
    document = profile()
    count = document["accuracy"]["trainings"]
    document["accuracy"].update(imported={"nets.csv": count}, noise=None, without_error=unsure)
    words = words_of(profile_report, document)
    assert ("0.5 points" in words) == bool(unsure) and told in words


def test_a_toolchain_that_measured_nothing_tells_why() -> None:
    document = profile()
    broken = {**document["latency"][0], "networks": [network("VGG", 1, 1, None, "no compiler")], "held_out": {}}
    broken["failed"] = [{"network": "VGG_1_1", "reason": "no compiler"}]
    told = words_of(profile_report, profile(latency=[broken]))
    assert "No network could be measured by ort." in told
    assert "0 of 1 networks were measured." in told
    assert "1 network failed: no compiler." in told
    assert "Latencies are missing." in told


def test_one_family_and_an_unknown_noise() -> None:
    document = profile()
    document["families"].pop("VGG")
    document["accuracy"].update(noise=None, rankings=document["accuracy"]["rankings"][1:], failed=[])
    told = words_of(profile_report, document)
    assert "1 family: Res with 2 primitives" in told
    assert "No network was trained twice" in told
    assert "mostly noise" not in told


@pytest.mark.parametrize(
    ("tau", "told"),
    [
        (0.95, "they agree closely"),
        (0.65, "they agree mostly"),
        (0.45, "the ends can be distinguished"),
        (0.25, "most of the order is noise"),
        (-0.3, "the order is noise"),
    ],
)
def test_how_far_a_ranking_repeats_itself_is_told_in_words(tau: float, told: str) -> None:
    document = profile()
    document["accuracy"]["rankings"][1]["repeatability"] = tau
    words = words_of(profile_report, document)
    assert f"Expected Kendall's tau of two such rankings: {tau:.2f}; {told}" in words
    assert ("VGG and Res is mostly noise" in words) == (tau < 0.4)


def test_long_rankings_show_the_best_the_default_and_the_worst() -> None:
    document = profile()
    ranking = document["accuracy"]["rankings"][1]
    first = ranking["networks"][0]
    ranking["networks"] = [{**first, "id": f"Res_{k}", "accuracy": 0.9 - 0.01 * k} for k in range(30)]
    ranking["networks"][20]["primitives"] = ["Resblock_1", "Resblock_1"]
    lines = text_of(profile_report, document).splitlines()
    ranks = [line.split()[0] for line in lines if " Res_" in line and line.split()[0].isdigit()]
    assert ranks == ["1", "2", "3", "4", "5", "6", "7", "8", "21", "30"]


def test_a_kept_primitive_that_is_rarer_than_a_dropped_one_is_explained() -> None:
    assert "2 of the 5 kept primitives are on the front less often than a dropped primitive" in words_of(
        selection_report, selection()
    )
    document = selection()
    for group in document["primitives"]:
        for one in group:
            one["frequency"] = 0.9 if one["stays"] else 0.1
    assert "less often" not in words_of(selection_report, document)


def test_no_line_ends_inside_of_an_item() -> None:
    document = selection(groups=[["VGGblock_0"], ["VGGblock_0"]])
    lines = text_of(selection_report, document, 40).splitlines()
    at = lines.index(" dropped: VGGblock_1 (0 %),")
    assert lines[at + 1] == " Resblock_0 (95 %), Resblock_1 (40 %)"


def test_primitives_and_toolchains_are_listed() -> None:
    rows = [{"name": "VGGblock_0", "family": "VGG", "meaning": "1x1", "digest": "0123456789abcdef99"}]
    document = {"format": "gnomon-space-primitives", "version": 1, "numbering": "aw_nas", "primitives": rows}
    told = words_of(primitives_report, document)
    assert "1 primitive in the numbering aw_nas." in told
    assert "VGGblock_0 VGG 1x1 0123456789abcdef" in told
    missing = [{"what": "no program", "hint": "install it"}]
    tools = [
        {"name": "ort", "measured_by": "onnxruntime", "missing": []},
        {"name": "compiler", "measured_by": "command", "missing": missing},
    ]
    told = words_of(toolchains_report, {"format": "gnomon-space-toolchains", "version": 1, "toolchains": tools})
    assert told.startswith("1 of 2 toolchains can be used here: ort.")
    assert "- no program. -> install it" in told


def test_counts_of_any_size() -> None:
    assert networks("130321") == "130 321"
    assert networks("12345678901234") == "1.23e13"
    assert part("5", "625") == "0.8 %"
    assert part("1", "1000000") == "0.0001 %"
    assert part("1", "9" * 5000) == "-"
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed([str(k) for k in range(9)]) == "0, 1, 2, 3, 4 and 4 more"


def test_what_was_imported_is_no_toolchain_and_no_tau_is_minus_nothing() -> None:
    document = profile()
    document["latency"] = [{**document["latency"][0], "toolchain": "imported"}]
    document["accuracy"]["rankings"][0]["repeatability"] = -0.001
    told = words_of(profile_report, document)
    assert "Networks take 1.00 to 2.80 ms as imported." in told
    assert "Expected Kendall's tau of two such rankings: 0.00;" in told and "-0.00" not in told
