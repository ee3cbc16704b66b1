"""The terminal reports of `place` and `profile`: a golden text, any width, and no control character of names."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from tests.cli.placement_kit import placement, profiled

from gnomon.jobs.documents import read_document
from gnomon.jobs.html.views import cell_parts
from gnomon.jobs.place.decide import _weighed
from gnomon.jobs.place.report import place_report, profile_report
from gnomon.jobs.place.shared_report import first_warnings
from gnomon.measure.environment import Caveat
from gnomon.models.check import CURE
from gnomon.report.page import Page

GOLDEN = Path(__file__).parents[2] / "report" / "data" / "place.txt"


def text(found: dict[str, Any], width: int = 100) -> str:
    file = io.StringIO()
    report = place_report if found["format"] == "gnomon-place" else profile_report
    report(read_document(found), Page(file, width=width))
    return file.getvalue()


def flat(found: dict[str, Any], width: int = 120) -> str:
    """The report in one line."""
    return " ".join(text(found, width).split())


def document(**how: Any) -> dict[str, Any]:
    return placement(**how).document()


def profile() -> dict[str, Any]:
    return profiled().document()


def rows_with(report: str, word: str) -> list[list[str]]:
    """The cells of the table rows that hold a word."""
    return [line.split() for line in report.splitlines() if word in line]


def test_the_report_is_the_golden_one_and_begins_with_the_answer() -> None:
    assert text(document(), 80) == GOLDEN.read_text(encoding="utf-8")
    assert text(document(mixed=False)).startswith("Use onert:cpu: it alone is the fastest.\n")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("clock", ["cpu", "wall"])
def test_names_cannot_steer_the_terminal_and_lines_fit(width: int, clock: str) -> None:
    for report in (text(document(clock=clock), width), text(profile(), width)):
        assert all(c == "\n" or c.isprintable() for c in report)
        long = [line for line in report.splitlines() if len(line) > width and not line.startswith("  run it")]
        assert not long or width < 80


def test_a_package_that_failed_is_not_recommended() -> None:
    crash = {"stage": "load", "kind": "crash", "message": "ended by SIGSEGV", "log_tail": "", "transient": False}
    found = document()
    found["verified"] |= {"ok": False, "difference": None, "failure": crash}
    assert "It failed: crash at load: ended by SIGSEGV -> Do not deploy it" in flat(found)


@pytest.mark.parametrize(
    ("verified", "done"),
    [({}, "proved"), ({"ok": False, "skipped": True}, "not run"), ({"ok": False, "moved": [2]}, "not proved")],
)
def test_a_package_that_is_not_kept_is_told_as_it_was_done_with(verified: dict[str, Any], done: str) -> None:
    found = document()
    found |= {"package": None, "verified": found["verified"] | verified}
    assert f"The package was {done} and, because of --no-package, not kept." in text(found)


def test_operators_that_moved_are_named() -> None:
    found = document()
    found["verified"]["moved"] = [2, 3]
    assert "2 of 4 operators ran where planned" in text(found)
    assert "Ran elsewhere: operators 2-3." in text(found)


def test_unknown_intervals_and_empty_parts_are_said() -> None:
    found = document()
    for contender in found["contenders"]:
        for key in ("measured", "cpu"):
            if contender[key]:
                contender[key] |= {"low_s": None, "high_s": None}
        contender |= {"unattributed_s": None}
    found |= {"missing": [], "doubts": [], "solutions": {}}
    assert "[not known]" in text(found)
    assert "Warnings" not in text(found) and "Skipped" not in text(found)


def test_times_below_the_profilers_resolution_are_not_told_closer() -> None:
    found = profile()
    assert "(no operator)" in text(found)
    column = found["columns"][0]
    column["kernels"] = [
        {"name": name, "operators": [], "backend": "cpu", "time_s": time_s}
        for name, time_s in (("Long", 2e-6), ("Short", 0.55e-6), ("None", 0.0))
    ]
    found["resolutions_s"] = {column["label"]: 1e-6}
    report = text(found, 120)
    assert "2.00 us" in report and "550 ns" not in report
    assert [" ".join(row[1:5]) for row in rows_with(report, "(resolution)")] == ["< 1 us (resolution)"] * 2
    found = document()
    name = next(iter(found["operators"][0]["times_s"]))
    found["operators"][0]["times_s"][name] = 0.2e-6
    assert "(resolution)" not in text(found, 120)
    assert "< 1 us (resolution)" in text(found | {"resolutions_s": {name: 1e-6}}, 120)


def test_kernels_of_no_operator_are_rows_of_their_own() -> None:
    found = document(mixed=False)
    kernel = {"name": "Reorder r", "operators": [], "backend": "cpu", "time_s": 50e-6}
    for row in found["operators"]:
        row["times_s"] = {"onert:cpu": row["times_s"]["cpu"], "other": None}
    found["contenders"][0] |= {"kernels": [kernel], "assignment": ["onert:cpu"] * 4}
    assert rows_with(text(found), "Reorder r") == [["Reorder", "r", "(no", "operator)", "-", "50.0", "us", "-"]]
    assert "The 5 most expensive operators and kernels" in text(found)


def test_what_reports_no_operators_has_no_times_of_them() -> None:
    found = document(mixed=False)
    kernel = {"name": "whole graph", "operators": [0, 1, 2, 3], "backend": "reference", "time_s": 50e-6}
    for row in found["operators"]:
        row["times_s"] = {"onert:cpu": None, "other": row["times_s"]["cpu"]}
    found["contenders"][0] |= {"kernels": [kernel], "assignment": ["onert:cpu"] * 4}
    assert "No times of operators are reported by onert:cpu." in text(found)
    assert "whole graph" not in text(found)
    found["contenders"][0]["operators_s"] = [None] * 4
    assert "most expensive" not in text(found)


def test_no_share_of_the_whole_is_told_of_a_choice_that_was_not_profiled() -> None:
    found = document()
    assert " of the whole (" in flat(found)
    chosen = next(c for c in found["contenders"] if c["label"] == found["decision"]["chosen"])
    chosen["operators_s"], chosen["kernels"] = [None] * len(chosen["operators_s"]), []
    assert "most expensive" in flat(found) and " of the whole (" not in flat(found)


def test_an_accelerator_is_the_told_reason_for_the_clock() -> None:
    why = "wall time decides, because gpu computes beside the processor"
    found = document(clock="wall")
    assert why not in flat(found)
    found["contenders"][0]["accelerators"] = [{"backend": "gpu", "name": "Card", "software": False}]
    assert why in flat(found)


def test_what_is_computed_with_another_operator_has_no_time_of_its_own() -> None:
    found = document()
    found["operators"][1]["times_s"]["ruy"] = None
    found["operators"][1]["within"] = {"ruy": 0}
    assert rows_with(text(found), "1 pool")[0][-2:] == ["with", "0"]
    assert "with 3: computed in one kernel with operator 3" in flat(found)


def test_time_beyond_the_call_is_overhead_and_never_negative() -> None:
    found = document()
    found["contenders"][1] |= {"unattributed_s": 0.0, "profiler_overhead_s": 6e-6}
    table = cell_parts(found, 9)[1]
    assert table
    at = [column.title for column in table.columns].index("unattributed")
    assert [row[at : at + 2] for row in table.rows] == [("6.47 us", "-"), ("5.47 us", "-"), ("0 s", "6.00 us")]


def test_a_profile_names_the_winner_with_its_interval_unless_columns_tie() -> None:
    found = profile()
    won = "onert:cpu is fastest: 220 us of CPU time, 1.64 times as fast as onert:ruy [1.63, 1.64]."
    assert flat(found).startswith(won)
    slow = next(c for c in found["columns"] if c["against_fastest"])
    slow["cpu"] |= {"median_s": 226e-6}
    slow["against_fastest"] |= {"ratio": 1.03, "low": 0.97, "high": 1.09, "verdict": "tie"}
    tie = "No clear winner by CPU time: onert:cpu (220 us) and onert:ruy (226 us) are within the noise, ratio 1.03"
    assert flat(found).startswith(f"{tie} [0.970, 1.09].")
    assert "3 processes, 60 samples each." in flat(found)
    sure = "-> To decide: --processes 10"
    assert f"Undecided: whether onert:cpu is faster than onert:ruy. {sure}" in flat(found)
    slow["against_fastest"] |= {"low": 0.995, "high": 1.015, "ratio": 1.005}
    assert "Undecided" not in flat(found)  # they are equally fast, within 1.5 %
    slow["against_fastest"] |= {"low": None, "high": None, "ratio": 4.0}
    few = "Too few processes for a certain winner: onert:cpu takes 220 us of CPU time, onert:ruy 4.00"
    assert flat(found).startswith(few)
    # One process bounds nothing, and what takes four times as long is no tie.
    assert "4.00 undecided" in flat(found) and "tie" not in flat(found)
    assert f"Undecided: how much faster onert:cpu is than onert:ruy. {sure}" in flat(found)
    found["columns"].remove(slow)
    assert flat(found).startswith("onert:cpu takes 220 us of CPU time; nothing else was compared.")


def test_the_report_says_how_to_get_certainty_where_a_tie_is_open() -> None:
    found = document()
    assert "Undecided" not in flat(found)
    slow = next(c for c in found["contenders"] if c["label"].startswith("onert:ruy"))
    slow["against_best"] |= {"ratio": 1.02, "low": 0.94, "high": 1.1, "verdict": "tie"}
    assert "Undecided: whether onert:cpu is faster than onert:ruy" in flat(found)
    assert "-> To decide: --processes 10, or a quieter machine." in flat(found)
    slow["against_best"] |= {"ratio": 2.27, "low": None, "high": None}
    assert "2.27 undecided" in flat(found)
    assert "Undecided: how much faster onert:cpu is than onert:ruy" in flat(found)


def test_warnings_about_the_answer_stand_in_its_first_lines() -> None:
    found = document()
    warning = {"kind": "clocks-disagree", "message": "wall time names another winner", "hint": "Use --pin."}
    found["doubts"] = [*found["doubts"], warning]
    lines = text(found, 80).splitlines()
    assert lines[3:5] == [" - Warning: wall time names another winner.", "   -> Use --pin."]
    assert sum("names another winner" in line for line in lines) == 1
    assert "Warnings" in lines


def test_a_warning_that_another_repeats_is_left_out() -> None:
    busy = "other processes used 45% of the machine"
    first = Caveat(kind="threads-undecided", message=f"it is undecided whether two is faster, as {busy}", hint="Wait.")
    file = io.StringIO()
    first_warnings((first, Caveat(kind="busy", message=busy, hint="Wait.")), Page(file, width=200, brief=True))
    assert file.getvalue().count(busy) == 1


def test_a_reason_that_several_have_is_told_once() -> None:
    rows = [
        {"name": name, "reason": reason, "hint": ""}
        for name, reason in (("a", "no"), ("b[f16, C=1]", "no"), ("c", "so"))
    ]
    page = flat(document() | {"missing": rows})
    assert "Skipped - a; b[f16, C=1]: no - c: so" in page


def test_nothing_is_said_to_be_unmixed_beside_a_mix() -> None:
    found = document() | {"why_not_mixed": "the graph has no place that is narrow enough for a cut"}
    assert any(contender["kind"] != "single" for contender in found["contenders"])
    assert "Not mixed" not in flat(found)
    found["contenders"] = [contender for contender in found["contenders"] if contender["kind"] == "single"]
    found["decision"] |= {"chosen": found["decision"]["best_single"], "kind": "single"}
    assert "Not mixed: the graph has no place that is narrow" in flat(found)


def test_a_package_for_another_device_is_to_be_deployed_there() -> None:
    assert "gnomon deploy" not in flat(document())
    found = document() | {"device": "board"}
    assert f"gnomon deploy {found['package']} board" in flat(found)


def test_a_brief_report_is_short() -> None:
    """At most 3 warnings, 6 rows, 2 tips; what is left out is counted."""
    found = document()
    kinds = ["busy", "clocks-disagree", *["hot"] * 3, "stopped"]
    found["doubts"] = [{"kind": kind, "message": f"warning {k}", "hint": "h"} for k, kind in enumerate(kinds)]
    found["doubts"] += [{"kind": "precision", "message": f"tip {k}", "hint": "h"} for k in range(4)]
    slow = next(c for c in found["contenders"] if c["label"].startswith("onert:ruy"))
    found["contenders"] += [{**slow, "label": f"more {k}", "level_s": 1.0 + k} for k in range(8)]
    found["decision"]["default"] = {"label": "more 7", "gain": None}
    file = io.StringIO()
    page = Page(file, width=100, brief=True)
    place_report(read_document(found), page)
    lines = file.getvalue().splitlines()
    assert lines[1].startswith(
        "hand\\x07.circle on local (x86_64, 2 cores): 1 thread, float32, 1x8, random inputs, 2026"
    )
    # What is about the answer itself comes first.
    assert [w for line in lines for w in line.split(".") if "warning" in w] == [
        " - Warning: warning 1", " - Warning: warning 5", " - Warning: warning 0",
    ]  # fmt: skip
    assert sum(line.startswith(" - Faster still: ") for line in lines) == 2
    rows = [line[3:].split("  ")[0] for line in lines if line.startswith((" > onert", "   onert", "   more"))]
    assert rows == ["onert: plan", "onert:cpu", "onert:ruy (+cpu for 1 of 4)", "more 0", "more 1", "more 7"]
    assert {"3 more warnings", "5 more configurations", "1 skipped"} <= set(page.omitted)


def test_what_is_faster_still_is_no_warning() -> None:
    kinds = ("precision", "subnormal-cured")
    tips = [{"kind": kind, "message": f"r[{kind}] is faster", "hint": "--try"} for kind in kinds]
    page = flat(document() | {"doubts": tips})
    assert "Faster still - r[precision] is faster. -> --try - r[subnormal-cured] is faster. -> --try" in page
    assert "Warning" not in page
    in_vain = {"kind": "precision-no-gain", "message": "r[bf16] is not faster", "hint": "--try"}
    assert "Warnings - r[bf16] is not faster." in flat(document() | {"doubts": [in_vain]})
    nothing_tried = {"kind": "subnormal", "message": "some are subnormal", "hint": "--try"}
    page = flat(document() | {"doubts": [nothing_tried]})
    assert "Warning: some are subnormal." in page and "Faster still" not in page


@pytest.mark.parametrize(("cured_s", "kind"), [(0.1, "subnormal-cured"), (0.95, "file")])
def test_what_taking_subnormal_numbers_for_zero_brings_is_said(cured_s: float, kind: str) -> None:
    levels_s = {"onnxruntime": 1.0, f"onnxruntime[{CURE}=1]": cured_s, "openvino": 0.05}
    busy, told = (Caveat(kind=kind, message="some are subnormal", hint="h") for kind in ("busy", "subnormal"))
    weighed = _weighed([busy, told], levels_s)
    assert weighed[0] is busy and weighed[1].kind == kind
    gain = "1.1" if kind == "file" else "10"
    assert weighed[1].message.endswith(f"; ONNX Runtime is {gain} times as fast if it treats them as 0")
    assert _weighed([told], {"onnxruntime": 1.0}) == (told,)
