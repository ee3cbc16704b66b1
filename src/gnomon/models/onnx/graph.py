"""An ONNX model as a graph, with the multiply-accumulates of its operators, which follow from the shapes of tensors.

Shapes that the file records are used; onnx infers the others in a child process, because inference may crash on a
hostile file. Inference takes a fifth of a second for each file, longer than measuring a small network. A file can
therefore also be read, in milliseconds, with only the shapes of its inputs and outputs, which are enough to run it.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gnomon.core.graph import Graph, Tensor
from gnomon.errors import DeviceError, ModelError
from gnomon.models.model import Limits, Model, Row, dynamic_inputs, model_errors, named_operators, typed_tensor
from gnomon.models.onnx.file import (
    check_rank,
    dimension_names,
    element_type,
    node_names,
    onnx_package,
    read_onnx,
    value_shape,
)
from gnomon.system.process import guarded_folder, own_guard, run_process

if TYPE_CHECKING:
    import onnx

Shape = tuple[int, ...]


def macs(kind: str, inputs: Sequence[Tensor | None], output: Tensor | None) -> int | None:
    """Multiply-accumulates of one operator; None if a relevant shape is not fixed, or if the operator has a subgraph.

    `inputs` are in the operator's order, None for an absent one; `output` is the first result.
    """
    if kind in _OPEN:
        return None
    if kind not in _RULES:
        return 0
    places, rule = _RULES[kind]
    if len(inputs) <= max(places):
        return None
    shapes = [inputs[place] for place in places] + [output]
    given = [None if t is None else t.shape for t in shapes]
    fixed = [shape for shape in given if shape is not None and -1 not in shape]
    return rule(fixed[0], fixed[1], fixed[2]) if len(fixed) == 3 else None


def _convolution(data: Shape, weights: Shape, result: Shape) -> int:
    """Weights [outputs, inputs of a group, kernel..]."""
    return math.prod(result) * math.prod(weights[1:])


def _transposed(data: Shape, weights: Shape, result: Shape) -> int:
    """Weights [inputs, outputs of a group, kernel..]: each input pixel is multiplied by all weights of its channel."""
    return math.prod(data) * math.prod(weights[1:])


def _matmul(left: Shape, right: Shape, result: Shape) -> int:
    return math.prod(result) * (left[-1] if left else 1)


def _gemm(left: Shape, right: Shape, result: Shape) -> int:
    """Left is [m, k] or [k, m]; the result [m, n] shows which."""
    if len(left) != 2 or not result or result[0] == 0:
        return 0
    return math.prod(result) * (math.prod(left) // result[0])


def _recurrent(data: Shape, weights: Shape, result: Shape) -> int:
    """Data [.., .., inputs], weights [directions, gates * hidden, inputs]; hidden is the last axis of the result."""
    if len(data) != 3 or len(weights) != 3 or not result:
        return 0
    return math.prod(data[:2]) * math.prod(weights[:2]) * (weights[2] + result[-1])


_Rule = Callable[[Shape, Shape, Shape], int]
_RULES: dict[str, tuple[tuple[int, int], _Rule]] = {
    **dict.fromkeys(("Conv", "FusedConv", "ConvInteger"), ((0, 1), _convolution)),
    "QLinearConv": ((0, 3), _convolution),
    "ConvTranspose": ((0, 1), _transposed),
    **dict.fromkeys(("MatMul", "MatMulInteger", "MatMulNBits"), ((0, 1), _matmul)),
    "QLinearMatMul": ((0, 3), _matmul),
    "Gemm": ((0, 1), _gemm),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), ((0, 1), _recurrent)),
}
"""For each operator with multiply-accumulates: the places of its two factors, and the function that counts them."""
_OPEN = frozenset({"If", "Loop", "Scan"})
"""Operators with subgraphs: the amount of their work depends on values."""


Shapes = dict[str, tuple[int, tuple[int, ...] | None]]
"""Element type and shape of each tensor, by name."""

_SMALL_ELEMENTS = 4096
REFUSED = 3
"""The exit status of the child if inference itself refuses the model."""

_CHILD = Path(__file__).with_name("infer_child.py")


def tensor_shapes(model: onnx.ModelProto, limits: Limits) -> Shapes:
    """Element type and shape of every tensor, as far as known; shapes that inference does not find stay open.

    Raises ModelError if inference crashes, or takes too long or too much memory.
    """
    graph = model.graph
    shapes = _recorded(graph)
    written = [name for node in graph.node for name in node.output if name]
    if all(_is_fixed(shapes.get(name)) for name in written):
        return shapes
    inferred = _infer(skeleton(model), limits)
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


def skeleton(model: onnx.ModelProto) -> bytes:
    """The model without its large weights, which become inputs: their values do not affect shapes."""
    onnx = onnx_package()
    source = model.graph
    copy = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    copy.graph.name = source.name or "graph"
    copy.graph.node.extend(source.node)
    copy.graph.output.extend(source.output)
    copy.graph.value_info.extend(source.value_info)
    copy.graph.sparse_initializer.extend(source.sparse_initializer)
    names = {tensor.name for tensor in source.initializer}
    copy.graph.input.extend(value for value in source.input if value.name not in names)
    for tensor in source.initializer:
        elements = math.prod(max(dim, 0) for dim in tensor.dims)
        if elements <= _SMALL_ELEMENTS and tensor.data_location != onnx.TensorProto.EXTERNAL:
            copy.graph.initializer.append(tensor)
        else:
            kind = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            copy.graph.input.append(kind)
    try:
        return bytes(copy.SerializeToString())
    except Exception as error:  # protobuf's own EncodeError derives only from Exception
        raise ModelError(
            f"the ONNX model is too large to infer its shapes: {error}",
            hint="Add the shapes to the file with onnx.shape_inference.infer_shapes_path first.",
        ) from error


def _infer(data: bytes, limits: Limits) -> onnx.ModelProto | None:
    """The model with the inferred shapes; None if inference refuses the model, for example because types differ."""
    hint = "The file may be broken or hostile: check it with onnx.checker where it was exported."
    with guarded_folder("gnomon-infer-") as folder:
        written = folder / "inferred.onnx"
        try:
            done = run_process(
                [sys.executable, "-P", str(_CHILD), str(limits.max_memory_bytes), str(written)],
                env=os.environ,
                stdin=data,
                timeout_s=limits.max_infer_s,
                on_line=None,
                cwd=Path(),
                guard=own_guard(),
            )
        except DeviceError as error:  # the error concerns this machine, whichever device is measured
            raise ModelError(f"the ONNX model's shapes cannot be inferred: {error.message}", hint=error.hint) from error
        if done.timed_out:
            raise ModelError(f"inferring the ONNX model's shapes took longer than {limits.max_infer_s:g} s", hint=hint)
        if done.returncode == REFUSED:
            return None
        if not done.ok:
            said = done.stderr.strip().splitlines()
            ended = done.returncode if done.signal is None else -done.signal
            why = said[-1][:300] if said else f"the process ended with status {ended}"
            raise ModelError(f"the ONNX model's shapes cannot be inferred: {why}", hint=hint)
        inferred = onnx_package().ModelProto()
        try:
            inferred.ParseFromString(written.read_bytes())
        except Exception as error:  # protobuf's own DecodeError derives only from Exception
            raise ModelError(f"inferring the ONNX model's shapes gave no valid model: {error}", hint=hint) from error
        return inferred  # type: ignore[no-any-return]


def onnx_graph(model: onnx.ModelProto, shapes: Shapes, *, name: str, digest: str) -> Graph:
    """The graph of a parsed model with these shapes. Raises ModelError if the model is broken.

    An operator with a subgraph (If, Loop, Scan) counts as a single operator, and reads the tensors that its subgraph
    takes from outside.
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
    named = {value.name: dimension_names(value) for value in source.input}
    tensors = tuple(make_tensor(label, shapes, label in constants, named.get(label, ())) for label in index)
    numbered: list[Row] = []
    functions = {(function.domain, function.name) for function in model.functions}
    for node, (reads, results) in zip(source.node, rows, strict=True):
        explicit = [tensors[index[label]] if label else None for label in node.input]
        count = macs(node.op_type, explicit, tensors[index[results[0]]] if results else None)
        count = None if (node.domain, node.op_type) in functions else count
        numbered.append((node.op_type, tuple(index[r] for r in reads), tuple(index[r] for r in results), count))
    missing = [value.name for value in source.output if value.name not in index]
    if missing:
        _broken(f"no node computes its output {missing[0]!r}")
    return Graph(
        name=source.name or name,
        format="onnx",
        digest=digest,
        tensors=tensors,
        operators=named_operators(numbered, [node.name for node in source.node]),
        inputs=tuple(index[label] for label in inputs),
        outputs=tuple(index[value.name] for value in source.output),
    )


