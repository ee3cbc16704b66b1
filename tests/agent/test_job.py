"""Jobs that compute at the same time, by real runtimes, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.drivers.litertkit import tflite
from tests.agent.jobkit import bound, job_of, placed_here
from tests.bad_days.livekit import matmul_onnx

_SCRIPT = """
import json, sys
import numpy as np
from gnomon.agent.job import Job
job = Job(json.loads(sys.argv[1]))
assert len(job.beside) == 1 and not any(one.beside for one in job.beside)
known = job.outputs(1)
for one in job.beside:
    found = one.outputs(1)
    assert all(np.array_equal(found[name], known[name]) for name in known)
    assert all(array is not job.buffers[name] for name, array in one.buffers.items())
first, second = job.parts[0], job.beside[0].parts[0]
shared = [getattr(first, name) is getattr(second, name) for name in ("_session", "_compiled") if hasattr(first, name)]
streams = first._compiled.get_property("NUM_STREAMS") if hasattr(first, "_compiled") else None
job.close()
print(json.dumps({"shared": shared, "streams": streams}))
"""


@pytest.mark.parametrize(
    ("runtime", "module", "shared", "streams"),
    [
        ("onnxruntime", "onnxruntime", [True], None),
        ("openvino", "openvino", [True], min(2, len(os.sched_getaffinity(0)))),
        ("litert", "ai_edge_litert", [], None),
    ],
)
def test_what_is_beside_a_job_computes_the_same_on_arrays_of_its_own(
    runtime: str, module: str, shared: list[bool], streams: int | None, tmp_path: Path
) -> None:
    pytest.importorskip(module, reason=f"{module} is not installed")
    path = tmp_path / ("m.tflite" if runtime == "litert" else "m.onnx")
    path.write_bytes(tflite("conv", "softmax") if runtime == "litert" else matmul_onnx())
    placed = placed_here(path)
    options = {"threads": 1, "streams": 2}
    job = job_of(placed.graph, {"runtime": runtime, "model": placed.path, "options": options, **bound(placed.graph)})
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(job)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"shared": shared, "streams": streams}
