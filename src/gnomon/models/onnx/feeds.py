"""Inputs that are valid for the operators that read them: indices within their table, shapes that fit, divisors other
than 0.

A network with only floating-point inputs accepts any numbers. Other networks fail for most values: an index is outside
its table, a shape does not fit, or a divisor is 0. The specification of an operator (https://onnx.ai/onnx/operators)
restricts its operands; the shapes of its other operands and of its results show which values fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from gnomon.core.graph import Graph
from gnomon.models.model import Limits, Model, is_known
from gnomon.models.onnx.file import onnx_package, parse_onnx
from gnomon.models.steering import Step
from gnomon.wire import Feed

if TYPE_CHECKING:
    import onnx

Shape = tuple[int, ...]

_KEEPS_VALUES = {"Cast", "Identity"}
_MOVES_VALUES = {"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
_WORDS = ("mask", "shape", "size", "len")
_MOST_VALUES = 1 << 10
_MOST_RANK = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """A node that reads an input of the model as its operand at `place`; `size` is the number of the input's elements,
    and `whole` says whether they arrive in their original order.
    """

    node: onnx.NodeProto
    place: int
    size: int
    whole: bool
    shapes: Mapping[str, Shape | None]
    constants: Mapping[str, onnx.TensorProto]

    def shape(self, place: int) -> Shape | None:
        """The shape of an operand if it is fixed."""
        name = self.node.input[place] if place < len(self.node.input) else ""
        return _fixed(self.shapes.get(name))

    @property
    def data(self) -> Shape | None:
        """The shape of the first operand."""
        return self.shape(0)

    @property
    def result(self) -> Shape | None:
        """The shape of the first result."""
        return _fixed(self.shapes.get(self.node.output[0])) if self.node.output else None

    def attribute(self, name: str, default: Any) -> Any:
        """The value of an attribute."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                return onnx_package().helper.get_attribute_value(attribute)
        return default

    def axes(self, place: int, rank: int) -> list[int]:
        """The axes in a constant operand; if the operand is an input, the first axes, which are then fed to it."""
        name = self.node.input[place] if place < len(self.node.input) else ""
        if name in self.constants:
            named = onnx_package().numpy_helper.to_array(self.constants[name]).reshape(-1)
            return [int(axis) % max(rank, 1) for axis in named]
        return list(range(rank))


def onnx_feeds(model: Model) -> dict[str, Feed]:
    """The feeds for those inputs of an ONNX model that need particular numbers. Raises ModelError."""
    graph = model.graph
    types = {op.type for op in graph.operators}
    names = [graph.tensors[index].name for index in graph.inputs]
    if not types & _RULES.keys() and not any(word in name.lower() for word in _WORDS for name in names):
        return {}
    return _feeds(parse_onnx(model.path, Limits()).model.graph, graph)


def onnx_steps(model: Model) -> list[Step]:
    """The nodes of an ONNX model and of its subgraphs; names within subgraphs get a suffix. Raises ModelError."""
    tensors = {tensor.name: tensor for tensor in model.graph.tensors}
    fixed = {name for name, tensor in tensors.items() if is_known(tensor)}
    steps: list[Step] = []

    def add(graph: onnx.GraphProto, outer: Mapping[str, str] | None) -> dict[str, str]:
        own = [v.name for v in graph.input] + [name for node in graph.node for name in node.output if name]
        names = {**(outer or {}), **{name: name if outer is None else f"{name}/{len(steps)}" for name in own}}
        for node in graph.node:
            reads = tuple(names.get(name, name) for name in node.input)
            inner: list[str] = []
            for body in (a.g for a in node.attribute if a.HasField("g")):
                within = add(body, names)
                outputs = [within.get(v.name, v.name) for v in body.output]
                inner += outputs
                for place, value in enumerate(body.input):
                    # A Loop passes on its condition, and each state with its value from the last round.
                    of_loop = (*reads[place : place + 1], *outputs[place - 1 : place]) if place else ()
                    fed = of_loop if node.op_type == "Loop" else (*reads, *outputs)
                    steps.append(Step(type="", reads=fed, writes=(within[value.name],)))
            writes = tuple(names[name] for name in node.output if name)
            steps.append(
                Step(
                    type=node.op_type,
                    reads=reads,
                    writes=writes,
                    fixed=all(name in fixed or name not in tensors for name in writes[:1]) and outer is None,
                    inner=tuple(inner),
                )
            )
        return names

    add(parse_onnx(model.path, Limits()).model.graph, None)
    return steps


