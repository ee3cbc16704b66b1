"""The shapes of an ONNX model's tensors: what the file records, else what onnx infers in a child process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.errors import ModelError
from gnomon.models.model import Limits
from gnomon.models.onnx_types import check_rank, onnx_package, value_shape

if TYPE_CHECKING:
    import onnx

Shapes = dict[str, tuple[int, tuple[int, ...] | None]]
"""Element type and shape of each tensor by its name."""

_SMALL_ELEMENTS = 4096
REFUSED = 3
"""The status with which the child ends where inference itself refuses the model."""

_CHILD = Path(__file__).with_name("onnx_infer_child.py")


def tensor_shapes(model: onnx.ModelProto, limits: Limits) -> Shapes:
    """Element type and shape of every tensor that is known: what inference refuses to tell stays open.

    Raises ModelError where inference crashes, or takes too long or too much memory.
    """
    graph = model.graph
    shapes = _recorded(graph)
    written = [name for node in graph.node for name in node.output if name]
    if all(_is_fixed(shapes.get(name)) for name in written):
        return shapes
    inferred = _infer(_skeleton(model), limits)
    if inferred is None:
        return shapes
    return {**shapes, **_of_values((*inferred.graph.value_info, *inferred.graph.output))}


def _recorded(graph: onnx.GraphProto) -> Shapes:
    shapes = _of_values((*graph.value_info, *graph.output, *graph.input))
    for tensor in graph.initializer:
        check_rank(tensor.name, len(tensor.dims))
        shapes[tensor.name] = tensor.data_type, tuple(tensor.dims)
    for sparse in graph.sparse_initializer:
        check_rank(sparse.values.name, len(sparse.dims))
        shapes[sparse.values.name] = sparse.values.data_type, tuple(sparse.dims)
    return shapes


def _of_values(values: Iterable[onnx.ValueInfoProto]) -> Shapes:
    return {value.name: value_shape(value) for value in values}


def _is_fixed(entry: tuple[int, tuple[int, ...] | None] | None) -> bool:
    return entry is not None and entry[0] != 0 and entry[1] is not None and -1 not in entry[1]


def _skeleton(model: onnx.ModelProto) -> bytes:
    """The model without its large weights, which become inputs: their values do not count for shapes."""
    onnx = onnx_package()
    source = model.graph
    copy = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    copy.graph.name = source.name or "graph"
    copy.graph.node.extend(source.node)
    copy.graph.output.extend(source.output)
    copy.graph.value_info.extend(source.value_info)
    names = {tensor.name for tensor in source.initializer}
    copy.graph.input.extend(value for value in source.input if value.name not in names)
    for tensor in source.initializer:
        elements = 1
        for dim in tensor.dims:
            elements *= max(dim, 0)
        if elements <= _SMALL_ELEMENTS and tensor.data_location != onnx.TensorProto.EXTERNAL:
            copy.graph.initializer.append(tensor)
        else:
            kind = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            copy.graph.input.append(kind)
    try:
        return bytes(copy.SerializeToString())
    except Exception as error:  # protobuf's own EncodeError derives from Exception only
        raise ModelError(
            f"the ONNX model is too large to infer its shapes: {error}",
            hint="record the shapes with onnx.shape_inference.infer_shapes_path first",
        ) from error


def _infer(data: bytes, limits: Limits) -> onnx.ModelProto | None:
    """The model with what inference tells; None where it raises an error of its own, as unlike types are to it."""
    hint = "the file is broken or hostile: check it with onnx.checker where it came from"
    # The interpreter and its libraries map some memory of their own.
    command = [sys.executable, "-P", str(_CHILD), str(limits.max_memory_bytes + (2 << 30))]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=limits.max_infer_s, check=False)
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"inferring the ONNX model's shapes took longer than {limits.max_infer_s:g} s", hint=hint
        ) from None
    if done.returncode == REFUSED:
        return None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = said[-1][:300] if said else f"the process ended with {done.returncode}"
        raise ModelError(f"the ONNX model's shapes cannot be inferred: {why}", hint=hint)
    inferred = onnx_package().ModelProto()
    try:
        inferred.ParseFromString(done.stdout)
    except Exception as error:  # protobuf's own DecodeError derives from Exception only
        raise ModelError(f"inferring the ONNX model's shapes gave no model: {error}", hint=hint) from error
    return inferred  # type: ignore[no-any-return]
