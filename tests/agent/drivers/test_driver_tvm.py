"""TVM's driver with the real compiler and runtime: values, nodes of kernels, threads, the cache, and refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
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

pytestmark = needs_tvm

_SCRIPT = """
import json, os, sys, time
import numpy as np
from gnomon.agent.arrays import make_buffers
from gnomon.agent.drivers.tvm.driver import TvmDriver
asked = json.loads(sys.stdin.readline())
told = {}
buffers = make_buffers(asked["tensors"])
def fill(seed):
    for k, (name, _) in enumerate(asked["segment"]["inputs"]):
        value = np.random.default_rng([seed, k]).standard_normal(buffers[name].shape)
        buffers[name][...] = value.astype(np.float32)
for profiled in (False, True):
    model = TvmDriver().load(asked["segment"], buffers, profiled=profiled)
    made = []
    for seed in range(asked["calls"]):
        fill(seed)
        model.call()
        made.append({name: buffers[name].tolist() for name, _ in asked["segment"]["outputs"]})
    if not profiled:
        told["where"], told["outputs"] = model.where(), made
        begun, worked = time.perf_counter(), time.process_time()
        for _ in range(asked.get("timed", 0)):
            model.call()
        told["cores"] = (time.process_time() - worked) / (time.perf_counter() - begun)
        told["tasks"] = len(os.listdir("/proc/self/task"))
    else:
        told["same"] = made == told["outputs"]
        told["operators"] = model.operators(1)
    model.close()
    model.close()
