"""ONNX Runtime's own files (.ort) as graphs: FlatBuffers of an ONNX model that ONNX Runtime has optimised.

The fields' numbers are those of ``onnxruntime/core/flatbuffers/schema/ort.fbs`` of ONNX Runtime, versions 5 and 6 of
the format. Apart from inputs and outputs, the content of nodes (attributes, subgraphs) is not read: the file is run
unchanged.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from mmap import mmap
from typing import Any

from gnomon.core.graph import Graph
from gnomon.models.onnx.file import onnx_package, sort_nodes, value_shape
from gnomon.models.onnx.graph import onnx_graph
from gnomon.models.tflite.file import Buffer, Table, broken

_TENSOR = 1  # the kind of a tensor value; other kinds are sequences and maps
_NUMBER = 1  # the kind of a fixed dimension


def read_ort(data: bytes | mmap, name: str) -> tuple[Graph, int]:
    """The graph of an .ort file, with its nodes in a topological order, and the number of graphs, which is 1.

    A node without a name gets the name that ONNX Runtime's profiler uses for it. Raises ModelError if the file is
    broken, RuntimeMissingError if the package onnx is not installed.
    """
    onnx = onnx_package()
    model = Buffer(data).root().table(1)
    source = None if model is None else model.table(7)
    if source is None:
        broken("it has no graph")
    values = {value.name: value for value in (_value(onnx, table) for table in source.tables(1))}
    sparse = (table.table(0) for table in source.tables(7))
    weights = [*source.tables(0), *(table for table in sparse if table is not None)]
    proto = onnx.ModelProto()
    proto.graph.node.extend(_node(onnx, table) for table in source.tables(2))
    proto.graph.initializer.extend(onnx.TensorProto(name=table.text(0)) for table in weights)
    for ends, names in ((proto.graph.input, source.texts(5)), (proto.graph.output, source.texts(6))):
        ends.extend(values.get(label) or onnx.ValueInfoProto(name=label) for label in names)
    sort_nodes(proto.graph)
    shapes = {label: value_shape(value) for label, value in values.items()}
    graph = onnx_graph(proto, shapes, name=name, digest=hashlib.sha256(data).hexdigest())
    return replace(graph, format="ort"), 1


def _node(onnx: Any, table: Table) -> Any:
    kind = table.text(5)
    return onnx.NodeProto(
        name=table.text(0) or f"{kind}_{table.unsigned(4)}",
        op_type=kind,
        domain=table.text(2),
        input=[*table.texts(8), *table.texts(12)],  # tensors that its subgraphs take from outside come last
        output=table.texts(9),
    )


def _value(onnx: Any, table: Table) -> Any:
    """A tensor's name, element type and shape, as in ONNX; only the name for a sequence or a map."""
    kind = table.table(2)
    tensor = None if kind is None or kind.integer(1, 1) != _TENSOR else kind.table(2)
    if tensor is None:
        return onnx.ValueInfoProto(name=table.text(0))
    shape = tensor.table(1)
    dims = None if shape is None else [_dimension(dim.table(0)) for dim in shape.tables(0)]
    return onnx.helper.make_tensor_value_info(table.text(0), tensor.integer(0, 4), dims)


def _dimension(table: Table | None) -> int | str | None:
    """A dimension's size, otherwise its name; None if it has neither."""
    if table is None:
        return None
    if table.integer(0, 1) == _NUMBER:
        return table.integer(1, 8) & (1 << 63) - 1  # the largest dimension in ONNX
    return table.text(2) or None
