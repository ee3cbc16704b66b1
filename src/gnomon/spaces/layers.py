"""Layers: the operators that search spaces are made of, their attributes, and the shapes they make.

The vocabulary is that of convolutional networks, named after the ONNX operators where there is one. Shapes are NCHW.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gnomon.errors import ProblemError

Shape = tuple[int, ...]
Value = int | bool | tuple[int, int]
Default = Value | None
"""The default of an attribute; None: it must be given."""

_PAIRS = frozenset({"kernel", "stride", "pad", "dilation"})
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


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator: its kind and all of its attributes, sorted by name, defaults filled in.

    Make one with `layer`, which checks it.
    """

    kind: str
    attributes: tuple[tuple[str, Value], ...] = ()

    def __getitem__(self, name: str) -> Value:
        for known, value in self.attributes:
            if known == name:
                return value
        raise ProblemError(
            f"a {self.kind} has no attribute {name!r}",
            hint=f"Its attributes: {', '.join(n for n, _ in self.attributes) or 'none'}.",
        )

    def integer(self, name: str) -> int:
        """An attribute that is one number."""
        value = self[name]
        return value if isinstance(value, int) else value[0]

    def pair(self, name: str) -> tuple[int, int]:
        """An attribute along height and width."""
        value = self[name]
        return value if isinstance(value, tuple) else (value, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is known of a kind of layer: attributes with their defaults, its number of inputs, the shape it makes."""

    attributes: dict[str, Default] = field(default_factory=dict)
    arity: int = 1
    shape: Callable[[Layer, Sequence[Shape]], Shape]


def layer(kind: str, **attributes: Value) -> Layer:
    """A layer with its defaults filled in; a number for `kernel`, `stride`, `pad` or `dilation` stands for both axes.

    ProblemError for an unknown kind or attribute, one that is missing, or an invalid value.
    """
    known = kind_of(kind).attributes
    for name in attributes:
        if name not in known:
            raise ProblemError(
                f"a {kind} has no attribute {name!r}", hint=f"Its attributes: {', '.join(known) or 'none'}."
            )
    full: dict[str, Value] = {}
    for name, default in known.items():
        value = attributes.get(name, default)
        if value is None:
            raise ProblemError(f"a {kind} needs the attribute {name!r}", hint="Give it a value.")
        full[name] = _checked(kind, name, value)
    return Layer(kind, tuple(sorted(full.items())))


def kind_of(kind: str) -> Kind:
    """What is known of a kind. ProblemError for an unknown one."""
    if kind not in KINDS:
        raise ProblemError(f"there is no kind of layer {kind!r}", hint=f"Known kinds: {', '.join(KINDS)}.")
    return KINDS[kind]


def output_shape(one: Layer, inputs: Sequence[Shape]) -> Shape:
    """The shape that a layer makes of inputs of these shapes. ProblemError where they do not fit."""
    kind = kind_of(one.kind)
    if len(inputs) != kind.arity:
        raise ProblemError(f"a {one.kind} takes {kind.arity} inputs, not {len(inputs)}", hint="Correct the inputs.")
    return kind.shape(one, inputs)


def _checked(kind: str, name: str, value: object) -> Value:
    """An attribute's value in its canonical type."""
    if name == "bias":
        if isinstance(value, bool):
            return value
    elif name in _PAIRS:
        pair = value if isinstance(value, tuple | list) else (value, value)
        least = 0 if name == "pad" else 1
        if len(pair) == 2 and all(type(v) is int and v >= least for v in pair):
            return (pair[0], pair[1])
    elif type(value) is int and value >= 1:
        return value
    raise ProblemError(
        f"{value!r} cannot be the {name} of a {kind}",
        hint="Use true or false." if name == "bias" else "Use a positive whole number, or two for height and width.",
    )


def _image(one: Layer, shape: Shape) -> Shape:
    if len(shape) != 4:
        raise ProblemError(
            f"a {one.kind} needs an input of four dimensions (N, C, H, W), not {shape}", hint="Correct the order."
        )
    return shape


def _window(one: Layer, shape: Shape, dilation: tuple[int, int]) -> Shape:
    """Height and width behind a sliding window."""
    made = []
    kernel, stride, pad = one.pair("kernel"), one.pair("stride"), one.pair("pad")
    for size, k, s, p, d in zip(shape[2:], kernel, stride, pad, dilation, strict=True):
        out = (size + 2 * p - d * (k - 1) - 1) // s + 1
        if out < 1:
            raise ProblemError(
                f"the kernel of a {one.kind} is larger than its input {shape}", hint="Pad it, or use a smaller kernel."
            )
        made.append(out)
    return tuple(made)


def _conv(one: Layer, inputs: Sequence[Shape]) -> Shape:
    shape = _image(one, inputs[0])
    group, out = one.integer("group"), one.integer("out_channels")
    if shape[1] % group or out % group:
        raise ProblemError(
            f"{shape[1]} channels to {out} cannot be convolved in {group} groups",
            hint="Both numbers of channels must be multiples of the number of groups.",
        )
    return (shape[0], out, *_window(one, shape, one.pair("dilation")))


def _pool(one: Layer, inputs: Sequence[Shape]) -> Shape:
    shape = _image(one, inputs[0])
    return (*shape[:2], *_window(one, shape, (1, 1)))


def _same(_: Layer, inputs: Sequence[Shape]) -> Shape:
    return inputs[0]


def _image_same(one: Layer, inputs: Sequence[Shape]) -> Shape:
    return _image(one, inputs[0])


def _shuffle(one: Layer, inputs: Sequence[Shape]) -> Shape:
    if _image(one, inputs[0])[1] % one.integer("groups"):
        raise ProblemError(
            f"{inputs[0][1]} channels cannot be shuffled in {one.integer('groups')} groups",
            hint="The number of channels must be a multiple of the number of groups.",
        )
    return inputs[0]


def _global_pool(one: Layer, inputs: Sequence[Shape]) -> Shape:
    shape = _image(one, inputs[0])
    return (*shape[:2], 1, 1)


def _linear(one: Layer, inputs: Sequence[Shape]) -> Shape:
    shape = inputs[0]
    if len(shape) != 2 and shape[2:] != (1, 1):
        raise ProblemError(
            f"a Linear needs an input of shape (N, C) or (N, C, 1, 1), not {shape}",
            hint="Put a GlobalAveragePool before it.",
        )
    return (shape[0], one.integer("out_features"))


def _equal(one: Layer, inputs: Sequence[Shape]) -> Shape:
    if inputs[0] != inputs[1]:
        raise ProblemError(
            f"inputs of the shapes {inputs[0]} and {inputs[1]} cannot be added", hint="Make the shapes equal."
        )
    return inputs[0]


def _scaled(one: Layer, inputs: Sequence[Shape]) -> Shape:
    first, second = inputs
    if len(first) != len(second) or any(b not in {a, 1} for a, b in zip(first, second, strict=True)):
        raise ProblemError(
            f"inputs of the shapes {first} and {second} cannot be multiplied",
            hint="Make them equal, or the second one 1 where they differ.",
        )
    return first


def _concatenated(one: Layer, inputs: Sequence[Shape]) -> Shape:
    first, second = (_image(one, shape) for shape in inputs)
    if (first[0], *first[2:]) != (second[0], *second[2:]):
        raise ProblemError(
            f"inputs of the shapes {first} and {second} cannot be concatenated",
            hint="Make batch, height and width equal.",
        )
    return (first[0], first[1] + second[1], *first[2:])


KINDS: dict[str, Kind] = {
    "Conv": Kind(attributes=_CONV, shape=_conv),
    "BatchNormalization": Kind(shape=_image_same),
    "Relu": Kind(shape=_same),
    "Relu6": Kind(shape=_same),
    "HardSwish": Kind(shape=_same),
    "HardSigmoid": Kind(shape=_same),
    "Sigmoid": Kind(shape=_same),
    "Tanh": Kind(shape=_same),
    "Identity": Kind(shape=_same),
    "Zeros": Kind(shape=_same),
    "Add": Kind(arity=2, shape=_equal),
    "Mul": Kind(arity=2, shape=_scaled),
    "Concat": Kind(arity=2, shape=_concatenated),
    "AveragePool": Kind(attributes=_POOL, shape=_pool),
    "MaxPool": Kind(attributes=_POOL, shape=_pool),
    "GlobalAveragePool": Kind(shape=_global_pool),
    "ChannelShuffle": Kind(attributes={"groups": None}, shape=_shuffle),
    "Linear": Kind(attributes={"out_features": None, "bias": True}, shape=_linear),
}
"""All kinds by name. `Relu6` is ONNX's Clip from 0 to 6; `Zeros` multiplies by 0; `Concat` joins channels; `Mul` scales
its first input by the second, which may be 1 along any axis; an `AveragePool` leaves padding out of the mean."""
