"""Inputs whose values decide how much work there is: found from the operators back, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")

from onnx import TensorProto, helper
from tests.models.modelkit import model, node, save, value

from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.models.load import load, plausible_feeds, steering_inputs
from gnomon.models.model import Model

I64, BOOL = TensorProto.INT64, TensorProto.BOOL
ONE = np.array([1])


def steered(tmp_path: Path, *what: object, **more: object) -> dict[str, list[str]]:
    return steering_inputs(load(save(model(*what, **more), tmp_path / "m.onnx")))  # type: ignore[arg-type]


def branches(*names: str) -> dict[str, Any]:
    return {
        f"{name}_branch": helper.make_graph([node(kind, [read], ["made"])], name, [], [value("made", [2, 8])])
        for name, kind, read in zip(("then", "else"), ("Relu", "Neg"), names, strict=True)
    }


def test_pixels_decide_what_is_selected(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Reshape", ["c", "shape"], ["r"]),
        node("Slice", ["r", "zero", "four", "two"], ["boxes"]),
        node("Slice", ["r", "four", "five", "two"], ["s"]),
        node("Transpose", ["s"], ["scores"], perm=[0, 2, 1]),
        node("NonMaxSuppression", ["boxes", "scores", "most"], ["y"]),
    ]
    held = {"w": np.zeros((5, 3, 3, 3), np.float32), "shape": np.array([1, -1, 5]), "most": np.array([9])}
    held |= {name: np.array([n]) for name, n in (("zero", 0), ("four", 4), ("five", 5), ("two", 2))}
    path = save(model(nodes, [value("image", [1, 3, 8, 8])], [value("y", ["k", 3], I64)], held), tmp_path / "nms.onnx")
    assert steering_inputs(load(path)) == {"image": ["what non-maximum suppression selects"]}
    assert plausible_feeds(load(path)) == {"image": {"least": 0, "most": 1}}


def test_a_condition_is_followed_to_the_input_that_it_is_computed_of(tmp_path: Path) -> None:
    nodes = [
        node("Equal", ["rate", "slow"], ["same"]),
        node("If", ["same"], ["y"], **branches("x", "x")),
    ]
    inputs = [value("x", [2, 8]), value("rate", [], I64)]
    found = steered(tmp_path, nodes, inputs, [value("y", [2, 8])], {"slow": np.array(8000)})
    assert found == {"rate": ["which branch of an If is taken"]}


def test_a_number_that_reaches_a_shape_decides_how_much_there_is(tmp_path: Path) -> None:
    """Through floats, as the speed of speech does; also within the branch of an If that a constant takes."""
    long = [
        node("Mul", ["speed", "ten"], ["m"]),
        node("Cast", ["m"], ["n"], to=I64),
        node("Expand", ["one", "n"], ["y"]),
    ]
    held = {"ten": np.array([10], np.float32), "one": np.array([1], np.float32)}
    inputs, outputs = [value("speed", [1])], [value("y", ["k"])]
    assert steered(tmp_path, long, inputs, outputs, held) == {"speed": ["the output size of Expand"]}
    inner = helper.make_graph(long[1:], "then", [], [value("y", ["k"])])
    other = helper.make_graph([node("Identity", ["one"], ["z"])], "else", [], [value("z", [1])])
    nodes = [long[0], node("If", ["on"], ["out"], then_branch=inner, else_branch=other)]
    found = steered(tmp_path, nodes, inputs, [value("out", ["k"])], {**held, "on": np.array(True)})
    assert found == {"speed": ["the output size of Expand"]}


def looped(flag: str) -> list[object]:
    """A Loop whose body goes on while `flag` does: the condition that it got, or one of what it computes."""
    test = [node("ReduceSum", ["a"], ["sum"], keepdims=0), node("Less", ["sum", "most"], ["less"])]
    body = helper.make_graph(
        [*test, node("Add", ["a", "a"], ["b"]), node("Identity", [flag], ["goes"])],
        "body",
        [value("k", [], I64), value("on", [], BOOL), value("a", [2, 8])],
        [value("goes", [], BOOL), value("b", [2, 8])],
    )
    return [node("Loop", ["count", "", "x"], ["y"], body=body)]


def test_a_loop_is_steered_by_what_ends_it(tmp_path: Path) -> None:
    inputs, outputs, most = [value("x", [2, 8])], [value("y", [2, 8])], {"most": np.float32(9), "count": np.array(5)}
    assert steered(tmp_path, looped("on"), inputs, outputs, most) == {}
    assert steered(tmp_path, looped("less"), inputs, outputs, most) == {"x": ["how often a Loop repeats"]}
    counted = steered(tmp_path, looped("on"), [*inputs, value("count", [], I64)], outputs, {"most": np.float32(9)})
    assert counted == {"count": ["how often a Loop repeats"]}


def test_work_that_is_always_the_same_is_nobodys_choice(tmp_path: Path) -> None:
    """A mask chooses values and no shapes; what is made of shapes alone no value changes, however it is exported."""
    nodes = [
        node("Where", ["mask", "x", "low"], ["masked"]),
        node("Softmax", ["masked"], ["s"]),
        node("Shape", ["ids"], ["size"]),
        node("ConstantOfShape", ["size"], ["ones"]),
        node("NonZero", ["ones"], ["places"]),
        node("Gather", ["s", "ids"], ["g"]),
        node("Expand", ["g", "size"], ["y"]),
    ]
    inputs = [value("x", [8, 8]), value("mask", [8, 8], BOOL), value("ids", ["n"], I64)]
    assert (
        steered(tmp_path, nodes, inputs, [value("y", None), value("places", None, I64)], {"low": np.float32(-9)}) == {}
    )


@pytest.mark.parametrize(
    ("kind", "steers"),
    [
        ("WHERE", True),
        ("NON_MAX_SUPPRESSION_V5", True),
        ("TFLite_Detection_PostProcess", True),
        ("SHAPE", False),
        ("SELECT_V2", False),
    ],
)
def test_operators_of_tflite_steer_too(kind: str, steers: bool) -> None:
    tensors = [
        Tensor(name=name, shape=shape, dtype="float32", size_bytes=None)
        for name, shape in (("x", (1, 4)), ("relu", (1, 4)), ("y", (-1, 4)))
    ]
    operators = (
        Operator(index=0, name="relu", type="RELU", inputs=(0,), outputs=(1,), macs=0),
        Operator(index=1, name="y", type=kind, inputs=(1,), outputs=(2,), macs=0),
    )
    graph = Graph(
        name="g", format="tflite", digest="", tensors=tuple(tensors), operators=operators, inputs=(0,), outputs=(2,)
    )
    found = steering_inputs(Model(path=Path("m.tflite"), graph=graph, kind="tflite", package=None, size_bytes=0))
    assert bool(found) is steers


def test_lengths_are_those_of_the_sequence(tmp_path: Path) -> None:
    nodes = [node("Cast", ["x_lengths"], ["n"], to=TensorProto.FLOAT), node("Mul", ["x", "n"], ["y"])]
    inputs = [value("x", [1, 80]), value("x_lengths", [1], I64)]
    path = save(model(nodes, inputs, [value("y", [1, 80])]), tmp_path / "m.onnx")
    assert plausible_feeds(load(path)) == {"x_lengths": {"least": 80, "most": 80}}