def _feeds(source: onnx.GraphProto, graph: Graph) -> dict[str, Feed]:
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in source.node:
        for place, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, place))
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors}
    constants = {tensor.name: tensor for tensor in source.initializer}
    feeds: dict[str, Feed] = {}
    for index in graph.inputs:
        tensor = graph.tensors[index]
        shape = _fixed(tensor.shape)
        if shape is None or tensor.dtype == "string":
            continue
        floating = tensor.dtype.startswith(("float", "complex"))
        wanted: list[Feed] = []
        for node, place, whole in _read_by(tensor.name, readers):
            rule = _RULES.get(node.op_type, {}).get(place)
            if rule is None or (floating and node.op_type in _OF_INTEGERS):
                continue
            use = _Use(node=node, place=place, size=math.prod(shape), whole=whole, shapes=shapes, constants=constants)
            feed = rule(use)
            if feed is not None and _fits(feed, use):
                wanted.append(feed)
        chosen = _agreed(wanted)
        if chosen is None and not floating:
            others = [graph.tensors[other].shape for other in graph.inputs if other != index]
            chosen = _by_name(tensor.name.lower(), shape, others)
        if chosen is not None:
            feeds[tensor.name] = chosen
    return feeds


def _by_name(name: str, shape: Shape, others: Sequence[Shape | None]) -> Feed | None:
    """The feed for an integer input, chosen by the input's name: a mask of ones, a shape with the batch of other
    inputs, or the length of sequences. None for any other name.
    """
    if "mask" in name:
        return {"least": 1, "most": 1}
    if "len" in name and len(shape) < 2:
        longest = next((other[-1] for other in others if other and len(other) > 1), 1)
        return {"least": longest, "most": longest}
    if len(shape) == 1 and 0 < shape[0] <= _MOST_RANK and ("shape" in name or "size" in name):
        batch = next((other[0] for other in others if other), 1)
        return _exactly([max(batch, 1)] + [2] * (shape[0] - 1))
    return None


def _read_by(
    name: str, readers: Mapping[str, Sequence[tuple[onnx.NodeProto, int]]]
) -> Iterator[tuple[onnx.NodeProto, int, bool]]:
    """Each node that reads the values of a tensor, with the place of the operand, and whether the values keep their
    order on the way.
    """
    left, seen = [(name, True)], {name}
    while left:
        tensor, whole = left.pop()
        for node, place in readers.get(tensor, ()):
            yield node, place, whole
            moved = place == 0 and node.op_type in _MOVES_VALUES
            if (node.op_type in _KEEPS_VALUES or moved) and node.output and node.output[0] not in seen:
                seen.add(node.output[0])
                left.append((node.output[0], whole and not moved))


def _fits(feed: Feed, use: _Use) -> bool:
    if "values" in feed:
        return use.whole and len(feed["values"]) == use.size <= _MOST_VALUES
    return bool(feed["least"] <= feed["most"])


def _agreed(wanted: Sequence[Feed]) -> Feed | None:
    """The feed for all readers: the first exact values, else the overlap of all ranges, else the first range."""
    exact = next((feed for feed in wanted if "values" in feed), None)
    if exact is not None or not wanted:
        return exact
    least, most = max(feed["least"] for feed in wanted), min(feed["most"] for feed in wanted)
    return {"least": least, "most": most} if least <= most else wanted[0]


def _fixed(shape: Shape | None) -> Shape | None:
    return None if shape is None or -1 in shape or len(shape) > _MOST_RANK else shape


_Rule = Callable[[_Use], Feed | None]


def _exactly(values: Sequence[float] | None) -> Feed | None:
    return None if values is None else {"values": list(values)}


def _below(size: int) -> Feed:
    return {"least": 0, "most": max(size - 1, 0)}


def _along(use: _Use, default: int = 0) -> Feed | None:
    """Indices along an axis of the first operand."""
    data, axis = use.data, use.attribute("axis", default)
    return _below(data[axis]) if data and -len(data) <= axis < len(data) else None


def _tuples(use: _Use) -> Feed | None:
    """Indices for several axes at once, which lie along the last axis of the operand."""
    data, indices = use.data, use.shape(1)
    if not data or not indices:
        return None
    first = use.attribute("batch_dims", 0)
    return _below(min(data[first : first + indices[-1]], default=1))


def _rows(place: int, use: _Use) -> Feed | None:
    """Indices of the rows of another operand."""
    table = use.shape(place)
    return _below(table[0]) if table else None


def _result(use: _Use) -> Feed:
    return _exactly(use.result) or _exactly([1] * use.size) or {}


