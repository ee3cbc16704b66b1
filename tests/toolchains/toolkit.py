"""Small nets, their calibration images, and jobs: what the tests of toolchains have in common."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from gnomon.core.sample import Failure
from gnomon.models.units import write_net
from gnomon.spaces.cells.primitives import published_primitives
from gnomon.spaces.cells.space import CellLayout, tagged_net
from gnomon.toolchains.base import ToolJob
from gnomon.toolchains.evaluate import evaluate

LAYOUT = CellLayout(
    input_shape=(1, 1, 16, 16), groups=(0, 1, 2), widths=(16, 32, 64), reduces=frozenset({0, 2}), classes=10
)
IMAGES = 48


def small_net(path: Path, name: str) -> Path:
    """A net of three layers of one primitive."""
    primitive = published_primitives()[name]
    return write_net(tagged_net(LAYOUT, [primitive] * 3).net, path)


def calibration(path: Path) -> Path:
    """Images as the nets take them, and made-up classes."""
    rng = np.random.default_rng(0)
    np.savez(path, x=rng.normal(size=(IMAGES, 1, 16, 16)).astype(np.float32), y=rng.integers(0, 10, IMAGES))
    return path


def job(root: Path, key: str, model: Path) -> ToolJob:
    """A job in a folder of a test, which it fills up as far as it needs."""
    for folder in ("out", "logs"):
        (root / folder).mkdir(exist_ok=True)
    images = root / "calibration.npz"
    if not images.exists():
        calibration(images)
    return ToolJob(key=key, model=model, folder=root / "out", calibration=images, logs=root / "logs")


def small_jobs(root: Path) -> list[ToolJob]:
    """Two jobs of two kinds of nets."""
    return [job(root, name, small_net(root / f"{name}.onnx", name)) for name in ("Resblock_1", "VGGblock_2")]


def truncated_job(root: Path) -> ToolJob:
    """A job of a model whose file ends in the middle."""
    whole = small_net(root / "whole.onnx", "VGGblock_1").read_bytes()
    path = root / "truncated.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    return job(root, "truncated", path)


def unknown_operator_job(root: Path) -> ToolJob:
    """A job of a model with an operator that nobody has."""
    node = helper.make_node("NoSuchOperator", ["x0"], ["y"], domain="nobody")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 16, 16]) for name in ("x0", "y")]
    graph = helper.make_graph([node], "g", value[:1], value[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nobody", 1)]
    path = root / "unknown.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return job(root, "unknown", path)


def right(
    models: Mapping[str, Path], images: Path, runtime: str, *, mean: float = 0.0, std: float = 1.0
) -> dict[str, NDArray[np.bool_] | Failure]:
    """Which images each model gets right, or its failure."""
    logs = {name: images.with_name(f"{name}.log") for name in models}
    return dict(evaluate(models, images, runtime, mean=(mean,), std=(std,), logs=logs))
