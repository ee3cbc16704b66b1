"""An ONNX model as a net of layers, the units of latency tables.

Operators that also occur in search spaces (convolutions, pools, fully connected layers, activations, parts of
attention) become layers of the same kinds. A group of operators that exporters write and runtimes join becomes one
layer (layer normalisation, GELU, SiLU). Any other operator on floating-point or quantised numbers becomes a layer of
its own kind (`gnomon.spaces.layers.GENERIC`). Operators that cannot be layers are listed with the reason: control flow,
other domains, computations with indices and shapes, and shapes that depend on values. Their results become inputs of
the net.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.errors import ModelError, ProblemError
from gnomon.models.model import Limits, Model, is_known, model_errors
from gnomon.models.onnx.file import onnx_package, parse_onnx
from gnomon.models.order import moving_operators
from gnomon.models.units import OPSET, VERSION_OF
from gnomon.spaces.layers import TYPES_OF, Layer, Shape, Value, layer, output_shape
from gnomon.spaces.unit import Net, Node, single

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

FLOATS = ("float32", "float16", "float64", "bfloat16")
_QUANTISED = ("uint8", "int8", "uint16", "int16")
_SUMS = "int32"
"""The types of quantised values, and the type of sums of their products."""

MOST_INPUTS = 9
MOST_VALUES = 64
"""Constants of up to this many numbers are kept unchanged: axes and slices, for example, decide what an operator does.
"""

_BY_NUMBER = frozenset({"Resize", "Upsample", "Pow", "Range"})
"""Operators whose work depends on the values of floating-point constants; for other operators, the shape of such
constants is enough.
"""

_BY_CHANNEL = {"Mul": "Scale", "Add": "Bias"}
_PLAIN = frozenset({"Relu", "Sigmoid", "Tanh", "HardSwish", "GlobalAveragePool"})
_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})

_CLIP_BY_INPUTS, _SOFTMAX_BY_LAST = 11, 13
"""The first operator set in which the limits of Clip are inputs, and the first one in which Softmax's default axis is
the last.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """An operator that is in no unit, with the reason, its multiply-adds, and the number of elements of its results
    (None if unknown).
    """

    name: str
    type: str
    elements: int | None
    reason: str
    macs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNet:
    """The net of a model, with one operator in each node, and the operators that could not be part of it.

    `nodes` maps the name of an operator of the model to the number of the node that contains it.
    """

    net: Net
    left_out: tuple[LeftOut, ...]
    nodes: Mapping[str, int]


