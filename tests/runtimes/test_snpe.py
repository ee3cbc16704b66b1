"""SNPE's declaration: what it reads of a result, and what is chosen of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnomon.agent.driver import Refused
from gnomon.agent.drivers.command.driver import LoadedCommand
from gnomon.agent.drivers.command.reading import Unreadable
from gnomon.agent.drivers.command.report import Report, report_of
from gnomon.errors import UsageError
from gnomon.runtimes.commands import CommandRuntime
from gnomon.runtimes.declared import chosen_commands
from gnomon.wire import CommandSpec, Segment

RESULT = (Path(__file__).parents[1] / "formats" / "golden" / "snpe" / "snpe-bench-result.json").read_text()
CONV = "layer_001 (Name:conv Type:convolutional)"
HERE = "snpe:sdk=/opt/snpe,serial=S"


def read(text: str) -> Report:
    (declaration,) = chosen_commands([HERE])
    return report_of(declaration.spec({}), "", lambda name: text, profiled=True, wall_ns=1)


def test_a_call_is_the_sum_of_the_layers_but_for_the_input() -> None:
    found = read(RESULT)
    assert found.calls_ns == [37_000]
    assert {one["name"]: one["wall_ns"] for one in found.operators} == {"conv": [30_000], "bn": [7_000]}
    assert read(json.dumps(json.loads(RESULT), indent=4)).calls_ns == [37_000]
    quick = json.loads(RESULT)
    quick["Execution_Data"]["GPU"][CONV]["Avg_Time"] = 0  # less than a microsecond
    assert read(json.dumps(quick)).calls_ns == [7_000]


@pytest.mark.parametrize("layers", [{}, {CONV: {"Min_Time": 0, "Avg_Time": 0, "Max_Time": 0}}])
def test_a_result_without_times_of_layers_has_no_time(layers: dict[str, Any]) -> None:
    whole = {"Total Inference Time": {"Min_Time": 623, "Avg_Time": 700, "Max_Time": 812}}
    with pytest.raises(Unreadable):
        read(json.dumps({"Execution_Data": {"GPU": {**whole, **layers}}}))


def test_what_is_chosen_takes_the_place_of_what_is_declared() -> None:
    (declaration,) = chosen_commands([f"{HERE},backend=DSP,backend=CPU,perf_profile=burst"])
    assert declaration.choices["backend"] == ("DSP", "CPU")
    assert declaration.choices["perf_profile"] == ("burst",)
    assert declaration.choices["starts"] == ("5",)
    probing = CommandRuntime(declaration).probing
    assert probing["do"] == "supports"
    assert probing["segment"]["options"]["command"]["choices"]["sdk"] == "/opt/snpe"


@pytest.mark.parametrize(
    ("given", "told", "hint"),
    [
        ("snpe", "snpe needs values for sdk and serial", "snpe:sdk=VALUE,serial=VALUE"),
        ("snpe:sdk,serial=S", "snpe needs values for sdk", "snpe:sdk=VALUE"),
        (f"{HERE},speed=1", "no choice 'speed'", "perf_profile"),
        ("snpr:sdk=/opt", "no command 'snpr'", "snpe"),
    ],
)
def test_what_cannot_be_chosen_is_told(given: str, told: str, hint: str) -> None:
    with pytest.raises(UsageError, match=told) as error:
        chosen_commands([given])
    assert hint in error.value.hint


PROGRAM = """
import os, pathlib, sys
lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
sizes = {pathlib.Path(line.partition(":=")[2]).stat().st_size for line in lines}
if os.environ["HABIT"] != "forgets":
    pathlib.Path("b.out").write_text(f"{len(lines)} lines of {sizes} bytes took 5 us")
    pathlib.Path("a.out").write_text("took 9 us")
"""


def test_a_list_has_a_line_for_each_call_and_the_last_file_by_name_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec: CommandSpec = {
        "name": "c",
        "run": [sys.executable, "-c", PROGRAM, "{input_list}"],
        "read": "(?P<us>[0-9]+) us",
        "each": "mean",
        "file": "*.out",
        "environment": {"HABIT": "{habit}"},
        "choices": {"habit": "tells"},
    }
    segment: Segment = {
        "runtime": "command",
        "model": "model.onnx",
        "options": {"command": spec},
        "inputs": [["x", "t"]],
        "outputs": [],
    }
    buffers = {"t": np.zeros(3, np.float32)}
    loaded = LoadedCommand(segment, buffers, profiled=False)
    loaded.call()
    (folder,) = (one for one in tmp_path.iterdir() if one.is_dir())
    assert (folder / "b.out").read_text().startswith("1 lines of {12} bytes")
    limits: Any = {"sample_ns": 1, "seconds": 20e-6, "least": 1, "most": 9, "rewarm_s": 0.0}
    facts = loaded.take(limits, {"warm_count": 0, "warm_s": 0.0})
    assert (facts["wall_ns"], facts["inner"]) == ([5_000], 1)
    assert (folder / "b.out").read_text().startswith("9 lines")
    spec["choices"]["habit"] = "forgets"
    silent = LoadedCommand(segment, buffers, profiled=False)
    with pytest.raises(Refused, match=r"it wrote no file \*\.out"):
        silent.call()
