"""Layers: the operators of search spaces, with their attributes and output shapes.

The vocabulary covers convolutional networks and transformers; layers that are ONNX operators have their ONNX names.
Images are NCHW, sequences (N, L, C). Any other ONNX operator is a kind too: "onnx.Slice", or "onnx.Where.3" with three
computed inputs (see `GENERIC`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gnomon.errors import ProblemError

Shape = tuple[int, ...]
Value = int | bool | str | tuple[int, ...]
Default = Value | None
"""The default of an attribute; None means that the attribute is required."""

_PAIRS = frozenset({"kernel", "stride", "pad", "dilation"})
_LISTS = {"shape": 1, "perm": 0, "arguments": 1}
"""Attributes that are lists of whole numbers, and the smallest number that each list may contain."""

_TEXTS = frozenset({"attributes", "operands", "block", "digest"})
_COUNTS = frozenset({"macs", "params"})
_MOST_TEXT = 1 << 16
MOST_LONG, MOST_ELEMENTS = 1 << 31, 1 << 63
"""The largest size of a dimension and the largest number of elements or multiply-adds that runtimes can still count."""
_MODULE: dict[str, Default] = {
    "block": None,
    "digest": None,
    "arguments": None,
    "shape": None,
    "macs": 0,
    "params": 0,
}
_POOL: dict[str, Default] = {"kernel": None, "stride": (1, 1), "pad": (0, 0)}
_CONV: dict[str, Default] = {
    "out_channels": None,
    "kernel": None,
    "stride": (1, 1),
    "pad": (0, 0),
    "dilation": (1, 1),
    "group": 1,
    "bias": False,
}

GENERIC = re.compile(r"(?P<format>onnx|tflite)\.(?P<name>[A-Za-z][A-Za-z0-9_]*)(\.(?P<arity>[0-9]))?")
"""The kinds for operators in a model's own format: the format, the operator's name, and the number of its computed
inputs unless it is 1.

`shape` is the output shape, and `macs` are the multiply-adds. `attributes` and `operands` are JSON, as
`gnomon.models.net` writes them. The operands are the inputs in order: null for the next computed input, otherwise a
constant.
"""


TYPES_OF = "@types"
"""The key, in `attributes`, for the types of the computed inputs and of the results, unless all are floats."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator: its kind and all of its attributes, sorted by name, with defaults filled in.

    Use `layer` to make one: it checks the attributes.
    """

    kind: str
    attributes: tuple[tuple[str, Value], ...] = ()

    def __getitem__(self, name: str) -> Value:
        for own, value in self.attributes:
            if own == name:
                return value
        raise ProblemError(
            f"the layer {self.kind} has no attribute {name!r}",
            hint=f"Its attributes: {', '.join(n for n, _ in self.attributes) or 'none'}.",
        )

    @property
    def of_whole_numbers(self) -> bool:
        """Whether the layer is an operator in a model's own format that reads or makes values other than floats."""
        return GENERIC.fullmatch(self.kind) is not None and f'"{TYPES_OF}":' in str(self["attributes"])

    def integer(self, name: str) -> int:
        """An attribute that is a single number."""
        value = self[name]
        return value if isinstance(value, int) else int(value[0])

    def pair(self, name: str) -> tuple[int, int]:
        """An attribute along height and width."""
        value = self[name]
        return (value[0], value[1]) if isinstance(value, tuple) else (int(value), int(value))

    def numbers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a list of numbers."""
        value = self[name]
        return value if isinstance(value, tuple) else (int(value),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of layer: attributes with their defaults, the number of inputs, and the rule for its output shape."""

    attributes: dict[str, Default] = field(default_factory=dict)
    arity: int = 1
    shape: Callable[[Layer, Sequence[Shape]], Shape]


def layer(kind: str, **attributes: Value) -> Layer:
    """A layer with its defaults filled in; a number for `kernel`, `stride`, `pad` or `dilation` stands for both axes.

    ProblemError for an unknown kind or attribute, a missing attribute, or an invalid value.
    """
    defaults = kind_of(kind).attributes
    for name in attributes:
        if name not in defaults:
            raise ProblemError(
                f"the layer {kind} has no attribute {name!r}", hint=f"Its attributes: {', '.join(defaults) or 'none'}."
            )
    full: dict[str, Value] = {}
    for name, default in defaults.items():
        value = attributes.get(name, default)
        if value is None:
            raise ProblemError(f"the layer {kind} needs the attribute {name!r}", hint="Give the attribute a value.")
        full[name] = _checked(kind, name, value)
    return Layer(kind, tuple(sorted(full.items())))


def kind_of(kind: str) -> Kind:
    """The kind with this name. ProblemError for an unknown name."""
    if kind not in KINDS:
        if (match := GENERIC.fullmatch(kind)) is not None:
            return _generic(int(match["arity"] or 1))
        raise ProblemError(f"there is no kind of layer {kind!r}", hint=f"Known kinds: {', '.join(KINDS)}.")
    return KINDS[kind]


