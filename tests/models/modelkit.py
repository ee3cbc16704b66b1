"""Small models built for the tests of the models room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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


def write_package(folder: Path, manifest: str, files: Mapping[str, bytes]) -> Path:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "MANIFEST").write_text(manifest)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder
