"""Small models built for the tests of the models room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gnomon.models.cut import Cutter

F32 = TensorProto.FLOAT


def value(name: str, shape: Sequence[int | str | None] | None, kind: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind: str, reads: Sequence[str], writes: Sequence[str], name: str = "", **more: Any) -> Any:
    return helper.make_node(kind, list(reads), list(writes), name or None, **more)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    **more: Any,
) -> onnx.ModelProto:
    held = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), held)
    imports = more.pop("opset_imports", [helper.make_opsetid("", 17)])
    return helper.make_model(graph, opset_imports=imports, ir_version=8, **more)


def save(proto: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(proto.SerializeToString())
    return path


def session(made: onnx.ModelProto | Path, *, optimise: bool = True) -> Any:
    """ONNX Runtime's, on one thread; without optimisations a whole and its parts do the same arithmetic."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = str(made) if isinstance(made, Path) else made.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def write_package(folder: Path, manifest: str, files: Mapping[str, bytes]) -> Path:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "MANIFEST").write_text(manifest)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


Run = Callable[[Path, Sequence[Any]], Sequence[Any]]
"""What computes a model's outputs of its inputs, both in the model's order."""


def run_chain(
    cutter: Cutter, places: Sequence[int], feeds: Mapping[str, Any], folder: Path, run: Run
) -> dict[str, Any]:
    """The values after the segments between the places, of which each may see only what is live where it begins."""
    values = dict(feeds)
    seen: list[int] = []
    for first, last in pairwise(places):
        segment = cutter.segment(first, last, folder / f"{first}-{last}.{cutter.graph.format}")
        live = {t.name for t in cutter.live(first)}
        assert {t.name for t in segment.inputs} <= live <= set(values)
        assert not any(t.constant for t in segment.inputs)
        found = run(segment.path, [values[t.name] for t in segment.inputs])
        for tensor, result in zip(segment.outputs, found, strict=True):
            if tensor.shape is not None and -1 not in tensor.shape:
                assert (result.shape, result.dtype.name) == (tensor.shape, tensor.dtype)
            values[tensor.name] = result
        seen += segment.operators
    assert seen == list(cutter.order)
    return values


def check_chain(
    cutter: Cutter, whole: Path, places: Sequence[int], feeds: Mapping[str, Any], folder: Path, run: Run, rtol: float
) -> None:
    """The segments between the places compute what the whole model does."""
    values = run_chain(cutter, places, feeds, folder, run)
    names = [cutter.graph.tensors[t].name for t in cutter.graph.outputs]
    for name, wanted in zip(names, run(whole, list(feeds.values())), strict=True):
        assert values[name].dtype == wanted.dtype
        np.testing.assert_allclose(values[name], wanted, rtol=rtol, atol=rtol * float(np.abs(wanted).max()))