def output_shape(op: Layer, inputs: Sequence[Shape]) -> Shape:
    """The shape that a layer makes from inputs of these shapes. ProblemError if they do not fit."""
    kind = kind_of(op.kind)
    if len(inputs) != kind.arity:
        raise ProblemError(
            f"inputs of the layer {op.kind}: {kind.arity} expected, {len(inputs)} found", hint="Correct their number."
        )
    return kind.shape(op, inputs)


def _checked(kind: str, name: str, value: object) -> Value:
    """An attribute's value in its canonical type."""
    if name in _TEXTS:
        if isinstance(value, str) and len(value) <= _MOST_TEXT:
            return value
        raise ProblemError(f"{name} of the layer {kind} is not a text", hint=f"Give at most {_MOST_TEXT} characters.")
    if name in _LISTS:
        if isinstance(value, tuple | list) and all(type(v) is int and _LISTS[name] <= v <= MOST_LONG for v in value):
            return tuple(value)
    elif name in _COUNTS or (name == "past" and kind == "Attention"):
        if type(value) is int and 0 <= value <= MOST_ELEMENTS:
            return value
    elif name == "bias":
        if isinstance(value, bool):
            return value
    elif name in _PAIRS:
        pair = value if isinstance(value, tuple | list) else (value, value)
        least = 0 if name == "pad" else 1
        if len(pair) == 2 and all(type(v) is int and least <= v <= MOST_LONG for v in pair):
            return (pair[0], pair[1])
    elif type(value) is int and 1 <= value <= MOST_LONG:
        return value
    raise ProblemError(
        f"{value!r} is not a valid value of the attribute {name!r} of the layer {kind}",
        hint="Use true or false." if name == "bias" else "Use a positive whole number, or two for height and width.",
    )


def _image(op: Layer, shape: Shape) -> Shape:
    if len(shape) != 4:
        raise ProblemError(f"the layer {op.kind} needs an input (N, C, H, W), not {shape}", hint="Correct its input.")
    return shape


def _window(op: Layer, shape: Shape, dilation: tuple[int, int]) -> Shape:
    """Height and width after a sliding window."""
    sizes = []
    kernel, stride, pad = op.pair("kernel"), op.pair("stride"), op.pair("pad")
    for size, k, s, p, d in zip(shape[2:], kernel, stride, pad, dilation, strict=True):
        out = (size + 2 * p - d * (k - 1) - 1) // s + 1
        if out < 1:
            raise ProblemError(
                f"the kernel of the layer {op.kind} is larger than its input {shape}",
                hint="Pad the input, or use a smaller kernel.",
            )
        sizes.append(out)
    return tuple(sizes)


def _conv(op: Layer, inputs: Sequence[Shape]) -> Shape:
    shape = _image(op, inputs[0])
    group, out = op.integer("group"), op.integer("out_channels")
    if shape[1] % group or out % group:
        raise ProblemError(
            f"a Conv cannot turn {shape[1]} channels into {out} in {group} groups",
            hint="Give numbers of channels that are multiples of the number of groups.",
        )
    return (shape[0], out, *_window(op, shape, op.pair("dilation")))


def _pool(op: Layer, inputs: Sequence[Shape]) -> Shape:
    shape = _image(op, inputs[0])
    return (*shape[:2], *_window(op, shape, (1, 1)))


def _image_same(op: Layer, inputs: Sequence[Shape]) -> Shape:
    return _image(op, inputs[0])


def _shuffle(op: Layer, inputs: Sequence[Shape]) -> Shape:
    if _image(op, inputs[0])[1] % op.integer("groups"):
        raise ProblemError(
            f"a ChannelShuffle cannot shuffle {inputs[0][1]} channels in {op.integer('groups')} groups",
            hint="Give a number of channels that is a multiple of the number of groups.",
        )
    return inputs[0]


def _linear(op: Layer, inputs: Sequence[Shape]) -> Shape:
    shape = inputs[0]
    if len(shape) not in (2, 3) and shape[2:] != (1, 1):
        raise ProblemError(
            f"a Linear needs an input of shape (N, C), (N, C, 1, 1) or (N, L, C), not {shape}",
            hint="Put a GlobalAveragePool before it.",
        )
    return (*(shape[:2] if len(shape) == 3 else shape[:1]), op.integer("out_features"))


def features_of(shape: Shape) -> int:
    """The number of features that a Linear reads, at each place, from an input of this shape."""
    return shape[2] if len(shape) == 3 else shape[1]


def _product(op: Layer, inputs: Sequence[Shape]) -> Shape:
    first, second = inputs
    if min(len(first), len(second)) < 2 or first[-1] != second[-2] or first[:-2] != second[:-2]:
        raise ProblemError(
            f"a MatMul cannot multiply matrices of the shapes {first} and {second}",
            hint="Give shapes such as (.., M, K) and (.., K, N), with equal dimensions before the last two.",
        )
    return (*first[:-1], second[-1])


def _attention(op: Layer, inputs: Sequence[Shape]) -> Shape:
    query, key, value = inputs
    fits = len(query) == len(key) == 3 and key == value and query[0] == key[0] and query[2] == key[2]
    if not fits or query[2] % op.integer("heads"):
        raise ProblemError(
            f"queries {query}, keys {key} and values {value} do not fit an attention with heads={op['heads']}",
            hint="Give three shapes (N, L, C), equal for keys and values, with C a multiple of the number of heads.",
        )
    return query


