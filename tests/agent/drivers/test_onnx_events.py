"""Events of ONNX Runtime's profile: what a loop's body runs is the loop's, whatever it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from onnx import TensorProto, helper  # noqa: E402
from tests.models.modelkit import model, node, save, value  # noqa: E402

from gnomon.agent.arrays import fill, make_buffers  # noqa: E402
from gnomon.agent.drivers.onnxruntime.driver import OnnxRuntimeDriver  # noqa: E402
from gnomon.agent.drivers.onnxruntime.events import calls_of  # noqa: E402

TURNS, CALLS = 7, 3


def test_nodes_without_names_in_a_loop_are_not_taken_for_those_outside(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("MatMul", ["a", "w"], ["b"]), node("Identity", ["on"], ["goes"])],
        "body",
        [value("k", [], TensorProto.INT64), value("on", [], TensorProto.BOOL), value("a", [2, 8])],
        [value("goes", [], TensorProto.BOOL), value("b", [2, 8])],
    )
    nodes = [node("MatMul", ["x", "w"], ["m"], "MatMul_0"), node("Loop", ["n", "", "m"], ["y"], "Loop_1", body=body)]
    constants = {"w": np.eye(8, dtype=np.float32), "n": np.array(TURNS)}
    path = save(model(nodes, [value("x", [2, 8])], [value("y", [2, 8])], constants), tmp_path / "m.onnx")
    buffers = make_buffers({name: {"shape": [2, 8], "dtype": "float32"} for name in "xy"})
    fill(buffers, {"x": {}}, 0)
    segment: Any = {"model": str(path), "inputs": [["x", "x"]], "outputs": [["y", "y"]], "options": {"threads": 1}}
    loaded = OnnxRuntimeDriver().load(segment, buffers, profiled=True)
    for _ in range(CALLS):
        loaded.call()
    rows = {row["sources"][0]: row["wall_ns"] for row in loaded.operators(1)}
    assert {name: len(taken) for name, taken in rows.items()} == {"MatMul_0": CALLS - 1, "Loop_1": CALLS - 1}


def test_a_loop_within_a_loop_and_a_node_that_ends_as_the_loop_begins() -> None:
    def event(name: str, ts: int, cat: str = "Session") -> Any:
        return {"name": f"{name}_kernel_time" if cat == "Node" else name, "ts": ts, "cat": cat}

    events = [
        event("before", 10, "Node"),
        event("innermost", 16, "Node"),
        event("SequentialExecutor::Execute", 15),
        event("inner loop", 14, "Node"),
        event("SequentialExecutor::Execute", 12),
        event("loop", 11, "Node"),
        event("after", 20, "Node"),
        event("SequentialExecutor::Execute", 9),
        event("model_run", 8),
    ]
    ((call, nodes),) = calls_of(events)
    assert call["name"] == "model_run"
    assert [found["name"] for found in nodes] == [f"{name}_kernel_time" for name in ("before", "loop", "after")]