told["torch"] = "torch" in sys.modules
told["compiler"] = any("libtvm_compiler" in line for line in open("/proc/self/maps"))
told["affinity"] = [sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
print("told " + json.dumps(told))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private folder, as a visit has one."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(private))
    monkeypatch.setattr("tempfile.tempdir", str(private))
    yield private


def ask(path: Path, options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What a fresh process tells of a model, nodes by their numbers; the pool of threads is made once in a process."""
    graph = onnx.load(path).graph
    kinds = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.INT64: "int64"}
    tensors = {
        v.name: {
            "shape": [d.dim_value for d in v.type.tensor_type.shape.dim],
            "dtype": kinds[v.type.tensor_type.elem_type],
        }
        for v in (*graph.input, *graph.output)
    }
    asked = {
        "tensors": tensors,
        "calls": 3,
        "segment": {
            "model": str(path),
            "options": options,
            "inputs": [[v.name, v.name] for v in graph.input],
            "outputs": [[v.name, v.name] for v in graph.output],
        },
        **more,
    }
    home = path.parent / "home of the process"
    home.mkdir()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        input=json.dumps(asked) + "\n",
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("told ")]
    assert lines, done.stderr[-2000:]
    assert list(home.iterdir()) == [], "TVM's interface would compile an extension into it, beside PyTorch"
    found: dict[str, Any] = json.loads(lines[0].removeprefix("told "))
    numbers = {node.output[0]: k for k, node in enumerate(graph.node)}
    for key, rows in (("sources", found.get("operators", ())), ("operators", found.get("where", ()))):
        for row in rows:
            row[key] = sorted(numbers[name] for name in row[key])
    return found


def expected(path: Path, calls: int = 3) -> list[dict[str, Any]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    made = []
    for seed in range(calls):
        feeds = {
            v.name: np.random.default_rng([seed, k]).standard_normal(v.shape).astype(np.float32)
            for k, v in enumerate(session.get_inputs())
        }
        made.append(dict(zip((o.name for o in session.get_outputs()), session.run(None, feeds), strict=True)))
    return made


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    return path


def check(path: Path, told: dict[str, Any]) -> None:
    for got, want in zip(told["outputs"], expected(path), strict=True):
        for name, value in want.items():
            np.testing.assert_allclose(np.array(got[name]), value, rtol=1e-4, atol=1e-5)
    assert told["same"]


def check_threads(told: dict[str, Any], threads: int) -> None:
    """They are as many as asked for and bound to no core."""
    assert told["tasks"] == threads
    assert told["affinity"] == [sorted(os.sched_getaffinity(0))] * threads


def test_values_the_nodes_of_each_kernel_and_one_thread(tmp_path: Path) -> None:
    path = written(tmp_path, tvm_models.small_net())
    told = ask(path, {"threads": 1}, timed=2000)
    check(path, told)
    check_threads(told, 1)
    assert told["cores"] < 1.05
    assert told["where"] == [{"operators": list(range(11)), "backend": "llvm"}]
    rows = told["operators"]
    # The second and the third convolution are told apart, and the clipping belongs to the first.
    assert [row["sources"] for row in rows] == [[0, 1], [2, 3], [4, 5, 6], [7], [8], [9], [10]]
    assert all(len(row["wall_ns"]) == 2 and min(row["wall_ns"]) > 0 for row in rows)
    # What is measured is the small runtime, without the compiler and without what else is installed.
    assert (told["torch"], told["compiler"]) == (False, False)


@pytest.mark.parametrize(
    ("content", "sources"),
    [(tvm_models.layer_norm_net(), [[0], [1], [2]]), (tvm_models.two_ends(), None)],
    ids=["layer norm", "two ends"],
)
def test_other_models(tmp_path: Path, content: bytes, sources: list[list[int]] | None) -> None:
    path = written(tmp_path, content)
    told = ask(path, {"threads": 1})
    check(path, told)
    found = [row["sources"] for row in told["operators"]]
    assert sorted({node for nodes in found for node in nodes}) == [0, 1, 2]
    if sources is not None:
        assert found == sources


@pytest.mark.parametrize("alpha", [0.25, 1.5])
def test_channels_last_where_that_turns_little(tmp_path: Path, alpha: float) -> None:
    path = written(tmp_path, tvm_models.deep_net(alpha))
    told = ask(path, {"threads": 1})
    check(path, told)
    found = [row["sources"] for row in told["operators"]]
    pairs = [[2 * k, 2 * k + 1] for k in range(8)]
    # Where a leaky ReLU cannot be written otherwise, each would be turned for: the network stays as it is.
    assert found == ([[0], *pairs, [16], [17], [18]] if alpha < 1 else [*pairs, [16], [17], [18]])


def test_batch_norms_are_no_kernels_of_their_own(tmp_path: Path) -> None:
    path = written(tmp_path, tvm_models.norm_net())
    told = ask(path, {"threads": 1})
    check(path, told)
    found = [row["sources"] for row in told["operators"]]
    # In the weights of what is before them, but for one of what is read twice and one of a sum: these are fused.
    assert found == [[0, 1, 2], [3, 4], [5, 6, 7, 8, 9], [10], [11], [12, 13]]


def test_products_of_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, tvm_models.bytes_net())
    told = ask(path, {"threads": 1})
    check(path, told)
    found = [row["sources"] for row in told["operators"]]
    assert [nodes for nodes in found if {2, 7, 12} & set(nodes)] == [[1, 2, 3, 4], [6, 7, 8, 9], [11, 12, 13, 14]]


def test_two_threads(tmp_path: Path) -> None:
    check_threads(ask(written(tmp_path, tvm_models.layer_norm_net()), {"threads": 2}), 2)


def test_a_process_compiles_once_for_all(tmp_path: Path, folder: Path) -> None:
    segment = {"model": str(written(tmp_path, tvm_models.layer_norm_net())), "options": {"threads": 1}}
    assert TvmDriver().supports(segment)["functions"] == 2
    names = {path: path.stat().st_mtime_ns for path in folder.rglob("*.so*")}
    assert len(names) == 2
    assert TvmDriver().supports(segment) == {"whole": True, "functions": 2, "scheduled": 0}
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.so*")} == names


def test_a_folder_that_others_may_write_keeps_nothing(tmp_path: Path, folder: Path) -> None:
    folder.chmod(0o777)
    segment = {"model": str(written(tmp_path, tvm_models.layer_norm_net())), "options": {}}
    assert TvmDriver().supports(segment)["whole"]
    assert list(folder.iterdir()) == []


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
            "TVM is measured with fixed shapes|TVM does not",
        ),
    ],
    ids=["noise", "empty", "open shape", "operator", "shape by value"],
)
def test_what_is_refused(tmp_path: Path, folder: Path, content: bytes, said: str) -> None:
    with pytest.raises(Refused, match=said):
        TvmDriver().supports({"model": str(written(tmp_path, content)), "options": {}})
    assert list(folder.iterdir()) == []


def test_records_that_are_none_or_of_another_model_are_refused(tmp_path: Path) -> None:
    segment = {"model": str(written(tmp_path, tvm_models.layer_norm_net()))}
    with pytest.raises(Refused, match="cannot be unpacked"):
        TvmDriver().supports({**segment, "options": {"records": "eJyrVg"}})


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
    with pytest.raises(Refused, match=r"0\.1\.15\.post2 was never tried.*install apache-tvm 0\.27\.0\.post1 with"):
        TvmDriver().probe()
    have["apache-tvm-ffi"] = "0.1.14.post0"
    assert TvmDriver().probe()["version"] == "0.27.0.post1"

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(driver_tvm, "version", absent)
    with pytest.raises(ModuleNotFoundError, match="No module named 'tvm'"):
        TvmDriver().probe()
