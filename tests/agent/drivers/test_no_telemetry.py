"""No measured process reports to a runtime's maker, and none leaves anything in the home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.agent.drivers.litertkit import tflite

DIGITS = Path(__file__).parents[3] / "docs" / "examples" / "digits.onnx"
_SCRIPT = """
import json, os, sys
seen = []
runtime, path = sys.argv[1:]
programs = ("os.system", "subprocess", "socket", "urllib", "os.posix_spawn", "os.fork", "os.exec")
watched = {"MNN": programs, "litert": ("socket.",)}.get(runtime, ())
sys.addaudithook(lambda event, _: seen.append(event) if event.startswith(watched) else None)
if runtime == "MNN":
    from gnomon.agent.drivers.mnn import convert_here; import MNN
    convert_here(path, "m.mnn")
    MNN.Interpreter("m.mnn").createSession()
    os.remove("m.mnn")
else:
    from gnomon.agent.arrays import make_buffers
    from gnomon.agent.driver import driver_for
    driver = driver_for(runtime)
    driver.probe()
    for kernels in ("xnnpack", "builtin", "reference") if runtime == "litert" else ():
        segment = {"model": path, "options": {"kernels": kernels}, "inputs": [["i", "x"]], "outputs": [["o", "y"]]}
        driver.supports(segment)
        buffers = make_buffers({name: {"shape": [1, 4, 4, 8], "dtype": "float32"} for name in "xy"})
        model = driver.load(segment, buffers, profiled=True)
        model.call(); model.where(); model.operators(0)
links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")] if runtime == "litert" else []
seen += [os.readlink(link) for link in links if os.path.islink(link) and "socket:" in os.readlink(link)]
reporting = ("MNN.tools", "aliyun", "openvino.tools.ovc.")
seen += [name for name in sys.modules if name.startswith(reporting)]
print("\\n" + json.dumps([seen, os.environ.get("ORT_DISABLE_TELEMETRY")]))
"""


@pytest.mark.parametrize("runtime", ["litert", "MNN", "onnxruntime", "openvino"])
def test_a_runtime_opens_no_socket_and_leaves_nothing_in_the_home(runtime: str, tmp_path: Path) -> None:
    """The command `mnnconvert` of MNN's wheel runs pip when it is started, and calls the network."""
    if find_spec("ai_edge_litert" if runtime == "litert" else runtime) is None:
        pytest.skip(f"{runtime} is not installed")
    (tmp_path / "m.tflite").write_bytes(tflite("conv", "floor_mod"))
    model = tmp_path / "m.tflite" if runtime == "litert" else DIGITS
    (home := tmp_path / "home").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, runtime, str(model)],
        env={**environment, "HOME": str(home), **({"TMPDIR": str(home)} if runtime == "litert" else {})},
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    seen, telemetry = json.loads(done.stdout.splitlines()[-1])
    assert seen == []
    assert runtime != "onnxruntime" or telemetry == "1"
    assert runtime == "onnxruntime" or list(home.iterdir()) == []


@pytest.mark.parametrize("package", ["onnxruntime", "openvino"])
def test_nothing_imports_a_runtime_around_that(package: str) -> None:
    folder = Path(__file__).parents[3] / "src" / "gnomon"
    found = [
        str(p.relative_to(folder))
        for p in folder.rglob("*.py")
        if f"import {package}\n" in p.read_text(encoding="utf-8")
    ]
    assert found == [f"agent/drivers/{package}/driver.py"]
