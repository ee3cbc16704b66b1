"""The record file of tuning: what is written is read, a cut-off line is left out, all else that is wrong is told."""

from __future__ import annotations

import json
import math
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.overlay.records import (
    UNTUNED,
    TunedDevice,
    TunedModel,
    TuningLayer,
    TuningRecords,
    TuningTrial,
    configuration_id,
)
from gnomon.core.sample import Failure
from gnomon.core.strict_json import cut_off
from gnomon.errors import ProblemError
from gnomon.formats.json_lines import MOST_OF_A_LINE
from gnomon.formats.tuning.records import header_line, layer_line, read_tuning_records, record_lines, trial_line

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning" / "tuning-records.json"

NAMES = st.text(string.ascii_letters + string.digits + "._- é", min_size=1, max_size=12)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TIMES = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=4).map(tuple)
FAILURES = st.builds(
    Failure,
    stage=st.sampled_from(["build", "run", "check"]),
    kind=st.sampled_from(["hang", "crash"]),
    transient=st.booleans(),
    message=st.text(st.characters(codec="utf-8"), max_size=20),
    log_tail=st.text(st.characters(codec="utf-8"), max_size=20),
)
ARGUMENTS = st.lists(
    st.tuples(st.sampled_from(["float32", "int8"]), st.lists(st.integers(0, 9), max_size=4).map(tuple)), max_size=3
).map(tuple)


@st.composite
def record_sets(draw: st.DrawFn) -> TuningRecords:
    ids = draw(st.lists(st.text(string.digits, min_size=1, max_size=20), unique=True, max_size=3))
    layers = tuple(
        TuningLayer(
            layer=layer,
            name=draw(NAMES),
            weight=draw(st.integers(1, 99)),
            arguments=draw(ARGUMENTS),
            flops=draw(st.none() | st.floats(0, 1e15)),
            workload=draw(st.sampled_from(["", "TWFu", "TQ=="])),
        )
        for layer in ids
    )
    trials = []
    for layer in draw(st.lists(st.sampled_from(ids), max_size=5)) if ids else []:
        trace = draw(JSON)
        failure = draw(st.none() | FAILURES)
        trials.append(
            TuningTrial(
                layer=layer,
                configuration=configuration_id(layer, trace),
                trace=trace,
                times_s=() if failure else draw(TIMES),
                failure=failure,
                error=draw(st.none() | st.floats(0, 1)),
                server=draw(st.sampled_from(["", "127.0.0.1:9091"])),
                at_s=draw(st.floats(0, 2e9)),
            )
        )
    return TuningRecords(
        device=TunedDevice(
            key=draw(NAMES),
            target=draw(st.dictionaries(NAMES, JSON, max_size=3)),
            linker=draw(st.sampled_from(["", "aarch64-linux-gnu-gcc"])),
            threads=draw(st.integers(0, 8)),
        ),
        model=TunedModel(name=draw(NAMES), sha256=draw(st.sampled_from(["", "0a" * 32])), dtype="float16"),
        layers=layers,
        trials=tuple(trials),
        found_on=draw(st.just("") | NAMES),
        tuner=draw(st.sampled_from(["metaschedule", "autotvm", "ansor"])),
        versions=draw(st.dictionaries(NAMES, NAMES, max_size=2)),
    )


def written(records: TuningRecords) -> list[str]:
    return [json.dumps(document, allow_nan=False) for document in record_lines(records)]


def example(**changed: Any) -> list[dict[str, Any]]:
    """A header, a layer and a trial; of the trial, fields may be others."""
    trace = [[["GetSBlock", [], ["C", "main"], ["b0"]]], [[4, [1, 2]]]]
    return [
        header_line(
            TuningRecords(
                device=TunedDevice(key="phone", target={"kind": "llvm"}),
                model=TunedModel(name="m"),
                layers=(),
                trials=(),
            )
        ),
        layer_line(TuningLayer(layer="77", name="conv", workload="TWFu")),
        {
            **trial_line(
                TuningTrial(layer="77", configuration=configuration_id("77", trace), trace=trace, times_s=(0.5, 0.25))
            ),
            **changed,
        },
    ]


