"""MetaSchedule's database, read and written: a golden one that TVM wrote, and TVM itself as the judge where it is."""

from __future__ import annotations

import base64
import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.overlay.records import UNTUNED, TunedModel, TuningLayer, TuningRecords, TuningTrial, configuration_id
from gnomon.core.sample import Failure
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.tuning.metaschedule import (
    RECORDS,
    WORKLOADS,
    read_metaschedule_database,
    tvm_json,
    write_metaschedule_database,
)

# Written by apache-tvm 0.27.0.post1: two workloads and four records of each, the sixth of which failed.
GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning" / "metaschedule"
MODEL = TunedModel(name="net")
GRAPH = b'{"nodes": [], "metadata": {"tvm_version": "0.27.0"}}'
FUNCTION = base64.b64encode(len(GRAPH).to_bytes(8, "little") + GRAPH).decode()

HAS_TVM = importlib.util.find_spec("tvm") is not None

# What TVM makes of a database: for each record in the order of time, its workload's hash, trace, seconds and arguments;
# and whether the best one can be applied to its workload. The stubs keep TVM from importing PyTorch, and from parsing
# its tensor intrinsics.
JUDGE = """
import json, sys, types
sys.modules["torch"] = None
sys.modules["tvm.s_tir.tensor_intrin"] = types.ModuleType("tvm.s_tir.tensor_intrin")
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
database = ms.database.JSONDatabase(work_dir=sys.argv[1])
told = []
for record in database.get_all_tuning_records():
    trace, seconds, target, arguments = record.as_json()
    told.append([str(record.workload.as_json()[0]), trace, seconds, target, arguments])
best = database.get_all_tuning_records()[0]
schedule = Schedule(best.workload.mod)
best.trace.apply_to_schedule(schedule, remove_postproc=False)
if len(sys.argv) > 2:
    copy = ms.database.JSONDatabase(work_dir=sys.argv[2])
    for record in database.get_all_tuning_records():
        workload = copy.commit_workload(record.workload.mod)
        copy.commit_tuning_record(
            ms.database.TuningRecord(record.trace, workload, record.run_secs, record.target, record.args_info)
        )
print(json.dumps(told))
"""


def golden() -> tuple[str, str]:
    return (GOLDEN / WORKLOADS).read_text(), (GOLDEN / RECORDS).read_text()


def read(workloads: str | bytes, records: str | bytes) -> TuningRecords:
    log = read_metaschedule_database(workloads, records)
    return replace(log, device=replace(log.device, key="local"), model=MODEL)


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def record(**changed: Any) -> list[Any]:
    """A good record of workload 0, with some parts changed."""
    parts = {
        "index": 0,
        "trace": [[["GetSBlock", [], ["C", "main"], ["b0"]]], []],
        "seconds": [1e-3],
        "target": {"kind": "llvm"},
        "arguments": [["TENSOR", "float32", [8]]],
        **changed,
    }
    return [parts["index"], [parts["trace"], parts["seconds"], parts["target"], parts["arguments"]]]


def test_a_real_database_is_read() -> None:
    found = read(*golden())
    assert [layer.layer for layer in found.layers] == ["3871735065587265272", "14511430127389269283"]
    assert found.layers[0].arguments == (("float32", (8, 16)), ("float32", (16, 16)), ("float32", (8, 16)))
    assert found.layers[1].name == "workload 1 64"
    assert found.device.target["mcpu"] == "x86-64-v3"
    assert found.versions == {"apache-tvm": "0.27.0.post1"}
    assert [trial.failure is None for trial in found.trials] == [True] * 5 + [False] + [True] * 2
    assert all(trial.configuration == configuration_id(trial.layer, trial.trace) for trial in found.trials)
    failure = found.trials[5].failure
    assert failure is not None and failure.kind == "refused" and found.trials[5].time_s is None
    # The time is the median: the first sample of a record is the slow one.
    assert all(t.time_s == sorted(t.times_s)[1] for t in found.trials if t.failure is None)


def test_a_real_database_is_written_to_the_byte() -> None:
    workloads, records = golden()
    assert write_metaschedule_database(read(workloads, records)) == (workloads, records)


@pytest.mark.skipif(not HAS_TVM, reason="tvm is not installed: pip install '.[tvm]'")
def test_tvm_reads_what_is_written_and_says_the_same(tmp_path: Path) -> None:
    found = read(*golden())
    untuned = TuningTrial(layer=found.layers[0].layer, configuration=UNTUNED, times_s=(1e-3,))
    text = write_metaschedule_database(replace(found, trials=(untuned, *found.trials)))
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    (ours / WORKLOADS).write_text(text[0])
    (ours / RECORDS).write_text(text[1])
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, str(ours), str(theirs)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told) == len(found.trials)
    # In memory a trace has true and false, which are 1 and 0 in a database.
    kept = [(layer, json.loads(tvm_json(trace)), seconds) for layer, trace, seconds, _, _ in told]
    seen = [(layer, configuration_id(layer, trace), seconds) for layer, trace, seconds in kept]
    ours_told = [(t.layer, t.configuration, list(t.times_s) or [1e10]) for t in found.trials]
    assert sorted(seen) == sorted(ours_told)
    assert all(target == found.device.target for _, _, _, target, _ in told)
    # TVM's own copy of ours, in the order of time, is read as the same set.
    copied = read((theirs / WORKLOADS).read_bytes(), (theirs / RECORDS).read_bytes())
    assert {layer.layer: layer.workload for layer in copied.layers} == {i.layer: i.workload for i in found.layers}
    assert sorted(map(repr, copied.trials)) == sorted(map(repr, found.trials))


