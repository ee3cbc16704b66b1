"""Models whose input shapes were fixed compute what they did before, for inputs of those shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402
from tests.models.modelkit import model, node, session, value  # noqa: E402

from gnomon.models.onnx import fix  # noqa: E402
from gnomon.models.onnx.fix import _SINCE  # noqa: E402

ROWS = 2
INT64 = TensorProto.INT64
ONES = np.ones(3, np.float32)


def fix_shapes(proto: Any, shapes: Any) -> Any:
    """A copy of the model with its shapes fixed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    fix.fix_shapes(copy, shapes)
    return copy


def fixed_like(proto: Any) -> Any:
    """The model with its input x fixed to [ROWS, 3]; that it computes the same is checked for both signs of x."""
    onnx.checker.check_model(proto, full_check=True)
    fixed = fix_shapes(proto, {"x": (ROWS, 3)})
    onnx.checker.check_model(fixed, full_check=True)
    before, after = session(proto), session(fixed)
    assert [i.name for i in after.get_inputs()] == [i.name for i in before.get_inputs()]
    for sign in (-1, 1):
        feeds = {"x": sign * np.arange(1, 7, dtype=np.float32).reshape(ROWS, 3)}
        for expected, found in zip(before.run(None, feeds), after.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, expected)
    for output in fixed.graph.output:
        assert all(d.HasField("dim_value") for d in output.type.tensor_type.shape.dim)
    return fixed


def names(values: Any) -> list[str]:
    return sorted(v.name for v in values)


def test_what_the_branches_of_an_if_capture_stays() -> None:
    inner = helper.make_graph([node("Mul", ["x", "deep"], ["i"])], "inner", [], [value("i", None)])
    other = helper.make_graph([node("Identity", ["x"], ["j"])], "other", [], [value("j", None)])
    nested = node("If", ["yes"], ["n"], then_branch=inner, else_branch=other)
    then = helper.make_graph([nested, node("Add", ["n", "sum"], ["t"])], "then", [], [value("t", None)])
    handed = helper.make_graph([node("Sub", ["x", "w"], ["e"])], "else", [], [value("e", None)])
    nodes = [
        node("Add", ["w", "w"], ["sum"]),  # folded, and read in a branch only
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=handed),
    ]
    constants = {"w": ONES, "deep": 2 * ONES, "zero": np.float32(0), "yes": np.array(True), "idle": ONES}
    fixed = fixed_like(model(nodes, [value("x", ["n", 3])], [value("y", ["n", 3])], constants))
    assert names(fixed.graph.initializer) == ["deep", "sum", "w", "yes", "zero"]


def test_what_the_body_of_a_scan_captures_stays() -> None:
    body = helper.make_graph(
        [node("Add", ["a", "row"], ["b"]), node("Mul", ["b", "w"], ["c"])],
        "body",
        [value("a", [3]), value("row", [3])],
        [value("b", [3]), value("c", [3])],
    )
    nodes = [node("Scan", ["start", "x"], ["last", "y"], body=body, num_scan_inputs=1)]
    outputs = [value("last", [3]), value("y", ["n", 3])]
    constants = {"w": 2 * ONES, "start": ONES}
    fixed = fixed_like(model(nodes, [value("x", ["n", 3])], outputs, constants))
    assert names(fixed.graph.initializer) == ["start", "w"]


def test_outputs_that_are_constants_or_inputs_stay() -> None:
    nodes = [node("Constant", [], ["k"], value_floats=[1.0, 2.0]), node("Relu", ["x"], ["y"])]
    outputs = [value("y", ["n", 3]), value("w", [3]), value("k", [2]), value("x", ["n", 3])]
    fixed = fixed_like(model(nodes, [value("x", ["n", 3])], outputs, {"w": ONES}))
    assert names(fixed.graph.initializer) == ["w"]


def test_initializers_that_an_old_model_lists_as_inputs_are_none() -> None:
    nodes = [
        node("Add", ["some", "more"], ["shape"]),  # folded
        node("Reshape", ["x", "shape"], ["flat"]),
        node("Mul", ["flat", "scale"], ["y"]),
    ]
    constants = {"some": np.array([1, -1]), "more": np.array([0, 0]), "scale": np.float32(3)}
    listed = [value("some", [2], INT64), value("more", [2], INT64), value("scale", [])]
    proto = model(nodes, [listed[0], value("x", ["n", 3]), *listed[1:]], [value("y", [1, "m"])], constants)
    proto.ir_version = 3
    fixed = fixed_like(proto)
    assert names(fixed.graph.input) == ["x"]
    assert names(fixed.graph.initializer) == ["scale", "shape"]


@pytest.mark.parametrize(
    ("kind", "reads", "more"),
    [
        ("RandomNormal", [], {"shape": [2, 3]}),
        ("RandomUniform", [], {"shape": [2, 3]}),
        ("RandomNormalLike", ["halves"], {"dtype": 1}),
        ("RandomUniformLike", ["halves"], {"dtype": 1}),
        ("Bernoulli", ["halves"], {}),
        ("Multinomial", ["halves"], {"sample_size": 3}),
        ("Dropout", ["halves", "ratio", "training"], {}),
    ],
)
def test_what_is_random_is_never_folded(kind: str, reads: list[str], more: dict[str, Any]) -> None:
    nodes = [node(kind, reads, ["i"], **more), node("Cast", ["i"], ["r"], to=TensorProto.FLOAT)]
    constants = {"halves": np.full((ROWS, 3), 0.5, np.float32), "ratio": np.float32(0.5), "training": np.array(True)}
    proto = model([*nodes, node("Add", ["x", "r"], ["y"])], [value("x", ["n", 3])], [value("y", None)], constants)
    fixed = fix_shapes(proto, {"x": (ROWS, 3)})
    assert [n.op_type for n in fixed.graph.node] == [n.op_type for n in proto.graph.node]
    assert names(fixed.graph.initializer) == sorted(reads)


