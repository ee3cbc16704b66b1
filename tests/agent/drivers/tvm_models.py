"""Small ONNX models and tuning records for tests of TVM."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tests.models.modelkit import model, node, value

MISSING = [name for name in ("tvm", "tvm_ffi") if importlib.util.find_spec(name) is None]
needs_tvm = pytest.mark.skipif(bool(MISSING), reason=f"TVM is not installed: no {', '.join(MISSING)}")

_RNG = 5


def model_bytes(
    nodes: Sequence[Any],
    weights: dict[str, np.ndarray[Any, Any]],
    inputs: dict[str, Sequence[int | str]],
    outputs: dict[str, tuple[int, Sequence[int]]],
) -> bytes:
    """An ONNX model whose inputs are float32; `outputs` are ONNX's data type and shape."""
    made = model(
        nodes,
        [value(name, shape) for name, shape in inputs.items()],
        [value(name, shape, kind) for name, (kind, shape) in outputs.items()],
        weights,
    )
    return bytes(made.SerializeToString())


def small_net(size: int = 4) -> bytes:
    """Three convolutions of which two are the same function for TVM, a clipping, a residual, and a classifier.

    The importer makes several of TVM's operators of most of its eleven nodes, and fusing joins them again.
    """
    rng = np.random.default_rng(_RNG)
    held: dict[str, np.ndarray[Any, Any]] = {}

    def weights(name: str, *shape: int) -> str:
        held[name] = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        return name

    held["low"], held["high"] = np.zeros((), np.float32), np.full((), 6, np.float32)
    nodes = [
        node("Conv", ["x", weights("w1", 4, 3, 3, 3), weights("b1", 4)], ["c1"], name="first", pads=[1, 1, 1, 1]),
        node("Clip", ["c1", "low", "high"], ["r1"], name="clip"),
        node("Conv", ["r1", weights("w2", 4, 4, 3, 3), weights("b2", 4)], ["c2"], name="second", pads=[1, 1, 1, 1]),
        node("Relu", ["c2"], ["r2"], name="relu"),
        node("Conv", ["r2", weights("w3", 4, 4, 3, 3), weights("b3", 4)], ["c3"], pads=[1, 1, 1, 1]),
        node("Relu", ["c3"], ["r3"]),
        node("Add", ["r3", "r1"], ["sum"], name="add"),
        node("GlobalAveragePool", ["sum"], ["pooled"]),
        node("Flatten", ["pooled"], ["flat"]),
        node("Gemm", ["flat", weights("w4", 4, 5), weights("b4", 5)], ["scores"], name="dense"),
        node("Softmax", ["scores"], ["y"]),
    ]
    return model_bytes(nodes, held, {"x": (1, 3, size, size)}, {"y": (TensorProto.FLOAT, (1, 5))})


def deep_net(alpha: float = 0.25) -> bytes:
    """Eight convolutions, each with a leaky ReLU, and a classifier: enough for TVM to turn the image for them."""
    rng = np.random.default_rng(_RNG)
    held: dict[str, np.ndarray[Any, Any]] = {"dense": rng.standard_normal((8, 5)).astype(np.float32)}
    nodes, last = [], "x"
    for k in range(8):
        held[f"w{k}"] = (rng.standard_normal((8, 8 if k else 3, 3, 3)) * 0.2).astype(np.float32)
        held[f"b{k}"] = rng.standard_normal(8).astype(np.float32)
        nodes.append(node("Conv", [last, f"w{k}", f"b{k}"], [f"c{k}"], pads=[1, 1, 1, 1]))
        nodes.append(node("LeakyRelu", [f"c{k}"], [last := f"r{k}"], alpha=alpha))
    nodes.append(node("GlobalAveragePool", [last], ["pooled"]))
    nodes.append(node("Flatten", ["pooled"], ["flat"]))
    nodes.append(node("MatMul", ["flat", "dense"], ["y"]))
    return model_bytes(nodes, held, {"x": (1, 3, 6, 6)}, {"y": (TensorProto.FLOAT, (1, 5))})


