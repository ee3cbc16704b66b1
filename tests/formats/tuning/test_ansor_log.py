"""Logs of Ansor. No TVM that can be installed today has it: the golden log is written by hand from its format."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnomon.core.overlay.records import TunedModel, TuningRecords, configuration_id
from gnomon.errors import ProblemError
from gnomon.formats.tuning.logs import read_tuner_log

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning" / "ansor-log.json"
STATE = [[], [["SP", 2, 0, 1, [1, 1], 1]]]


def read(text: str | bytes) -> TuningRecords:
    log = read_tuner_log(text, "ansor")
    return replace(log, device=replace(log.device, key="phone"), model=TunedModel(name="mobile"))


def line(state: Any = STATE, key: str = '["f", 1]', target: str = "llvm", result: Any = ((1e-3,), 0, 0.5, 16)) -> Any:
    return {"i": [[key, target, [4, 16, 64], "", 2, []], state], "r": result, "v": "v0.6"}


def lines(*documents: Any) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


def test_a_log_is_read() -> None:
    found = read(GOLDEN.read_bytes())
    assert (found.tuner, found.device.key) == ("ansor", "phone")
    assert found.device.target == {"kind": "llvm", "mcpu": "cortex-a72"}
    assert [layer.name for layer in found.layers] == ["2d10de66 1x56x56x64 3x3x64x64", "matmul_add 128x128x64"]
    first, second, hung, other = found.trials
    assert first.time_s == pytest.approx(0.00115) and other.time_s == 5e-05
    assert hung.failure is not None and (hung.failure.stage, hung.failure.kind) == ("run", "hang")
    assert all(trial.configuration == configuration_id(trial.layer, trial.trace) for trial in found.trials)
    # Three configurations of one layer are three, which they were not in Ferule.
    assert len({first.configuration, second.configuration, hung.configuration}) == 3
    assert first.layer == second.layer == hung.layer != other.layer


def test_the_identity_is_workload_and_state() -> None:
    ids = [
        read(lines(document)).trials[0].configuration
        for document in (line(), line(target="cuda"), line(key='["f", 2]'), line(state=[[], []]))
    ]
    assert ids[0] == ids[1] and len(set(ids)) == 3


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ('["2d10de6646307f0e3e5cf4b31c20e69b", 1, 56, 56]', "2d10de66 1x56x56"),
        ('["2d10de6646307f0e3e5cf4b31c20e69b", [1, 1000], [1000]]', "2d10de66 1x1000 1000"),
        ('["f"]', "f"),
        ("plain", "plain"),
        ("[1]", "[1]"),
        ("a\nb", "a?b"),
        ("[" * 10_000, "[" * 200),
    ],
)
def test_names_can_be_read(key: str, name: str) -> None:
    assert read(lines(line(key=key))).layers[0].name == name


def test_layers_that_look_alike_have_different_names() -> None:
    found = read(lines(line(key='["f", [1, 8], [1], [1]]'), line(key='["f", [1, 8], [1], [2]]')))
    assert [layer.name for layer in found.layers] == ["f 1x8 1", "f 1x8 1 (2)"]


def test_everything_wrong_is_told_at_once() -> None:
    wrong = [
        line(state=None),
        line(state=[[]]),
        line(state=[[], [math.nan]]),
        line(target="cuda"),
        line(result=[[1e-3]]),
        line(result=[[1e-3], 0, 0.5, -1]),
        {**line(), "i": [["key"], STATE]},
        {**line(), "i": [[1, "llvm"], STATE]},
        {"i": [1, 2, 3], "r": []},
        line(key=""),
        line(key="\ud800"),
        7,
    ]
    with pytest.raises(ProblemError) as caught:
        read(lines(line(), *wrong))
    for number in range(2, len(wrong) + 2):
        assert f"line {number}: " in caught.value.message, number
    assert "line 1: " not in caught.value.message
