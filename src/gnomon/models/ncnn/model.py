"""An ncnn model: a ``.param`` text with its weights in the ``.bin`` file next to it.

The shapes of its blobs and the work of its layers are computed as far as the ``.param`` text determines them. Shapes
are written with the outermost axis first, as in numpy: (c, h, w). ncnn has no batch axis. The outputs of a layer of
unknown type have unknown shapes.

Source: ``docs/developer-guide/operators.md`` of ncnn.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gnomon.core.graph import Graph, Tensor
from gnomon.errors import UsageError
from gnomon.formats.ncnn_param import ARRAY, MAX_CHARACTERS, Layer, NcnnParam, parse_ncnn_param
from gnomon.models.model import Limits, Model, Row, add_to_digest, named_operators, read_text, typed_tensor, weights_of
from gnomon.report.plain import many

Shape = tuple[int, ...] | None
Known = tuple[int, ...]

# A size in a Reshape's text: a number, or a quotient with the batch as divisor; the batch itself (0n) is 1 here.
_SIZE = re.compile(r"([0-9]{1,9})|//\(([0-9]{1,9}),0n\)")
_FACTOR = re.compile(r"[0-9]{1,4}(\.0*)?")
_LARGEST = 1 << 40  # the largest number of elements of a blob; a file that claims more is broken
_SHAPE_HINT = 30
_TO_THE_END = -233
_SAME = {_TO_THE_END, -234}  # pads that keep the size, apart from the stride
_SAME_SHAPE = frozenset(
    re.findall(
        r"\w+",
        "AbsVal BNLL BatchNorm Bias CELU Cast Clip Dropout ELU Eltwise Erf Exp GELU GroupNorm HardSigmoid HardSwish "
        "InstanceNorm LRN LayerNorm Log MVN Mish MultiHeadAttention Noop Normalize PReLU Power RMSNorm ReLU SELU Scale "
        "Sigmoid Softmax Softplus Split Swish TanH Threshold UnaryOp",
    )
)
#: By order_type of a Permute of three axes: the places of the new axes among the old ones (c, h, w).
_PERMUTED = {0: (0, 1, 2), 1: (0, 2, 1), 2: (1, 0, 2), 3: (1, 2, 0), 4: (2, 0, 1), 5: (2, 1, 0)}


def output_shapes(layer: Layer, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """The shape of each output, None for an unknown one. Raises ModelError for parameters that are not numbers."""
    count = len(layer.outputs)
    hinted = _hints(layer, count)
    if hinted is not None:
        return hinted
    if layer.type in {"Input", "MemoryData"}:
        return (_declared(layer),) * count
    if not inputs or any(shape is None for shape in inputs):
        return (None,) * count
    shapes = tuple(shape for shape in inputs if shape is not None)
    if layer.type == "Slice":
        return _sliced(layer, shapes[0])
    if layer.type in _SAME_SHAPE:
        return (shapes[0],) * count
    rule = _RULES.get(layer.type)
    return (_possible(rule(layer, shapes)) if rule else None,) * count


def _possible(shape: Shape) -> Shape:
    return shape if shape and min(shape) > 0 and math.prod(shape) <= _LARGEST else None


def layer_macs(layer: Layer, inputs: tuple[Shape, ...], outputs: tuple[Shape, ...]) -> int | None:
    """Multiply-accumulates of a layer: 0 for a layer without any, None if a shape is missing."""
    first, out = (inputs[0] if inputs else None), (outputs[0] if outputs else None)
    if layer.type in {"Convolution", "ConvolutionDepthWise", "Convolution1D", "ConvolutionDepthWise1D"}:
        return None if out is None else layer.integer(6) * math.prod(out[1:])
    if layer.type in {"Deconvolution", "DeconvolutionDepthWise"}:
        return None if first is None else layer.integer(6) * math.prod(first[1:])
    if layer.type == "InnerProduct":
        rows = 1 if out is None or len(out) == 1 else math.prod(out[:-1])
        return layer.integer(2) * rows
    if layer.type == "Gemm":
        return None if out is None or not layer.integer(9) else math.prod(out) * layer.integer(9)
    if layer.type == "MatMul":
        return None if out is None or first is None else math.prod(out) * first[-1]
    if layer.type == "MultiHeadAttention":
        if any(shape is None or len(shape) != 2 for shape in inputs) or first is None:
            return None
        wide, rows = layer.integer(0), first[0]
        others = inputs[1] if len(inputs) > 1 and inputs[1] is not None else first
        # Four projections and two products of all pairs.
        return 2 * rows * wide * wide + 2 * others[0] * wide * wide + 2 * rows * others[0] * wide
    if layer.type in _GATES:
        hidden, directions = layer.integer(0), 2 if layer.integer(2) == 2 else 1
        weights = layer.integer(1) + directions * _GATES[layer.type] * hidden * hidden
        return None if first is None else first[0] * weights
    return 0


_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _hints(layer: Layer, count: int) -> tuple[Shape, ...] | None:
    """The shapes that ncnnoptimize wrote, as dims, w, h and c for each output; None if there are none."""
    if layer.text(ARRAY - _SHAPE_HINT) is None:
        return None
    numbers = layer.integers(_SHAPE_HINT)
    if len(numbers) != 4 * count:
        return None
    shapes: list[Shape] = []
    for dims, *sizes in (numbers[4 * k : 4 * k + 4] for k in range(count)):
        shapes.append(_possible(tuple(reversed(sizes[:dims]))) if 0 < dims <= 3 else None)
    return tuple(shapes)


def _declared(layer: Layer) -> Shape:
    """The shape in the parameters w, h, d and c of an Input or MemoryData; None without these parameters."""
    w, h, d, c = (layer.integer(key) for key in (0, 1, 11, 2))
    sizes = [c, d, h, w] if d else [c, h, w]
    return _possible(tuple(n for n in sizes if n))


def _window(layer: Layer, size: int, kernel: int, keys: tuple[int, int, int, int], other: tuple[int, ...]) -> int:
    """The size of one axis of a convolution's output; `keys` are dilation, stride, pad before and pad after."""
    dilation, stride, before = (layer.integer(k, o) for k, o in zip(keys[:3], other, strict=True))
    stride = max(1, stride)
    if before in _SAME:
        return -(-size // stride)
    padded = size + before + layer.integer(keys[3], before)
    return (padded - dilation * (kernel - 1) - 1) // stride + 1


def _convolution(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    if len(inputs) != 1 or len(inputs[0]) != 3:
        return None
    _, h, w = inputs[0]
    wide = layer.integer(1)
    own = (layer.integer(2, 1), layer.integer(3, 1), layer.integer(4))
    made_w = _window(layer, w, wide, (2, 3, 4, 15), (1, 1, 0))
    made_h = _window(layer, h, layer.integer(11, wide), (12, 13, 14, 16), own)
    return layer.integer(0), made_h, made_w


def _deconvolution(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    if len(inputs) != 1 or len(inputs[0]) != 3 or layer.integer(4) in _SAME:
        return None
    _, h, w = inputs[0]
    wide, dilation, stride, left = layer.integer(1), layer.integer(2, 1), layer.integer(3, 1), layer.integer(4)
    high, top = layer.integer(11, wide), layer.integer(14, left)
    made_w = (w - 1) * stride + dilation * (wide - 1) + 1 - left - layer.integer(15, left) + layer.integer(18)
    tall = (h - 1) * layer.integer(13, stride) + layer.integer(12, dilation) * (high - 1) + 1
    made_h = tall - top - layer.integer(16, top) + layer.integer(19, layer.integer(18))
    return layer.integer(0), made_h, made_w


def _pooling(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    if len(inputs[0]) != 3:
        return None
    c, h, w = inputs[0]
    if layer.integer(4):
        return (c,)
    if layer.integer(7):
        wide = layer.integer(8)
        return c, layer.integer(18, wide) or h, wide or w
    kernel, stride, left, mode = layer.integer(1), max(1, layer.integer(2, 1)), layer.integer(3), layer.integer(5)
    high, down, top = layer.integer(11, kernel), max(1, layer.integer(12, stride)), layer.integer(13, left)
    if mode > 1:
        return c, -(-h // down), -(-w // stride)
    spare_w = w + left + layer.integer(14, left) - kernel
    spare_h = h + top + layer.integer(15, top) - high
    full = mode == 0  # in this mode the last window may lie partly outside
    steps_h, steps_w = (-(-spare_h // down), -(-spare_w // stride)) if full else (spare_h // down, spare_w // stride)
    return c, steps_h + 1, steps_w + 1


def _inner_product(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    out, weights = layer.integer(0), layer.integer(2)
    shape = inputs[0]
    return (shape[0], out) if len(shape) == 2 and shape[1] * out == weights else (out,)


def _binary(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    if len(inputs) == 1:
        return inputs[0]
    a, b = inputs[:2]
    if len(a) != len(b):
        return max(a, b, key=len)
    return tuple(max(m, n) for m, n in zip(a, b, strict=True))


def _concat(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    axis, rank = layer.integer(0), len(inputs[0])
    if not -rank <= axis < rank or any(len(shape) != rank for shape in inputs):
        return None
    joined = list(inputs[0])
    joined[axis] = sum(shape[axis] for shape in inputs)
    return tuple(joined)


def _sliced(layer: Layer, shape: Known) -> tuple[Shape, ...]:
    sizes, axis, count = layer.integers(0), layer.integer(1), len(layer.outputs)
    if len(sizes) != count or not -len(shape) <= axis < len(shape):
        return (None,) * count
    parts: list[Shape] = []
    left = shape[axis]
    for k, size in enumerate(sizes):
        taken = left // (count - k) if size == _TO_THE_END else size
        left -= taken
        part = list(shape)
        part[axis] = taken
        parts.append(tuple(part) if taken > 0 else None)
    return tuple(parts)


def _text_shape(text: str) -> Shape:
    """The shape in a Reshape's text, such as ``"1,1,//(8,0n),0n"``: w, h, c and the batch."""
    *sizes, batch = re.split(r",(?![^(]*\))", text.strip('"'))
    matches = [_SIZE.fullmatch(size) for size in sizes]
    if batch != "0n" or not 1 <= len(sizes) <= 3:
        return None
    numbers = [int(match[1] or match[2]) for match in matches if match is not None]
    return tuple(reversed(numbers)) if len(numbers) == len(sizes) else None


def _reshape(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    text = layer.text(6)
    if text is not None:
        return _text_shape(text)
    old = inputs[0]
    w, h, d, c = (layer.integer(key, _TO_THE_END) for key in (0, 1, 11, 2))
    wanted = [n for n in (c, d, h, w) if n != _TO_THE_END]
    total = math.prod(old)
    rest = math.prod(n for n in wanted if n > 0)
    if 0 in wanted or wanted.count(-1) > 1 or rest == 0:
        return None
    shape = tuple(total // rest if n == -1 else n for n in wanted)
    return shape if math.prod(shape) == total else None


def _permute(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    shape, order = inputs[0], layer.integer(0)
    if len(shape) == 2:
        return (shape[1], shape[0]) if order == 1 else shape
    if len(shape) != 3 or order not in _PERMUTED:
        return None
    return tuple(shape[axis] for axis in _PERMUTED[order])


def _gemm(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    m, n = layer.integer(7), layer.integer(8)
    if not m or not n:
        return None
    return (n, m) if layer.integer(14) else (m, n)


def _interp(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    if len(inputs) != 1 or len(inputs[0]) != 3:
        return None
    c, h, w = inputs[0]
    if layer.integer(3) and layer.integer(4):
        return c, layer.integer(3), layer.integer(4)
    factors = [layer.text(key) or "1" for key in (1, 2)]
    if not all(_FACTOR.fullmatch(factor) for factor in factors):
        return None
    return c, round(h * float(factors[0])), round(w * float(factors[1]))


def _squeeze(layer: Layer, inputs: tuple[Known, ...]) -> Shape:
    shape, axes = inputs[0], {axis % len(inputs[0]) for axis in layer.integers(3)}
    kept = tuple(n for axis, n in enumerate(shape) if axis not in axes)
    return kept if axes and kept and math.prod(kept) == math.prod(shape) else None


_RULES: dict[str, Callable[[Layer, tuple[Known, ...]], Shape]] = {
    "BinaryOp": _binary,
    "Concat": _concat,
    "Convolution": _convolution,
    "ConvolutionDepthWise": _convolution,
    "Deconvolution": _deconvolution,
    "DeconvolutionDepthWise": _deconvolution,
    "Flatten": lambda _, inputs: (math.prod(inputs[0]),),
    "Gemm": _gemm,
    "InnerProduct": _inner_product,
    "Interp": _interp,
    "Permute": _permute,
    "Pooling": _pooling,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
}


_MAX_RANK = 4
_NUMBERED = re.compile(r"(in|out)([0-9]{1,6})")


def load_ncnn(path: Path, limits: Limits | None = None) -> Model:
    """Read a ``.param`` file, and check that its ``.bin`` exists. Raises ModelError.

    The digest covers both files, because weights are part of what a model computes.
    """
    limits = limits or Limits()
    text = read_text(path, min(limits.max_bytes, 4 * MAX_CHARACTERS))
    param = parse_ncnn_param(text)
    digest = hashlib.sha256(text.encode())
    size = len(text.encode()) + add_to_digest(digest, weights_of(path), limits.max_bytes)
    graph = _with_channels(param, ncnn_graph(param, name=path.stem, digest=digest.hexdigest()))
    return Model(path=path, graph=graph, kind="ncnn", package=None, size_bytes=size)


def ncnn_graph(param: NcnnParam, *, name: str, digest: str) -> Graph:
    """The graph of an ncnn model. Every layer is an operator, even one such as Split that only passes values on.

    Inputs are the blobs that Input layers write; outputs are the blobs that other layers write and no layer reads.
    Blobs that a converter numbered (in0, out1) are in the order of their numbers, others in the file's order. As in
    ncnn, shapes have no batch axis.
    """
    places: dict[str, int] = {}
    shapes: list[Shape] = []
    tensors: list[Tensor] = []
    rows: list[Row] = []
    for layer in param.layers:
        read = tuple(shapes[places[blob]] for blob in layer.inputs)
        results = output_shapes(layer, read)
        for blob, shape in zip(layer.outputs, results, strict=True):
            places[blob] = len(tensors)
            shapes.append(shape)
            tensors.append(typed_tensor(blob, shape, "float32"))
        reads, writes = (tuple(places[blob] for blob in blobs) for blobs in (layer.inputs, layer.outputs))
        rows.append((layer.type, reads, writes, layer_macs(layer, read, results)))
    read_blobs = {blob for layer in param.layers for blob in layer.inputs}
    inputs = [blob for layer in param.layers if layer.type == "Input" for blob in layer.outputs]
    outputs = [blob for blob in places if blob not in read_blobs and blob not in inputs]
    return Graph(
        name=name,
        format="ncnn",
        digest=digest,
        tensors=tuple(tensors),
        operators=named_operators(rows, [layer.name for layer in param.layers]),
        inputs=tuple(places[blob] for blob in _numbered(inputs)),
        outputs=tuple(places[blob] for blob in _numbered(outputs)),
    )


def _numbered(blobs: Sequence[str]) -> Sequence[str]:
    """The blobs in the order of their numbers, if a converter numbered them all."""
    matches = [_NUMBERED.fullmatch(blob) for blob in blobs]
    if not all(matches):
        return blobs
    return sorted(blobs, key=lambda blob: int(blob.lstrip("inout")))


def with_input_shapes(param: NcnnParam, shapes: Mapping[str, tuple[int, ...]]) -> NcnnParam:
    """A copy whose Input layers declare these shapes, (c, h, w) or shorter, by the names of their blobs.

    UsageError for a name that no Input layer has, and for a shape that ncnn cannot hold.
    """
    inputs = [blob for layer in param.layers if layer.type == "Input" for blob in layer.outputs]
    for name, shape in shapes.items():
        if name not in inputs:
            raise UsageError(f"the model has no input {name!r}", hint=f"Its inputs are: {', '.join(inputs)}.")
        if not 1 <= len(shape) <= _MAX_RANK or min(shape) < 1:
            raise UsageError(
                f"ncnn cannot hold an input of shape {shape}",
                hint="Give one to four sizes of at least 1, without a batch axis, such as 3,224,224.",
            )
    return NcnnParam(layers=tuple(_with_shape(layer, shapes) for layer in param.layers))


def _with_shape(layer: Layer, shapes: Mapping[str, tuple[int, ...]]) -> Layer:
    if layer.type != "Input" or not layer.outputs or layer.outputs[0] not in shapes:
        return layer
    shape = shapes[layer.outputs[0]]
    keys = {1: (0,), 2: (1, 0), 3: (2, 1, 0), 4: (2, 11, 1, 0)}[len(shape)]
    for key, size in sorted(zip(keys, shape, strict=True)):
        layer = layer.with_integer(key, size)
    return layer


def fixed_ncnn(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> Model:
    """The model with inputs of these shapes. Only the feeds have these shapes; the file remains unchanged.

    A batch of one before (c, h, w) is left out, as in converted models. Raises UsageError like `with_input_shapes`, and
    for a shape that does not fit the weights of the layer that reads the input.
    """
    if not shapes:
        return model
    param = parse_ncnn_param(read_text(model.path, 4 * MAX_CHARACTERS))
    readers = dict(_readers(param))
    given = {name: _checked(name, shape, readers.get(name)) for name, shape in shapes.items()}
    param = with_input_shapes(param, given)
    return replace(model, graph=ncnn_graph(param, name=model.graph.name, digest=model.graph.digest))


def _readers(param: NcnnParam) -> Iterator[tuple[str, Layer]]:
    """Each input, with the first layer with weights that reads it directly or through layers that keep its shape."""
    fed: dict[str, str] = {}
    for layer in param.layers:
        if layer.type == "Input":
            fed.update((blob, blob) for blob in layer.outputs)
        origin = fed.get(layer.inputs[0], "") if layer.inputs else ""
        if origin and _channels(layer):
            yield origin, layer
            fed = {blob: name for blob, name in fed.items() if name != origin}
        elif origin and layer.type in _SAME_SHAPE:
            fed.update(dict.fromkeys(layer.outputs, origin))


_AXES = {"Convolution": 3, "ConvolutionDepthWise": 3, "Deconvolution": 3, "Convolution1D": 2, "InnerProduct": 1}
"""Layers with weights, and the number of axes of their inputs."""


def _channels(layer: Layer) -> int:
    """The number of channels (or numbers, for an InnerProduct) that a layer's weights need; 0 for a layer without
    weights.
    """
    out, flat = layer.integer(0), layer.type == "InnerProduct"
    if layer.type not in _AXES or out < 1:
        return 0
    wide = 1 if flat else layer.integer(1)
    area = wide * (layer.integer(11, wide) if _AXES[layer.type] == 3 else 1)
    groups = layer.integer(7, 1) if layer.type == "ConvolutionDepthWise" else 1
    return layer.integer(2 if flat else 6) * groups // (out * area) if area > 0 else 0


def _checked(name: str, shape: tuple[int, ...], reader: Layer | None) -> tuple[int, ...]:
    """The shape without a batch of one. UsageError if it does not fit the weights of the reader."""
    if reader is None:
        return shape
    channels, axes = _channels(reader), _AXES[reader.type]
    if 1 < axes == len(shape) - 1 and shape[0] == 1:
        shape = shape[1:]
    fits = channels in (math.prod(shape), shape[-1]) if axes == 1 else channels == shape[0] and len(shape) == axes
    if not fits:
        written = ",".join([str(channels), *"NN"[: axes - 1]])
        raise UsageError(
            f"--shape {name}={','.join(map(str, shape))} does not fit the weights of layer {reader.name!r} "
            f"({reader.type}), which need {many(channels, 'number' if axes == 1 else 'channel')}",
            hint=f"Give a shape of the form: --shape {shlex.quote(f'{name}={written}')}",
        )
    return shape


def _with_channels(param: NcnnParam, graph: Graph) -> Graph:
    """The graph, in which an input without a declared shape has the number of channels that the weights of its reader
    need.
    """
    readers = dict(_readers(param))
    tensors = list(graph.tensors)
    for index in graph.inputs:
        reader = readers.get(tensors[index].name)
        if tensors[index].shape is None and reader is not None:
            shape = (_channels(reader), *(-1,) * (_AXES[reader.type] - 1))
            tensors[index] = replace(tensors[index], shape=shape)
    return replace(graph, tensors=tuple(tensors))
