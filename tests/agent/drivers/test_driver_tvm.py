"""TVM's driver with the real compiler and runtime: values, nodes of kernels, threads, the cache, and refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.agent.drivers import tvm_models
from tests.agent.drivers.tvm_models import needs_tvm

from gnomon.agent.driver import Refused
from gnomon.agent.drivers.tvm import driver as driver_tvm
from gnomon.agent.drivers.tvm.driver import TvmDriver

pytestmark = [needs_tvm, pytest.mark.usefixtures("folder")]

_SCRIPT = """
import json, os, sys, time
import numpy as np
from gnomon.agent.arrays import make_buffers
from gnomon.agent.drivers.tvm.driver import TvmDriver
for asked in json.loads(sys.stdin.readline()):
    facts = {}
    buffers = make_buffers(asked["tensors"])
    def fill(seed):
        for k, (name, _) in enumerate(asked["segment"]["inputs"]):
            value = np.random.default_rng([seed, k]).standard_normal(buffers[name].shape)
            buffers[name][...] = value.astype(np.float32)
    for profiled in (False, True):
        model = TvmDriver().load(asked["segment"], buffers, profiled=profiled)
        made = []
        for seed in range(3):
            fill(seed)
            model.call()
            made.append({name: buffers[name].tolist() for name, _ in asked["segment"]["outputs"]})
        if not profiled:
            facts["where"], facts["outputs"] = model.where(), made
            begun, worked = time.perf_counter(), time.process_time()
            for _ in range(2000):
                model.call()
            facts["cores"] = (time.process_time() - worked) / (time.perf_counter() - begun)
            facts["tasks"] = len(os.listdir("/proc/self/task"))
        else:
            facts["same"] = made == facts["outputs"]
            facts["operators"] = model.operators(1)
        model.close()
        model.close()
    facts["torch"] = "torch" in sys.modules
    facts["compiler"] = any("libtvm_compiler" in line for line in open("/proc/self/maps"))
    facts["affinity"] = [sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
    print("facts " + json.dumps(facts))
"""
NETS = {
    "small": tvm_models.small_net(),
    "layer norm": tvm_models.layer_norm_net(),
    "two ends": tvm_models.two_ends(),
    "channels last": tvm_models.deep_net(0.25),
    "channels first": tvm_models.deep_net(1.5),
    "batch norms": tvm_models.norm_net(),
    "products of bytes": tvm_models.bytes_net(),
}


def ask(folder: Path, threads: int, *names: str) -> dict[str, dict[str, Any]]:
    """What a fresh process tells of nets, nodes by their numbers; its pool of threads is made once."""
    kinds = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.INT64: "int64"}
    graphs, asked = {}, []
    for name in names:
        graphs[name] = graph = onnx.load_from_string(NETS[name]).graph
        path = folder / f"{name}.onnx"
        path.write_bytes(NETS[name])
        tensors = {
            v.name: {
                "shape": [d.dim_value for d in v.type.tensor_type.shape.dim],
                "dtype": kinds[v.type.tensor_type.elem_type],
            }
            for v in (*graph.input, *graph.output)
        }
        inputs, outputs = ([[v.name, v.name] for v in ends] for ends in (graph.input, graph.output))
        segment = {"model": str(path), "options": {"threads": threads}, "inputs": inputs, "outputs": outputs}
        asked.append({"tensors": tensors, "segment": segment})
    home, private = folder / "home of the process", folder / "private folder"
    home.mkdir()
    private.mkdir(mode=0o700)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "HOME": str(home), "TMPDIR": str(private)}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        input=json.dumps(asked) + "\n",
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    lines = [line.removeprefix("facts ") for line in done.stdout.splitlines() if line.startswith("facts ")]
    assert len(lines) == len(names), done.stderr[-2000:]
    assert list(home.iterdir()) == [], "TVM's interface would compile an extension into it, beside PyTorch"
    found: dict[str, dict[str, Any]] = dict(zip(names, map(json.loads, lines), strict=True))
    for name, facts in found.items():
        numbers = {node.output[0]: k for k, node in enumerate(graphs[name].node)}
        for key, rows in (("sources", facts["operators"]), ("operators", facts["where"])):
            for row in rows:
                row[key] = sorted(numbers[node] for node in row[key])
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What one process with one thread tells of all nets."""
    return ask(tmp_path_factory.mktemp("nets"), 1, *NETS)


def check_threads(facts: dict[str, Any], threads: int) -> None:
    """They are as many as asked for and bound to no core."""
    assert facts["tasks"] == threads
    assert facts["affinity"] == [sorted(os.sched_getaffinity(0))] * threads


@pytest.mark.parametrize("name", NETS)
def test_values_are_those_of_onnx_runtime(found: dict[str, dict[str, Any]], name: str) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(NETS[name])
    for seed, got in enumerate(found[name]["outputs"]):
        feeds = {
            v.name: np.random.default_rng([seed, k]).standard_normal(v.shape).astype(np.float32)
            for k, v in enumerate(session.get_inputs())
        }
        for output, wanted in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(np.array(got[output.name]), wanted, rtol=1e-4, atol=1e-5)
    assert found[name]["same"]


# Where a leaky ReLU cannot be written otherwise, each would be turned for: that network stays as it is.
PAIRS = [[2 * k, 2 * k + 1] for k in range(8)]


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        # The second and the third convolution are told apart, and the clipping belongs to the first.
        ("small", [[0, 1], [2, 3], [4, 5, 6], [7], [8], [9], [10]]),
        ("layer norm", [[0], [1], [2]]),
        ("channels last", [[0], *PAIRS, [16], [17], [18]]),
        ("channels first", [*PAIRS, [16], [17], [18]]),
        # In the weights of what is before them, but for one of what is read twice and one of a sum: these are fused.
        ("batch norms", [[0, 1, 2], [3, 4], [5, 6, 7, 8, 9], [10], [11], [12, 13]]),
    ],
)
def test_the_nodes_of_each_kernel(found: dict[str, dict[str, Any]], name: str, kernels: list[list[int]]) -> None:
    assert [row["sources"] for row in found[name]["operators"]] == kernels


