"""Reads an ONNX model node by node, and binds each node's results to variables whose names identify the node.

TVM's child program uses this file through a link. Fusing depends on the order in which values are bound, and records
match only if the agent and the child create the same layers.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

MARK = "gnomon_node_"
_OLDEST = 3


def imported(model: Any, shapes: Mapping[str, Sequence[int]]) -> Any:
    """The module of a model, whose inputs get these shapes if the file leaves them open.

    ValueError for a model, such as an empty one, whose IR version TVM does not read.
    """
    if model.ir_version < _OLDEST:
        raise ValueError(f"TVM does not read IR version {model.ir_version}")
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    return _Marking(shapes).from_onnx(model.graph, opset)


class _Builder(relax.BlockBuilder):  # type: ignore[misc]
    """Names bound values after the node that is being read."""

    node = 0

    def emit(self, expr: Any, name_hint: str = "") -> Any:
        return super().emit(expr, name_hint=f"{MARK}{self.node}_")

    def normalize(self, expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):  # values that `normalize` bound itself would get other names
            kinds = (relax.Call, relax.TupleGetItem)
            expr = relax.Tuple([self.emit(field) if isinstance(field, kinds) else field for field in expr.fields])
        return super().normalize(expr)


class _Marking(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer, which binds the results of each node as it is read."""

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        super().__init__({name: list(shape) for name, shape in shapes.items()}, "float32")
        self.bb = _Builder()

    def _construct_nodes(self, graph: Any) -> None:
        for number, node in enumerate(graph.node):
            self.bb.node = number
            super()._construct_nodes(types.SimpleNamespace(node=[node]))
            for name in node.output:
                value = self._nodes.get(name)
                if isinstance(value, relax.Call):
                    value = self.bb.normalize(value)
                    if isinstance(value.ty, relax.TensorType):
                        self._nodes[name] = self.bb.emit(value)