def read(documents: list[Any]) -> TuningRecords:
    return read_tuning_records("".join(json.dumps(document) + "\n" for document in documents))


@given(record_sets(), st.booleans())
def test_what_is_written_is_read(records: TuningRecords, last_line_end: bool) -> None:
    text = "\n".join(written(records)) + "\n" * last_line_end
    assert read_tuning_records(text) == records
    assert read_tuning_records(text.encode()) == records


def test_the_published_example() -> None:
    """The golden file has the lines of docs/jobs/tune.md, with identities that fit and a base64 that is one."""
    records = read_tuning_records(GOLDEN.read_bytes())
    assert (records.device.key, records.device.target["mcpu"], records.host) == ("phone", "cortex-a72", "phone")
    assert records.versions == {"apache-tvm": "0.27.0.post1"}
    layer = records.layers[0]
    assert (layer.weight, layer.flops, layer.arguments[1]) == (2, 57802752.0, ("float32", (64, 64, 3, 3)))
    tuned, untuned, failed = records.trials
    assert tuned.time_s == pytest.approx(0.00085), "CPU time, where a trial has it"
    assert untuned.configuration == UNTUNED and untuned.trace is None and untuned.error == 0.0
    assert failed.failure is not None and failed.failure.kind == "hang" and failed.time_s is None
    assert "\n".join(written(records)) + "\n" == GOLDEN.read_text()


@given(record_sets(), st.data())
def test_a_file_cut_anywhere_has_all_lines_before(records: TuningRecords, data: st.DataObject) -> None:
    lines = written(records)
    whole = "\n".join(lines) + "\n"
    at = data.draw(st.integers(len(lines[0]), len(whole)))
    found = read_tuning_records(whole.encode()[:at])
    complete = whole[:at].count("\n") + (whole[at : at + 1] == "\n")
    assert len(found.layers) + len(found.trials) == complete - 1
    # Whoever goes on begins a line of its own.
    again = read_tuning_records(whole[:at] + "\n" + "\n".join(lines[complete:]))
    assert again == records


@given(JSON.filter(lambda value: isinstance(value, dict | list)), st.data())
def test_every_begin_of_a_line_is_known_as_one_and_no_whole_line_is(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    begin = text[: data.draw(st.integers(1, len(text) - 1))].strip()
    assert cut_off(begin)


@pytest.mark.parametrize(
    "line", ['{"a" 1', '{"a": 1}}', '{"a": [1}', "[1,, 2", '{"a": "b"c", "d": 1}', '{"a": x', "x", '"']
)
def test_damage_is_not_taken_for_a_cut(line: str) -> None:
    with pytest.raises(ProblemError, match="line 2: not JSON"):
        read_tuning_records(json.dumps(example()[0]) + "\n" + line)


@pytest.mark.parametrize("times", [[0.0], [-1e-3, 1e-3], [math.nan], [1e-3, math.inf], [1e999], []])
def test_times_that_are_none_become_a_failure(times: list[float]) -> None:
    records = read(example(times_s=times))
    (trial,) = records.trials
    assert trial.failure is not None and trial.failure.kind == "wrong-output"
    assert trial.times_s == () and trial.time_s is None
    # And are not written as times either.
    wrong: Any = trial_line(TuningTrial(layer="7", configuration=UNTUNED, times_s=tuple(times), error=0.0))
    assert wrong["times_s"] == [] and wrong["failure"]["kind"] == "wrong-output"


def test_an_error_that_is_no_number_is_written_as_a_failure() -> None:
    document: Any = trial_line(TuningTrial(layer="7", configuration=UNTUNED, times_s=(1e-3,), error=math.nan))
    assert document["times_s"] == [] and document["failure"]["stage"] == "check" and "error" not in document


def test_everything_wrong_is_told_at_once() -> None:
    header, layer, trial = example()
    lines = [
        header,
        layer,
        {**layer, "weight": 2},
        {**trial, "layer": "78"},
        {**trial, "trial": "0" * 16},
        {**trial, "times_s": [0.5, "0.25"]},
        {**trial, "times_s": [True]},
        {**trial, "error": -1.0},
        {**trial, "at_s": "now"},
        {**trial, "failure": {"stage": "run", "kind": "hang", "transient": 1, "message": "m"}},
        {**trial, "tims": 1},
        {"layer": "79", "name": "", "weight": 0, "arguments": [["float32", [-1]]], "flops": math.nan, "workload": "?"},
        {"something": 1},
        [1],
        header,
        {**trial, "trace": [[1.5, math.inf], []]},
        {**trial, "failure": {"stage": "run", "kind": "hang", "message": "m"}},
    ]
    with pytest.raises(ProblemError) as caught:
        read(lines)
    told = caught.value.message
    for number in range(3, len(lines) + 1):
        assert f"line {number}: " in told, number
    assert told.count("line 12: ") == 5 and "line 10: failure.transient: " in told
    assert "line 1: " not in told and "line 2: " not in told
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no header"),
        ('{"gnomon": "tun', "no header"),
        ('{"gnomon": "other", "version": 1}', "'tuning records' expected"),
        ('{"gnomon": "tuning records", "version": 4, "x": 1}\n{"y": 1}', "version: 1, 2 or 3 expected, 4 found"),
        ('{"gnomon": "tuning records", "version": 1}', "line 1: tuner: missing; line 1: device: missing"),
        ('{"layer": "1"}', "line 1: the header"),
        ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "more than 40 digits"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'"' + b"x" * MOST_OF_A_LINE + b'"', "but at most"),
    ],
)
def test_what_is_no_record_file_is_refused(text: str | bytes, told: str) -> None:
    with pytest.raises(ProblemError, match=told):
        read_tuning_records(text)


def test_a_trace_is_written_once_and_may_be_repeated() -> None:
    header, layer, trial = example()
    bare = {name: value for name, value in trial.items() if name != "trace"}
    records = read([header, layer, trial, bare, trial])
    assert records.trials[0] == records.trials[1] == records.trials[2]
    assert ["trace" in json.loads(line) for line in written(records)[2:]] == [True, False, False]
    with pytest.raises(
        ProblemError, match=f"line 3: trace: missing, and no earlier line has the trace of '{trial['trial']}'"
    ):
        read([header, layer, bare, trial])
    # One line too many is told, not all that need it.
    with pytest.raises(ProblemError) as caught:
        read([header, layer, {**trial, "at_s": -1}, bare, bare])
    assert "line 3: at_s: " in caught.value.message and "line 4" not in caught.value.message


def test_records_of_the_first_version_are_read() -> None:
    """It had the trace in each line, and null for none."""
    old = GOLDEN.with_name("tuning-records-1.json").read_bytes()
    assert b'"version": 1' in old and b'"trace": null' in old
    without = GOLDEN.read_bytes().replace(b' "cpu_s": [0.00084, 0.00086],', b"")
    assert read_tuning_records(old) == read_tuning_records(without)


def test_a_layer_twice_is_one_and_may_come_after_its_trials() -> None:
    header, layer, trial = example()
    records = read([header, trial, layer, trial, layer])
    assert len(records.layers) == 1 and len(records.trials) == 2


def test_the_complaints_end_somewhere() -> None:
    text = json.dumps(example()[0]) + "\n" + "nonsense\n" * 200_000
    with pytest.raises(ProblemError, match="and 81 more") as caught:
        read_tuning_records(text)
    assert len(caught.value.message) < 5000