def norm_net() -> bytes:
    """Batch norms: behind convolutions without and with a bias, a depthwise one, one that is read twice, a sum, and a
    dense layer.
    """
    rng = np.random.default_rng(_RNG)
    held: dict[str, np.ndarray[Any, Any]] = {}

    def weights(name: str, *shape: int) -> str:
        held[name] = (rng.standard_normal(shape) * 0.5).astype(np.float32)
        return name

    def norm(x: str, y: str, channels: int) -> Any:
        names = [weights(f"{y}_{part}", channels) for part in ("scale", "shift", "mean", "variance")]
        held[names[-1]] = np.abs(held[names[-1]]) + np.float32(0.1)
        return node("BatchNormalization", [x, *names], [y], epsilon=1e-3)

    nodes = [
        node("Conv", ["x", weights("w1", 4, 3, 3, 3)], ["c1"], pads=[1, 1, 1, 1]),
        norm("c1", "n1", 4),
        node("Relu", ["n1"], ["r1"]),
        node("Conv", ["r1", weights("w2", 4, 1, 3, 3), weights("b2", 4)], ["c2"], pads=[1, 1, 1, 1], group=4),
        norm("c2", "n2", 4),
        node("Conv", ["n2", weights("w3", 4, 4, 1, 1), weights("b3", 4)], ["c3"]),
        norm("c3", "n3", 4),
        node("Add", ["n3", "c3"], ["s1"]),
        norm("s1", "n4", 4),
        node("Relu", ["n4"], ["r4"]),
        node("GlobalAveragePool", ["r4"], ["pooled"]),
        node("Flatten", ["pooled"], ["flat"]),
        node("Gemm", ["flat", weights("w4", 5, 4), weights("b4", 5)], ["scores"], transB=1),
        norm("scores", "y", 5),
    ]
    return model_bytes(nodes, held, {"x": (1, 3, 5, 5)}, {"y": (TensorProto.FLOAT, (1, 5))})


def shortcut_net() -> bytes:
    """A residual block whose shortcut is a convolution and is added first: which of both the sum is fused to depends on
    their order.
    """
    rng = np.random.default_rng(_RNG)
    held = {
        f"w{k}": (rng.standard_normal((4, 4, size, size)) * 0.3).astype(np.float32) for k, size in enumerate((3, 3, 1))
    }
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["x", "w2"], ["c2"]),
        node("Relu", ["c2"], ["r2"]),
        node("Add", ["r2", "r1"], ["y"]),
    ]
    return model_bytes(nodes, held, {"x": (1, 4, 6, 6)}, {"y": (TensorProto.FLOAT, (1, 4, 6, 6))})


def bytes_net() -> bytes:
    """Three products of bytes by constant weights, as dynamic quantisation makes them.

    The weights have 7 bits: with 8 the sums of two products saturate in ONNX Runtime on processors without VNNI.
    """
    rng = np.random.default_rng(_RNG)
    held: dict[str, np.ndarray[Any, Any]] = {"zero": np.zeros((), np.int8), "small": np.array(0.01, np.float32)}
    nodes, last = [], "x"
    for k, (summed, width) in enumerate([(64, 48), (48, 32), (32, 5)]):
        held[f"w{k}"] = rng.integers(-64, 64, (summed, width)).astype(np.int8)
        nodes += [
            node("DynamicQuantizeLinear", [last], [f"q{k}", f"scale{k}", f"point{k}"]),
            node("MatMulInteger", [f"q{k}", f"w{k}", f"point{k}", "zero"], [f"sum{k}"]),
            node("Cast", [f"sum{k}"], [f"f{k}"], to=TensorProto.FLOAT),
            node("Mul", [f"f{k}", f"scale{k}"], [f"m{k}"]),
            node("Mul", [f"m{k}", "small"], [last := f"y{k}" if k < 2 else "y"]),
        ]
    return model_bytes(nodes, held, {"x": (6, 64)}, {"y": (TensorProto.FLOAT, (6, 5))})


