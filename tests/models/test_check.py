"""What a file holds that will matter: each kind is found in a file that has it, and in no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")

import onnx
from onnx import TensorProto, helper
from tests.models.modelkit import model, node, save, value

from gnomon.errors import ModelError
from gnomon.models.check import Finding, findings_of
from gnomon.models.load import load

F64 = TensorProto.DOUBLE
GOLDEN = Path(__file__).parent / "golden"
WEIGHTS = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)


def dense(
    weights: Any = WEIGHTS, *, kind: int = TensorProto.FLOAT, batch: str | int = "n", **more: Any
) -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["a"], name="first"), node("Relu", ["a"], ["y"], name="second")]
    return model(nodes, [value("x", [batch, 64], kind)], [value("y", [batch, 64], kind)], {"w": weights}, **more)


def found(path: Path) -> tuple[Finding, ...]:
    return findings_of(load(path, inferred=False))


def kinds(proto: onnx.ModelProto, tmp_path: Path) -> list[str]:
    return [finding.kind for finding in found(save(proto, tmp_path / "m.onnx"))]


def subnormal(share: float) -> Any:
    weights = WEIGHTS.copy()
    weights.flat[: int(share * weights.size)] = 1e-40
    return weights


def test_nothing_is_found_in_an_ordinary_file(tmp_path: Path) -> None:
    assert kinds(dense(), tmp_path) == []


@pytest.mark.parametrize("share, expected", [(0.5, ["subnormal"]), (0.005, ["subnormal"]), (0.0005, [])])
def test_subnormal_weights(share: float, expected: list[str], tmp_path: Path) -> None:
    assert kinds(dense(subnormal(share)), tmp_path) == expected


def test_subnormal_weights_in_lists_and_in_files_beside(tmp_path: Path) -> None:
    listed = dense(subnormal(0.5))
    tensor = listed.graph.initializer[0]
    tensor.float_data.extend(subnormal(0.5).ravel().tolist())
    tensor.ClearField("raw_data")
    assert kinds(listed, tmp_path) == ["subnormal"]
    path = tmp_path / "outside.onnx"
    onnx.save_model(dense(subnormal(0.5)), path, save_as_external_data=True, location="w.data", size_threshold=0)
    assert [finding.kind for finding in found(path)] == ["subnormal", "outside"]


def test_half_precision_has_no_number_that_is_slow(tmp_path: Path) -> None:
    """They are converted, or computed in the processor's own half precision: normal numbers of float32 either way."""
    half = np.full((64, 64), 6e-6, np.float16)
    assert kinds(dense(half, kind=TensorProto.FLOAT16), tmp_path) == []


def test_float64(tmp_path: Path) -> None:
    assert kinds(dense(WEIGHTS.astype(np.float64), kind=F64), tmp_path) == ["float64"]


def test_order_and_names(tmp_path: Path) -> None:
    unsorted = dense()
    nodes = list(unsorted.graph.node)
    del unsorted.graph.node[:]
    unsorted.graph.node.extend(reversed(nodes))
    assert kinds(unsorted, tmp_path) == ["unsorted"]
    equal = dense()
    equal.graph.node[1].name = "first"
    assert kinds(equal, tmp_path) == ["equal-names"]


def reshaped(shape: list[int], batch: str | int = "n") -> onnx.ModelProto:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Reshape", ["a", "shape"], ["b"], name="flat"),
        node("MatMul", ["b", "w"], ["y"]),
    ]
    held = {"shape": np.array(shape), "w": WEIGHTS}
    return model(nodes, [value("x", [batch, 4, 16])], [value("y", [batch, 64])], held)


def test_a_batch_that_is_written_into_a_reshape(tmp_path: Path) -> None:
    for shape in ([2, 64], [1, -1]):
        (finding,) = found(save(reshaped(shape), tmp_path / "m.onnx"))
        assert (finding.kind, finding.batch) == ("fixed-batch", shape[0])
        assert "'flat'" in finding.message
    assert kinds(reshaped([-1, 64]), tmp_path) == []
    assert kinds(reshaped([2, 64], batch=2), tmp_path) == [], "its inputs say so too"


def test_functions_and_custom_operators(tmp_path: Path) -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    made = dense(opset_imports=imports)
    made.graph.node[1].op_type, made.graph.node[1].domain = "Twice", "own"
    (finding,) = found(save(made, tmp_path / "m.onnx"))
    assert finding.kind == "custom-operators" and "Twice (domain own)" in finding.message
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    made.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], body, imports[:1]))
    assert kinds(made, tmp_path) == ["functions"]


def test_operators_of_ml_and_of_onnx_runtime_need_no_library(tmp_path: Path) -> None:
    imports = [
        helper.make_opsetid("", 17),
        helper.make_opsetid("ai.onnx.ml", 3),
        helper.make_opsetid("com.microsoft", 1),
    ]
    made = dense(opset_imports=imports)
    made.graph.node[0].domain, made.graph.node[0].op_type = "com.microsoft", "FusedMatMul"
    made.graph.node[1].domain, made.graph.node[1].op_type = "ai.onnx.ml", "Normalizer"
    assert kinds(made, tmp_path) == []


def test_shapes_outside(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(reshaped([-1, 64]), path, save_as_external_data=True, location="all", size_threshold=0)
    assert [finding.kind for finding in found(path)] == ["outside", "shapes-outside"]


def test_activations_that_are_quantised_in_each_call(tmp_path: Path) -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        node("MatMulInteger", ["q", "w", "zero"], ["y"]),
    ]
    held = {"w": np.ones((64, 64), np.int8)}
    made = model(nodes, [value("x", [1, 64])], [value("y", [1, 64], TensorProto.INT32)], held)
    assert kinds(made, tmp_path) == ["dynamic-int8"]


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ModelError):
        found(tmp_path / "text.onnx")
    with pytest.raises(ModelError, match="does not exist"):
        found(tmp_path / "none.onnx")


def test_programs_without_delegates() -> None:
    by_name = {name: found(GOLDEN / f"small-{name}.pte") for name in ("portable", "xnnpack")}
    assert [finding.kind for finding in by_name["portable"]] == ["undelegated"]
    assert by_name["xnnpack"] == ()


def test_subnormal_weights_of_openvino(tmp_path: Path) -> None:
    assert found(GOLDEN / "small.xml") == ()
    text = (GOLDEN / "small.xml").read_text()
    (tmp_path / "small.xml").write_text(text.replace('element_type="f16"', 'element_type="f32"'))
    (tmp_path / "small.bin").write_bytes(np.full(27, 1e-40, np.float32).tobytes())
    assert [finding.kind for finding in found(tmp_path / "small.xml")] == ["subnormal"]


def test_tflite(tmp_path: Path) -> None:
    pytest.importorskip("circle_schema", reason="needs circle_schema")
    from tests.agent.drivers.litertkit import tflite

    def kinds_of(data: bytes) -> list[str]:
        (tmp_path / "m.tflite").write_bytes(data)
        return [finding.kind for finding in found(tmp_path / "m.tflite")]

    plain = tflite("conv", "softmax")
    assert kinds_of(plain) == []
    weights = np.random.default_rng(0).standard_normal((8, 1, 1, 8)).astype(np.float32).tobytes()
    assert plain.count(weights) == 1
    assert kinds_of(plain.replace(weights, np.full(64, 1e-40, np.float32).tobytes())) == ["subnormal"]
    assert kinds_of(tflite("conv", "custom")) == ["custom-operators"]
    assert "onnxruntime" not in found(tmp_path / "m.tflite")[0].hint, "which does not read TFLite"
