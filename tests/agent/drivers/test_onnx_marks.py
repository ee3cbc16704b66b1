"""Marks on the nodes of ONNX files: what is written is what onnx reads, and nothing else of the file changes."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.modelkit import model, node, value

onnx = pytest.importorskip("onnx")

from gnomon.agent.drivers.onnxruntime.marks import NotOnnx, marked, nodes_of, number_of  # noqa: E402


def made() -> bytes:
    nodes = [
        node("HardSwish", ["x"], ["a"], "swish"),
        node("MatMul", ["a", "w"], ["b"], "product"),
        node("Relu", ["b"], ["y"], ""),
    ]
    nodes[1].metadata_props.add(key="layer_ann", value="cpu_embedding")
    nodes[1].metadata_props.add(key="other", value="stays")
    weights = {"w": np.eye(4, dtype=np.float32)}
    return bytes(model(nodes, [value("x", [1, 4])], [value("y", [1, 4])], weights).SerializeToString())


MODEL = made()


def props(one: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in one.metadata_props}


def test_a_mark_stands_before_what_a_node_was_marked_with() -> None:
    written = onnx.load_from_string(marked(MODEL, {1: "qnn", 2: "webgpu"}))
    assert [n.name for n in written.graph.node] == ["gnomon0", "gnomon1", "gnomon2"]
    assert props(written.graph.node[1]) == {"layer_ann": "gnomon.qnn/cpu_embedding", "other": "stays"}
    assert props(written.graph.node[2]) == {"layer_ann": "gnomon.webgpu/"}
    assert props(written.graph.node[0]) == {}
    again = onnx.load_from_string(marked(written.SerializeToString(), {1: "webgpu"}))
    assert props(again.graph.node[1])["layer_ann"] == "gnomon.webgpu/cpu_embedding"
    assert props(again.graph.node[2]) == {}


def test_nothing_else_changes() -> None:
    before, after = onnx.load_from_string(MODEL), onnx.load_from_string(marked(MODEL, {0: "qnn"}))
    for one, other in zip(before.graph.node, after.graph.node, strict=True):
        other.ClearField("name")
        if one.name:
            other.name = one.name
    del after.graph.node[0].metadata_props[:]
    assert before == after


def test_hard_swish_is_written_out_where_no_accelerator_takes_it() -> None:
    expanded = onnx.load_from_string(marked(MODEL, {}, frozenset({"HardSwish"})))
    onnx.checker.check_model(expanded)
    assert [n.op_type for n in expanded.graph.node] == ["HardSigmoid", "Mul", "MatMul", "Relu"]
    assert [number_of(n.name) for n in expanded.graph.node] == [0, 0, 1, 2]
    kept = onnx.load_from_string(marked(MODEL, {0: "qnn"}, frozenset({"HardSwish"})))
    assert kept.graph.node[0].op_type == "HardSwish"
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator
    x = np.linspace(-5, 5, 4, dtype=np.float32).reshape(1, 4)
    both = [
        reference(onnx.load_from_string(data)).run(None, {"x": x})[0] for data in (MODEL, expanded.SerializeToString())
    ]
    np.testing.assert_allclose(both[0], both[1], atol=1e-6)


def test_nodes_are_told_as_they_are_in_the_file() -> None:
    found = nodes_of(MODEL)
    assert [(n.operator, n.name, n.type, n.mark) for n in found] == [
        (0, "swish", "HardSwish", ""),
        (1, "product", "MatMul", "cpu_embedding"),
        (2, "", "Relu", ""),
    ]
    assert found[1].inputs == ("a", "w") and found[1].outputs == ("b",)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("gnomon17", 17),
        ("gnomon17_token_3", 17),
        ("gnomon1/QuickGeluFusion/", 1),
        ("Memcpy_token_1", None),
        ("x", None),
    ],
)
def test_a_number_is_read_off_what_onnxruntime_makes_of_a_name(name: str, number: int | None) -> None:
    assert number_of(name) == number


@given(st.integers(0, len(MODEL) - 1), st.binary(max_size=4))
def test_damaged_bytes_are_no_model_or_a_model(at: int, other: bytes) -> None:
    for damaged in (MODEL[:at], MODEL[:at] + other + MODEL[at + len(other) :]):
        with contextlib.suppress(NotOnnx):
            marked(damaged, {0: "qnn"}, frozenset({"HardSwish"}))