def net_of_onnx(model: Model, name: object = None) -> ModelNet:
    """The net of an ONNX model whose input shapes are fixed.

    ModelError if the model cannot be read or has no layer; the error names the model by its path, or by `name` if
    given.
    """
    with model_errors(model.path):
        proto = parse_onnx(model.path, Limits()).model
    opsets = (entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx"))
    reader = _Reader(proto=proto, graph=model.graph, opset=next(opsets, 1))
    reader.read()
    return reader.model_net((value.name for value in proto.graph.output), name or model.path)


@dataclass(slots=True, kw_only=True)
class NetReader:
    """Collects the layers of a model, one operator after another; `ref` holds the source of each tensor of the net.

    `owner` maps the name of an operator to the number of its node.
    """

    graph: Graph
    owner: dict[str, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Shape] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    ref: dict[str, int] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def model_net(self, outputs: Iterable[str], name: object) -> ModelNet:
        """The net that was read; its output is the one of `outputs` that is computed last. ModelError if the net has no
        layer.
        """
        if self.left_out and not self.nodes:
            raise ModelError(
                f"gnomon cannot predict the time of any operator of {name}: "
                + ", ".join(sorted({f"{operator.type} ({operator.reason})" for operator in self.left_out})),
                hint="Measure the model itself: gnomon profile MODEL",
            )
        last = max((self.ref[name] for name in outputs if name in self.ref), default=len(self.nodes) - 1)
        net = Net(inputs=tuple(self.inputs), nodes=tuple(self.nodes), output=last)
        return ModelNet(net=net, left_out=tuple(self.left_out), nodes=self.owner)

    def shape(self, name: str) -> Shape | None:
        """The shape of a tensor; None if it is unknown or the tensor is empty."""
        tensor = self.tensors.get(name)
        if tensor is None or not is_known(tensor) or not math.prod(tensor.shape or ()):
            return None
        return tensor.shape

    def source(self, name: str) -> int:
        """The source of a tensor: a node, or an input of the net, which is added at its first use."""
        if name not in self.ref:
            shape = self.shape(name)
            assert shape is not None  # noqa: S101  # the caller has checked this
            self.inputs.append(shape)
            self.ref[name] = -len(self.inputs)
        return self.ref[name]

    def add(self, op: Layer, inputs: Sequence[str], output: str) -> bool:
        """Add a layer that computes a tensor. Returns False, and adds nothing, if the shapes do not fit."""
        given = [self.shape(name) for name in inputs]
        if None in given:
            return False
        shapes = tuple(shape for shape in given if shape is not None)
        try:
            if output_shape(op, shapes) != self.shape(output):
                return False
            unit = single(op, shapes)
        except (ProblemError, IndexError):
            return False
        refs = tuple(self.source(name) for name in inputs)
        self.nodes.append(Node(unit, refs))
        self.ref[output] = len(self.nodes) - 1
        return True

    def add_as_it_is(
        self,
        operator: Operator,
        ends: tuple[Sequence[str], Sequence[str]],
        attributes: Mapping[str, Any],
        operands: Sequence[Any],
    ) -> None:
        """Add an operator as a layer of its own kind, or leave it out; `ends` are its computed
        inputs and its results.
        """
        computed, outputs = ends
        types = [[self.tensors[name].dtype for name in names] for names in ends]
        own = {} if set(FLOATS).issuperset(types[0] + types[1]) else {TYPES_OF: types}
        reason = "" if len(computed) <= MOST_INPUTS else "more than nine computed inputs"
        try:
            op = layer(
                f"{self.graph.format}.{operator.type}" + (f".{len(computed)}" if len(computed) != 1 else ""),
                shape=self.shape(outputs[0]) or (),
                macs=operator.macs or 0,
                attributes=text_of({**attributes, **own}),
                operands=text_of(operands),
            )
            if not reason and self.add(op, computed, outputs[0]):
                return
        except (ProblemError, TypeError, ValueError):
            reason = reason or "an attribute is neither a number nor a text"
        self.leave_out(operator, outputs, reason or "its shapes are unknown")

    def leave_out(self, operator: Operator, outputs: Sequence[str], reason: str) -> None:
        """Record an operator that cannot be a layer; `outputs` are its results."""
        shapes = [self.shape(name) for name in outputs]
        elements = None if None in shapes else sum(math.prod(shape or ()) for shape in shapes)
        name, macs = operator.name, operator.macs or 0
        self.left_out.append(LeftOut(name=name, type=operator.type, elements=elements, reason=reason, macs=macs))


@dataclass(slots=True, kw_only=True)
class _Reader(NetReader):
    """Walks the operators of an ONNX file in their order."""

    proto: onnx.ModelProto
    opset: int
    done: set[int] = field(default_factory=set)
    values: dict[str, NDArray[Any]] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    maker: dict[str, int] = field(default_factory=dict)

    def read(self) -> None:
        """Add all operators of the file to the net."""
        self.tensors = {tensor.name: tensor for tensor in self.graph.tensors}
        self._constants()
        moving = {op.index for op in moving_operators(self.graph)}
        for index in sorted(moving):
            node = self.proto.graph.node[index]
            for name in node.input:
                self.readers.setdefault(name, []).append(index)
            self.maker.update(dict.fromkeys(node.output, index))
        for index in sorted(moving):
            if index in self.done:
                continue
            before, done = len(self.nodes), set(self.done)
            self._operator(self.graph.operators[index], self.proto.graph.node[index])
            if len(self.nodes) > before:
                members = (index, *(self.done - done))
                self.owner.update((self.graph.operators[k].name, len(self.nodes) - 1) for k in members)

    def _constants(self) -> None:
        from onnx import numpy_helper

        external = onnx_package().TensorProto.EXTERNAL
        for tensor in self.proto.graph.initializer:
            if math.prod(tensor.dims) <= MOST_VALUES and tensor.data_location != external:
                self.values[tensor.name] = numpy_helper.to_array(tensor)
        for node in self.proto.graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                tensor = node.attribute[0].t
                if math.prod(tensor.dims) <= MOST_VALUES:
                    self.values[node.output[0]] = numpy_helper.to_array(tensor)

    def moves(self, name: str) -> bool:
        """Return True if a tensor is one of the model's inputs, or is computed from them."""
        return name in self.maker or any(self.graph.tensors[index].name == name for index in self.graph.inputs)

    def _operator(self, operator: Operator, node: onnx.NodeProto) -> None:
        outputs = [name for name in node.output if name]
        computed = [name for name in node.input if name and self.moves(name)]
        if reason := self._why_not(operator, node, computed, outputs):
            self.leave_out(operator, outputs, reason)
            return
        if node.op_type in _VIEWS and self._view(computed[0], outputs[0]):
            return
        floats = all(self.tensors[name].dtype in FLOATS for name in (*computed, outputs[0]))
        embeds = node.op_type == "Gather" and computed == [node.input[1]] and self._embedding(node, outputs[0])
        own = floats and (self._joined(operator.index, node, computed) or self._own_kind(node, computed, outputs[0]))
        if own or embeds or (floats and node.op_type == "Split" and self._split(node, computed[0], outputs)):
            return
        self._generic(operator, node, computed, outputs)

    def _why_not(self, operator: Operator, node: onnx.NodeProto, computed: list[str], outputs: list[str]) -> str:
        if node.domain not in ("", "ai.onnx"):
            return f"of the domain {node.domain}"
        if any(attribute.type in (5, 10) for attribute in node.attribute):  # GRAPH and GRAPHS
            return "control flow"
        # Whole numbers that are not sums of products represent shapes, places and conditions.
        if self.tensors[outputs[0]].dtype not in (*FLOATS, *_QUANTISED) and not operator.macs:
            return "its result is not floating-point"
        if self.shape(outputs[0]) is None or any(self.shape(name) is None for name in computed):
            return "its shape depends on values"
        numeric = (*FLOATS, *_QUANTISED, _SUMS)
        if any(self.tensors[name].dtype not in numeric for name in computed) and node.op_type != "Gather":
            return "an input is not floating-point"
        return ""

    def _view(self, name: str, output: str) -> bool:
        if self.tensors[name].dtype not in (*FLOATS, *_QUANTISED):
            return False
        if self.shape(name) == self.shape(output):
            self.ref[output] = self.source(name)
            return True
        return self.add(layer("Reshape", shape=self.shape(output) or ()), [name], output)

    def _own_kind(self, node: onnx.NodeProto, computed: list[str], output: str) -> bool:
        """Add the operator if search spaces have its kind of layer. Return False if they do not."""
        kind = node.op_type
        if len(computed) == 1 and computed[0] != (node.input[0] if node.input else "") and kind not in _BY_CHANNEL:
            return False
        if kind in _PLAIN:
            return self.add(layer(kind), computed, output)
        if kind == "ReduceMean" and self._pooled(node, computed, output):
            return True
        if kind == "Sum" and len(computed) == 2:
            return self.add(layer("Add"), computed, output)
        if kind in ("Add", "Mul", "MatMul") and len(computed) == 2:
            first, other = (self.shape(name) for name in computed)
            turned = kind == "Mul" and first is not None and other is not None and math.prod(first) < math.prod(other)
            return self.add(layer(kind), computed[::-1] if turned else computed, output)
        if kind == "Concat" and len(computed) == 2 and len(node.input) == 2 and _attribute(node, "axis") == 1:
            return self.add(layer("Concat"), computed, output)
        if len(computed) != 1:
            return False
        if kind in _BY_CHANNEL:
            image = self.shape(computed[0]) or ()
            constant = self.shape(next(n for n in node.input if n != computed[0])) or ()
            # The constant has one number for each channel of an image.
            by_channel = len(image) == 4 and len(constant) in (3, 4) and (1, *constant)[-4:] == (1, image[1], 1, 1)
            return by_channel and self.add(layer(_BY_CHANNEL[kind]), computed, output)
        if kind == "BatchNormalization":
            return self.add(layer(kind), computed, output)
        if kind == "Clip" and self._limits(node) == (0.0, 6.0):
            return self.add(layer("Relu6"), computed, output)
        if kind == "HardSigmoid" and abs(_attribute(node, "alpha", 0.2) - 1 / 6) < 1e-3:
            return self.add(layer(kind), computed, output)
        if kind == "Transpose":
            axes = range(len(self.shape(computed[0]) or ()))
            return self.add(layer(kind, perm=tuple(_attribute(node, "perm", reversed(axes)))), computed, output)
        if kind in ("Softmax", "LayerNormalization"):
            rank = len(self.shape(output) or ())
            usual = 1 if kind == "Softmax" and self.opset < _SOFTMAX_BY_LAST else -1
            return _attribute(node, "axis", usual) in (-1, rank - 1) and self.add(layer(kind), computed, output)
        if kind == "Conv":
            return self._conv(node, computed, output)
        if kind in ("MaxPool", "AveragePool"):
            return self._windowed(node, _attribute(node, "kernel_shape", ()), {}, computed, output)
        if kind == "Gemm":
            plain = (
                not _attribute(node, "transA")
                and _attribute(node, "alpha", 1.0) == _attribute(node, "beta", 1.0) == 1.0
            )
            return plain and self._linear(computed, output, bias=len(node.input) > 2)
        return kind == "MatMul" and self._product(node, computed, output)

    def _pooled(self, node: onnx.NodeProto, computed: list[str], output: str) -> bool:
        """Add a mean over height and width as a pool, followed by a view if the mean drops these axes."""
        shape = self.shape(computed[0]) or ()
        if len(shape) != 4 or sorted(axis % 4 for axis in self._axes(node)) != [2, 3]:
            return False
        pooled = f"{output}.pooled"
        self.tensors[pooled] = replace(self.tensors[output], name=pooled, shape=(*shape[:2], 1, 1))
        if not self.add(layer("GlobalAveragePool"), computed, pooled):
            return False
        return self._view(pooled, output)

    def _conv(self, node: onnx.NodeProto, computed: list[str], output: str) -> bool:
        weights = self.shape(node.input[1])
        if weights is None or len(weights) != 4:
            return False
        more: dict[str, Value] = {
            "out_channels": weights[0],
            "group": int(_attribute(node, "group", 1)),
            "bias": len(node.input) > 2 and bool(node.input[2]),
            "dilation": tuple(_attribute(node, "dilations", (1, 1))),
        }
        return self._windowed(node, weights[2:], more, computed, output)

    def _windowed(
        self, node: onnx.NodeProto, kernel: Sequence[int], more: dict[str, Value], computed: list[str], output: str
    ) -> bool:
        """Add a sliding window. Uneven padding becomes even padding with the same output size, and therefore the same
        work.
        """
        pads = _attribute(node, "pads", (0, 0, 0, 0))
        auto = _attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID")
        if len(kernel) != 2 or len(pads) != 4:
            return False
        stride = tuple(_attribute(node, "strides", (1, 1)))
        totals = [(k - 1, k - 1) if auto else (a, b) for k, a, b in zip(kernel, pads[:2], pads[2:], strict=True)]
        tried = [tuple(rounded(sum(total) / 2) for total in totals) for rounded in (math.ceil, math.floor)]
        for pad in dict.fromkeys(tried):
            try:
                op = layer(node.op_type, kernel=tuple(kernel), stride=stride, pad=pad, **more)
            except ProblemError:
                return False
            if self.add(op, computed, output):
                return True
        return False

    def _linear(self, computed: list[str], output: str, *, bias: bool) -> bool:
        """Add a fully connected layer; if its input is a view of a tensor (N, C, 1, 1), the layer reads that tensor
        itself, as in search spaces.
        """
        shape = self.shape(output)
        if shape is None or not self.add(layer("Linear", out_features=shape[-1], bias=bias), computed, output):
            return False
        added = self.nodes[-1]
        before = self.nodes[added.inputs[0]] if added.inputs[0] >= 0 else None
        if before is not None and before.unit.kinds == ("Reshape",):
            came, reads = before.unit.inputs[0], added.unit.inputs[0]
            if came[2:] == (1, 1) and came[:2] == reads:
                self.nodes[-1] = Node(single(added.unit.layers[0], (came,)), before.inputs)
        return True

    def _product(self, node: onnx.NodeProto, computed: list[str], output: str) -> bool:
        """Add a product with a constant matrix, together with the addition of a bias after it."""
        if len(self.shape(node.input[1]) or ()) != 2 or len(self.shape(computed[0]) or ()) not in (2, 3):
            return False
        behind = self._only_reader(output, "Add")
        if behind is not None:
            other = next((n for n in self.proto.graph.node[behind].input if n != output), "")
            result = self.proto.graph.node[behind].output[0]
            vector = not self.moves(other) and len(self.shape(other) or ()) == 1
            if vector and self._linear(computed, result, bias=True):
                self.done.add(behind)
                return True
        return self._linear(computed, output, bias=False)

    def _embedding(self, node: onnx.NodeProto, output: str) -> bool:
        table = self.shape(node.input[0])
        if table is None or len(table) != 2 or _attribute(node, "axis", 0) != 0:
            return False
        return self.add(layer("Embedding", rows=table[0], width=table[1]), [node.input[1]], output)

    def _split(self, node: onnx.NodeProto, name: str, outputs: Sequence[str]) -> bool:
        """Add a slice for each part of a split."""
        whole = self.shape(name)
        if whole is None:
            return False
        axis, at = int(_attribute(node, "axis", 0)) % len(whole), 0
        for part in outputs:
            shape = self.shape(part)
            if shape is None:
                return False
            ends = [{"dtype": "int64", "shape": [1], "values": [n]} for n in (at, at + shape[axis], axis)]
            at += shape[axis]
            op = layer("onnx.Slice", shape=shape, operands=text_of([None, *ends]), attributes="{}")
            if not self.add(op, [name], part):
                return False
        return True

    def _limits(self, node: onnx.NodeProto) -> tuple[float, float] | None:
        if self.opset < _CLIP_BY_INPUTS:
            return _attribute(node, "min", -math.inf), _attribute(node, "max", math.inf)
        ends = [self.values.get(name) for name in node.input[1:3]]
        if len(ends) != 2 or any(end is None or getattr(end, "size", 0) != 1 for end in ends):
            return None
        low, high = (float(end.item()) for end in ends if end is not None)
        return low, high

    def _generic(self, operator: Operator, node: onnx.NodeProto, computed: list[str], outputs: list[str]) -> None:
        operands: list[Any] = []
        for name in node.input:
            if not name:
                operands.append({})
            elif self.moves(name):
                operands.append(None)
            else:
                operands.append(self._operand(name, operator))
        attributes = {**dict(_attributes(node)), **self._version(node.op_type)}
        self.add_as_it_is(operator, (computed, outputs), attributes, operands)

    def _version(self, kind: str) -> dict[str, int]:
        """The version of an operator, if its definition differs from the one in the operator set of units."""
        defs = onnx_package().defs
        own, usual = (
            defs.get_schema(kind, opset).since_version if defs.has(kind, opset) else None
            for opset in (self.opset, OPSET)
        )
        return {VERSION_OF: own} if own not in (None, usual) else {}

    def _operand(self, name: str, operator: Operator) -> dict[str, object]:
        tensor, value = self.tensors.get(name), self.values.get(name)
        if value is not None and value.dtype.name in deciding(operator):
            return {"dtype": value.dtype.name, "shape": list(value.shape), "values": value.ravel().tolist()}
        if tensor is None or not is_known(tensor):
            raise ProblemError(f"the shape of {name} is unknown", hint="Give a model in which this shape is known.")
        return {"dtype": tensor.dtype, "shape": list(tensor.shape or ())}

    # The methods below find groups of operators that exporters write for one layer.

    def _only_reader(self, name: str, *kinds: str) -> int | None:
        """The only operator that reads a tensor, if it has one of these types and the tensor is not a result."""
        indices = self.readers.get(name, [])
        if len(set(indices)) != 1 or any(value.name == name for value in self.proto.graph.output):
            return None
        return indices[0] if self.proto.graph.node[indices[0]].op_type in kinds else None

    def _constant_beside(self, index: int, name: str) -> bool:
        """Return True if the other input of an operator with two inputs is a constant."""
        others = [n for n in self.proto.graph.node[index].input if n != name]
        return len(others) == 1 and not self.moves(others[0])

    def _joined(self, index: int, node: onnx.NodeProto, computed: list[str]) -> bool:
        """Add the group of operators that begins with this operator, if runtimes join it into one layer. Return False
        if there is no such group.
        """
        if not computed:
            return False
        x = computed[0]
        gated = "HardSwish" if node.op_type == "HardSigmoid" else "Swish"
        for kind, follow in ((gated, self._gated), ("Gelu", self._gelu), ("LayerNormalization", self._layer_norm)):
            members = follow(index, node, x)
            if members and self.add(layer(kind), [x], self._output(members[-1])):
                self.done.update(members)
                return True
        return False

    def _output(self, index: int) -> str:
        return str(self.proto.graph.node[index].output[0])

    def _gated(self, index: int, node: onnx.NodeProto, x: str) -> list[int]:
        """The operators of a sigmoid that is multiplied by its own input."""
        if node.op_type not in ("Sigmoid", "HardSigmoid"):
            return []
        behind = self._only_reader(node.output[0], "Mul")
        if behind is None or sorted(self.proto.graph.node[behind].input) != sorted((x, node.output[0])):
            return []
        return [index, behind]

    def _gelu(self, index: int, node: onnx.NodeProto, x: str) -> list[int]:
        """The operators of a GELU, x / 2 * (1 + erf(x / sqrt(2))), in any order in which exporters write them."""
        if node.op_type not in ("Div", "Mul") or not self._constant_beside(index, x):
            return []
        members = [index]
        erf = self._only_reader(node.output[0], "Erf")
        add = None if erf is None else self._only_reader(self._output(erf), "Add")
        if erf is None or add is None or not self._constant_beside(add, self._output(erf)):
            return []
        members += [erf, add]
        times = self._only_reader(self._output(add), "Mul")
        if times is None:
            return []
        other = next((n for n in self.proto.graph.node[times].input if n != self._output(add)), "")
        halved = self.maker.get(other)
        if other == x:
            members.append(times)
            last = self._only_reader(self._output(times), "Mul")
            if last is None or not self._constant_beside(last, self._output(times)):
                return []
            return [*members, last]
        if halved is not None and x in self.proto.graph.node[halved].input and self._constant_beside(halved, x):
            return [*members, halved, times]
        return []

    def _layer_norm(self, index: int, node: onnx.NodeProto, x: str) -> list[int]:
        """The operators of a layer normalisation, from the mean to the scale and the bias."""
        if node.op_type != "ReduceMean" or not self._along_last(node, x):
            return []
        sub = self._only_reader(node.output[0], "Sub")
        if sub is None or self.proto.graph.node[sub].input[0] != x:
            return []
        difference = self._output(sub)
        squares = [k for k in self.readers.get(difference, []) if self.proto.graph.node[k].op_type in ("Pow", "Mul")]
        members = [index, sub]
        for square in squares:
            mean = self._only_reader(self._output(square), "ReduceMean")
            chain = [square, mean] if mean is not None else []
            for kind in ("Add", "Sqrt", "Div"):
                behind = self._only_reader(self._output(chain[-1]), kind) if chain else None
                chain = [*chain, behind] if behind is not None else []
            if chain and self.proto.graph.node[chain[-1] or 0].input[0] == difference:
                members += [k for k in chain if k is not None]
                break
        else:
            return []
        for kind in ("Mul", "Add"):
            behind = self._only_reader(self._output(members[-1]), kind)
            if behind is None or not self._constant_beside(behind, self._output(members[-1])):
                break
            members.append(behind)
        return members

    def _along_last(self, node: onnx.NodeProto, x: str) -> bool:
        rank = len(self.shape(x) or (1,))
        return [axis % rank for axis in self._axes(node)] == [rank - 1]

    def _axes(self, node: onnx.NodeProto) -> list[int]:
        """The axes of a reduction, from its attribute or its second input; none if they are missing or computed."""
        axes = _attribute(node, "axes")
        if axes is None and len(node.input) > 1 and node.input[1] in self.values:
            axes = self.values[node.input[1]].ravel().tolist()
        return [int(axis) for axis in axes or ()]


def deciding(operator: Operator) -> tuple[str, ...]:
    """The types of constants that decide what an operator does, unlike weights, biases and zero points."""
    whole = () if operator.macs else ("int64", "int32", "bool")
    return (*whole, *FLOATS) if operator.type in _BY_NUMBER else whole


def _attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    return dict(_attributes(node)).get(name, default)


def _attributes(node: onnx.NodeProto) -> Iterator[tuple[str, Any]]:
    """The attributes of an operator that are numbers, texts or lists of these."""
    helper = onnx_package().helper
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [part.decode("utf-8", "replace") for part in value]
        elif isinstance(value, float):
            value = float(f"{value:.6g}")  # the number as the exporter wrote it, before rounding to 32 bits
        yield attribute.name, value


def text_of(values: Any) -> str:
    """The attributes or constants of a layer as JSON; equal values give equal texts."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
