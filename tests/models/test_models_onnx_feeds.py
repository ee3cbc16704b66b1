"""Inputs that suit the operators which read them. The oracle is ONNX's own backend tests, run by ONNX Runtime."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from tests.models.modelkit import model, node, save, value

from gnomon.agent.arrays import fill, make_buffers
from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.models.load import load, plausible_feeds
from gnomon.models.model import Model
from gnomon.models.onnx import feeds as rules

I64 = TensorProto.INT64


@cache
def backend_models() -> dict[str, onnx.ModelProto]:
    """ONNX's own test models of few operators, one of which has a rule, by name: others take a second each to read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    ruled = rules._RULES.keys()
    models = {c.name: c.model for c in cases if c.model is not None}
    found = {name: made for name, made in models.items() if {n.op_type for n in made.graph.node} & ruled}
    return {name: made for name, made in found.items() if len(made.graph.node) <= 3 or "affine_grid" in name}


def inputs_for(path: Path, *seeds: int) -> dict[str, Any]:
    """What the agent feeds the model of a file; the last of several draws."""
    found = load(path)
    tensors: Any = {
        found.graph.tensors[i].name: {
            "shape": found.graph.tensors[i].shape,
            "dtype": found.graph.tensors[i].dtype,
        }
        for i in found.graph.inputs
    }
    buffers = make_buffers(tensors)
    feeds = plausible_feeds(found)
    for seed in seeds or (0,):
        fill(buffers, {name: feeds.get(name, {}) for name in tensors}, seed)
    return buffers


def test_what_onnx_runtime_runs_with_inputs_of_its_test_it_runs_with_these(tmp_path: Path) -> None:
    """All of ONNX's own models with such operators, of few operators; sequences and text are told elsewhere."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")
    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    asked, refused = 0, []
    for name, proto in backend_models().items():
        path = save(proto, tmp_path / "m.onnx")
        try:
            session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception:  # an operator that it does not have
            session = None
        if session is None:
            continue
        taken = [one.type for one in session.get_inputs()]
        if not all(kind.startswith("tensor(") for kind in taken) or any("8e" in t or "bfl" in t for t in taken):
            continue
        asked += 1
        try:
            session.run(None, inputs_for(path, 0, 1))
        except Exception as error:
            refused.append((name, str(error)[-200:]))
    assert asked > 300
    assert len(refused) <= 3, refused


def test_indices_fill_their_table(tmp_path: Path) -> None:
    nodes = [node("Cast", ["ids"], ["wide"], to=I64), node("Gather", ["table", "wide"], ["y"])]
    made = model(nodes, [value("ids", [1, 512], TensorProto.INT32)], [value("y", None)], {"table": np.ones((100, 4))})
    ids = inputs_for(save(made, tmp_path / "m.onnx"))["ids"]
    assert (ids.min(), ids.max()) == (0, 99) or (ids.max() > 90 and ids.min() < 10)
    assert ids.max() < 100


def test_two_readers_are_both_suited(tmp_path: Path) -> None:
    nodes = [node("Gather", ["large", "ids"], ["a"]), node("Gather", ["small", "ids"], ["b"])]
    tables = {"large": np.ones((1000, 2)), "small": np.ones((3, 2))}
    made = model(nodes, [value("ids", [400], I64)], [value("a", None), value("b", None)], tables)
    ids = inputs_for(save(made, tmp_path / "m.onnx"))["ids"]
    assert set(ids) == {0, 1, 2}


def test_a_mask_by_its_name_is_of_ones_and_a_model_of_floats_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [node("Cast", ["attention_mask"], ["f"], to=TensorProto.FLOAT), node("Relu", ["f"], ["y"])]
    made = model(nodes, [value("attention_mask", [1, 8], I64)], [value("y", [1, 8])])
    assert (inputs_for(save(made, tmp_path / "m.onnx"))["attention_mask"] == 1).all()
    plain = load(save(model([node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])]), tmp_path / "p.onnx"))
    monkeypatch.setattr(rules, "parse_onnx", None)
    assert plausible_feeds(plain) == {}


@pytest.mark.parametrize(
    ("dtype", "feed", "low", "high"),
    [
        ("int8", {"least": 1, "most": 8}, 1, 8),
        ("uint64", {"least": 0, "most": 0}, 0, 0),
        ("float16", {"least": 0.5, "most": 1.5}, 0.5, 1.5),
        ("int32", {"values": [3] * 40}, 3, 3),
        ("bool", {"least": 1, "most": 1}, 1, 1),
    ],
)
def test_drawn_values_stay_where_they_may_be(dtype: str, feed: Any, low: float, high: float) -> None:
    buffers = make_buffers({"x": {"shape": [40], "dtype": dtype}})
    fill(buffers, {"x": feed}, 7)
    first = buffers["x"].copy()
    assert low <= first.min() <= first.max() <= high
    fill(buffers, {"x": feed}, 7, varied=True)
    assert (buffers["x"] == first).all()


def test_rules_that_no_shape_helps_still_feed_something_that_runs(tmp_path: Path) -> None:
    """Open shapes on both sides: sizes of 1, all axes, nothing padded."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")
    shapes = {"Reshape": [1], "Expand": [2], "Tile": [2], "ConstantOfShape": [3]}
    for kind, shape in shapes.items():
        read = ["s"] if kind == "ConstantOfShape" else ["x", "s"]
        made = model([node(kind, read, ["y"])], [value("x", [1, 3]), value("s", shape, I64)], [value("y", None)])
        if kind == "ConstantOfShape":
            del made.graph.input[0]
        path = save(made, tmp_path / f"{kind}.onnx")
        ort.InferenceSession(str(path)).run(None, inputs_for(path))


def test_rows_of_tables_in_tflite_are_within_them() -> None:
    tensors = tuple(
        Tensor(name=name, shape=shape, dtype=dtype, size_bytes=None, constant=name == "table")
        for name, shape, dtype in (
            ("ids", (1, 7), "int32"),
            ("table", (50, 4), "float32"),
            ("found", (1, 7, 4), "float32"),
            ("places", (2,), "int32"),
            ("y", (2, 7, 4), "float32"),
        )
    )
    operators = (
        Operator(index=0, name="a", type="GATHER", inputs=(1, 0), outputs=(2,), macs=0),
        Operator(index=1, name="b", type="GATHER", inputs=(2, 3), outputs=(4,), macs=0),
    )
    graph = Graph(
        name="g", format="tflite", digest="0", tensors=tensors, operators=operators, inputs=(0, 3), outputs=(4,)
    )
    made = Model(path=Path("m.tflite"), graph=graph, kind="tflite", package=None, size_bytes=1, subgraphs=1)
    assert plausible_feeds(made) == {"ids": {"least": 0, "most": 49}}  # what is computed has rows of any meaning
