"""Units and whole nets of search spaces as ONNX models, with made-up weights.

Weights are drawn so that activations keep their size at any depth. Vanishing activations would become denormal numbers,
which slow some processors down, and exploding ones would become infinite. The weights of convolutions and linear layers
have the variance 1 / fan-in, and each batch normalisation has the variance of its input (He et al., 2015; Ioffe and
Szegedy, 2015).

Each kind of layer has a function that writes it as ONNX operators with weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.strict_json import shown
from gnomon.errors import GnomonError, ModelError, UsageError
from gnomon.models.onnx.cut import save
from gnomon.models.onnx.file import onnx_package
from gnomon.spaces.layers import GENERIC, TYPES_OF, Layer, Shape, features_of, kind_of
from gnomon.spaces.unit import VIEWS, Net, Unit, layer_name, net_of, shapes

if TYPE_CHECKING:
    import onnx

_BIAS = 0.1  # standard deviation of biases and of batch normalisations' means, relative to activations of about 1

_LEAST = 1e-2  # the least variance of a batch normalisation, whose input may be all zeros
_POOLED = 0.7  # the share of a value's size that remains after pooling, because neighbours are partly alike

# The mean square after an activation, for normally distributed values of mean square 1.
_POWER = {"Relu": 0.5, "Relu6": 0.5, "HardSwish": 0.4, "HardSigmoid": 0.28, "Sigmoid": 0.29, "Tanh": 0.4}
_POWER |= {"Swish": 0.36, "Gelu": 0.43, "Softmax": 1e-3}


@dataclass(slots=True, kw_only=True)
class Writer:
    """Collects operators and weights, and tracks the approximate size of each value.

    `parts` holds, for each value, the independent values of which it is the sum, and the amount of each. Adding a value
    to itself makes its mean square four times as large; adding an independent value of the same size only doubles it.
    """

    onnx: Any
    dtype: np.dtype[Any]
    seed: int
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    given: dict[str, NDArray[Any]] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def node(self, kind: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add an operator, and return the name of its output, which is also the operator's name."""
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def read(self, name: str, type_: str) -> str:
        """The name of a value converted to a type; "" and floating-point types mean the model's own type.

        An input of the model gets the type of its first reader.
        """
        wanted = self.type_of(type_)
        if self.types.setdefault(name, wanted) == wanted:
            return name
        cast = f"{name}.{wanted}"
        if cast not in self.types:
            self.node("Cast", cast, [name], to=self.element(wanted))
            self.types[cast], self.parts[cast] = wanted, self.parts[name]
        return cast

    def type_of(self, type_: str) -> str:
        """The type of values in the model: its own data type for floats and for "", otherwise the type itself."""
        return type_ if type_ and "float" not in type_ else self.dtype.name

    def element(self, type_: str) -> int:
        """ONNX's number for a type."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(type_)))

    def power(self, name: str) -> float:
        """The approximate mean square of a value."""
        return sum(much * much for much in self.parts[name].values())

    def weight(self, name: str, array: NDArray[Any]) -> str:
        """Add a constant: the weights that were given under this name, otherwise `array`. Floats get the model's data
        type.

        ModelError if the given weights have a shape other than the layer's, or contain a number that is not finite.
        """
        if name in self.given:
            given, shape = self.given.pop(name), array.shape
            if given.shape != shape or given.dtype.kind != "f" or not np.isfinite(given).all():
                raise ModelError(
                    f"weights {name}: finite floating-point numbers of shape {list(shape)} expected, {given.dtype} "
                    f"numbers of shape {list(given.shape)} found",
                    hint="Give the weights of this net.",
                )
            array = given
        if array.dtype.kind == "f":
            array = array.astype(self.dtype)
        self.weights.append(self.onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A layer to write: the name of its operator, its number in the net, and its inputs by name and shape."""

    layer: Layer
    name: str
    number: int
    inputs: tuple[str, ...]
    shapes: tuple[Shape, ...]
    output: Shape


