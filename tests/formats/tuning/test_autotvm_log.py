"""Logs of AutoTVM. No TVM that can be installed today has it: the golden log is written by hand from its format."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnomon.core.overlay.records import TunedModel, TuningRecords, configuration_id
from gnomon.errors import ProblemError
from gnomon.formats.tuning.logs import read_target, read_tuner_log

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning" / "autotvm-log.json"
MODEL = TunedModel(name="mobile", dtype="float16")
ENTITY = [["tile_ic", "sp", [-1, 16]], ["unroll_kw", "ot", True]]


def read(text: str | bytes) -> TuningRecords:
    log = read_tuner_log(text, "autotvm")
    return replace(log, device=replace(log.device, key="phone"), model=MODEL)


def line(**changed: Any) -> dict[str, Any]:
    args = [["TENSOR", [1, 8], "float32"], None, "float32"]
    return {
        "input": ["llvm -keys=cpu", "dense.x86", args, {}],
        "config": {"index": 3, "code_hash": None, "entity": ENTITY},
        "result": [[1e-3], 0, 0.5, 1600000000.0],
        "version": 0.2,
        "tvm_version": "0.12.0",
        **changed,
    }


def lines(*documents: Any) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


def test_a_log_is_read() -> None:
    found = read(GOLDEN.read_bytes())
    assert (found.tuner, found.device.key, found.model) == ("autotvm", "phone", MODEL)
    assert found.device.target == {
        "kind": "llvm",
        "mcpu": "cortex-a72",
        "mtriple": "aarch64-linux-gnu",
    }
    assert [layer.name for layer in found.layers] == [
        "conv2d_NCHWc.x86 1x64x56x56 64x64x3x3",
        "conv2d_NCHWc.x86 1x64x56x56 64x64x1x1",
        "dense_pack.x86 1x512 1000x512",
    ]
    assert all(layer.weight == 1 and layer.workload == "" for layer in found.layers)
    first, second, hung, again, other, failed = found.trials
    assert first.time_s == 0.00091  # the median, which the slow sample does not move
    assert second.configuration != first.configuration == again.configuration
    assert hung.failure is not None and (hung.failure.stage, hung.failure.kind) == ("build", "hang")
    assert "error 6" in hung.failure.message
    assert failed.failure is not None and failed.failure.kind == "refused"  # 1e9 seconds stand for a failure
    assert other.layer == found.layers[1].layer and other.configuration != first.configuration
    assert again.at_s == 1600000030.0
    assert all(trial.configuration == configuration_id(trial.layer, trial.trace) for trial in found.trials)


def test_the_identity_knows_neither_target_nor_index() -> None:
    other = line(config={"index": 99, "code_hash": "x", "entity": ENTITY})
    other["input"] = ["cuda -model=a", *other["input"][1:]]
    (one,), (two,) = read(lines(line())).trials, read(lines(other)).trials
    assert (one.layer, one.configuration) == (two.layer, two.configuration)
    # It does know the task, its arguments, those with names, and the entity.
    changed = [
        line(input=["llvm", "dense.x86", [["TENSOR", [1, 9], "float32"]], {}]),
        line(input=["llvm", "dense_pack.x86", line()["input"][2], {}]),
        line(input=["llvm", "dense.x86", line()["input"][2], {"out": "float16"}]),
        line(config={"index": 3, "code_hash": None, "entity": ENTITY[:1]}),
    ]
    ids = {read(lines(document)).trials[0].configuration for document in (line(), *changed)}
    assert len(ids) == 5


@pytest.mark.parametrize(
    ("times", "number", "kind"),
    [
        ([1e9], 0, "refused"),
        ([1e9], 4, "crash"),
        ([1e9], 7, "hang"),
        ([1e-3], 77, "refused"),
        ([], 0, "wrong-output"),
        ([0.0], 0, "wrong-output"),
        ([math.nan], 0, "wrong-output"),
        ([math.inf], 0, "wrong-output"),
    ],
)
def test_failures(times: list[float], number: int, kind: str) -> None:
    (trial,) = read(lines(line(result=[times, number, 0.5, 1.0]))).trials
    assert trial.failure is not None and trial.failure.kind == kind
    assert trial.times_s == () and trial.time_s is None


def test_everything_wrong_is_told_at_once() -> None:
    wrong = [
        {"input": 1},
        line(input=["llvm", "dense"]),
        line(input=["llvm", "dense", 3, {}]),
        line(input=["llvm -mcpu=cortex-a53", *line()["input"][1:]]),
        line(config={"index": 1}),
        line(config=None),
        line(config={"entity": [math.nan]}),
        line(result=[1e-3, 0]),
        line(result=[["1"], 0, 0.5, 1.0]),
        line(result=[[1e-3], "0", 0.5, 1.0]),
        line(input=["llvm -keys=cpu", "dense", [math.inf], {}]),
        [],
    ]
    with pytest.raises(ProblemError) as caught:
        read(lines(line(), *wrong) + "x\n")
    for number in range(2, len(wrong) + 3):
        assert f"line {number}: " in caught.value.message, number
    assert "line 1: " not in caught.value.message
    assert "the target" in caught.value.message.partition("line 5: ")[2]


def test_a_log_across_an_upgrade_of_tvm_is_of_one_device() -> None:
    def targets(*words: str) -> str:
        return lines(*(line(input=[target, *line()["input"][1:]]) for target in words))

    old, new = "llvm -keys=cpu -link-params=0 -mcpu=cortex-a72", "llvm -keys=arm_cpu,cpu -mcpu=cortex-a72"
    assert len(read(targets(old, old, new, new)).trials) == 4
    other = "llvm -keys=arm_cpu,cpu -mcpu=cortex-a53"
    with pytest.raises(ProblemError) as caught:
        read(targets(old, old, other, other, other))
    assert caught.value.message.count("the target") == 1
    assert "line 3: the target changes from" in caught.value.message
    assert "into its own file" in caught.value.message
    assert caught.value.message.startswith("a log has lines of several devices: line 3: ")
    assert caught.value.hint == "Give each device its own file, DEVICE.NETWORK.DTYPE.json."


def test_a_log_without_a_trial_is_refused_and_a_last_line_may_be_cut_off() -> None:
    for text in ("", "# nothing\n", lines(line())[:40]):
        with pytest.raises(ProblemError, match="the log has no trial"):
            read(text)
    assert len(read(lines(line()) + lines(line())[:40]).trials) == 1
    with pytest.raises(ProblemError, match="line 1: not JSON"):
        read(lines(line())[:40] + "\n" + lines(line()))


def test_version_0_1_is_read() -> None:
    """As TVM before 0.7 wrote it (`encode` of python/tvm/autotvm/record.py)."""

    def old(template: str, config: Any = None, result: Any = ((1e-3,), 0, 0.5, 1500000000.0)) -> dict[str, Any]:
        args = [["TENSOR", [1, 8, 9, 9], "float32"], ["TENSOR", [4, 8, 3, 3], "float32"], "NCHW"]
        workload = ["conv2d", [1, 8, 9, 9, "float32"], "NCHW"]
        config = config or {"i": 3, "t": template, "c": None, "e": ENTITY}
        return {"i": ["llvm -mcpu=x", "topi_nn_conv2d", args, {}, workload, config], "r": result, "v": 0.1}

    found = read(lines(old("direct"), old("winograd"), old("direct", result=[[1e9], 4, 1.5, 1500000001.0])))
    (layer,) = found.layers
    assert layer.name.startswith("topi_nn_conv2d 1x8x9x9")
    first, other, failed = found.trials
    assert (first.trace, other.trace) == (["direct", *ENTITY], ["winograd", *ENTITY])
    assert first.configuration == failed.configuration != other.configuration
    assert (first.time_s, first.at_s, failed.failure and failed.failure.kind) == (1e-3, 1500000000.0, "crash")
    with pytest.raises(ProblemError, match="line 2: an object with input, config and result expected"):
        read(lines(old("direct"), old("direct", {"i": 3, "t": "direct"})))


def test_targets_as_old_tvm_writes_them() -> None:
    assert read_target("") == {}
    assert read_target("llvm -mattr=+neon,+v8 -link-params -mattr=x -a=b=c") == {
        "kind": "llvm",
        "mattr": "+neon,+v8",
        "link-params": True,
        "a": "b=c",
    }
