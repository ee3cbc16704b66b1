"""Units and nets: a unit is an operator, or a chain of operators that run as one kernel; a net is a network of units.

A unit is measured once and counted in every net. A net is described as a computation on symbols, such as `x.conv(32,
3).batch_norm().relu()`, which determines the shapes. A net can be written as a real model.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

from gnomon.core.codec import within
from gnomon.errors import ProblemError
from gnomon.spaces.layers import MOST_ELEMENTS, MOST_LONG, Layer, Shape, Value, kind_of, layer, output_shape

Pair = int | tuple[int, int]

_DTYPES = ("float32", "float16")
_FIELDS = frozenset({"layers", "inputs", "dtype", "layout"})
_ID_DIGITS = 12
_Count = Annotated[int, within(0, MOST_ELEMENTS, "a whole number from 0")]
VIEWS = {"Reshape"}
"""Kinds of layers that move no data: they give the same values another shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A chain of layers with the shapes of its inputs, batch included.

    The first layer takes as many inputs as it needs from the front of `inputs`. Each later layer takes the output of
    the layer before it and, if it has further inputs, the next ones of `inputs`. ProblemError if shapes do not fit or
    inputs are left over.
    """

    layers: tuple[Layer, ...]
    inputs: tuple[Shape, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise ProblemError(f"there is no data type {self.dtype!r} for units", hint=f"Known: {', '.join(_DTYPES)}.")
        if not self.layers:
            raise ProblemError("a unit needs a layer", hint="For the no-op model use the layer Identity.")
        if len(self.inputs) != sum(kind_of(op.kind).arity for op in self.layers) - len(self.layers) + 1:
            raise ProblemError(
                f"the inputs {self.inputs} do not fit the chain {self.chain}", hint="Give the shape of each input."
            )
        if any(type(n) is not int or not 1 <= n <= MOST_LONG for shape in self.inputs for n in shape):
            raise ProblemError(f"{self.inputs} are not shapes", hint="Give positive whole numbers as dimensions.")
        if any(math.prod(shape) > MOST_ELEMENTS for shape in (*self.inputs, *shapes(self))):
            raise ProblemError("the unit has a tensor of more than 2^63 elements", hint="Correct its shapes.")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the layers in their order."""
        return tuple(op.kind for op in self.layers)

    @property
    def chain(self) -> str:
        """The kinds joined: "Conv+BatchNormalization+Relu6". An estimator groups its columns by this text."""
        return "+".join(self.kinds)

    @property
    def output(self) -> Shape:
        """The shape of the unit's output."""
        return shapes(self)[-1]

    @property
    def id(self) -> str:
        """The first twelve hexadecimal digits of the SHA-256 of the canonical JSON."""
        return _id(self)

    @property
    def label(self) -> str:
        """A short readable name, such as "Conv 3x3 s2 dw 96+Relu6 @ 1x96x16x16". Unlike the id, it
        may not be unique.
        """
        return "+".join(_layer_label(op) for op in self.layers) + " @ " + _shape_label(self.inputs[0])

    def document(self) -> dict[str, object]:
        """The unit as JSON values; `unit_of` reads it."""
        layers = [
            {"kind": op.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in op.attributes}}
            for op in self.layers
        ]
        return {
            "dtype": self.dtype,
            "inputs": [list(shape) for shape in self.inputs],
            "layers": layers,
            "layout": "NCHW",
        }

    def canonical(self) -> str:
        """The document as JSON with sorted keys and without blanks: equal units have equal texts."""
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=1 << 16)
def single(op: Layer, inputs: tuple[Shape, ...], dtype: str = "float32") -> Unit:
    """The unit of one layer."""
    return Unit(layers=(op,), inputs=inputs, dtype=dtype)


@lru_cache(maxsize=1 << 16)
def shapes(unit: Unit) -> tuple[Shape, ...]:
    """The shape of each layer's output, in the order of the layers. ProblemError if shapes do not fit."""
    outputs: list[Shape] = []
    waiting = list(unit.inputs)
    for op in unit.layers:
        own = kind_of(op.kind).arity - bool(outputs)
        outputs.append(output_shape(op, [*outputs[-1:], *waiting[:own]]))
        del waiting[:own]
    return tuple(outputs)