def write_layer(writer: Writer, job: Job) -> str:
    """Add a layer to the model and return the name of its output."""
    kind = job.layer.kind
    if not GENERIC.fullmatch(kind):
        view = kind in VIEWS and writer.types.get(job.inputs[0], "")
        job = replace(job, inputs=tuple(writer.read(name, view or "") for name in job.inputs))
    if kind in _PLAIN:
        output = writer.node(kind, job.name, job.inputs, **_PLAIN[kind])
    elif kind in _WRITERS:
        output = _WRITERS[kind](writer, job)
    elif GENERIC.fullmatch(kind):
        output = _generic(writer, job)
    else:
        raise ModelError(
            f"the layer {kind} cannot be written as ONNX", hint=f"Use one of: {', '.join(sorted((*_PLAIN, *_WRITERS)))}"
        )
    writer.parts[output] = _parts(writer, job)
    writer.types.setdefault(output, writer.types[job.inputs[0]] if kind in VIEWS else writer.dtype.name)
    return output


def _parts(writer: Writer, job: Job) -> dict[str, float]:
    """The independent values of which a layer's output is the sum: a new value, unless the layer only adds or passes
    values on.
    """
    parts = [writer.parts[name] for name in job.inputs]
    kind = job.layer.kind
    if kind == "Zeros":
        return {}
    if kind in {"Identity", "Reshape", "Transpose"}:
        return parts[0]
    if kind == "Add":
        return {source: sum(part.get(source, 0.0) for part in parts) for source in {**parts[0], **parts[1]}}
    if kind == "AveragePool":
        return {source: much * _POOLED for source, much in parts[0].items()}
    return {job.name: math.sqrt(_power(kind, [writer.power(name) for name in job.inputs]))}


def _power(kind: str, powers: Sequence[float]) -> float:
    """The approximate mean square of a layer's output, from those of its inputs."""
    if kind in {"BatchNormalization", "LayerNormalization", "Embedding"} or GENERIC.fullmatch(kind):
        return 1.0
    if kind in {"Attention", "CachedAttention"}:
        return powers[-1] * 0.1  # the output is the mean of many values
    if kind in {"HardSigmoid", "Sigmoid", "Tanh"}:
        return _POWER[kind]
    if kind in {"Mul", "MatMul"}:
        return math.prod(powers)
    if kind == "GlobalAveragePool":
        # Only the mean of the values that passed an activation remains.
        return powers[0] * 0.3 + 1e-3
    if kind == "Concat":
        return max(powers)
    return powers[0] * _POWER.get(kind, 1.0)


def _random(writer: Writer, job: Job) -> np.random.Generator:
    """Random numbers for a layer, which do not depend on the numbers drawn for earlier layers."""
    return np.random.default_rng([writer.seed, job.number])


