"""OpenVINO's driver, in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.drivers.litertkit import tflite
from tests.bad_days.livekit import matmul_onnx

from gnomon.agent.drivers.openvino.driver import undisturbed

pytestmark = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="openvino is not installed")

_SCRIPT = """
import sys
import numpy as np
from gnomon.agent.driver import driver_for
segment = {"model": sys.argv[1], "options": {"threads": 2}, "inputs": [], "outputs": []}
model = driver_for("openvino").load(segment, {}, profiled=False)
print(model._compiled.get_property("ENABLE_CPU_PINNING"), model._compiled.get_property("INFERENCE_NUM_THREADS"))
"""


def test_no_thread_is_bound_to_a_core(tmp_path: Path) -> None:
    """Bound, a call waits for whatever else runs on that core."""
    path = tmp_path / "m.onnx"
    path.write_bytes(matmul_onnx())
    assert run(_SCRIPT, path).split()[0] == "False"


_STATE = """
import sys
import numpy as np
from gnomon.agent.driver import driver_for
from gnomon.agent.drivers.openvino.driver import _openvino
ov = _openvino()
op = ov.opset6
x = op.parameter([1, 4], np.float32, name="x")
start = op.constant(np.zeros((1, 4), np.float32))
grown = op.concat([op.read_value(start, "seen", ov.Type.f32, ov.PartialShape([-1, 4])), x], 0)
end = op.result(op.reduce_sum(grown, op.constant(np.array([0])), True))
ov.save_model(ov.Model(results=[end], sinks=[op.assign(grown, "seen")], parameters=[x], name="m"), sys.argv[1])
"""

_CALLS = """
import sys
import numpy as np
from gnomon.agent.driver import driver_for
from gnomon.models.load import load
graph = load(sys.argv[1]).graph
(x,), (y,) = ([graph.tensors[t].name for t in ends] for ends in (graph.inputs, graph.outputs))
buffers = {x: np.ones((1, 4), np.float32), y: np.zeros((1, 4), np.float32)}
segment = {"model": sys.argv[1], "options": {"threads": 1}, "inputs": [[x, x]], "outputs": [[y, y]]}
model = driver_for("openvino").load(segment, buffers, profiled=False)
for _ in range(3):
    model.call()
    print(buffers[y].sum())
"""


_SHORT = """
import sys
import numpy as np
from gnomon.agent.driver import driver_for
from gnomon.models.load import load
graph = load(sys.argv[1]).graph
tensors = [graph.tensors[t] for t in (*graph.inputs, *graph.outputs)]
buffers = {t.name: np.zeros(t.shape, np.float32) for t in tensors}
x, y = ([[t.name, t.name]] for t in tensors)
segment = {"model": sys.argv[1], "options": {"threads": 1}, "inputs": x, "outputs": y}
model = driver_for("openvino").load(segment, buffers, profiled=True)
for _ in range(4000):
    model.call()
(row,) = [row for row in model.operators(3990) if row["sources"]]
print(len(row["wall_ns"]))
"""


def run(script: str, *arguments: object) -> str:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=True
    ).stdout


def test_a_kernel_of_less_than_a_microsecond_is_told_as_well(tmp_path: Path) -> None:
    """Its counter says that it did not run, once its first call is averaged away."""
    path = tmp_path / "m.tflite"
    path.write_bytes(tflite("conv"))
    assert run(_SHORT, path).split() == ["10"]


def test_each_call_begins_with_the_first_state(tmp_path: Path) -> None:
    """Else a state that grows, as that of a language model, would make each call longer than the one before."""
    run(_STATE, tmp_path / "m.xml")
    assert run(_CALLS, tmp_path / "m.xml").split() == ["4.0"] * 3


_SUPPORTS = """
import sys
import numpy as np
from gnomon.agent.driver import Refused, driver_for
from gnomon.agent.drivers.openvino.driver import _openvino
ov = _openvino()
op = ov.opset13
x = op.parameter([-1, 4, 1], np.float32, name="x")
ov.save_model(ov.Model([op.softmax(ov.opset15.squeeze(x), 1)], [x], "m"), sys.argv[1])
driver = driver_for("openvino")
print(driver.supports({"model": sys.argv[1], "options": {"shapes": {"x": [3, 4, 1]}}}))
try:
    driver.supports({"model": sys.argv[1]})
except Refused:
    print("refused")
"""


def test_what_is_supported_is_asked_with_the_shapes_that_are_fed(tmp_path: Path) -> None:
    """Of an open shape the rank behind a squeeze is unknown, which OpenVINO refuses."""
    assert run(_SUPPORTS, tmp_path / "m.xml").splitlines() == ["{'whole': True}", "refused"]


def test_means_of_all_calls_are_taken_apart_and_slow_ones_left_out() -> None:
    calls_us = [90, 10, 11, 5000, 9, 10, 10, 12]  # a cold one, then one that something interrupted
    means_ns = [1000 * round(sum(calls_us[:n]) / n) for n in range(1, len(calls_us) + 1)]
    seen_ns = undisturbed(means_ns, 1)
    assert len(seen_ns) == 7 and all(8_000 <= time <= 14_000 for time in seen_ns)
    assert undisturbed([], 1) == []
