"""The reports of tuning, running and looking: golden texts, any width, what is missing, names that want to steer."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.tuning_kit import TABLET, Report, failure, network, ran, summary, text_of, tune, view, words_of

from gnomon.jobs.documents import read_document
from gnomon.jobs.tune.report import (
    exec_report,
    like,
    loss,
    metric,
    outputs,
    share_of,
    target_words,
    tune_report,
    tuned_report,
    view_report,
)
from gnomon.report.plain import many

REPORTS: dict[str, tuple[Report, dict[str, Any]]] = {
    "tune": (tune_report, tune()),
    "exec": (exec_report, ran()),
    "view": (view_report, view()),
}


@pytest.mark.parametrize("name", REPORTS)
def test_huge_names_stay_short(name: str) -> None:
    report, document = REPORTS[name]
    record = read_document(document)
    long = {key: _long(getattr(record, key)) for key in ("model", "notes", "failures", "layers") if key in document}
    assert len(text_of(report, replace(record, **long))) < 20_000


def _long(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _long(getattr(value, field.name)) for field in fields(value)})
    if isinstance(value, tuple):
        return tuple(map(_long, value))
    return value * 20_000 if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "mobile on phone: 0.601 ms tuned, 11.6 ms untuned (19.3 times [18.1, 20.2] as fast), outputs equal"),
        (
            {"untuned": summary(6.1e-4), "ratio": {"ratio": 1.015, "low": 0.97, "high": 1.06}},
            "601 us tuned, 610 us untuned (1.01 times [0.970, 1.06] as fast: within the noise), outputs",
        ),
        (
            {"untuned": summary(4.8e-4), "ratio": {"ratio": 0.8, "low": 0.75, "high": 0.85}},
            "phone: tuning made it slower, 601 us tuned, 480 us untuned (1.25 times [1.18, 1.33] as long), outputs",
        ),
        ({"ratio": None}, "(19.3 times as fast, interval unknown from so few processes: raise --processes)"),
        (
            {"ratio": {"ratio": 19.3, "low": None, "high": None}},
            "(19.3 times as fast, interval unknown from so few processes: raise --processes)",
        ),
        ({"ratio": {"ratio": 12.9, "low": 0.0, "high": 90.0}}, "(12.9 times as fast, interval unknown from so few"),
        ({"untuned": None, "ratio": None}, "mobile on phone: 601 us tuned, untuned not measured, outputs equal"),
        ({"max_error": None}, "outputs not compared."),
        ({"max_error": 0.0}, "outputs equal."),
        ({"max_error": 0.31}, "but its outputs are off by up to 3.1e-01, more than rounding explains."),
        ({"failure": failure("build", "hang", "took 20 s")}, "the tuned network failed, hang at build: took 20 s."),
    ],
)
def test_the_answer_claims_no_more_than_was_measured(changes: dict[str, Any], told: str) -> None:
    assert told in words_of(tune_report, tune(network=network(**changes)))


@pytest.mark.parametrize(
    ("first_is_tuned", "verdict", "told"),
    [
        (False, "slower", "onnxruntime is the fastest; the tuned network takes 1.30 times [1.20, 1.40] as long."),
        (False, "near", "onnxruntime is among the fastest; the tuned network takes 1.30 times [1.20, 1.40] as long."),
        (False, "tie", "the difference between the tuned network and onnxruntime is within the noise."),
        (True, "slower", "the tuned network is the fastest."),
        (True, "tie", "the difference between the tuned network and onnxruntime is within the noise."),
    ],
)
def test_the_fastest_is_called_so_where_that_is_proved(first_is_tuned: bool, verdict: str, told: str) -> None:
    over = {"ratio": 1.3, "low": 1.2, "high": 1.4, "verdict": "tie" if verdict == "tie" else "slower"}
    first, second = (
        {name: summary(time_s)[name] for name in ("median_s", "low_s", "high_s", "samples", "processes")}
        for time_s in (4.6e-4, 6e-4)
    )
    columns = [
        {"label": "onnxruntime", "tuned": False, "time": second, "over_fastest": over},
        {"label": "tvm[records]", "tuned": True, "time": first, "over_fastest": None},
    ]
    if not first_is_tuned:
        columns = [
            {**columns[0], "time": first, "over_fastest": None},
            {**columns[1], "time": second, "over_fastest": over},
        ]
    if verdict == "near":
        columns.insert(1, {**columns[0], "label": "openvino", "over_fastest": {**over, "verdict": "tie"}})
    words = words_of(tune_report, tune(beside={"clock": "wall", "failure": "", "columns": columns, "wins": []}))
    assert f"TVM compiled for the device's own processor: {told}" in words


def test_without_a_library_nothing_is_told_to_be_run() -> None:
    failed = network(untuned=None, tuned=None, ratio=None, failure=failure("compile", "hang", "took longer than 600 s"))
    told = words_of(tune_report, tune(network=failed, library=None))
    assert told.startswith("mobile on phone: the tuned network failed, hang at compile: took longer than 600 s.")
    assert "gnomon exec" not in told
    assert "records my tunes/phone.mobile.float32.json" in told


def test_nothing_to_tune_is_no_table() -> None:
    told = words_of(tune_report, tune(layers=[], failures=[], notes=[]))
    assert "This model has no layers that can be tuned." in told
    assert "Failed trials" not in told
    assert "Notes" not in told


def test_wrong_outputs_are_no_library_to_deploy() -> None:
    assert "Do not deploy" in words_of(tune_report, tune(network=network(max_error=0.5)))
    assert "Do not deploy" not in words_of(tune_report, tune())


def test_many_layers_and_failures_are_cut() -> None:
    layers = [{**tune()["layers"][1], "name": f"conv{k:03}", "share": 0.01} for k in range(100)]
    failures = [{"stage": "build", "kind": f"kind{k}", "count": k, "message": "x"} for k in range(1, 21)]
    told = words_of(tune_report, tune(layers=layers, failures=failures))
    assert "and 60 more layers with 60 % of the time: --json has all" in told
    assert "20 times: kind20 at build: x." in told
    assert "and 78 more of 12 other kinds" in told


def test_columns_that_say_nothing_are_left_out() -> None:
    document = tune()
    document["layers"] = [{**layer, "stopped": "trials", "failed": 0} for layer in document["layers"]]
    told = text_of(tune_report, document, 120)
    assert "ended by" not in told
    assert "  failed\n" not in told


def test_a_run_that_failed_says_so_first() -> None:
    told = words_of(exec_report, ran(network=None, layers=[], failure=failure("run", "crash", "signal 11")))
    assert told.startswith("mobile on phone failed, crash at run: signal 11.")
    assert "Layers" not in told


def test_a_run_of_a_library_without_a_target_and_references() -> None:
    document = ran(compared_with=None, built_for={}, layers_sum_s=None, unaccounted_s=None)
    told = words_of(exec_report, {**document, "device": {"key": "local", "target": {}, "threads": 0, "linker": ""}})
    assert "Built for" not in told
    assert "compared with" not in told
    assert "together" not in told


def test_layers_that_are_slower_alone_are_told() -> None:
    told = words_of(exec_report, ran(unaccounted_s=-1e-5))
    assert "10.0 us (1.7 % of the network) more than the network: layers are slower alone." in told


def test_an_empty_folder_says_what_to_do() -> None:
    told = words_of(view_report, view(models=[], records=[], libraries=[]))
    assert told.startswith("0 models, 0 record files and 0 compiled networks in tunes.")
    assert "gnomon tune MODEL" in told


def test_paths_are_whole_at_any_width() -> None:
    path = f"/home/{'long/' * 40}phone.mobile.float32.json"
    document = view()
    for part in ("models", "records", "libraries"):
        document[part][0]["path"] = path
    lines = text_of(view_report, document, width=40).splitlines()
    assert [line.split(maxsplit=1)[0] for line in lines if line.endswith(path)] == [
        "model",
        "records",
        "library",
        "run",
    ]


def test_layers_that_were_not_tried_have_no_row() -> None:
    document = tune()
    document["layers"][0]["trials"] = 0
    table = text_of(tune_report, document, width=120).split("Layers, ")[1].split("\n - ")[0]
    assert "fused_conv2d_add_relu" in table and "fused_dense" not in table
    assert "1 layer was not tried" in words_of(tune_report, document)


def test_the_next_step_after_several_devices_names_all_files() -> None:
    other = tune(device=TABLET, records="my tunes/tablet.json")
    told = text_of(tuned_report, {"format": "gnomon-tuned", "version": 1, "tuned": [tune(), other]})
    assert told.splitlines()[-1].split(maxsplit=1)[1] == (
        "gnomon overlay collect 'my tunes/phone.mobile.float32.json' 'my tunes/tablet.json' "
        "--device phone --device tablet"
    )
    assert told.count("0.601 ms tuned") == 2


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3))
def test_times_side_by_side_share_a_unit_or_are_far_apart(first: float, second: float) -> None:
    units = {like(first, second).rpartition(" ")[2], like(second, first).rpartition(" ")[2]}
    assert len(units) == 1 or max(first, second) > 999 * min(first, second)


@given(st.floats(0, 1e6))
def test_losses_and_metrics_are_short(value: float) -> None:
    assert len(loss(value)) <= 13
    assert len(metric(value)) <= 7
    assert len(share_of(min(value, 1.0))) <= 6


def test_words() -> None:
    assert (loss(0.0), loss(0.012), loss(2.3), loss(10.4), loss(None)) == ("0.0 %", "1.2 %", "230 %", "11.4 times", "-")
    assert (metric(0.0), metric(1e-5), metric(3.14159), metric(27.13), metric(None)) == (
        *("0.000", "<0.001", "3.142", "27.1", "-"),
    )
    assert (many(1, "process", "processes"), many(2, "process", "processes")) == ("1 process", "2 processes")
    assert outputs(5e-3, "float16") == "outputs equal within 5.0e-03"
    assert "off" in outputs(5e-3, "float32")
    assert outputs(float("nan"), "float32") == "outputs not compared"
    assert (target_words({}), target_words({"kind": "llvm", "model": "bcm2711", "tag": "t"})) == ("", "llvm, bcm2711")