def constant_names(graph: onnx.GraphProto) -> set[str]:
    """Names of the tensors whose values the file holds: initializers and results of Constant nodes."""
    names = {tensor.name for tensor in graph.initializer}
    names |= {sparse.values.name for sparse in graph.sparse_initializer}
    return names | {label for node in graph.node if node.op_type == "Constant" for label in node.output}


def _check_order(rows: list[tuple[tuple[str, ...], tuple[str, ...]]], index: dict[str, int]) -> None:
    """Check that each tensor is written before it is read, and only once."""
    written = index.keys() - {label for reads, results in rows if not reads for label in results}
    for reads, results in rows:
        for label in reads:
            if label not in written:
                _broken(f"a node reads {label!r}, which no earlier node or input defines")
        for label in results:
            if label in written:
                _broken(f"{label!r} is defined twice")
            written.add(label)


def make_tensor(name: str, shapes: Shapes, constant: bool, dims: tuple[str, ...]) -> Tensor:
    """A tensor with its ONNX type and shape from `shapes`; -1 is an open dimension. ModelError for an invalid shape."""
    kind, shape = shapes.get(name, (0, None))
    if shape is not None and any(n < (0 if constant else -1) for n in shape):
        _broken(f"tensor {name!r} has a negative dimension")
    other = f"type_{kind}" if kind else "unknown"
    return typed_tensor(name, shape, element_type(kind), other=other, constant=constant, dims=dims)