def empty(shape: Shape, dtype: str = "float32") -> Unit:
    """The no-op model, which returns its input of this shape. The time of its call is the overhead of a call."""
    return single(layer("Identity"), (shape,), dtype)


def unit_of(document: object) -> Unit:
    """The unit that `Unit.document` wrote. ProblemError for anything else."""
    if not isinstance(document, Mapping) or set(document) != _FIELDS:
        raise ProblemError("the value is not a unit", hint=f"A unit has the fields {', '.join(sorted(_FIELDS))}.")
    layers, inputs = document["layers"], document["inputs"]
    if document["layout"] != "NCHW":
        raise ProblemError(f"there is no layout {document['layout']!r} for units", hint="Known: NCHW.")
    if not isinstance(layers, list) or not all(isinstance(entry, Mapping) and "kind" in entry for entry in layers):
        raise ProblemError("the layers of a unit must be a list of objects with a kind", hint="Correct the document.")
    if not isinstance(inputs, list) or not all(isinstance(shape, list) for shape in inputs):
        raise ProblemError("the inputs of a unit must be a list of shapes", hint="Correct the document.")
    chain = []
    for entry in layers:
        attributes = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items() if k != "kind"}
        chain.append(layer(str(entry["kind"]), **attributes))
    return Unit(layers=tuple(chain), inputs=tuple(tuple(shape) for shape in inputs), dtype=str(document["dtype"]))


@lru_cache(maxsize=1 << 16)
def _id(unit: Unit) -> str:
    return hashlib.sha256(unit.canonical().encode()).hexdigest()[:_ID_DIGITS]


def _layer_label(op: Layer) -> str:
    values = dict(op.attributes)
    words = [op.kind, *([str(values["block"])] if op.kind == "Module" else [])]
    if "kernel" in values:
        words.append("x".join(map(str, op.pair("kernel"))))
    if values.get("stride", (1, 1)) != (1, 1):
        words.append("s" + "x".join(map(str, dict.fromkeys(op.pair("stride")))))
    if values.get("dilation", (1, 1)) != (1, 1):
        words.append("d" + "x".join(map(str, dict.fromkeys(op.pair("dilation")))))
    group = values.get("group", 1)
    if group != 1:
        words.append("dw" if group == values["out_channels"] else f"g{group}")
    named = ("out_channels", "out_features", "groups", "heads", "rows", "width", "past")
    words += [str(values[name]) for name in named if values.get(name)]
    words += ["to " + _shape_label(op.numbers(name)) for name in ("shape", "perm") if name in values]
    return " ".join(words)


def _shape_label(shape: Shape) -> str:
    return "x".join(map(str, shape))


@dataclass(frozen=True, slots=True)
class Node:
    """A unit and the source of each of its inputs: the number of an earlier node, or -1 - k for the net's input k."""

    unit: Unit
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """Nodes in an order in which they can run; `output` is the number of the node that makes the result.

    `inputs` are the shapes of the net's inputs. A net without nodes returns its input: its output is -1. ProblemError
    if a node reads a value that does not exist yet, or a value of another shape than its unit expects.
    """

    inputs: tuple[Shape, ...]
    nodes: tuple[Node, ...]
    output: int

    def __post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            if not all(-len(self.inputs) <= ref < index for ref in node.inputs):
                raise ProblemError(f"node {index} reads a later node's result", hint="Put the later node first.")
            if tuple(self.shape(ref) for ref in node.inputs) != node.unit.inputs:
                raise ProblemError(f"the inputs of node {index} do not have its unit's shapes", hint="Correct either.")
        if not -len(self.inputs) <= self.output < len(self.nodes):
            raise ProblemError("the net's output is not one of its nodes", hint="Give the number of a node.")

    def shape(self, ref: int) -> Shape:
        """The shape of a node's output, or of an input."""
        return self.nodes[ref].unit.output if ref >= 0 else self.inputs[-1 - ref]

    def counts(self) -> dict[Unit, int]:
        """The number of times that each unit occurs, with the units in the order of their first nodes. Views cost
        nothing in a net and are not counted.
        """
        return dict(Counter(node.unit for node in self.nodes if set(node.unit.kinds) != VIEWS))

    def views(self) -> int:
        """The number of nodes that consist only of views."""
        return sum(set(node.unit.kinds) == VIEWS for node in self.nodes)

    def readers(self) -> list[int]:
        """For each node, the number of inputs of nodes that read its output; the net's output counts as one more."""
        read = Counter([*(ref for node in self.nodes for ref in node.inputs), self.output])
        return [read[index] for index in range(len(self.nodes))]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSize:
    """The needs of a net in any runtime: parameters, multiply-accumulates, and memory in addition to its weights.

    `peak_bytes` is the largest size of the values that are needed at the same time, if operators run in their order and
    elementwise operators work in place. It is None if a block is a module, because the values inside it are unknown.
    All three are None if the net itself is not available.
    """

    parameters: _Count | None = None
    macs: _Count | None = None
    peak_bytes: _Count | None = None


