"""OpenVINO's operators on several devices, with the real OpenVINO: the CPU, and its plugin registered once more."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.jobkit import placed_here
from tests.runtimes.openvinokit import net

from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.measure.link import AgentLink
from gnomon.models.load import load
from gnomon.runtimes.base import Configuration, Probe, RunSettings, Runtime
from gnomon.runtimes.openvino import OpenVino
from gnomon.testing.runtime import RuntimeContract

pytestmark = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="openvino is not installed")

PRECISIONS: Any = {"precisions": ["FP32", "BF16"]}
PROBE = Probe(version="1", backends=("cpu", "cpu-f32", "cpu-bf16"), details=PRECISIONS)
BOTH = ("cpu", "cpu-f32")


class OnDevices(OpenVino):
    """The adapter, asked for two devices where nobody asks for any."""

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        return super().configurations(probe, replace(settings, backends=settings.backends or BOTH))


class TestOnDevices(RuntimeContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        return OnDevices()

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return net(tmp_path / "net.onnx")


def test_devices_are_placed_on_where_they_are_wished_or_real() -> None:
    adapter = OpenVino()
    assert [c.backends for c in adapter.configurations(PROBE, RunSettings())] == [("openvino",)]
    assert [c.backends for c in adapter.configurations(PROBE, RunSettings(backends=("cpu",)))] == [("openvino",)]
    (mixed,) = adapter.configurations(PROBE, RunSettings(backends=("cpu-bf16", "cpu")))
    assert (mixed.name, mixed.backends, mixed.precision) == ("openvino[devices]", ("cpu", "cpu-bf16"), "bfloat16")
    assert mixed.transfers and mixed.steps_within and mixed.tolerance == 0.05
    real = replace(PROBE, backends=("cpu", "gpu.0", "npu", "cpu-f32"))
    whole, devices = adapter.configurations(real, RunSettings())
    assert (whole.backends, devices.backends) == (("openvino",), ("cpu", "gpu.0", "npu"))
    assert devices.precision == "float16"  # what an NPU computes in
    assert not mixed.accelerators and not devices.accelerators
    cards = [{"backend": name, "name": name.upper(), "software": False} for name in ("gpu.0", "gpu.1")]
    _, devices = adapter.configurations(replace(real, details=PRECISIONS | {"devices": cards}), RunSettings())
    assert [a.name for a in devices.accelerators] == ["GPU.0"]  # so that wall time decides
    named = replace(real, details=PRECISIONS | {"devices": {"cpu": "CPU", "gpu.0": "GPU"}})  # of an older record
    assert not adapter.configurations(named, RunSettings())[1].accelerators
    for backends, told in ((("cpu-bf16",), "needs the backend 'cpu'"), (("cpu", "gpu"), "no backend 'gpu'")):
        with pytest.raises(UsageError, match=told) as refused:
            adapter.configurations(PROBE, RunSettings(backends=backends))
        assert refused.value.hint


def test_what_is_computed_together_is_placed_together(tmp_path: Path, link: AgentLink) -> None:
    placed = placed_here(net(tmp_path / "net.onnx"))
    configuration = OnDevices().configurations(PROBE, RunSettings())[0]
    found = OnDevices().support(link.ask, placed, configuration)
    assert not found.failures
    assert set(found.operators) == set(BOTH) and all(len(taken) == 9 for taken in found.operators.values())
    leaders = [found.folded.get(k, k) for k in range(9)]
    conv, norm, relu, exp, left, right, soft, same, _ = leaders
    assert conv == norm == relu == 0
    assert same == right
    assert len({conv, exp, left, right, soft}) == 5
    assert found.options == {"leaders": leaders}


def test_a_device_that_fails_is_left_out_and_the_cpu_must_not(tmp_path: Path) -> None:
    placed = placed_here(net(tmp_path / "net.onnx"))
    configuration = OnDevices().configurations(PROBE, RunSettings())[0]
    crash = Failure(stage="probe", kind="crash", transient=False, message="crashed")
    good: Mapping[str, Any] = {"operators": list(range(9)), "kernels": [[0, 1, 2]], "unnamed": []}
    lacking = {**good, "operators": [0, 1, 3]}

    def answering(told: Mapping[str, Mapping[str, Any] | Failure]) -> Any:
        return lambda commands: {key: told[key] for key in commands}

    found = OpenVino().support(answering({"cpu": good, "cpu-f32": crash}), placed, configuration)
    assert found.failures == {"cpu-f32": crash} and len(found.operators["cpu"]) == 9
    none = OpenVino().support(answering({"cpu": crash, "cpu-f32": good}), placed, configuration)
    assert not any(none.operators.values())
    part = OpenVino().support(answering({"cpu": good, "cpu-f32": lacking}), placed, configuration)
    assert part.operators["cpu-f32"] == {3}  # the convolution stays with the activation that is not taken


LOAD = """
import json, sys
import numpy as np
from gnomon.agent.driver import Refused, driver_for
from gnomon.agent.drivers.openvino import hetero
segment, lie = json.loads(sys.argv[1]), sys.argv[2]
real = hetero.place
def lying(ov, model, names, backends, places):
    real(ov, model, names, backends, [1 - places[0], *places[1:]] if lie == "one" else [0] * len(places))
