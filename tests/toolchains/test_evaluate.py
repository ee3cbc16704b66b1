from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tests.toolchains.toolkit import right, truncated_job

from gnomon.core.sample import Failure

RUNTIMES = ["onnxruntime", "openvino"]
PIXELS = 12


def linear(path: Path, weights: NDArray[np.float32], batch: int | str) -> Path:
    """A model of one matrix product over a 1 x 3 x 4 image."""
    nodes = [helper.make_node("Flatten", ["x0"], ["f"]), helper.make_node("Gemm", ["f", "w"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [batch, 1, 3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 10])],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_it_agrees_with_numpy(runtime: str, kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (37, 1, 3, 4)).astype(np.uint8)
    seen = x if kind == "uint8" else ((x - np.float32(100)) / np.float32(50)).astype(np.float32)
    y = rng.integers(0, 10, 37)
    np.savez(tmp_path / "images.npz", x=seen, y=y)
    weights = [rng.normal(size=(PIXELS, 10)).astype(np.float32) for _ in range(3)]
    batches: list[int | str] = [1, 5, "N"]
    models = {
        str(batch): linear(tmp_path / f"{batch}.onnx", w, batch) for batch, w in zip(batches, weights, strict=True)
    }
    found = right(models, tmp_path / "images.npz", runtime, mean=100.0, std=50.0)
    flat = ((x.astype(np.float32) - 100) / 50).reshape(37, -1)
    for batch, w in zip(batches, weights, strict=True):
        assert np.array_equal(found[str(batch)], (flat @ w).argmax(axis=1) == y)  # type: ignore[arg-type]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_one_broken_model_costs_itself_only(runtime: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "i.npz", x=np.ones((3, 1, 3, 4), np.float32), y=np.zeros(3, np.int64))
    good = np.zeros((PIXELS, 10), np.float32)
    nothing = np.full((PIXELS, 10), np.nan, np.float32)
    small = linear(tmp_path / "good.onnx", good, 1)
    other = onnx.load(small)
    other.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 5
    onnx.save(other, tmp_path / "other.onnx")
    models = {
        "truncated": truncated_job(tmp_path).model,
        "gone": tmp_path / "gone.onnx",
        "other": tmp_path / "other.onnx",
        "nan": linear(tmp_path / "nan.onnx", nothing, 1),
        "good": small,
    }
    found = right(models, tmp_path / "i.npz", runtime)
    assert np.all(found["good"]) and not np.any(found["nan"])  # type: ignore[arg-type]
    for key in ("truncated", "gone", "other"):
        failure = found[key]
        assert isinstance(failure, Failure) and failure.stage == "check" and failure.message