def _broken(why: str) -> NoReturn:
    raise ModelError(f"the ONNX model is broken: {why}", hint="Check the model with onnx.checker, and export it again.")


def load_onnx(path: Path, limits: Limits, *, inferred: bool = True) -> Model:
    """The model of an ONNX file with the shapes that inference finds, or only those of its inputs and outputs.

    Call it under `model_errors`. If shapes are not `inferred`, operators have no multiply-accumulates, and tensors
    between operators have no shape.
    """
    read = read_onnx(path, limits, whole=False)
    ends = (*read.model.graph.input, *read.model.graph.output)
    shapes = tensor_shapes(read.model, limits) if inferred else _of_values(ends)
    graph = onnx_graph(read.model, shapes, name=path.stem, digest=read.digest)
    return Model(path=path, graph=graph, kind="onnx", package=None, size_bytes=read.size_bytes)


def load_outline(path: Path, limits: Limits | None = None) -> Model | None:
    """Read an ONNX file; None if it does not fix the shape of an input or of an output.

    No shapes are inferred. Raises ModelError for a broken file, and RuntimeMissingError if the package onnx is not
    installed.
    """
    with model_errors(path):
        model = load_onnx(path, limits or Limits(), inferred=False)
        outputs = (model.graph.tensors[index].shape for index in model.graph.outputs)
        fixed = not dynamic_inputs(model.graph) and all(shape is not None and -1 not in shape for shape in outputs)
        return model if fixed else None