@pytest.mark.parametrize("opset", [7, 9, 11, 12, 13, 17])
def test_a_softmax_is_folded_as_the_models_own_opset_means_it(opset: int) -> None:
    """Before opset 13 it flattens from its axis on, which the evaluator of today's does not."""
    nodes = [node("Softmax", ["table"], ["soft"]), node("Mul", ["x", "soft"], ["y"])]
    table = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 10
    proto = model(
        nodes,
        [value("x", ["n", 3, 4])],
        [value("y", ["n", 3, 4])],
        {"table": table},
        opset_imports=[helper.make_opsetid("", opset)],
    )
    fixed = fix_shapes(proto, {"x": (2, 3, 4)})
    feeds = {"x": np.ones((2, 3, 4), np.float32)}
    np.testing.assert_allclose(session(fixed).run(None, feeds)[0], session(proto).run(None, feeds)[0], rtol=1e-6)


@pytest.mark.parametrize("opset", [9, 11, 12])
def test_attributes_that_became_inputs_later_are_folded(opset: int) -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "first"], ["rows"]),
        node("Unsqueeze", ["rows"], ["one"], axes=[0]),
        node("Concat", ["one", "rest"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["y"]),
    ]
    constants = {"first": np.array(0), "rest": np.array([3, 1])}
    proto = model(
        nodes,
        [value("x", ["n", 3])],
        [value("y", ["n", 3, 1])],
        constants,
        opset_imports=[helper.make_opsetid("", opset)],
    )
    fixed = fixed_like(proto)
    assert [n.op_type for n in fixed.graph.node] == ["Reshape"]


FLOATS = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]], np.float32)
COUNTS = np.array([[5, -7, 2], [9, -4, 1]])
FLAGS = np.array([[True, False, True], [False, False, True]])
ONE = np.array([[2, 2, 4], [3, 3, -3]])
OPERATORS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Gather": ([COUNTS, np.array([1, 0])], {"axis": 0}),
    "Identity": ([COUNTS], {}),
    "MatMul": ([FLOATS, FLOATS.T.copy()], {}),
    "Not": ([FLAGS], {}),
    "Size": ([FLOATS], {}),
    "Transpose": ([FLOATS], {"perm": [1, 0]}),
    "Concat": ([COUNTS, ONE], {"axis": 1}),
    "Cast": ([FLOATS], {"to": INT64}),
    **{name: ([abs(FLOATS)], {}) for name in ("Abs", "Ceil", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Sqrt")},
    "Tanh": ([FLOATS], {}),
    "Sign": ([FLOATS], {}),
    "Tile": ([COUNTS, np.array([2, 1])], {}),
    **{name: ([COUNTS.astype(np.int64), ONE], {}) for name in ("Add", "Sub", "Mul", "Div")},
    "Pow": ([abs(FLOATS), abs(FLOATS)], {}),
    **{name: ([FLAGS, FLAGS[::-1].copy()], {}) for name in ("And", "Or", "Xor")},
    **{name: ([COUNTS, ONE], {}) for name in ("Equal",)},
    **{name: ([FLOATS, FLOATS[::-1].copy()], {}) for name in ("Greater", "Less", "Max", "Min")},
    "Expand": ([np.array([[1], [2]]), np.array([2, 3])], {}),
    "ConstantOfShape": ([np.array([2, 3])], {}),
    "Flatten": ([FLOATS.reshape(1, 2, 3)], {"axis": 1}),
    "Where": ([FLAGS, FLOATS, FLOATS + 1], {}),
    "Mod": ([COUNTS, ONE], {}),
    "GatherElements": ([COUNTS, np.array([[0, 1, 0], [1, 0, 1]])], {"axis": 0}),
    "GatherND": ([COUNTS, np.array([[0, 1], [1, 2]])], {}),
    "Range": ([np.array(1), np.array(9), np.array(3)], {}),
}


@pytest.mark.parametrize("kind", sorted(OPERATORS))
def test_what_is_folded_is_what_the_runtime_computes_in_every_version_of_the_operator(kind: str) -> None:
    arrays, more = OPERATORS[kind]
    constants = {f"c{k}": array for k, array in enumerate(arrays)}
    checked = 0
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) == ("", kind)]
    for opset in sorted({max(7, s.since_version) for s in schemas if s.since_version <= 21}):
        nodes = [node(kind, list(constants), ["r"], **more), node("Cast", ["r"], ["f"], to=TensorProto.FLOAT)]
        nodes += [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Mul", ["s", "f"], ["y"])]
        proto = model(
            nodes, [value("x", ["n"])], [value("y", None)], constants, opset_imports=[helper.make_opsetid("", opset)]
        )
        try:
            before = session(proto)
        except Exception:  # no such operator, or not in this type, in this version
            before = None
        if before is None:
            continue
        fixed = fix_shapes(proto, {"x": (1,)})
        feeds = {"x": np.ones(1, np.float32)}
        np.testing.assert_allclose(session(fixed).run(None, feeds)[0], before.run(None, feeds)[0], rtol=1e-6)
        checked += len(fixed.graph.node) < len(proto.graph.node)
    assert checked
    assert kind in _SINCE


def test_every_operator_that_is_taken_to_mean_the_same_was_held_against_the_runtime() -> None:
    assert set(OPERATORS) == set(_SINCE)
