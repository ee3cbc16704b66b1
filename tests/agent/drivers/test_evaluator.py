"""ONNX's evaluator as the judge: what an operator meant in an older opset is what it computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
from tests.models.modelkit import model, node, save, value  # noqa: E402

from gnomon.agent.arrays import Buffers  # noqa: E402
from gnomon.agent.driver import Refused  # noqa: E402
from gnomon.agent.drivers.evaluator import Evaluated  # noqa: E402

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def branch(kind: str) -> Any:
    """An If, both of whose branches are the operator."""
    graph = onnx.helper.make_graph([node(kind, ["x"], ["inner"])], "branch", [], [value("inner", [2, 3, 4])])
    return [node("If", ["yes"], ["y"], then_branch=graph, else_branch=graph)]


@pytest.mark.parametrize("opset", [10, 12, 13])
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a branch"])
def test_flattened_axes_are_as_the_opset_says(kind: str, opset: int, inside: bool, tmp_path: Path) -> None:
    nodes = branch(kind) if inside else [node(kind, ["x"], ["y"])]
    held(nodes, {"yes": np.array(True)} if inside else {}, opset, tmp_path)


@pytest.mark.parametrize("opset", [10, 13])
@pytest.mark.parametrize("kind", ["Hardmax", "Resize"])
def test_what_it_does_not_know_is_refused(kind: str, opset: int, tmp_path: Path) -> None:
    scales = {"scales": np.array([1, 2, 2.5], np.float32)}
    nodes = {
        "Hardmax": [node("Hardmax", ["x"], ["y"])],
        "Resize": [node("Resize", ["x", "scales"] if opset == 10 else ["x", "", "scales"], ["y"], mode="linear")],
    }
    if opset == 10:
        with pytest.raises(Refused, match=f"cannot run {kind} in an opset this old"):
            held(nodes[kind], scales, opset, tmp_path)
    else:
        held(nodes[kind], scales, opset, tmp_path)


def test_a_function_of_the_model_is_looked_at_too(tmp_path: Path) -> None:
    old = [onnx.helper.make_opsetid("", 12)]
    soft = onnx.helper.make_function("own", "Soft", ["a"], ["b"], [node("Softmax", ["a"], ["b"])], old)
    with pytest.raises(Refused, match="cannot run Softmax in an opset"):
        held([node("Soft", ["x"], ["y"], domain="own")], {}, 12, tmp_path, functions=[soft])


def held(nodes: list[Any], constants: dict[str, Any], opset: int, folder: Path, **more: Any) -> None:
    """The evaluator's outputs are those of ONNX Runtime."""
    imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("own", 1)]
    proto = model(nodes, [value("x", [2, 3, 4])], [value("y", None)], constants, opset_imports=imports, **more)
    path = save(proto, folder / "m.onnx")
    (expected,) = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": X})
    buffers: Buffers = {"x": X, "y": np.empty_like(expected)}
    bound: Any = {"model": str(path), "inputs": [["x", "x"]], "outputs": [["y", "y"]]}
    Evaluated(bound, buffers).call()
    np.testing.assert_allclose(buffers["y"], expected, rtol=1e-4, atol=1e-6)
