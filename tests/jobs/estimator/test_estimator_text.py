"""The reports of estimators, from their documents alone."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.report.tuning_kit import words_of

from gnomon.jobs.documents import read_document
from gnomon.jobs.estimator import report as estimator_text
from gnomon.jobs.table.document import NetPart, NetsDocument
from gnomon.report.conditions import ConditionsPart, measured_with, table_conditions
from gnomon.report.page import Page

SCORES = {
    "nets": 20,
    "within_10": 0.985,
    "within_5": 0.8,
    "mean_error": 0.0214,
    "median_error": 0.018,
    "spearman": 0.9654,
    "coverage": 0.88,
    "nominal": 0.9,
    "half_width": 0.041,
}
CEILING = {"within_10": 1.0, "within_5": 0.97, "mean_error": 0.006, "spearman": 0.999}


def printed(report: str, document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    getattr(estimator_text, report)(read_document(document), Page())
    return capsys.readouterr().out


def evaluated(how: str, ceiling: dict[str, float] | None) -> dict[str, Any]:
    return {"how": how, "scores": SCORES, "ceiling": ceiling, "nets": [], "units": [], "curve": []}


def fitted(**changes: Any) -> dict[str, Any]:
    made = {
        "format": "gnomon-estimator-fit",
        "version": 1,
        "noise": None,
        "pictures": [],
        "space": "mine",
        "samples": 20,
        "units": 89,
        "priced": 87,
        "sum_over_measured": 1.1,
        "context": {"runtime": "onnxruntime", "device": {"machine": "aarch64", "soc": None}},
        "unknown": [],
        "evaluation": evaluated("20 nets in 10 folds", CEILING),
        "file": "e.json",
    }
    return {**made, **changes}


def test_scores_stand_beside_the_ceiling(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("estimator_report", fitted(), capsys).splitlines()
    assert lines[0] == "An estimator of mine, from 20 nets and prices of 87 of 89 units."
    rows = {" ".join(line.split()) for line in lines}
    assert "mean error 2.1 % 0.6 %" in rows
    assert "rank (Spearman) 0.965 0.999" in rows
    assert "in the 90 % interval 88 % -" in rows


def test_without_intervals_no_ceiling_is_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed("estimator_report", fitted(evaluation=evaluated("x", None)), capsys)
    assert "the noise limit is unknown" in text
    assert "noise limit\n" not in text and "mean error 2.1 % median" not in text
    assert " ".join(text.split()).count("mean error 2.1 %") == 1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"samples": 1, "evaluation": None}, "from 1 net and prices of 87 of 89 units"),
        ({"samples": 0, "evaluation": None}, "Without measured nets, it predicts the table's sum."),
        ({"samples": 0, "suggest": "gnomon estimator suggest --table t"}, "gnomon estimator suggest --table t"),
        ({"complaints": ["Line 3 is 900 times apart from all others"]}, "- Line 3 is 900 times apart from all others"),
        ({"priced": 0}, "from 20 nets and no table."),
        ({"sum_over_measured": 3.21}, "The table's sums are 3.21 times the measured times."),
        (
            {"sum_over_measured": 0.3},
            "The table was measured with onnxruntime on aarch64. If the nets were measured elsewhere",
        ),
        ({"sum_over_measured": 0.3, "context": {}}, "with an unknown runtime on an unknown device"),
        ({"unknown": ["a", "b", "c", "d"]}, "There are no data about 4 units, such as a, b, c."),
        ({"pictures": ["p.svg"]}, "p.svg"),
    ],
)
def test_what_the_user_must_know(capsys: pytest.CaptureFixture[str], changes: dict[str, Any], told: str) -> None:
    assert told in " ".join(printed("estimator_report", fitted(**changes), capsys).split())


@pytest.mark.parametrize("ratio", [None, 1.9])
def test_a_table_that_is_a_little_off_is_not_suspect(capsys: pytest.CaptureFixture[str], ratio: float | None) -> None:
    assert "times the measured times" not in printed("estimator_report", fitted(sum_over_measured=ratio), capsys)


def test_an_evaluation_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"format": "gnomon-estimator-evaluation", "version": 1, "space": "mine", "file": "e.json"}
    document |= {"evaluation": fitted()["evaluation"], "pictures": []}
    assert printed("estimator_report", document, capsys).startswith("The estimator e.json of mine.")


def test_measured_nets_with_failures_and_what_was_unlike(capsys: pytest.CaptureFixture[str]) -> None:
    document = {
        "format": "gnomon-nets",
        "version": 1,
        "seconds": 1.0,
        "clock": "cpu",
        "nets": [
            {"latency_s": latency_s, "low_s": None, "high_s": None, "reference_s": None}
            for latency_s in (2e-3, None, 1e-3)
        ],
        "failures": [{"net": 1, "reason": "it crashed"}],
        "unlike": ["version: 1 and 2"],
        "doubts": [{"kind": "load", "message": "others were busy", "hint": "stop them"}],
        "file": "m.csv",
    }
    text = printed("measured_report", document, capsys)
    assert "2 of 3 nets measured by CPU time: 1.00 ms to 2.00 ms." in text
    for told in (
        "net 2 failed: it crashed",
        "Differences from the table's conditions",
        "version: 1 and 2",
        "stop them",
    ):
        assert told in text


def test_what_times_of_a_table_hold_for_is_said_as_far_as_it_is_known() -> None:
    device = {"cpu_model": "Cortex-A72", "machine": "aarch64"}
    context = {
        "device": device,
        "configuration": "ort",
        "version": "1.2",
        "options": {"threads": 2},
        "dtype": "float32",
    }
    began_s = time.mktime((2026, 1, 2, 12, 0, 0, 0, 0, -1))
    told = measured_with(context, table_conditions(context, began_s), "cpu")
    assert told == "ort 1.2 on Cortex-A72: 2 threads, float32, 2026-01-02, by CPU time."
    assert measured_with({"options": {"threads": "x"}}) == "an unknown runtime on an unknown device."


def test_measured_nets_say_what_they_hold_for() -> None:
    net = NetPart(latency_s=1e-3, low_s=0.9e-3, high_s=1.1e-3, reference_s=1e-3)
    found = NetsDocument(
        clock="cpu",
        nets=(net,),
        failures=(),
        unlike=(),
        doubts=(),
        seconds=1.0,
        context={"configuration": "ort"},
        conditions=ConditionsPart(threads=(1,), machine="Xeon", date="2026-01-02"),
    )
    assert "Measured with ort on Xeon: 1 thread, 2026-01-02." in words_of(estimator_text.measured_report, found)