def _conv(writer: Writer, job: Job) -> str:
    layer, rng = job.layer, _random(writer, job)
    group, out = layer.integer("group"), layer.integer("out_channels")
    kernel = layer.pair("kernel")
    fan_in = job.shapes[0][1] // group * math.prod(kernel)
    shape = (out, job.shapes[0][1] // group, *kernel)
    inputs = [job.inputs[0], writer.weight(f"{job.name}.w", rng.standard_normal(shape) / math.sqrt(fan_in))]
    if layer["bias"]:
        inputs.append(writer.weight(f"{job.name}.b", rng.standard_normal(out) * _BIAS))
    pads = layer.pair("pad")
    return writer.node(
        "Conv",
        job.name,
        inputs,
        kernel_shape=list(kernel),
        strides=list(layer.pair("stride")),
        pads=[*pads, *pads],
        dilations=list(layer.pair("dilation")),
        group=group,
    )


def _linear(writer: Writer, job: Job) -> str:
    rng, (inputs, outputs) = _random(writer, job), (features_of(job.shapes[0]), job.output[-1])
    value = job.inputs[0]
    weights = [writer.weight(f"{job.name}.w", rng.standard_normal((inputs, outputs)) / math.sqrt(inputs))]
    if job.layer["bias"]:
        weights.append(writer.weight(f"{job.name}.b", rng.standard_normal(outputs) * _BIAS))
    if len(job.shapes[0]) == 3:
        if not job.layer["bias"]:
            return writer.node("MatMul", job.name, [value, *weights])
        value = writer.node("MatMul", f"{job.name}.product", [value, weights[0]])
        return writer.node("Add", job.name, [value, weights[1]])
    if len(job.shapes[0]) > 2:
        value = writer.node("Flatten", f"{job.name}.flatten", [value], axis=1)
    return writer.node("Gemm", job.name, [value, *weights])


def _batch_norm(writer: Writer, job: Job) -> str:
    rng, channels = _random(writer, job), job.shapes[0][1]
    power = max(writer.power(job.inputs[0]), _LEAST)
    parts = {
        "scale": rng.uniform(0.8, 1.2, channels),
        "bias": rng.standard_normal(channels) * _BIAS,
        "mean": rng.standard_normal(channels) * _BIAS * math.sqrt(power),
        "var": rng.uniform(0.8, 1.2, channels) * power,
    }
    weights = [writer.weight(f"{job.name}.{part}", array) for part, array in parts.items()]
    return writer.node("BatchNormalization", job.name, [job.inputs[0], *weights], epsilon=1e-5)


def _relu6(writer: Writer, job: Job) -> str:
    low = writer.weight(f"{job.name}.min", np.array(0.0))
    return writer.node("Clip", job.name, [job.inputs[0], low, writer.weight(f"{job.name}.max", np.array(6.0))])


def _zeros(writer: Writer, job: Job) -> str:
    return writer.node("Mul", job.name, [job.inputs[0], writer.weight(f"{job.name}.zero", np.array(0.0))])


def _pool(writer: Writer, job: Job) -> str:
    layer = job.layer
    pads = layer.pair("pad")
    sizes: dict[str, object] = {
        "kernel_shape": list(layer.pair("kernel")),
        "strides": list(layer.pair("stride")),
        "pads": [*pads, *pads],
    }
    if layer.kind == "AveragePool":
        sizes["count_include_pad"] = 0
    return writer.node(layer.kind, job.name, job.inputs, **sizes)


def _shuffle(writer: Writer, job: Job) -> str:
    batch, channels, *size = job.shapes[0]
    groups = job.layer.integer("groups")
    split = np.array([batch, groups, channels // groups, *size], np.int64)
    value = writer.node("Reshape", f"{job.name}.split", [job.inputs[0], writer.weight(f"{job.name}.groups", split)])
    value = writer.node("Transpose", f"{job.name}.swap", [value], perm=[0, 2, 1, 3, 4])
    whole = writer.weight(f"{job.name}.whole", np.array(job.shapes[0], np.int64))
    return writer.node("Reshape", job.name, [value, whole])


def _swish(writer: Writer, job: Job) -> str:
    return writer.node("Mul", job.name, [job.inputs[0], writer.node("Sigmoid", f"{job.name}.sigmoid", job.inputs)])


def _gelu(writer: Writer, job: Job) -> str:
    """A GELU as several operators, as exporters write it; runtimes join them."""
    value = job.inputs[0]
    root = writer.weight(f"{job.name}.root", np.array(math.sqrt(2)))
    gated = writer.node("Div", f"{job.name}.div", [value, root])
    gated = writer.node("Erf", f"{job.name}.erf", [gated])
    gated = writer.node("Add", f"{job.name}.add", [gated, writer.weight(f"{job.name}.one", np.array(1.0))])
    gated = writer.node("Mul", f"{job.name}.mul", [value, gated])
    return writer.node("Mul", job.name, [gated, writer.weight(f"{job.name}.half", np.array(0.5))])


def _layer_norm(writer: Writer, job: Job) -> str:
    rng, width = _random(writer, job), job.shapes[0][-1]
    scale = writer.weight(f"{job.name}.scale", rng.uniform(0.8, 1.2, width))
    bias = writer.weight(f"{job.name}.bias", rng.standard_normal(width) * _BIAS)
    return writer.node("LayerNormalization", job.name, [job.inputs[0], scale, bias], axis=-1, epsilon=1e-5)


def _attention(writer: Writer, job: Job) -> str:
    """Attention as several operators, as exporters write it; keys and values of a cache are constants."""
    heads, past, rng = job.layer.integer("heads"), job.layer.integer("past"), _random(writer, job)
    batch, _, channels = job.shapes[0]
    width = channels // heads
    perms = {"query": (0, 2, 1, 3), "key": (0, 2, 3, 1), "value": (0, 2, 1, 3)}
    axes = {"key": 3, "value": 2}
    split: dict[str, str] = {}
    for (part, perm), value, shape in zip(perms.items(), job.inputs, job.shapes, strict=False):
        to = writer.weight(f"{job.name}.{part}.heads", np.array([*shape[:2], heads, width], np.int64))
        moved = writer.node("Reshape", f"{job.name}.{part}.split", [value, to])
        split[part] = writer.node("Transpose", f"{job.name}.{part}", [moved], perm=perm)
    if past:
        for part, axis in axes.items():
            size = (batch, heads, width, past) if part == "key" else (batch, heads, past, width)
            cache = writer.weight(f"{job.name}.{part}.cache", rng.standard_normal(size))
            own = [split[part]] if part in split else []
            split[part] = writer.node("Concat", f"{job.name}.{part}.all", [cache, *own], axis=axis) if own else cache
    scores = writer.node("MatMul", f"{job.name}.scores", [split["query"], split["key"]])
    scale = writer.weight(f"{job.name}.root", np.array(math.sqrt(width)))
    scores = writer.node("Div", f"{job.name}.scaled", [scores, scale])
    shares = writer.node("Softmax", f"{job.name}.shares", [scores], axis=-1)
    moved = writer.node("MatMul", f"{job.name}.sums", [shares, split["value"]])
    moved = writer.node("Transpose", f"{job.name}.swap", [moved], perm=(0, 2, 1, 3))
    whole = writer.weight(f"{job.name}.whole", np.array(job.output, np.int64))
    return writer.node("Reshape", job.name, [moved, whole])


def _embedding(writer: Writer, job: Job) -> str:
    """A look-up of rows; all values of a net have the same type, so row numbers arrive in that type, too."""
    rows, width = job.layer.integer("rows"), job.layer.integer("width")
    table = writer.weight(f"{job.name}.table", _random(writer, job).standard_normal((rows, width)))
    ones = writer.node("Clip", f"{job.name}.clip", [job.inputs[0], writer.weight(f"{job.name}.first", np.array(0.0))])
    whole = writer.node("Cast", f"{job.name}.rows", [ones], to=writer.onnx.TensorProto.INT64)
    last = writer.weight(f"{job.name}.last", np.array(rows - 1, np.int64))
    whole = writer.node("Min", f"{job.name}.within", [whole, last])
    return writer.node("Gather", job.name, [table, whole])


def _by_channel(writer: Writer, job: Job) -> str:
    values = _random(writer, job).uniform(0.8, 1.2, (1, job.shapes[0][1], 1, 1))
    kind = {"Scale": "Mul", "Bias": "Add"}[job.layer.kind]
    return writer.node(kind, job.name, [job.inputs[0], writer.weight(f"{job.name}.by", values)])


def _reshape(writer: Writer, job: Job) -> str:
    shape = writer.weight(f"{job.name}.shape", np.array(job.output, np.int64))
    return writer.node("Reshape", job.name, [job.inputs[0], shape])


def _transpose(writer: Writer, job: Job) -> str:
    return writer.node("Transpose", job.name, job.inputs, perm=list(job.layer.numbers("perm")))


def _generic(writer: Writer, job: Job) -> str:
    """An operator in a model's own format. Its constants are made up, except for the few that decide what it does."""
    match = GENERIC.fullmatch(job.layer.kind)
    assert match is not None  # noqa: S101  # the caller has checked this
    try:
        operands = json.loads(str(job.layer["operands"]))
        attributes = json.loads(str(job.layer["attributes"]))
        attributes.pop(VERSION_OF, None)
        computed, outputs = attributes.pop(TYPES_OF, ([], []))
        typed = zip(job.inputs, computed or [""] * len(job.inputs), strict=True)
        waiting, rng = [writer.read(name, type_) for name, type_ in typed], _random(writer, job)
        inputs: list[str] = []
        for place, operand in enumerate(operands):
            if operand is None:
                inputs.append(waiting.pop(0))
            elif operand == {}:
                inputs.append("")  # an absent input
            else:
                values, shape = operand.get("values"), tuple(operand["shape"])
                if values is None and computed:
                    array = _quantised(rng, shape, np.dtype(operand["dtype"]))
                elif values is None:
                    array = rng.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))
                else:
                    array = np.array(values, operand["dtype"]).reshape(shape)
                inputs.append(writer.weight(f"{job.name}.{place}", array))
        writer.types[job.name] = writer.type_of(outputs[0] if outputs else "")
        writer.node(match["name"], job.name, inputs, **attributes)
        # No layer reads the further results, but some operators are not valid without them.
        writer.nodes[-1].output.extend(f"{job.name}.{number}" for number in range(1, len(outputs)))
        return job.name
    except GnomonError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, MemoryError) as error:
        raise ModelError(
            f"the {match['name']} of a unit cannot be written: {type(error).__name__}: {error}",
            hint="Use units that gnomon read from a model: gnomon table build --from MODEL",
        ) from error


