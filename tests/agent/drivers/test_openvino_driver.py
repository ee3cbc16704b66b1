"""OpenVINO's driver, in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bad_days.livekit import matmul_onnx

pytestmark = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="openvino is not installed")

_SCRIPT = """
import sys
import numpy as np
from gnomon.agent.driver import driver_for
segment = {"model": sys.argv[1], "options": {"threads": int(sys.argv[2])}, "inputs": [], "outputs": []}
model = driver_for("openvino").load(segment, {}, profiled=False)
print(model._compiled.get_property("ENABLE_CPU_PINNING"), model._compiled.get_property("INFERENCE_NUM_THREADS"))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_no_thread_is_bound_to_a_core(tmp_path: Path, threads: int) -> None:
    """Bound, a call waits for whatever else runs on that core."""
    path = tmp_path / "m.onnx"
    path.write_bytes(matmul_onnx())
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(path), str(threads)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[0] == "False"