def _reshaped(op: Layer, inputs: Sequence[Shape]) -> Shape:
    shape = op.numbers("shape")
    if math.prod(shape) != math.prod(inputs[0]):
        raise ProblemError(f"a Reshape cannot turn {inputs[0]} into {shape}", hint="Keep the number of elements.")
    return shape


def _transposed(op: Layer, inputs: Sequence[Shape]) -> Shape:
    perm, shape = op.numbers("perm"), inputs[0]
    if sorted(perm) != list(range(len(shape))):
        raise ProblemError(f"{perm} is not an order of the axes of the shape {shape}", hint="Name each axis once.")
    return tuple(shape[axis] for axis in perm)


def _equal(op: Layer, inputs: Sequence[Shape]) -> Shape:
    if inputs[0] != inputs[1]:
        raise ProblemError(
            f"an Add cannot add inputs of the shapes {inputs[0]} and {inputs[1]}", hint="Make the shapes equal."
        )
    return inputs[0]


def _scaled(op: Layer, inputs: Sequence[Shape]) -> Shape:
    first, second = inputs
    if len(first) != len(second) or any(b not in {a, 1} for a, b in zip(first, second, strict=True)):
        raise ProblemError(
            f"a Mul cannot multiply inputs of the shapes {first} and {second}",
            hint="Make the shapes equal, or give the second one the size 1 along the axes that differ.",
        )
    return first


def _concatenated(op: Layer, inputs: Sequence[Shape]) -> Shape:
    first, second = (_image(op, shape) for shape in inputs)
    if (first[0], *first[2:]) != (second[0], *second[2:]):
        raise ProblemError(
            f"a Concat cannot join inputs of the shapes {first} and {second}",
            hint="Make batch, height and width equal.",
        )
    return (first[0], first[1] + second[1], *first[2:])


@lru_cache(maxsize=16)
def _generic(arity: int) -> Kind:
    attributes: dict[str, Default] = {"shape": None, "macs": 0, "attributes": "{}", "operands": "[null]"}
    return Kind(attributes=attributes, arity=arity, shape=lambda op, _: op.numbers("shape"))


ELEMENTWISE = ("Relu", "Relu6", "HardSwish", "HardSigmoid", "Sigmoid", "Tanh", "Swish", "Gelu", "Identity", "Zeros")
KINDS: dict[str, Kind] = {
    "Conv": Kind(attributes=_CONV, shape=_conv),
    **dict.fromkeys((*ELEMENTWISE, "Softmax", "LayerNormalization"), Kind(shape=lambda op, inputs: inputs[0])),
    "BatchNormalization": Kind(shape=_image_same),
    "Add": Kind(arity=2, shape=_equal),
    "Mul": Kind(arity=2, shape=_scaled),
    "Concat": Kind(arity=2, shape=_concatenated),
    "AveragePool": Kind(attributes=_POOL, shape=_pool),
    "MaxPool": Kind(attributes=_POOL, shape=_pool),
    "GlobalAveragePool": Kind(shape=lambda op, inputs: (*_image(op, inputs[0])[:2], 1, 1)),
    "ChannelShuffle": Kind(attributes={"groups": None}, shape=_shuffle),
    "Linear": Kind(attributes={"out_features": None, "bias": True}, shape=_linear),
    "MatMul": Kind(arity=2, shape=_product),
    "Attention": Kind(attributes={"heads": None, "past": 0}, arity=3, shape=_attention),
    "CachedAttention": Kind(
        attributes={"heads": None, "past": None}, shape=lambda op, inputs: _attention(op, [inputs[0]] * 3)
    ),
    "Embedding": Kind(
        attributes={"rows": None, "width": None}, shape=lambda op, inputs: (*inputs[0], op.integer("width"))
    ),
    "Scale": Kind(shape=_image_same),
    "Bias": Kind(shape=_image_same),
    "Reshape": Kind(attributes={"shape": None}, shape=_reshaped),
    "Transpose": Kind(attributes={"perm": None}, shape=_transposed),
    "Module": Kind(attributes=_MODULE, shape=lambda op, inputs: (inputs[0][0], *op.numbers("shape"))),
}
"""All kinds by name. `Relu6` is ONNX's Clip from 0 to 6; `Zeros` multiplies by 0; `Concat` joins channels; `Mul` scales
its first input by the second, which may have the size 1 along any axis; an `AveragePool` leaves padding out of the
mean; `Swish` is x times its sigmoid; `Softmax` and `LayerNormalization` work along the last axis; an `Attention` takes
queries, keys and values (N, L, C), where `past` further keys and values from a cache come first, and a
`CachedAttention` takes queries only; an `Embedding` looks up rows of a table by numbers (N, L); `Scale` and `Bias`
multiply and shift each channel by a constant; a `Module` is a PyTorch block, which is identified by its name and digest
and is made for the channels of its input and the `arguments`. All that is known of a module is its output shape for one
image, its multiply-adds and its number of parameters.
"""
