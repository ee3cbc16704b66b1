"""Fix the input shapes of an ONNX model and fold everything that is then constant, to know as many shapes as possible.

`Constant` nodes become initializers. So do the `Shape` of a tensor of fixed shape and every node with constant inputs
only: the ONNX reference evaluator computes them as the model's own operator set defines them. Only standard operators
are folded, except random ones and those with a subgraph. Nothing is fused, and nodes that cannot be folded remain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import _op_list

from gnomon.models.onnx.file import node_names
from gnomon.models.onnx.graph import constant_names, skeleton
from gnomon.models.order import RANDOM_TYPES

MAX_FOLDED_BYTES = 16 << 20
"""A node is not folded if its results take more bytes than this: a small file must not become a huge one."""
_SMALL_BYTES = 1 << 10
"""Results of at most this many bytes, such as shapes, axes and masks, may be larger than their inputs."""
_WHOLE_BYTES = 4
"""Elements of fewer bytes are taken for low-bit weights, which are not widened, because runtimes have kernels for them.
"""


_SINCE: Mapping[str, int] = {
    **dict.fromkeys(("Gather", "Identity", "MatMul", "Not", "Size", "Transpose"), 1),
    "Concat": 4,
    **dict.fromkeys(("Abs", "Cast", "Ceil", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Sqrt", "Tanh", "Tile"), 6),
    **dict.fromkeys(("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"), 7),
    **dict.fromkeys(("Expand", "Max", "Min"), 8),
    **dict.fromkeys(("ConstantOfShape", "Flatten", "Sign", "Where"), 9),
    "Mod": 10,
    **dict.fromkeys(("GatherElements", "GatherND", "Range"), 11),
}
"""The version since which an operator has had its present meaning: later versions only added types (docs/Changelog.md
of ONNX).
"""


def fix_shapes(fixed: onnx.ModelProto, inputs: Mapping[str, Sequence[int]]) -> None:
    """Fix a model to inputs of these shapes: it then computes the same as before, and has every shape that can be
    inferred.

    Weights in external files stay there; initializers are removed from the inputs. The shapes of results of contrib
    operators and of control flow stay open, and so do shapes that depend on values.
    """
    external = onnx.TensorProto.EXTERNAL
    constants: dict[str, NDArray[Any]] = {
        t.name: numpy_helper.to_array(t) for t in fixed.graph.initializer if t.data_location != external
    }
    _only_true_inputs(fixed)
    for value in fixed.graph.input:
        if value.name in inputs:
            _set_shape(value, inputs[value.name])
    _forget(fixed.graph)
    opsets = {entry.domain: entry.version for entry in fixed.opset_import}
    version = opsets.get("", opsets.get("ai.onnx", 1))
    while True:
        _infer(fixed)
        if not _fold(fixed.graph, constants, version):
            break
    _use_initializers(fixed.graph, constants)
    _infer(fixed)


def _infer(model: onnx.ModelProto) -> None:
    """Record the shapes of all tensors or, if inference refuses an operator, of the tensors before it.

    Large weights, whose values do not affect shapes, are not passed to inference.
    """
    data = skeleton(model)
    inferred = _inferred(data, strict_mode=True, data_prop=True) or _inferred(data)
    if inferred is None:
        return
    for group in ("value_info", "output"):
        del getattr(model.graph, group)[:]
        getattr(model.graph, group).extend(getattr(inferred.graph, group))
    for node, typed in zip(model.graph.node, inferred.graph.node, strict=True):
        if _has_graphs(node):
            node.CopyFrom(typed)


def _inferred(data: bytes, **how: bool) -> onnx.ModelProto | None:
    try:
        inferred: onnx.ModelProto = onnx.shape_inference.infer_shapes(data, **how)
    except Exception:  # inference raises any error that its operators raise
        return None
    return inferred


def _has_graphs(node: onnx.NodeProto) -> bool:
    return any(a.type in {onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS} for a in node.attribute)


def _only_true_inputs(model: onnx.ModelProto) -> None:
    """Drop inputs that are initializers, which versions of the format before 4 list among the inputs."""
    held = constant_names(model.graph)
    inputs = [value for value in model.graph.input if value.name not in held]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)


def _set_shape(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    element = value.type.tensor_type.elem_type
    value.type.CopyFrom(helper.make_tensor_type_proto(element, list(shape)))


def _forget(graph: onnx.GraphProto) -> None:
    """Drop recorded shapes, which may be symbolic, so that inference sets them.

    Inference skips outputs that no node writes, so their shapes are set here.
    """
    del graph.value_info[:]
    shapes = _shapes(graph)
    written = {name for node in graph.node for name in node.output}
    for value in graph.output:
        if value.name in written:
            value.type.tensor_type.ClearField("shape")
        elif value.name in shapes:
            _set_shape(value, shapes[value.name])


def _shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes[value.name] = tuple(d.dim_value for d in dims)
    return shapes


def _fold(graph: onnx.GraphProto, constants: dict[str, NDArray[Any]], version: int) -> bool:
    """Move the nodes that are now constant into `constants`; return True if there were any."""
    shapes = _shapes(graph)
    outputs = {v.name for v in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        results = _value_of(node, shapes, constants, version)
        if results is None or outputs & set(node.output):
            kept.append(node)
            continue
        for name, array in zip(node.output, results, strict=True):
            constants[name] = array
    changed = len(kept) < len(graph.node)
    del graph.node[:]
    graph.node.extend(kept)
    if changed:
        # Inference needs the new constants' values (a Reshape's shape, a Slice's bounds) in the next round.
        _use_initializers(graph, constants)
    return changed


def _value_of(
    node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, NDArray[Any]], version: int
) -> list[NDArray[Any]] | None:
    if node.op_type == "Shape" and node.input[0] in shapes and not node.attribute:
        return [np.array(shapes[node.input[0]], np.int64)]
    if any(name not in constants for name in node.input if name) or node.domain not in {"", "ai.onnx"}:
        return None
    if node.op_type in RANDOM_TYPES or not _known_meaning(node.op_type, version) or _has_graphs(node):
        return None
    sizes = [shapes.get(name) for name in node.output if name]
    # A result of unknown shape may be huge.
    small = all(shape is not None and 16 * math.prod(shape) <= MAX_FOLDED_BYTES for shape in sizes)
    if node.op_type != "Constant" and not small:
        return None
    feeds = {name: constants[name] for name in node.input if name}
    results = _evaluated(node, feeds, version)
    if results is None or sum(r.nbytes for r in results) > MAX_FOLDED_BYTES:
        return None
    return None if feeds and _widens(list(feeds.values()), results) else results


def _widens(feeds: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]) -> bool:
    """Return True if results are larger than their inputs, so that folding would unpack weights."""
    size = sum(result.nbytes for result in results)
    narrow = any(feed.dtype.itemsize < _WHOLE_BYTES and feed.dtype != np.bool_ for feed in feeds)
    return size > sum(feed.nbytes for feed in feeds) and (narrow or size > _SMALL_BYTES)


def _evaluated(node: onnx.NodeProto, feeds: Mapping[str, NDArray[Any]], version: int) -> list[NDArray[Any]] | None:
    """The results of a node on constants; None if the evaluator fails: the runtime must then compute the node."""
    # A value without a type accepts any feed.
    values = [helper.make_value_info(name, onnx.TypeProto()) for name in dict.fromkeys(feeds)]
    outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output]
    graph = helper.make_graph([node], "constant", values, [value for value in outputs if value.name])
    alone = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(r) for r in ReferenceEvaluator(alone).run(None, dict(feeds))]
    except Exception:  # the evaluator raises any error that its operators raise
        return None


def _known_meaning(op_type: str, version: int) -> bool:
    """Return True if the reference evaluator computes an operator as this version of the operator set defines it.

    The evaluator implements the newest definition of every operator, and older definitions of some.
    """
    try:
        since = onnx.defs.get_schema(op_type, version).since_version
        newest = onnx.defs.get_schema(op_type, onnx.defs.onnx_opset_version()).since_version
    except onnx.defs.SchemaError:
        return False
    own_class = any(hasattr(_op_list, f"{op_type}_{version}") for version in range(1, since + 1))
    return own_class or since == newest or since >= _SINCE.get(op_type, newest)


def _use_initializers(graph: onnx.GraphProto, constants: Mapping[str, NDArray[Any]]) -> None:
    used = {name for node in graph.node for name in node_names(node)[0]} | {value.name for value in graph.output}
    kept = [t for t in graph.initializer if t.name in used]
    folded = sorted(used & set(constants) - {t.name for t in kept})
    del graph.initializer[:]
    graph.initializer.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(constants[name], name) for name in folded)