if lie:
    hetero.place = lying
shape = (1, 8, 16, 16)
buffers = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32), "y": np.zeros(shape, np.float32)}
try:
    model = driver_for("openvino").load(segment, buffers, profiled=True)
    where = model.where()
    for _ in range(3):
        model.call()
    rows = model.operators(1)
    print(json.dumps({"where": where, "rows": rows, "sum": float(buffers["y"].sum())}))
except Refused as refused:
    print(json.dumps({"refused": str(refused)}))
"""


def loaded(link: AgentLink, path: Path, places: Sequence[int], lie: str = "", backends: Sequence[str] = BOTH) -> Any:
    placed = placed_here(path)
    configuration = OpenVino().configurations(PROBE, RunSettings(backends=tuple(backends)))[0]
    found = OpenVino().support(link.ask, placed, configuration)
    configuration = replace(configuration, options={**configuration.options, **found.options})
    assignment = {k: backends[places[found.folded.get(k, k)]] for k in range(len(places))}
    segment = OpenVino().segment(placed, configuration, assignment)
    done = subprocess.run(
        [sys.executable, "-c", LOAD, json.dumps(segment), lie], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout), assignment


@pytest.mark.parametrize("places", [(0, 0, 0, 1, 0, 1, 1, 1, 0), (1,) * 9])
def test_openvinos_own_report_proves_each_operator(tmp_path: Path, link: AgentLink, places: Sequence[int]) -> None:
    path = net(tmp_path / "net.onnx")
    told, assignment = loaded(link, path, places)
    assert {k: row["backend"] for row in told["where"] for k in row["operators"]} == assignment
    rows = {row["sources"][0]: row for row in told["rows"]}
    assert all(len(row["wall_ns"]) == 2 and row["backend"] == assignment[k] for k, row in rows.items())
    assert {0, 3, 6} <= set(rows)
    alone, _ = loaded(link, path, (0,) * 9)
    assert told["sum"] == pytest.approx(alone["sum"], rel=1e-4)


SAVE = """
import sys
from gnomon.agent.drivers.openvino.driver import _openvino
ov = _openvino()
ov.save_model(ov.Core().read_model(sys.argv[1]), sys.argv[2])
"""


def test_operators_of_openvinos_own_file_are_placed_and_proved(tmp_path: Path, link: AgentLink) -> None:
    path = tmp_path / "net.xml"
    subprocess.run([sys.executable, "-c", SAVE, str(net(tmp_path / "net.onnx")), str(path)], check=True)
    count = len(load(path).graph.operators)
    places = [k % 2 for k in range(count)]
    told, assignment = loaded(link, path, places)
    assert set(assignment.values()) == set(BOTH)
    assert {k: row["backend"] for row in told["where"] for k in row["operators"]} == assignment
    alone, _ = loaded(link, path, [0] * count)
    assert told["sum"] == pytest.approx(alone["sum"], rel=1e-4)


def test_what_lies_elsewhere_than_planned_is_refused_by_name(tmp_path: Path, link: AgentLink) -> None:
    path, places = net(tmp_path / "net.onnx"), (0, 0, 0, 1, 0, 1, 1, 1, 0)
    told, _ = loaded(link, path, places, lie="one")
    assert "operators elsewhere: conv on cpu-f32" in told["refused"]
    told, _ = loaded(link, path, places, lie="all")
    assert told["refused"].startswith("OpenVINO runs the model on CPU instead of CPU, CPU_F32")


PLAIN = """
import json
import openvino as ov
import openvino_hetero as hetero
options = json.load(open("plan.json"))
core = hetero.opened(ov, options["backends"], options["threads"])
model = hetero.fold(core.read_model("net.onnx"))
hetero.place(ov, model, options["names"], options["backends"], options["places"])
compiled = core.compile_model(model, hetero.hetero(options["backends"]))
print(json.dumps([hetero.submodels(compiled), sorted(compiled.get_property("EXECUTION_DEVICES"))]))
"""


def test_a_plain_program_places_as_the_package_says(tmp_path: Path, link: AgentLink) -> None:
    path = net(tmp_path / "net.onnx")
    configuration = OnDevices().configurations(PROBE, RunSettings())[0]
    found = OnDevices().support(link.ask, placed_here(path), configuration)
    configuration = replace(configuration, options={**configuration.options, **found.options})
    folder = tmp_path / "package"
    folder.mkdir()
    assignment = {k: "cpu-f32" if found.folded.get(k, k) in (3, 4) else "cpu" for k in range(9)}
    written = OnDevices().package(load(path), configuration, assignment, folder)
    (folder / "plan.json").write_text(json.dumps(written["options"]))
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    done = subprocess.run([sys.executable, "-c", PLAIN], cwd=folder, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [["CPU", "CPU_F32", "CPU"], ["CPU", "CPU_F32"]]