def layer_norm_net() -> bytes:
    """A layer normalisation between two matrix products; what TVM reads it as names nothing by itself."""
    rng = np.random.default_rng(_RNG)
    held = {n: rng.standard_normal((6, 6)).astype(np.float32) for n in ("a", "b")}
    held["scale"], held["bias"] = np.ones(6, np.float32), np.zeros(6, np.float32)
    nodes = [
        node("MatMul", ["x", "a"], ["m"]),
        node("LayerNormalization", ["m", "scale", "bias"], ["n"], axis=-1),
        node("MatMul", ["n", "b"], ["y"]),
    ]
    return model_bytes(nodes, held, {"x": (2, 6)}, {"y": (TensorProto.FLOAT, (2, 6))})


def two_ends() -> bytes:
    """Two inputs, and outputs of two data types; one output comes of splitting."""
    nodes = [
        node("Add", ["x", "z"], ["sum"]),
        node("Split", ["sum"], ["left", "right"], axis=1),
        node("ArgMax", ["right"], ["place"], axis=1, keepdims=1),
    ]
    return model_bytes(
        nodes,
        {},
        {"x": (3, 8), "z": (3, 8)},
        {"place": (TensorProto.INT64, (3, 1)), "left": (TensorProto.FLOAT, (3, 4))},
    )


_WRITE = """
import json, sys, types
sys.modules["torch"] = None
sys.modules["tvm.s_tir.tensor_intrin"] = types.ModuleType("tvm.s_tir.tensor_intrin")
import tvm
from tvm.s_tir import Schedule, meta_schedule as ms
from tvm.s_tir.meta_schedule.tune_context import _normalize_mod
from gnomon.agent.drivers.tvm.nodes import planned_calls, read_onnx
module, _ = planned_calls(read_onnx(sys.argv[1], {})[0])
made = []
for name, function in module.functions.items():
    if not isinstance(function, tvm.tirx.PrimFunc):
        continue
    workload = ms.database.Workload(_normalize_mod(function))
    schedule = Schedule(workload.mod)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        if loops := schedule.get_loops(block):
            schedule.unroll(loops[-1])
    digest, text = workload.as_json()
    made.append([str(digest), str(name.name_hint), str(text), schedule.trace.as_json()])
print("records " + json.dumps(made, default=lambda v: list(v) if hasattr(v, "__iter__") else int(v)))
"""


def write_records(model: Path, path: Path, *, layers: int | None = None) -> int:
    """A file of tuning records of a model's layers (the first `layers`), each a little faster than untuned.

    Returns the number of layers. The schedules are plain: the innermost loops are unrolled.
    """
    done = subprocess.run(
        [sys.executable, "-c", _WRITE, str(model)], capture_output=True, text=True, check=True, timeout=120
    )
    told = next(line for line in done.stdout.splitlines() if line.startswith("records "))
    found = json.loads(told.removeprefix("records "))[:layers]
    header = {
        "gnomon": "tuning records",
        "version": 1,
        "tuner": "metaschedule",
        "device": {"key": "local", "target": {"kind": "llvm"}, "linker": "", "threads": 1},
        "found_on": "",
        "model": {"name": "m", "sha256": "", "dtype": "float32"},
        "versions": {},
    }
    lines: list[dict[str, Any]] = [header]
    for layer, name, text, trace in found:
        lines.append({"layer": layer, "name": name, "weight": 1, "arguments": [], "workload": text})
        lines.append({"layer": layer, "trial": "untuned", "trace": None, "times_s": [3e-5, 2e-5], "error": 0.0})
        lines.append({"layer": layer, "trial": "", "trace": trace, "times_s": [9e-6, 1e-5, 1e-3], "error": 1e-7})
    for line in lines[1:]:
        if "trial" in line:
            line |= {"server": "", "at_s": 0.0}
            if line["trace"] is not None:
                line["trial"] = _identity(line["layer"], line["trace"])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return len(found)


def _identity(layer: str, trace: Any) -> str:
    from gnomon.core.overlay.records import configuration_id

    return configuration_id(layer, trace)
