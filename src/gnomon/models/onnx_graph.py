"""An ONNX model as a graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.errors import ModelError
from gnomon.models.naming import unique_names
from gnomon.models.onnx_macs import macs
from gnomon.models.onnx_shapes import Shapes
from gnomon.models.onnx_types import make_tensor

if TYPE_CHECKING:
    import onnx


def onnx_graph(model: onnx.ModelProto, shapes: Shapes, *, name: str, digest: str) -> Graph:
    """The graph of a parsed model whose shapes are given. Raises ModelError where it is broken.

    An operator with a subgraph (If, Loop, Scan) counts as one, and reads what its subgraph takes from outside
    it.
    """
    source = model.graph
    constants = constant_names(source)
    inputs = [value.name for value in source.input if value.name not in constants]
    index = {label: place for place, label in enumerate(dict.fromkeys((*inputs, *sorted(constants))))}
    rows = [node_names(node) for node in source.node]
    _check_order(rows, index)
    for _, results in rows:
        for result in results:
            index.setdefault(result, len(index))
    tensors = tuple(_tensor(label, shapes, label in constants) for label in index)
    labels = unique_names([node.name for node in source.node], [node.op_type for node in source.node])
    operators = []
    for place, (node, (reads, results)) in enumerate(zip(source.node, rows, strict=True)):
        explicit = [tensors[index[label]] if label else None for label in node.input]
        operators.append(
            Operator(
                index=place,
                name=labels[place],
                type=node.op_type,
                inputs=tuple(index[label] for label in reads),
                outputs=tuple(index[label] for label in results),
                macs=macs(node.op_type, explicit, tensors[index[results[0]]] if results else None),
            )
        )
    missing = [value.name for value in source.output if value.name not in index]
    if missing:
        _broken(f"its output {missing[0]!r} is not computed")
    return Graph(
        name=source.name or name,
        format="onnx",
        digest=digest,
        tensors=tensors,
        operators=tuple(operators),
        inputs=tuple(index[label] for label in inputs),
        outputs=tuple(index[value.name] for value in source.output),
    )


def constant_names(graph: onnx.GraphProto) -> set[str]:
    """Names of the tensors whose values the file holds: initializers and results of Constant nodes."""
    names = {tensor.name for tensor in graph.initializer}
    names |= {sparse.values.name for sparse in graph.sparse_initializer}
    return names | {label for node in graph.node if node.op_type == "Constant" for label in node.output}


def node_names(node: onnx.NodeProto) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that a node reads (what its subgraphs take from outside included) and those that it writes."""
    reads = [label for label in node.input if label]
    if any(_subgraphs(node)):
        reads += _captured(node)
    return tuple(reads), tuple(label for label in node.output if label)


def _subgraphs(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _captured(node: onnx.NodeProto) -> list[str]:
    """Names that a node's subgraphs read and do not define, in order. Protobuf bounds the depth at 100."""
    found: dict[str, None] = {}
    for graph in _subgraphs(node):
        defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        for inner in graph.node:
            reads, results = node_names(inner)
            found.update(dict.fromkeys(label for label in reads if label not in defined))
            defined.update(results)
        found.update(dict.fromkeys(v.name for v in graph.output if v.name and v.name not in defined))
    return list(found)


def _check_order(rows: list[tuple[tuple[str, ...], tuple[str, ...]]], known: dict[str, int]) -> None:
    """Each tensor is written once, and before it is read."""
    constants = {label for reads, results in rows if not reads for label in results}
    written = {label for label in known if label not in constants}
    all_results = {label for _, results in rows for label in results}
    for reads, results in rows:
        for label in reads:
            if label not in written:
                if label in all_results:
                    _broken(f"the nodes are not in topological order: {label!r} is read before it is written")
                _broken(f"a node reads {label!r}, which nothing defines")
        for label in results:
            if label in written:
                _broken(f"{label!r} is defined twice")
            written.add(label)


def _tensor(name: str, shapes: Shapes, constant: bool) -> Tensor:
    kind, shape = shapes.get(name, (0, None))
    if shape is not None and any(n < (0 if constant else -1) for n in shape):
        _broken(f"tensor {name!r} has a negative dimension")
    return make_tensor(name, kind, shape, constant=constant)


def _broken(why: str) -> NoReturn:
    raise ModelError(f"the ONNX model is broken: {why}", hint="check it with onnx.checker and export it again")