def layer_name(node: int, position: int, kind: str) -> str:
    """The name of a layer in a written model, such as "n12.0.Conv". The names of the layer's operators are this name or
    begin with it.
    """
    return f"n{node}.{position}.{kind}"


def net_of(unit: Unit) -> Net:
    """A unit as a net of its own."""
    refs = tuple(-1 - k for k in range(len(unit.inputs)))
    return Net(inputs=unit.inputs, nodes=(Node(unit, refs),), output=0)


def needed(inputs: tuple[Shape, ...], nodes: Sequence[Node], output: int) -> Net:
    """The net of only the nodes that the output needs, renumbered."""
    wanted: set[int] = set()
    waiting = [output]
    while waiting:
        ref = waiting.pop()
        if ref >= 0 and ref not in wanted:
            wanted.add(ref)
            waiting.extend(nodes[ref].inputs)
    number = {old: new for new, old in enumerate(sorted(wanted))}
    kept = [Node(nodes[old].unit, tuple(number.get(ref, ref) for ref in nodes[old].inputs)) for old in sorted(wanted)]
    return Net(inputs=inputs, nodes=tuple(kept), output=number.get(output, output))


@dataclass(slots=True)
class Trace:
    """Collects the layers that are applied to symbols, in the order of their application."""

    inputs: tuple[Shape, ...]
    dtype: str = "float32"
    nodes: list[Node] = field(default_factory=list)

    def input(self, number: int = 0) -> Symbol:
        """One of the inputs."""
        return Symbol(self, -1 - number, self.inputs[number])

    def apply(self, op: Layer, *symbols: Symbol) -> Symbol:
        """The output of a layer for symbols of this trace. ProblemError if shapes do not fit."""
        if any(symbol.trace is not self for symbol in symbols):
            raise ProblemError("a layer joins values of two nets", hint="Use only values of the block's own net.")
        unit = single(op, tuple(symbol.shape for symbol in symbols), self.dtype)
        self.nodes.append(Node(unit, tuple(symbol.ref for symbol in symbols)))
        return Symbol(self, len(self.nodes) - 1, unit.output)

    def written(self, net: Net, x: Symbol) -> Symbol:
        """Add the layers of a net that has single layers and one input, and return its output for the symbol `x`."""
        symbols: list[Symbol] = []
        for node in net.nodes:
            symbols.append(self.apply(node.unit.layers[0], *(symbols[ref] if ref >= 0 else x for ref in node.inputs)))
        return symbols[net.output] if net.output >= 0 else x

    def net(self, output: Symbol) -> Net:
        """The net of all layers that were applied."""
        return Net(inputs=self.inputs, nodes=tuple(self.nodes), output=output.ref)


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """A value in a net that is being described, with a shape but no content. Each method adds layers."""

    trace: Trace
    ref: int
    shape: Shape

    @property
    def channels(self) -> int:
        """The number of channels."""
        return self.shape[1]

    def layer(self, kind: str, *others: Symbol, **attributes: Value) -> Symbol:
        """A layer of any kind in `gnomon.spaces.layers.KINDS`; `others` are its further inputs."""
        return self.trace.apply(layer(kind, **attributes), self, *others)

    def conv(
        self, channels: int, kernel: int, *, stride: int = 1, group: int = 1, bias: bool = False, dilation: int = 1
    ) -> Symbol:
        """A convolution with a square kernel, padded so that stride 1 keeps height and width (odd kernels)."""
        pad = dilation * (kernel - 1) // 2
        return self.layer(
            "Conv",
            out_channels=channels,
            kernel=kernel,
            stride=stride,
            pad=pad,
            dilation=dilation,
            group=group,
            bias=bias,
        )

    def depthwise(self, kernel: int, *, stride: int = 1) -> Symbol:
        """A convolution of each channel on its own, padded as in `conv`."""
        return self.conv(self.channels, kernel, stride=stride, group=self.channels)

    def batch_norm(self) -> Symbol:
        """Batch normalisation with fixed statistics, as in a deployed net."""
        return self.layer("BatchNormalization")

    def relu(self) -> Symbol:
        """max(x, 0)."""
        return self.layer("Relu")

    def relu6(self) -> Symbol:
        """min(max(x, 0), 6)."""
        return self.layer("Relu6")

    def hard_swish(self) -> Symbol:
        """x times its hard sigmoid."""
        return self.layer("HardSwish")

    def hard_sigmoid(self) -> Symbol:
        """min(max(x / 6 + 1/2, 0), 1)."""
        return self.layer("HardSigmoid")

    def average_pool(self, kernel: Pair, *, stride: Pair = 1, pad: Pair = 0) -> Symbol:
        """Means of windows, with padding left out."""
        return self.layer("AveragePool", kernel=kernel, stride=stride, pad=pad)

    def max_pool(self, kernel: Pair, *, stride: Pair = 1, pad: Pair = 0) -> Symbol:
        """Maxima of windows."""
        return self.layer("MaxPool", kernel=kernel, stride=stride, pad=pad)

    def global_average_pool(self) -> Symbol:
        """The mean of each channel, as (N, C, 1, 1)."""
        return self.layer("GlobalAveragePool")

    def channel_shuffle(self, groups: int) -> Symbol:
        """The channels of this many groups, interleaved."""
        return self.layer("ChannelShuffle", groups=groups)

    def linear(self, features: int, *, bias: bool = True) -> Symbol:
        """A fully connected layer, for (N, C) or (N, C, 1, 1), or for each place of (N, L, C)."""
        return self.layer("Linear", out_features=features, bias=bias)

    def swish(self) -> Symbol:
        """x times its sigmoid."""
        return self.layer("Swish")

    def gelu(self) -> Symbol:
        """x times the share of normally distributed values below x (Hendrycks and Gimpel, 2016)."""
        return self.layer("Gelu")

    def softmax(self) -> Symbol:
        """Softmax along the last axis."""
        return self.layer("Softmax")

    def layer_norm(self) -> Symbol:
        """Normalisation along the last axis (Ba, Kiros and Hinton, 2016)."""
        return self.layer("LayerNormalization")

    def matmul(self, other: Symbol) -> Symbol:
        """The product of two matrices, for each entry of a batch."""
        return self.layer("MatMul", other)

    def attention(self, key: Symbol, value: Symbol, *, heads: int, past: int = 0) -> Symbol:
        """Scaled dot-product attention of these queries (N, L, C) to keys and values (Vaswani et al., 2017).

        `past` further keys and values come before them, from a cache.
        """
        return self.layer("Attention", key, value, heads=heads, past=past)

    def cached_attention(self, *, heads: int, past: int) -> Symbol:
        """Attention to `past` keys and values, all of them from a cache."""
        return self.layer("CachedAttention", heads=heads, past=past)

    def embedding(self, rows: int, width: int) -> Symbol:
        """Rows of a table, looked up by numbers (N, L)."""
        return self.layer("Embedding", rows=rows, width=width)

    def reshape(self, *shape: int) -> Symbol:
        """The same elements in another shape."""
        return self.layer("Reshape", shape=shape)

    def transpose(self, *perm: int) -> Symbol:
        """The axes in another order."""
        return self.layer("Transpose", perm=perm)

    def concat(self, other: Symbol) -> Symbol:
        """The channels of both values, joined."""
        return self.layer("Concat", other)

    def __add__(self, other: Symbol) -> Symbol:
        return self.layer("Add", other)

    def __mul__(self, other: Symbol) -> Symbol:
        return self.layer("Mul", other)