def test_outputs_that_come_of_one_node_and_products_of_bytes(found: dict[str, dict[str, Any]]) -> None:
    assert {node for row in found["two ends"]["operators"] for node in row["sources"]} == {0, 1, 2}
    rows = [row["sources"] for row in found["products of bytes"]["operators"]]
    products = [[1, 2, 3, 4], [6, 7, 8, 9], [11, 12, 13, 14]]
    assert [nodes for nodes in rows if {2, 7, 12} & set(nodes)] == products


def test_times_and_threads(found: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    small = found["small"]
    check_threads(small, 1)
    assert small["cores"] < 1.05
    assert small["where"] == [{"operators": list(range(11)), "backend": "llvm"}]
    assert all(len(row["wall_ns"]) == 2 and min(row["wall_ns"]) > 0 for row in small["operators"])
    # What is measured is the small runtime, without the compiler and without what else is installed.
    assert (small["torch"], small["compiler"]) == (False, False)
    check_threads(ask(tmp_path, 2, "layer norm")["layer norm"], 2)


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"this is not a model" * 100, "this is not an ONNX model"),
        (b"", "this is not an ONNX model: it has no outputs"),
        (
            tvm_models.model_bytes(
                [onnx.helper.make_node("Relu", ["x"], ["y"])], {}, {"x": ("n", 4)}, {"y": (1, (1, 4))}
            ),
            "the shape of input 'x' is left open.*--shape x=",
        ),
        (
            tvm_models.model_bytes(
                [onnx.helper.make_node("StringNormalizer", ["x"], ["y"])], {}, {"x": (4,)}, {"y": (1, (4,))}
            ),
            "not supported for frontend ONNX: StringNormalizer",
        ),
        (
            tvm_models.model_bytes(
                [onnx.helper.make_node("NonZero", ["x"], ["y"])], {}, {"x": (2, 4)}, {"y": (7, (2, 3))}
            ),
            "TVM needs fixed shapes|TVM cannot",
        ),
    ],
    ids=["noise", "empty", "open shape", "operator", "shape by value"],
)
def test_what_is_refused(tmp_path: Path, folder: Path, content: bytes, said: str) -> None:
    with pytest.raises(Refused, match=said):
        TvmDriver().supports({"runtime": "tvm", "model": str(written(tmp_path, content)), "options": {}})
    assert list(folder.iterdir()) == []


def test_records_that_are_none_or_of_another_model_are_refused(tmp_path: Path) -> None:
    segment: Any = {"model": str(written(tmp_path, tvm_models.layer_norm_net()))}
    with pytest.raises(Refused, match="cannot be unpacked"):
        TvmDriver().supports(segment | {"options": {"records": "eJyrVg"}})


def test_a_machine_without_a_compiler_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Refused, match="apt install g"):
        TvmDriver().probe()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(Refused, match="no-such-compiler, which CXX or CC names"):
        TvmDriver().probe()


def test_versions_that_were_never_tried_together_are_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    have = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post2"}
    monkeypatch.setattr(driver_tvm, "version", have.__getitem__)
    with pytest.raises(
        Refused, match=r"was not tested with apache-tvm-ffi 0\.1\.15\.post2.*install apache-tvm 0\.27\.0\.post1 with"
    ):
        TvmDriver().probe()
    have["apache-tvm-ffi"] = "0.1.14.post0"
    assert TvmDriver().probe()["version"] == "0.27.0.post1"

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(driver_tvm, "version", absent)
    with pytest.raises(ModuleNotFoundError, match="No module named 'tvm'"):
        TvmDriver().probe()
