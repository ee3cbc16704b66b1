"""Machines with little memory: what gnomon itself takes is small, and hostile models take no more."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from tests.agent.drivers.litertkit import tflite
from tests.models.modelkit import model, node, save, value

from gnomon.errors import ModelError
from gnomon.models.load import load
from gnomon.models.model import read_regular, read_text
from gnomon.system import files
from gnomon.system.files import read_at_most

MIB = 1 << 20
LIMITED = """
import json, resource, sys
from pathlib import Path
limit, model, runtime, out = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest
effort = Effort(processes_least=1, processes_most=1, rounds=2, block_s=0.01, warm_s=0.005, rewarm_s=0.001, timeout_s=60)
found = place(ModelRequest(model=model, effort=effort, runtimes=(runtime,)), out)
(most_kib,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(json.dumps({"verified": found.verified.ok, "host_bytes": int(most_kib) * 1024}))
"""


def five_megabytes(path: Path) -> Path:
    """A chain of eight products with weights of 640 kB each."""
    rng = np.random.default_rng(0)
    weights = {f"w{k}": rng.standard_normal((400, 400), np.float32) / 20 for k in range(8)}
    nodes = [node("MatMul", ["x" if k == 0 else f"y{k - 1}", f"w{k}"], [f"y{k}"]) for k in range(8)]
    save(model(nodes, [value("x", (4, 400))], [value("y7", (4, 400))], weights), path)
    assert path.stat().st_size > 5_000_000
    return path


@pytest.mark.parametrize(
    ("kind", "runtime", "package", "limit"),
    [
        ("onnx", "onnxruntime", "onnxruntime", 512 * MIB),
        ("tflite", "litert", "ai_edge_litert", 1536 * MIB),
    ],
)
def test_a_model_is_placed_in_little_memory(tmp_path: Path, kind: str, runtime: str, package: str, limit: int) -> None:
    """The limit is that of each process: of the host's side, of the agent's, and of all that they start."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    source = tmp_path / f"m.{kind}"
    if kind == "onnx":
        five_megabytes(source)
    else:
        source.write_bytes(tflite("conv", "softmax"))
    words = [str(limit), str(source), runtime, str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", LIMITED, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["verified"]
    assert found["host_bytes"] < 200 * MIB


def test_as_much_is_set_aside_as_a_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abcdef")
    asked: list[int] = []

    class Watched:
        def __init__(self) -> None:
            self.file = path.open("rb")

        def fileno(self) -> int:
            return self.file.fileno()

        def read(self, size: int) -> bytes:
            asked.append(size)
            return self.file.read(size)

    watched = Watched()
    assert read_at_most(watched, 8 << 30) == b"abcdef"  # type: ignore[arg-type]
    watched.file.close()
    assert max(asked) <= MIB
    with path.open("rb") as file:
        assert read_at_most(file, 3) == b"abcd"
    assert read_text(path, 8 << 30) == "abcdef"

    def too_much(file: object, most: int) -> bytes:
        raise MemoryError

    monkeypatch.setattr(files, "read_at_most", too_much)
    with pytest.raises(ModelError, match="its 6 bytes do not fit into the free memory") as told:
        read_regular(path, 100)
    assert "memory" in told.value.hint


def test_a_pipe_is_read_to_its_end() -> None:
    there, here = os.pipe()
    with os.fdopen(there, "rb") as file, os.fdopen(here, "wb") as writer:
        writer.write(b"x" * 1000)
        writer.close()
        assert read_at_most(file, 1 << 30) == b"x" * 1000


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT64])
def test_a_vector_of_any_length_takes_no_memory_where_shapes_are_inferred(tmp_path: Path, kind: int) -> None:
    """onnx follows the values of vectors, and makes a list as long as one."""
    nodes = [node("Relu", ["x"], ["a"]), node("Concat", ["a", "x"], ["y"], axis=0), node("Relu", ["y"], ["z"])]
    made = model(nodes, [value("x", [3], kind)], [value("z", None, kind)])
    made.graph.value_info.append(value("a", [1 << 40], kind))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    graph = load(save(made, tmp_path / "m.onnx")).graph
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors}
    assert shapes["y"] in ((3 + (1 << 40),), None, (-1,))
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < max(1024 * MIB, before * 1024 + 1)


def test_values_of_shapes_are_followed_still(tmp_path: Path) -> None:
    nodes = [node("Shape", ["x"], ["s"]), node("Reshape", ["x", "rest"], ["y"]), node("Reshape", ["y", "s"], ["z"])]
    made = model(nodes, [value("x", [2, 3, 4])], [value("z", None)], {"rest": np.array([0, -1])})
    graph = load(save(made, tmp_path / "m.onnx")).graph
    assert {t.name: t.shape for t in graph.tensors}["z"] == (2, 3, 4)