def _quantised(rng: np.random.Generator, shape: Shape, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Constants of a quantised operator: scales, weights, and zero points, which have at most one axis."""
    if dtype.kind == "f":
        return rng.uniform(0.01, 0.1, shape)
    if len(shape) < 2:
        return np.zeros(shape, dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


_PLAIN: dict[str, dict[str, object]] = {
    **{
        k: {} for k in ("Relu", "HardSwish", "Sigmoid", "Tanh", "Identity", "Add", "Mul", "MatMul", "GlobalAveragePool")
    },
    "HardSigmoid": {"alpha": 1 / 6, "beta": 0.5},
    "Concat": {"axis": 1},
    "Softmax": {"axis": -1},
}
"""For each layer that is an operator without weights: the operator's attributes."""

_WRITERS: dict[str, Callable[[Writer, Job], str]] = {
    "Conv": _conv,
    "Linear": _linear,
    "BatchNormalization": _batch_norm,
    "Relu6": _relu6,
    "Zeros": _zeros,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "ChannelShuffle": _shuffle,
    "Swish": _swish,
    "Gelu": _gelu,
    "LayerNormalization": _layer_norm,
    "Attention": _attention,
    "CachedAttention": _attention,
    "Embedding": _embedding,
    "Scale": _by_channel,
    "Bias": _by_channel,
    "Reshape": _reshape,
    "Transpose": _transpose,
}


OPSET = 17
"""The operator set of the models that are written. ONNX Runtime, OpenVINO and pnnx can read it."""

VERSION_OF = "@version"
"""The key, among the attributes of an operator in a model's own format, for a version that differs from `OPSET`."""

IR_VERSION = 8


def write_unit(unit: Unit, dest: Path, *, seed: int = 0) -> Path:
    """Write a unit as an ONNX model and return its path; see `write_net`."""
    return write_net(net_of(unit), dest, seed=seed)


def write_net(net: Net, dest: Path, *, seed: int = 0, weights: Mapping[str, NDArray[Any]] | None = None) -> Path:
    """Write a net as an ONNX model and return its path.

    Inputs are named "x0", "x1", .., and the output "y". Operators are named by `gnomon.spaces.unit.layer_name`, with a
    further part if a layer consists of several operators. The file depends on the arguments alone. `weights` holds
    arrays, each under its operator's name and its own part ("n3.0.Conv.w"); missing weights are made up from the seed.
    UsageError if the folder does not exist, ModelError for anything that ONNX cannot express and for weights that do
    not fit.
    """
    model = net_model(net, seed=seed, weights=weights)
    if not dest.parent.is_dir():
        raise UsageError(f"there is no folder {dest.parent}", hint="Create the folder first.")
    save(model, dest)
    return dest


def net_model(net: Net, *, seed: int = 0, weights: Mapping[str, NDArray[Any]] | None = None) -> onnx.ModelProto:
    """The model that `write_net` writes."""
    onnx = onnx_package()
    dtypes = {node.unit.dtype for node in net.nodes} or {"float32"}
    if len(dtypes) > 1:
        raise ModelError("the units of the net have several data types", hint="Use one data type.")
    dtype = dtypes.pop()
    writer = Writer(onnx=onnx, dtype=np.dtype(dtype), seed=seed, given=dict(weights or {}))
    names = [f"x{k}" for k in range(len(net.inputs))]
    value_of = {-1 - k: name for k, name in enumerate(names)}
    writer.parts.update({name: {name: 1.0} for name in names})
    for index, node in enumerate(net.nodes):
        value_of[index] = _write_chain(writer, index, node.unit, [value_of[ref] for ref in node.inputs])
    value = value_of[net.output]
    type_ = writer.types.get(value, dtype)
    if not any(value in node.output for node in writer.nodes):  # a net without operators returns its input
        writer.node("Identity", "y", [value])
        value = "y"
    for node in writer.nodes:
        for edge in (node.input, node.output):
            edge[:] = ["y" if name == value else name for name in edge]
    if writer.given:
        raise ModelError(
            f"no layer of the net has the weights {', '.join(sorted(writer.given))}", hint="Leave them out."
        )
    graph = onnx.helper.make_graph(
        writer.nodes,
        "net",
        [
            onnx.helper.make_tensor_value_info(name, writer.element(writer.types.get(name, dtype)), list(shape))
            for name, shape in zip(names, net.inputs, strict=True)
        ],
        [onnx.helper.make_tensor_value_info("y", writer.element(type_), list(net.shape(net.output)))],
        writer.weights,
    )
    opsets = [onnx.helper.make_opsetid("", _opset_of(net))]
    return onnx.helper.make_model(  # type: ignore[no-any-return]
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="gnomon"
    )


def _opset_of(net: Net) -> int:
    """The newest version that any operator in a model's own format names, or `OPSET` if none does. ModelError for a
    version that ONNX does not have.
    """
    versions: list[Any] = []
    for layer in (layer for node in net.nodes for layer in node.unit.layers if GENERIC.fullmatch(layer.kind)):
        with suppress(ValueError, TypeError, KeyError):  # it names no version, or is refused when it is written
            versions.append(json.loads(str(layer["attributes"]))[VERSION_OF])
    newest = onnx_package().defs.onnx_opset_version()
    if strange := [version for version in versions if type(version) is not int or not 1 <= version <= newest]:
        raise ModelError(
            f"a unit has the operator set {shown(strange[0])}, which the installed onnx lacks",
            hint="Use units that gnomon read from a model: gnomon table build --from MODEL",
        )
    return max(versions, default=OPSET)


def _write_chain(writer: Writer, index: int, unit: Unit, inputs: list[str]) -> str:
    """Write the layers of a node and return the name of the last output."""
    value, shape = "", unit.inputs[0]
    waiting = list(zip(inputs, unit.inputs, strict=True))
    for position, (layer, output) in enumerate(zip(unit.layers, shapes(unit), strict=True)):
        own = kind_of(layer.kind).arity - bool(position)
        reads = [(value, shape)] * bool(position) + waiting[:own]
        del waiting[:own]
        job = Job(
            layer=layer,
            name=layer_name(index, position, layer.kind),
            number=len(writer.nodes),
            inputs=tuple(name for name, _ in reads),
            shapes=tuple(shape for _, shape in reads),
            output=output,
        )
        value, shape = write_layer(writer, job), output
    return value