def _reshape(use: _Use) -> Feed | None:
    return _exactly(use.result) or _exactly([1] * (use.size - 1) + [-1] * min(use.size, 1))


def _tile(use: _Use) -> Feed | None:
    data, result = use.data, use.result
    if not data or not result or len(data) != len(result) or 0 in data:
        return _exactly([1] * use.size)
    return _exactly([b // a for a, b in zip(data, result, strict=True)])


def _ends(use: _Use) -> Feed | None:
    shape = use.result or use.data
    if shape is None:
        return None
    axes = use.axes(3, len(shape))[: use.size]
    return _exactly([shape[axis] for axis in axes if axis < len(shape)])


def _first_axes(use: _Use) -> Feed | None:
    return _exactly(range(use.size))


def _missing_axes(more: Shape | None, less: Shape | None, count: int) -> Feed | None:
    """The axes of size 1 that the first shape has in addition to the second."""
    if more is None:
        return None
    ones = [axis for axis, size in enumerate(more) if size == 1]
    for chosen in combinations(ones, count):
        if less is None or tuple(size for axis, size in enumerate(more) if axis not in chosen) == less:
            return _exactly(chosen)
    return None


def _reduced(use: _Use) -> Feed | None:
    data, result = use.data, use.result
    if data is None or result is None or use.size > len(data):
        return _exactly(range(use.size))
    for chosen in combinations(range(len(data)), use.size):
        kept = tuple(1 if axis in chosen else size for axis, size in enumerate(data))
        without = tuple(size for axis, size in enumerate(data) if axis not in chosen)
        if result == (kept if use.attribute("keepdims", 1) else without):
            return _exactly(chosen)
    return None


def _split(use: _Use) -> Feed | None:
    data, axis = use.data, use.attribute("axis", 0)
    if not data or not -len(data) <= axis < len(data):
        return None
    results = [_fixed(use.shapes.get(name)) for name in use.node.output]
    sizes = [shape[axis] for shape in results if shape is not None and len(shape) == len(data)]
    if len(sizes) == use.size and sum(sizes) == data[axis]:
        return _exactly(sizes)
    if use.node.op_type == "SplitToSequence" and use.shape(1) == ():
        return _exactly([1])
    parts = max(use.size, 1)
    return _exactly([data[axis] // parts + (k < data[axis] % parts) for k in range(use.size)])


def _pads(use: _Use) -> Feed | None:
    data, result = use.data, use.result
    if data is None or result is None or len(data) != len(result):
        return _exactly([0] * use.size)
    axes = use.axes(3, len(data))[: use.size // 2]
    more = [result[axis] - data[axis] for axis in axes]
    return _exactly([n // 2 for n in more] + [n - n // 2 for n in more])


def _scales(use: _Use) -> Feed | None:
    data, result = use.data, use.result
    if not data or not result or len(data) != len(result) or 0 in data:
        return _exactly([1.0] * use.size)
    axes = use.attribute("axes", range(len(data)))
    return _exactly([result[axis] / data[axis] for axis in axes])


def _resized(use: _Use) -> Feed | None:
    if len(use.node.input) == 2:  # before version 11
        return _scales(use)
    return _exactly([0.0] * (use.size // 2) + [1.0] * (use.size - use.size // 2))


def _sizes(use: _Use) -> Feed | None:
    shape = use.result or use.data
    return None if shape is None else _exactly([shape[axis] for axis in use.attribute("axes", range(len(shape)))])


def _grid(use: _Use) -> Feed | None:
    theta, result = use.data, use.result
    return _exactly([theta[0], 1, *result[1:-1]]) if theta and result else None


def _blocks(use: _Use) -> Feed | None:
    """The block shape of a Col2Im, derived from the numbers of elements and of places in its columns."""
    data, result = use.data, use.result
    if not data or not result or len(data) != 3 or not result[1]:
        return None
    elements, image = data[1] // result[1], result[2:]
    count = len(image)
    strides, dilations = use.attribute("strides", [1] * count), use.attribute("dilations", [1] * count)
    pads = use.attribute("pads", [0] * (2 * count))
    divisors = [n for n in range(1, min(elements, _MOST_VALUES) + 1) if elements % n == 0]
    for block in product(divisors, repeat=min(count, 4)):
        places = [
            (size + pads[k] + pads[k + count] - dilations[k] * (block[k] - 1) - 1) // strides[k] + 1
            for k, size in enumerate(image[: len(block)])
        ]
        if math.prod(block) == elements and math.prod(places) == data[2]:
            return _exactly(block)
    return None


def _unpooled(use: _Use) -> Feed | None:
    shape = use.result or use.data
    return None if shape is None else _below(math.prod(shape))


def _count_at(default_axis: int, otherwise: int, use: _Use) -> Feed | None:
    """The number of elements of the result along an axis."""
    result, axis = use.result or (), use.attribute("axis", default_axis)
    return _exactly([result[axis] if -len(result) <= axis < len(result) else otherwise])


def _length(use: _Use) -> Feed | None:
    """Lengths of sequences: at most the length of the first operand's time axis."""
    data, axis = use.data, use.attribute("time_axis", 1 if use.attribute("layout", 0) else 0)
    return {"least": 1, "most": max(data[axis], 1)} if data and axis < len(data) else None


def _transform_length(use: _Use) -> Feed | None:
    data = use.data
    return None if not data or len(data) < 2 else _exactly([data[use.attribute("axis", -2)]])


def _frame(use: _Use) -> Feed | None:
    window, data = use.shape(2), use.data
    size = window[0] if window else (data[1] if data and len(data) > 1 else None)
    return None if size is None else _exactly([size])


def _mel(place: int, use: _Use) -> Feed | None:
    bins, mels = use.result if use.result and len(use.result) == 2 else (9, 8)
    return _exactly([(mels, 2 * (bins - 1), 8192, 0.0, 4096.0)[place]])


def _exact(value: float) -> _Rule:
    return lambda use: _exactly([value])


def _each(value: float) -> _Rule:
    return lambda use: _exactly([value] * use.size)


def _between(least: float, most: float) -> _Rule:
    return lambda use: {"least": least, "most": most}


_SCALE = _between(0.01, 0.1)
_POSITIVE = _between(0.5, 1.5)
_OF_INTEGERS = {"Div", "Mod"}
_REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)
_RULES_OF: dict[str, dict[int, _Rule]] = {
    "AffineGrid": {1: _grid},
    "BatchNormalization": {4: _POSITIVE},
    "BlackmanWindow HammingWindow HannWindow": {0: partial(_count_at, 0, 8)},
    "CenterCropPad": {1: _sizes},
    "Col2Im": {1: lambda use: _exactly(use.result[2:]) if use.result else None, 2: _blocks},
    "ConstantOfShape": {0: _result},
    "CumProd CumSum": {1: _exact(0)},
    "DFT": {1: _transform_length, 2: _exact(1)},
    "DequantizeLinear QuantizeLinear": {1: _SCALE},
    "Div Mod": {1: _between(1, 8)},
    "Dropout": {1: _exact(0.5)},
    "EmbedLayerNormalization": {0: partial(_rows, 2), 1: partial(_rows, 4)},
    "Expand": {1: _result},
    "GRU LSTM RNN": {4: _length},
    "Gather GatherElements Scatter ScatterElements": {1: _along},
    "GatherND ScatterND": {1: _tuples},
    "Log Sqrt": {0: _POSITIVE},
    "Loop": {0: _exact(2), 1: _exact(1)},
    "MaxUnpool": {1: _unpooled, 2: _result},
    "MelWeightMatrix": {place: partial(_mel, place) for place in range(5)},
    "NonMaxSuppression": {2: _exact(2), 3: _exact(0.5), 4: _exact(0.0)},
    "OneHot": {1: partial(_count_at, -1, 2)},
    "Pad": {1: _pads, 3: _first_axes},
    "QLinearConv QLinearMatMul": {1: _SCALE, 4: _SCALE, 6: _SCALE},
    "Range": {0: _exact(0), 1: partial(_count_at, 0, 4), 2: _exact(1)},
    _REDUCTIONS: {1: _reduced},
    "Reshape": {1: _reshape},
    "Resize": {1: _resized, 2: _scales, 3: _sizes},
    "ReverseSequence": {1: _length},
    "RoiAlign": {2: lambda use: _below(use.data[0]) if use.data else None},
    "STFT": {1: _exact(1), 3: _frame},
    "Slice": {1: _each(0), 2: _ends, 3: _first_axes, 4: _each(1)},
    "Split SplitToSequence": {1: _split},
    "Squeeze": {1: lambda use: _missing_axes(use.data, use.result, use.size)},
    "Tile": {1: _tile},
    "TopK": {1: partial(_count_at, -1, 1)},
    "Unsqueeze": {1: lambda use: _missing_axes(use.result, use.data, use.size) or _first_axes(use)},
    "Upsample": {1: _scales},
}
_RULES = {kind: rules for kinds, rules in _RULES_OF.items() for kind in kinds.split()}
"""For each operator, the rules for operands that need particular numbers, keyed by these operands' places."""
