"""Runtimes that take a model whole: the few lines in their own API that a package holds run, and compute."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.agent.drivers.litertkit import tflite
from tests.agent.jobkit import placed_here
from tests.bad_days.livekit import matmul_onnx
from tests.runtimes.test_ncnn import written as ncnn_net

from gnomon.api.place import place
from gnomon.jobs.place.report import place_report
from gnomon.report.page import Page
from gnomon.runtimes.base import Probe, RunSettings
from gnomon.runtimes.executorch import ExecuTorch
from gnomon.runtimes.litert import LiteRt
from gnomon.runtimes.mnn import Mnn
from gnomon.runtimes.ncnn import Ncnn
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.runtimes.openvino import OpenVino
from gnomon.runtimes.pytorch import PyTorch
from gnomon.runtimes.tvm import Tvm
from gnomon.runtimes.whole import program_of

GOLDEN = Path(__file__).parents[1] / "models" / "golden"
RUNTIMES: dict[str, tuple[Any, str]] = {
    "MNN": (Mnn(), "outputs"),
    "ncnn": (Ncnn(), "results"),
    "torch": (PyTorch(), "results"),
    "executorch": (ExecuTorch(), "results"),
    "onnxruntime": (OnnxRuntime(), "[*outputs.values()]"),
    "openvino": (OpenVino(), "[request.get_output_tensor(0).data]"),
    "ai_edge_litert": (LiteRt(), "[interpreter.get_tensor(interpreter.get_output_details()[0]['index'])]"),
}


def written(folder: Path, runtime: Any, configuration: Any, **feeds: Path) -> str | None:
    if runtime.name == "ncnn":
        file = ncnn_net(folder)
    elif runtime.name in ("pytorch", "executorch"):
        fixed = runtime.name == "executorch" and not configuration.usual
        file = Path(shutil.copy(GOLDEN / ("small-xnnpack.pte" if fixed else "small.pt2"), folder))
    else:
        file = folder / ("m.tflite" if runtime.name == "litert" else "m.onnx")
        file.write_bytes(tflite("conv", "softmax") if runtime.name == "litert" else matmul_onnx())
    return program_of(runtime, placed_here(file), configuration, file.name, feeds)


@pytest.mark.parametrize("usual", [False, True], ids=["settings", "defaults"])
@pytest.mark.parametrize("package", RUNTIMES)
def test_the_program_runs_in_any_folder_and_its_call_computes(package: str, usual: bool, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    runtime, taken = RUNTIMES[package]
    backends = {"ncnn": "cpu", "torch": "eager", "executorch": "portable"}.get(package, "xnnpack")
    probe = Probe(version="9", backends=(backends,), details={"precisions": ["FP32"], "usual_precision": "f32"})
    configuration = runtime.usual(probe) if usual else runtime.configurations(probe, RunSettings(threads=7))[0]
    program = written(tmp_path, runtime, configuration)
    assert program is not None and ("7" in program.partition("calls = []")[0]) is not usual
    saved = (
        f"\nresults = call()\nnumpy.save('out.npy', (results if isinstance(results, list | tuple) else {taken})[0])\n"
    )
    (tmp_path / "use.py").write_text(program + saved)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run([sys.executable, "../use.py"], cwd=elsewhere, capture_output=True, text=True)
    assert re.search(r"^[0-9.]+ ms a call, [0-9.]+ ms of CPU time\Z", done.stdout.strip(), re.MULTILINE), done.stderr
    computed = np.load(elsewhere / "out.npy")
    assert computed.size and np.isfinite(computed).all() and np.any(computed)


def test_inputs_of_the_users_own_are_read_and_a_runtime_without_such_lines_has_none(tmp_path: Path) -> None:
    probe = Probe(version="9", backends=("cpu",))
    (name,) = placed_here(model_of(tmp_path)).inputs
    program = written(tmp_path, OnnxRuntime(), OnnxRuntime().usual(probe), **{name: tmp_path / "x.npy"})
    assert program is not None and f"numpy.load({str(tmp_path / 'x.npy')!r})" in program
    assert (
        written(tmp_path, Tvm(), Tvm().configurations(Probe(version="9", backends=("llvm",)), RunSettings())[0]) is None
    )


def model_of(folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(matmul_onnx())
    return path


@pytest.mark.usefixtures("short_visits")
def test_a_placement_names_its_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")
    model_of(tmp_path)
    how: dict[str, Any] = {"runtimes": ["onnxruntime"], "processes": 1, "threads": 1, "picture": False}
    found = place(tmp_path / "m.onnx", out=tmp_path / "out", record=tmp_path / "r.sqlite", **how)
    assert found.program == "use.py" and (tmp_path / "out" / "use.py").is_file()
    assert "use.py" in (tmp_path / "out" / "README.txt").read_text()
    place_report(found, Page())
    assert "/use.py" in capsys.readouterr().out
