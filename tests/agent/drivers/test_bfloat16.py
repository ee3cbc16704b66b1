"""Inputs and outputs of bfloat16 in the runtimes that have them, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnomon.agent.arrays import rounded, widened
from gnomon.agent.driver import Refused
from gnomon.agent.job import Job
from gnomon.wire import Segment

GOLDEN = Path(__file__).parents[2] / "models" / "golden"
X = np.asarray([[1.0, -2.5, 3.140625], [0.0078125, 1e18, -0.0]], np.float32)
_SCRIPT = """
import json, sys
from gnomon.agent.job import Job
given = json.loads(sys.argv[1])
for job in given:
    loaded = Job(job)
    made, again = loaded.outputs(0)["y"], loaded.outputs(0)["y"]
    assert made.dtype == "float32" and (made == again).all()
    print("y", json.dumps(made.tolist()))
    loaded.close()
profiled = Job(given[0], profiled=True)
profiled.call()
assert profiled.operators(0)
"""


def ran(*jobs: Any) -> list[Any]:
    """The outputs of jobs, of which one process runs all and profiles the first."""
    told = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(jobs)], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    return [json.loads(line[2:]) for line in told.stdout.splitlines() if line.startswith("y ")]


def job_of(runtime: str, model: Path, output_shape: list[int] | None, **options: Any) -> Any:
    return {
        "tensors": {
            "x": {"shape": list(X.shape), "dtype": "bfloat16"},
            "y": {"shape": output_shape, "dtype": "bfloat16"},
        },
        "feeds": {"x": {"values": X.tolist()}},
        "outputs": ["y"],
        "seed": 0,
        "segments": [
            {
                "runtime": runtime,
                "model": str(model),
                "options": {"threads": 1, **options},
                "inputs": [["x", "x"]],
                "outputs": [["y", "y"]],
            }
        ],
    }


def saved(path: Path, *, counted: bool) -> Path:
    """A model that doubles in float32; `counted`: that tells where it is not 0, so that only a call tells the size."""
    pytest.importorskip("onnx")
    from onnx import TensorProto
    from tests.models import modelkit

    kind, node = TensorProto.BFLOAT16, modelkit.node
    nodes = [node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT), node("Add", ["wide", "wide"], ["twice"])]
    nodes += [node("NonZero", ["twice"], ["where"])] if counted else []
    nodes += [node("Cast", [nodes[-1].output[0]], ["y"], to=kind)]
    shape: list[int | str | None] = [2, "n"] if counted else list(X.shape)
    inputs, outputs = [modelkit.value("x", list(X.shape), kind)], [modelkit.value("y", shape, kind)]
    return modelkit.save(modelkit.model(nodes, inputs, outputs), path)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_models_in_onnx(runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    plain, counted = saved(tmp_path / "m.onnx", counted=False), saved(tmp_path / "n.onnx", counted=True)
    known, found = ran(job_of(runtime, plain, list(X.shape)), job_of(runtime, counted, None))
    assert known == widened(rounded(2 * widened(rounded(X)))).tolist()
    assert found == [[0, 0, 0, 1, 1], [0, 1, 2, 0, 1]]


def test_values_of_onnx_runtime_over_the_arrays(tmp_path: Path) -> None:
    """A session that is fed, as a profiled one of several providers, reads bfloat16 where it lies."""
    ort = pytest.importorskip("onnxruntime")
    from gnomon.agent.drivers.onnxruntime.binding import fed_call

    path = saved(tmp_path / "m.onnx", counted=False)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    segment: Segment = {
        "runtime": "onnxruntime", "model": str(path), "options": {}, "inputs": [["x", "x"]], "outputs": [["y", "y"]]
    }  # fmt: skip
    buffers = {"x": rounded(np.zeros_like(X))}
    call = fed_call(session, segment, buffers)
    for value in (X, -X):
        np.copyto(buffers["x"], rounded(value))
        call()
        assert np.array_equal(widened(buffers["y"]), 2 * widened(buffers["x"]))


@pytest.mark.parametrize(
    ("runtime", "needs", "options"),
    [
        ("pytorch", ["torch"], {"mode": "eager"}),
        ("executorch", ["executorch", "torchao", "ruamel"], {"xnnpack": []}),
    ],
)
def test_exported_programs(runtime: str, needs: list[str], options: dict[str, Any]) -> None:
    if lacking := [name for name in needs if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{', '.join(lacking)}: not installed")
    path = GOLDEN / "bfloat16.pt2"
    jobs = [job_of(runtime, path, shape, **options) for shape in (list(X.shape), None)]
    square = widened(rounded(np.square(widened(rounded(X)))))
    expected = np.maximum(widened(rounded(square - 1)), 0).tolist()
    assert ran(*jobs) == [expected, expected]


class Plain:
    """A driver that was never told of bfloat16."""

    def load(self, segment: Any, buffers: Any, *, profiled: bool) -> Any:
        raise AssertionError("it got a model that it cannot be fed with")


def test_a_driver_that_knows_nothing_of_it_gets_none() -> None:
    job = job_of(f"{__name__}:Plain", GOLDEN / "bfloat16.pt2", None)
    with pytest.raises(Refused, match="'x' is bfloat16"):
        Job(job)