def test_what_is_not_compared_is_not_written() -> None:
    base = read(lines(["7", FUNCTION]), lines(record()))
    (trial,) = base.trials
    failed = replace(trial, times_s=(), failure=Failure(stage="build", kind="hang", transient=False, message="m"))
    wrong = replace(trial, times_s=(0.0,))
    untuned = TuningTrial(layer="7", configuration=UNTUNED, times_s=(1e-3,))
    text = write_metaschedule_database(replace(base, trials=(trial, failed, wrong, untuned)))[1]
    assert [json.loads(line)[1][1] for line in text.splitlines()] == [[1e-3], [10000000000], [10000000000]]
    bare = replace(
        base, device=replace(base.device, target={}), layers=tuple(replace(i, arguments=()) for i in base.layers)
    )
    assert json.loads(write_metaschedule_database(bare)[1])[1][2:] == [None, None]


def test_what_tvm_cannot_read_is_not_written() -> None:
    base = read(lines(["7", FUNCTION]), lines(record()))
    for changed in (
        replace(base, tuner="autotvm"),
        replace(base, layers=(TuningLayer(layer="7", name="conv"),)),
        replace(base, layers=()),
        replace(base, device=replace(base.device, target={"kind": "llvm\x01"})),
        replace(base, device=replace(base.device, target={"kind": "\ud800"})),
        replace(base, device=replace(base.device, target={"kind": float("nan")})),
        replace(base, device=replace(base.device, target={"kind": object()})),
    ):
        with pytest.raises(UsageError, match="cannot be written as a MetaSchedule database") as caught:
            write_metaschedule_database(changed)
        assert caught.value.hint


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number or 0.0)  # no -0.0
        | st.text('é"\\/\n\tabc {}[]'),
        lambda inner: st.lists(inner) | st.dictionaries(st.text('abc"\\'), inner),
    )
)
def test_the_json_of_tvm_is_json(value: Any) -> None:
    text = tvm_json(value)
    assert json.loads(text) == value  # True is 1
    assert tvm_json(json.loads(text)) == text  # a whole number that was decimal has no point, then and after


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.7019999999999994534e-06, "3.7019999999999994534e-06"), (1e10, "10000000000"), (0.25, "0.25"), (1e22, "1e+22")],
)
def test_numbers_are_written_as_tvm_writes_them(value: float, text: str) -> None:
    assert tvm_json(value) == text


def test_everything_wrong_is_told_at_once() -> None:
    with pytest.raises(ProblemError) as caught:
        read(lines(["7", FUNCTION], ["7", "TWFu"], ["x", FUNCTION], ["8", "TWFu"], ["9", "?"], [1, 2], {}), "")
    for number in range(2, 8):
        assert f"line {number}: " in caught.value.message, number
    wrong = [
        record(index=1),
        record(index=True),
        record(trace=[[]]),
        record(trace=[[float("inf")], []]),
        record(seconds=["1"]),
        record(target={"kind": "c"}),
        record(target="llvm"),
        record(arguments=[["TENSOR", "float32", [9]]]),
        record(arguments=[["SCALAR", "float32"]]),
        [0, [1, 2, 3]],
        {},
    ]
    with pytest.raises(ProblemError) as caught:
        read(lines(["7", FUNCTION]), lines(record(), *wrong))
    for number in range(2, len(wrong) + 2):
        assert f"line {number}: " in caught.value.message, number
    assert "line 1: " not in caught.value.message


def test_times_that_are_none_are_failures() -> None:
    given = [[1e10], [], None, [0.0], [-1.0], [float("nan")], [1e-3, 1e10]]
    found = read(lines(["7", FUNCTION]), lines(*(record(seconds=seconds) for seconds in given)))
    kinds = [trial.failure.kind for trial in found.trials if trial.failure]
    assert kinds == ["refused"] * 3 + ["wrong-output"] * 3 + ["refused"]


def test_lines_that_were_cut_off_and_workloads_twice() -> None:
    heads = lines(["7", FUNCTION], ["7", FUNCTION], ["8", FUNCTION])
    found = read(heads + '["9", "TWF', lines(record(index=1), record(index=2)) + json.dumps(record())[:30])
    assert [layer.layer for layer in found.layers] == ["7", "8"]
    assert [trial.layer for trial in found.trials] == ["7", "8"]
    with pytest.raises(ProblemError, match="line 1: not JSON"):
        read(lines(["7", FUNCTION]), json.dumps(record())[:30] + "\n" + lines(record()))
    with pytest.raises(ProblemError, match="a blank line precedes it"):
        read(lines(["7", FUNCTION]) + "\n" + lines(["8", FUNCTION]), "")
