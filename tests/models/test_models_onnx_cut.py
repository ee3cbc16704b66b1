"""Segments of an ONNX model, run one after the other, compute what the whole does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402
from tests.models.modelkit import check_chain, model, node, save, session, value  # noqa: E402

from gnomon.errors import ModelError, UsageError  # noqa: E402
from gnomon.models import load  # noqa: E402
from gnomon.models.onnx.cut import OnnxCutter  # noqa: E402
from gnomon.models.order import live_counts, moving_operators  # noqa: E402

ZOO = ["efficientnet-lite0.onnx", "minilm-layer", "ppocr-det", "ppocr-rec", "ppocr-cls"]


def noise(cutter: OnnxCutter) -> dict[str, Any]:
    random = np.random.default_rng(3)
    inputs = [cutter.graph.tensors[i] for i in cutter.graph.inputs]
    return {t.name: random.uniform(-1, 1, t.shape or ()).astype(t.dtype) for t in inputs}


def run(path: Path, inputs: Sequence[Any]) -> Sequence[Any]:
    made = session(path, optimise=False)
    found: Sequence[Any] = made.run(None, dict(zip([i.name for i in made.get_inputs()], inputs, strict=True)))
    return found


def check(path: Path, places: Sequence[int], folder: Path, rtol: float = 0.0, whole: Path | None = None) -> None:
    cutter = OnnxCutter(path)
    check_chain(cutter, whole or path, places, noise(cutter), folder, run, rtol)


@pytest.mark.parametrize("name", ZOO)
def test_chains_of_zoo_models_compute_the_whole(name: str, zoo_model: Callable[[str], Path], tmp_path: Path) -> None:
    path = zoo_model(name)
    end = len(OnnxCutter(path).order)
    inner = np.random.default_rng(len(name)).integers(1, end, 9).tolist()
    for places in ([0, end], [0, end // 2, end], sorted({0, end, *inner})):
        check(path, places, tmp_path, rtol=1e-5)


@pytest.mark.parametrize("name", ZOO)
def test_order_is_topological_and_no_wider_than_the_files(name: str, zoo_model: Callable[[str], Path]) -> None:
    cutter = OnnxCutter(zoo_model(name))
    given_order = moving_operators(cutter.graph)
    assert sorted(cutter.order) == [op.index for op in given_order]
    known = set(range(len(cutter.graph.tensors))) - {t for op in given_order for t in op.outputs}
    for index in cutter.order:
        operator = cutter.graph.operators[index]
        assert known.issuperset(operator.inputs)
        known.update(operator.outputs)
    mine = live_counts([cutter.graph.operators[i] for i in cutter.order])
    assert sum(mine) <= sum(live_counts(given_order))


@pytest.mark.parametrize("name", ["minilm-layer", "efficientnet-lite0.onnx"])
def test_cut_points_are_the_places_with_few_live_tensors(name: str, zoo_model: Callable[[str], Path]) -> None:
    cutter = OnnxCutter(zoo_model(name))
    for most in (1, 2, 4):
        expected = [k for k in range(1, len(cutter.order)) if len(cutter.live(k)) <= most]
        assert list(cutter.cut_points(most)) == expected
    assert cutter.cut_points(1), "a place to cut exists in both models"


def test_a_segment_is_a_model_that_gnomon_reads(zoo_model: Callable[[str], Path], tmp_path: Path) -> None:
    cutter = OnnxCutter(zoo_model("ppocr-rec"))
    segment = cutter.segment(40, 90, tmp_path / "s.onnx")
    read = load(segment.path)
    names = [cutter.graph.operators[i].name for i in (*segment.repeated, *segment.operators)]
    assert [op.name for op in read.graph.operators] == names
    onnx.checker.check_model(str(segment.path), full_check=True)
    assert [read.graph.tensors[t] for t in read.graph.inputs] == list(segment.inputs)
    assert [read.graph.tensors[t] for t in read.graph.outputs] == list(segment.outputs)


def test_constants_are_repeated_and_outputs_may_be_inner(tmp_path: Path) -> None:
    nodes = [
        node("Constant", [], ["two"], value_float=2.0),
        node("Add", ["two", "w"], ["three"]),  # follows from constants only
        node("Mul", ["x", "three"], ["a"]),
        node("Add", ["a", "three"], ["b"]),  # an output that is read on
        node("Relu", ["b"], ["dead"]),
        node("Sub", ["b", "three"], ["y"]),
    ]
    proto = model(
        nodes,
        [value("x", [2])],
        [value("y", [2]), value("b", [2]), value("three", [])],
        {"w": np.float32(1)},
    )
    path = save(proto, tmp_path / "m.onnx")
    cutter = OnnxCutter(path)
    assert [cutter.graph.operators[i].type for i in cutter.order] == ["Mul", "Add", "Sub"]
    assert [t.name for t in cutter.live(1)] == ["a"]
    assert [t.name for t in cutter.live(2)] == ["b"]
    assert [t.name for t in cutter.live(3)] == ["y", "b", "three"]
    for places in ([0, 3], [0, 1, 3], [0, 1, 2, 3]):
        check(path, places, tmp_path)
    assert cutter.segment(0, 1, tmp_path / "s.onnx").repeated == (0, 1)


def test_functions_domains_and_control_flow_survive(tmp_path: Path) -> None:
    ops = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Twice", ["p"], ["q"], [node("Add", ["p", "p"], ["q"])], ops[:1])
    then = helper.make_graph([node("Add", ["a", "w"], ["t"])], "then", [], [value("t", [2])])
    other = helper.make_graph([node("Sub", ["x", "w"], ["e"])], "else", [], [value("e", [2])])
    nodes = [
        node("Twice", ["x"], ["a"], domain="own"),
        node("ReduceSum", ["a"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Twice", ["y"], ["z"], domain="own"),
    ]
    constants = {"zero": np.float32(0), "w": np.ones(2, np.float32)}
    proto = model(nodes, [value("x", [2])], [value("z", [2])], constants, functions=[function], opset_imports=ops)
    path = save(proto, tmp_path / "m.onnx")
    graph = load(path).graph
    captured = {graph.tensors[t].name for t in graph.operators[3].inputs}
    assert captured == {"c", "a", "w", "x"}
    for places in ([0, 5], [0, 3, 5], [0, 1, 2, 3, 4, 5]):
        check(path, places, tmp_path)


def test_external_weights_are_taken_along(tmp_path: Path) -> None:
    weights = {"w": np.arange(600, dtype=np.float32), "v": np.ones(600, np.float32)}
    nodes = [node("Add", ["x", "w"], ["a"]), node("Mul", ["a", "v"], ["y"])]
    path = tmp_path / "m.onnx"
    proto = model(nodes, [value("x", [600])], [value("y", [600])], weights)
    onnx.save_model(proto, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    away = tmp_path / "away"
    away.mkdir()
    check(path, [0, 1, 2], away)


def test_large_weights_go_beside_the_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.models.onnx.cut.MAX_INLINE_BYTES", 1000)
    proto = model(
        [node("Add", ["x", "w"], ["y"])], [value("x", [600])], [value("y", [600])], {"w": np.ones(600, np.float32)}
    )
    path = save(proto, tmp_path / "m.onnx")
    check(path, [0, 1], tmp_path)
    assert (tmp_path / "0-1.onnx.data").stat().st_size == 2400


def test_places_out_of_range_and_unknown_types_are_refused(tmp_path: Path) -> None:
    nodes = [node("Mystery", ["x"], ["a"], domain="own"), node("Relu", ["a"], ["y"])]
    ops = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    proto = model(nodes, [value("x", [2])], [value("y", [2])], opset_imports=ops)
    cutter = OnnxCutter(save(proto, tmp_path / "m.onnx"))
    with pytest.raises(ModelError, match="type of tensor 'a'"):
        cutter.segment(0, 1, tmp_path / "s.onnx")
    for first, last in ((0, 3), (-1, 1), (1, 1), (2, 1)):
        with pytest.raises(UsageError):
            cutter.segment(first, last, tmp_path / "s.onnx")
    with pytest.raises(UsageError):
        cutter.live(3)
    assert list(tmp_path.iterdir()) == [tmp_path / "m.onnx"]
    loose = model([node("Relu", ["w"], ["y"])], [value("x", [2])], [value("y", [2])], {"w": np.ones(2, np.float32)})
    with pytest.raises(ModelError, match="computes nothing"):
        OnnxCutter(save(loose, tmp_path / "n.onnx"))


@st.composite
def random_model(draw: st.DrawFn) -> Any:
    """A random graph of elementwise nodes over two inputs and a constant, some results being outputs."""
    names = ["x0", "x1", "k"]
    nodes = []
    for i in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(["Add", "Sub", "Max", "Relu", "Neg", "Split"]))
        count = 2 if kind in {"Add", "Sub", "Max"} else 1
        reads = [draw(st.sampled_from(names)) for _ in range(count)]
        if kind == "Split":
            nodes.append(node("Identity", reads, [f"n{i}"], f"same{draw(st.integers(0, 1))}"))
        else:
            nodes.append(node(kind, reads, [f"n{i}"], draw(st.sampled_from(["", "twin"]))))
        names.append(f"n{i}")
    made = [n for n in names if n.startswith("n")]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, unique=True))
    proto = model(
        nodes,
        [value("x0", [3]), value("x1", [3])],
        [value(n, [3]) for n in outputs],
        {"k": np.arange(3, dtype=np.float32)},
    )
    proto.graph.value_info.extend(value(n, [3]) for n in made if n not in outputs)
    return proto


@given(st.data())
def test_random_graphs_cut_anywhere_compute_the_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    proto = data.draw(random_model())
    path = save(proto, folder / "m.onnx")
    try:
        cutter = OnnxCutter(path)
    except ModelError as error:
        assert "computes nothing" in error.message
        return
    end = len(cutter.order)
    inner = data.draw(st.sets(st.integers(0, end)))
    for entry in proto.graph.node:
        entry.name = ""  # onnxruntime refuses a model in which two nodes have one name
    whole = save(proto, folder / "whole.onnx")
    check(path, sorted({0, end, *inner}), folder, whole=whole)


def test_sparse_weights_keep_their_place(tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.array([5.0], np.float32), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1]), "i"), [2])
    proto = model([node("Add", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])], [value("x", [2])], [value("y", [2])])
    proto.graph.sparse_initializer.append(sparse)
    cutter = OnnxCutter(save(proto, tmp_path / "m.onnx"))
    segment = cutter.segment(0, 1, tmp_path / "s.onnx")
    assert [t.name for t in segment.inputs] == ["x"]
    assert onnx.load(str(segment.path)).graph.sparse_initializer[0].values.name == "w"
