"""Units: what is measured once and counted in every net, an operator or a chain of operators that run as one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gnomon.errors import ProblemError
from gnomon.spaces.layers import Layer, Shape, kind_of, layer, output_shape

_DTYPES = ("float32", "float16")
_LAYOUTS = ("NCHW",)
_FIELDS = frozenset({"layers", "inputs", "dtype", "layout"})
_ID_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A chain of layers with the shapes of its inputs, batch included.

    The first layer takes as many inputs as it needs from the front of `inputs`; each later layer takes what the one
    before made and, where it has two inputs, the next of `inputs`. Two units are equal where all fields are.
    ProblemError where shapes do not fit or inputs are left over.
    """

    layers: tuple[Layer, ...]
    inputs: tuple[Shape, ...]
    dtype: str = "float32"
    layout: str = "NCHW"

    def __post_init__(self) -> None:
        _known("data type", self.dtype, _DTYPES)
        _known("layout", self.layout, _LAYOUTS)
        if not self.layers:
            raise ProblemError("a unit needs a layer", hint="For the empty graph use the layer Identity.")
        if len(self.inputs) != sum(kind_of(one.kind).arity for one in self.layers) - len(self.layers) + 1:
            raise ProblemError(
                f"{len(self.inputs)} inputs do not fit the chain {self.chain}", hint="Give the shape of each input."
            )
        if any(type(n) is not int or n < 1 for shape in self.inputs for n in shape):
            raise ProblemError(f"{self.inputs} are not shapes", hint="Every dimension is a positive whole number.")
        shapes(self)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the layers in their order."""
        return tuple(one.kind for one in self.layers)

    @property
    def chain(self) -> str:
        """The kinds joined: "Conv+BatchNormalization+Relu6". Columns of an estimator are grouped by it."""
        return "+".join(self.kinds)

    @property
    def output(self) -> Shape:
        """The shape that the unit makes."""
        return shapes(self)[-1]

    @property
    def id(self) -> str:
        """The first twelve hexadecimal digits of the SHA-256 of the canonical JSON."""
        return _id(self)

    @property
    def label(self) -> str:
        """A short readable name; not always unique, as the id is: "Conv 3x3 s2 dw 96+Relu6 @ 1x96x16x16"."""
        return "+".join(_layer_label(one) for one in self.layers) + " @ " + _shape_label(self.inputs[0])

    def document(self) -> dict[str, Any]:
        """The unit as JSON values; `unit_of` reads it."""
        layers = [
            {"kind": one.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in one.attributes}}
            for one in self.layers
        ]
        return {
            "dtype": self.dtype,
            "inputs": [list(shape) for shape in self.inputs],
            "layers": layers,
            "layout": self.layout,
        }

    def canonical(self) -> str:
        """The document as JSON with sorted keys and no blanks: equal for equal units, whoever wrote it."""
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=1 << 16)
def single(one: Layer, inputs: tuple[Shape, ...], dtype: str = "float32") -> Unit:
    """The unit of one layer."""
    return Unit(layers=(one,), inputs=inputs, dtype=dtype)


@lru_cache(maxsize=1 << 16)
def shapes(unit: Unit) -> tuple[Shape, ...]:
    """The shape that each layer of a unit makes, in their order. ProblemError where shapes do not fit."""
    made: list[Shape] = []
    waiting = list(unit.inputs)
    for one in unit.layers:
        own = kind_of(one.kind).arity - bool(made)
        made.append(output_shape(one, [*made[-1:], *waiting[:own]]))
        del waiting[:own]
    return tuple(made)


def empty(shape: Shape, dtype: str = "float32") -> Unit:
    """The empty graph: it hands an input of this shape on. What it takes is the overhead of a call."""
    return single(layer("Identity"), (shape,), dtype)


def unit_of(document: object) -> Unit:
    """The unit that `Unit.document` wrote. ProblemError, with what is wrong, for anything else."""
    if not isinstance(document, Mapping) or set(document) != _FIELDS:
        raise ProblemError("this is not a unit", hint=f"A unit has exactly the fields {', '.join(sorted(_FIELDS))}.")
    layers, inputs = document["layers"], document["inputs"]
    if not isinstance(layers, list) or not all(isinstance(one, Mapping) and "kind" in one for one in layers):
        raise ProblemError("the layers of a unit are a list of objects with a kind", hint="Correct the document.")
    if not isinstance(inputs, list) or not all(isinstance(shape, list) for shape in inputs):
        raise ProblemError("the inputs of a unit are a list of shapes", hint="Correct the document.")
    made = []
    for one in layers:
        attributes = {k: tuple(v) if isinstance(v, list) else v for k, v in one.items() if k != "kind"}
        made.append(layer(str(one["kind"]), **attributes))
    return Unit(
        layers=tuple(made),
        inputs=tuple(tuple(shape) for shape in inputs),
        dtype=str(document["dtype"]),
        layout=str(document["layout"]),
    )


@lru_cache(maxsize=1 << 16)
def _id(unit: Unit) -> str:
    return hashlib.sha256(unit.canonical().encode()).hexdigest()[:_ID_DIGITS]


def _known(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ProblemError(f"there is no {what} {name!r} of units", hint=f"Known: {', '.join(known)}.")


def _layer_label(one: Layer) -> str:
    values = dict(one.attributes)
    words = [one.kind]
    if "kernel" in values:
        words.append("x".join(map(str, one.pair("kernel"))))
    if values.get("stride", (1, 1)) != (1, 1):
        words.append("s" + "x".join(map(str, dict.fromkeys(one.pair("stride")))))
    if values.get("dilation", (1, 1)) != (1, 1):
        words.append("d" + "x".join(map(str, dict.fromkeys(one.pair("dilation")))))
    group = values.get("group", 1)
    if group != 1:
        words.append("dw" if group == values["out_channels"] else f"g{group}")
    words += [str(values[name]) for name in ("out_channels", "out_features", "groups") if name in values]
    return " ".join(words)


def _shape_label(shape: Shape) -> str:
    return "x".join(map(str, shape))
